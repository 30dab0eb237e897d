"""Replacing a finished store by one of changed data.

The finished store is renamed to ``store.previous``, the new one is written to ``store`` and takes over states, and
``store.previous`` is deleted when the new one is finished. So at every moment one of the two is finished, and the same
command continues. The manifest of a store that was moved aside says so: no other folder of that name is touched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.core.files import write_json
from bertvision.store.fingerprint import differences, same_but_data
from bertvision.store.lock import writing
from bertvision.store.prune import delete
from bertvision.store.remote import REMOTE_FILE
from bertvision.store.store import MANIFEST
from bertvision.store.stored_windows import StoredWindows

REPLACED = "replaced"
"""Key in the manifest of a store that is being replaced."""


def previous_folder(folder: Path) -> Path:
    """Where a store is kept while it is replaced: on the same disk, even if ``folder`` is a link."""
    target = folder.resolve()
    return target.with_name(f"{target.name}.previous")


def find_replaced(folder: Path, fingerprint: dict[str, Any]) -> Path | None:
    """The finished store that differs from this fingerprint in its data only: in the folder, or moved aside."""
    manifest = _finished(folder)
    if manifest is not None:
        stored = manifest["fingerprint"]
        return folder if stored != fingerprint and same_but_data(stored, fingerprint) else None
    aside = previous_folder(folder)
    manifest = _finished(aside, replaced=True)
    if manifest is None:
        return None
    changes = differences({**manifest["fingerprint"], "data": None}, {**fingerprint, "data": None})
    if changes:
        raise BadInput(
            f"store {folder} is being replaced, and {aside} was made from other inputs: {'; '.join(changes)}; "
            f"repeat the command that was interrupted, or delete {aside}"
        )
    return aside


@contextmanager
def replacing(folder: Path, earlier: StoredWindows | None) -> Iterator[None]:
    """Keep the earlier store aside and locked for the block, and delete it after the block; not after an error."""
    if earlier is None:
        yield
        return
    aside = previous_folder(folder)
    with writing(earlier.folder):
        if earlier.folder != aside:
            _move_aside(folder, aside, earlier.manifest)
            earlier.folder = aside
        folder.resolve().mkdir(exist_ok=True)  # the target of a link, which cannot be made through the link
        yield
        delete(aside)


def _move_aside(folder: Path, aside: Path, manifest: dict[str, Any]) -> None:
    delete_replaced(folder, manifest["fingerprint"])  # one whose deletion was interrupted
    if _finished(folder) != manifest:
        raise BadInput(f"store {folder} is being replaced by another process; wait for it, then repeat the command")
    write_json(folder / MANIFEST, {**manifest, REPLACED: True})
    try:
        os.rename(folder.resolve(), aside)
    except OSError as error:
        raise BadInput(
            f"store {folder} cannot be moved to {aside} while it is replaced: {error.strerror or error}; "
            "remove what is in the way, or choose another folder with --to"
        ) from error


def delete_replaced(folder: Path, fingerprint: dict[str, Any]) -> None:
    """Delete the store that a finished one with this fingerprint has replaced, if that was interrupted."""
    aside = previous_folder(folder)
    manifest = _finished(aside, replaced=True)
    if manifest is not None and same_but_data(manifest["fingerprint"], fingerprint):
        with suppress(BadInput), writing(aside):  # another process may be deleting it
            delete(aside)


def delete_outdated(folder: Path, fingerprint: dict[str, Any]) -> bool:
    """Delete a store that was made from other inputs, unless a store with this fingerprint can take over its states.

    An unfinished store of other data is deleted too. Returns whether anything was deleted.
    """
    aside, outdated = previous_folder(folder), []
    manifest = _finished(folder)
    if manifest is not None and not same_but_data(manifest["fingerprint"], fingerprint):
        outdated.append(folder)
    if manifest is None and _read(folder / "started.json") not in (None, fingerprint):
        outdated.append(folder)
    moved = _finished(aside, replaced=True)
    if moved is not None and not same_but_data(moved["fingerprint"], fingerprint):
        outdated.append(aside)
    for path in outdated:
        with writing(path):
            delete(path)
    return bool(outdated)


def _finished(folder: Path, replaced: bool = False) -> dict[str, Any] | None:
    """The manifest of a finished local store with states, or None."""
    manifest = _read(folder / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("fingerprint"), dict):
        return None
    if manifest.get("live") or (folder / REMOTE_FILE).exists() or (replaced and not manifest.get(REPLACED)):
        return None
    return manifest


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
