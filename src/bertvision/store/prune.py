"""Find stores below a folder, select unused ones, and delete them file by file."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.core.files import folder_bytes
from bertvision.store.lock import is_locked

STORE_FILES = (
    "*/shard-*.safetensors",
    "*/shard-*.json",
    "*/*.part",
    "*/.tmp*",
    "task/*.json*",
    "*.json",
    "*.safetensors",
    "*.part",
    "lock*",
)
"""Files that extraction writes; other files in the folder are never deleted."""

DAY = 86_400


@dataclass(frozen=True)
class FoundStore:
    """A store on disk."""

    folder: Path
    bytes: int
    days: float  # since it was written
    finished: bool
    used: bool  # by a run with heads

    @property
    def orphaned(self) -> bool:
        """Unfinished, or not used by any run."""
        return not (self.finished and self.used)


def find_stores(folders: Sequence[Path], link_name: str) -> list[FoundStore]:
    """All stores below the folders, newest first; a run may name its store in a file called ``link_name``."""
    for folder in folders:
        if not folder.is_dir():
            raise BadInput(f"folder {folder} does not exist; check the path")
    links = [_read(path) for folder in folders for path in folder.rglob(link_name)]
    used = {Path(link["store"]).resolve() for link in links if isinstance(link, dict) and "store" in link}
    finished_by_folder: dict[Path, bool] = {}  # the manifest is written last, so it decides
    for name in ("started.json", "manifest.json"):
        for folder in folders:
            for path in folder.rglob(name):
                if _is_store_file(path, name):
                    finished_by_folder[path.parent.resolve()] = name == "manifest.json"
    stores = []
    for folder, is_finished in finished_by_folder.items():
        written_at = (folder / ("manifest.json" if is_finished else "started.json")).stat().st_mtime
        in_run = folder.name == "store" and (folder.parent / "heads").is_dir()
        days = (time.time() - written_at) / DAY
        stores.append(FoundStore(folder, folder_bytes(folder), days, is_finished, in_run or folder in used))
    return sorted(stores, key=lambda store: (store.days, str(store.folder)))


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _is_store_file(path: Path, name: str) -> bool:
    """Whether a file is a manifest or fingerprint of a store with states (a live run has none)."""
    content = _read(path)
    if path.is_symlink() or not isinstance(content, dict) or content.get("live"):
        return False
    fingerprint = content.get("fingerprint", content) if name == "manifest.json" else content
    return {"encoder", "data", "plan"} <= set(fingerprint)


def choose(
    stores: Sequence[FoundStore], older: float | None = None, max_gb: float | None = None, orphaned: bool = False
) -> list[FoundStore]:
    """The stores that are older, orphaned, or (oldest first) above the size limit; never one that is being written."""
    chosen = [s for s in stores if (older is not None and s.days > older) or (orphaned and s.orphaned)]
    left = [store for store in stores if store not in chosen]  # newest first
    while max_gb is not None and left and sum(store.bytes for store in left) > max_gb * 1e9:
        chosen.append(left.pop())
    return [store for store in stores if store in chosen and not is_locked(store.folder)]


def delete(folder: Path) -> None:
    """Delete a store's files, the manifest last, and its folders if they are empty then."""
    manifest = folder / "manifest.json"
    for pattern in STORE_FILES:
        for path in folder.glob(pattern):
            if path != manifest and (path.is_file() or path.is_symlink()):
                path.unlink()
    for child in folder.iterdir():
        if child.is_dir():
            with suppress(OSError):  # not empty
                child.rmdir()
    manifest.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
