"""A store: shards per split, and a manifest that is written last and so proves them complete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.core.files import file_sha256, write_json
from bertvision.store.fingerprint import FORMAT
from bertvision.store.remote import SOURCE, Remote, cache_folder, fetch_shard, is_url
from bertvision.store.shard_file import Shard, read_shard
from bertvision.store.states import ShardedSplit, States

MANIFEST = "manifest.json"


class Store(States):
    """States on disk, opened for reading."""

    def __init__(self, place: str | Path) -> None:
        self.folder, self.remote = _opened(place)
        super().__init__(read_manifest(self.folder))
        if self.manifest.get("live"):
            raise BadInput(
                f"{self.folder} holds no states: its run was live; run: bertvision extract TASK ... --to STORE"
            )

    def __getitem__(self, split: str) -> StoredSplit:
        if split not in self.manifest["splits"]:
            raise BadInput(f"store {self.folder} has no split {split!r}; it has {', '.join(self.manifest['splits'])}")
        return StoredSplit(self, split)

    def shard_path(self, entry: dict[str, Any]) -> Path:
        """Where a shard can be read; one that lies elsewhere is fetched first."""
        return fetch_shard(self.remote, self.folder, entry) if self.remote else self.folder / entry["file"]


def _opened(place: str | Path) -> tuple[Path, Remote | None]:
    """The folder of a store, and where it really is if that is elsewhere."""
    if not is_url(place):
        source = Path(place) / SOURCE
        if not source.exists():
            return Path(place), None
        place = str(json.loads(source.read_text(encoding="utf-8"))["url"])
    remote, folder = Remote(str(place)), cache_folder(str(place))
    manifest = remote.document(MANIFEST)
    if manifest is None:
        raise BadInput(f"no finished store at {place} (no {MANIFEST}); run: bertvision extract TASK ... --to {place}")
    if manifest != _cached(folder):
        for old in folder.glob("*/shard-*.safetensors"):
            old.unlink()
        for name in ("task.json", *(f"{split}.jsonl" for split in manifest.get("splits", {}))):
            remote.get(f"task/{name}", folder / "task" / name)
        write_json(folder / SOURCE, {"url": remote.url})
        write_json(folder / MANIFEST, manifest)
    return folder, remote


def _cached(folder: Path) -> Any:
    path = folder / MANIFEST
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


class StoredSplit(ShardedSplit):
    """One split of a store."""

    def __init__(self, store: Store, name: str) -> None:
        entries = store.manifest["splits"][name]["shards"]
        super().__init__(store, name, [int(entry["windows"]) for entry in entries])
        self._entries, self._path = entries, store.shard_path

    def shard(self, number: int) -> Shard:
        return read_shard(self._path(self._entries[number]))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished store; without one the store is not finished, or not a store."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadInput(
            f"no finished store at {folder} (no {MANIFEST}); run: bertvision extract TASK ... --to {folder}"
        ) from error
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}; delete the store and extract again") from error
    check_format(manifest, str(path))
    return dict(manifest)


def check_format(manifest: Any, path: str) -> None:
    """Refuse what is no manifest, or one of a format that this version does not read."""
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if found != FORMAT:
        what = "no manifest of a store" if found is None else f"of format {found}"
        raise BadInput(f"{path} is {what}, expected format {FORMAT}; extract again, into another folder")


@dataclass(frozen=True)
class Damage:
    """A file of a store that is not what it was."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file} ({self.reason})"


def recorded(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every file whose checksum a manifest holds."""
    for split in manifest["splits"].values():
        yield from split["shards"]
    if "statistics" in manifest:
        yield manifest["statistics"]


def find_damage(store: Store) -> list[Damage]:
    """All damaged files, found by reading everything once."""
    found = ((entry["file"], _reason(store, entry)) for entry in recorded(store.manifest))
    return [Damage(name, reason) for name, reason in found if reason]


def _reason(store: Store, entry: dict[str, Any]) -> str:
    name = entry["file"]
    if store.remote:
        if not store.remote.has(name):
            return "missing"
        return "" if store.remote.sha256(name) == entry["sha256"] else "changed"
    path = store.folder / name
    if not path.exists():
        return "missing"
    size = path.stat().st_size
    if size != entry.get("bytes", size):
        return f"{size:,} of {entry['bytes']:,} bytes"
    return "" if file_sha256(path) == entry["sha256"] else "changed"
