"""Stores: shards per split, and a manifest that is written last and so marks the store as complete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.core.files import file_sha256, write_json
from bertvision.store.fingerprint import FORMAT
from bertvision.store.remote import REMOTE_FILE, Remote, cache_folder, fetch_shard, is_url
from bertvision.store.shard_file import Shard, read_shard
from bertvision.store.states import ShardedSplit, States

MANIFEST = "manifest.json"


class Store(States):
    """Hidden states on disk, opened for reading.

    Args:
        location: Folder or URL of a finished store.

    Example:
        >>> store = Store("states")  # doctest: +SKIP
        >>> store["train"]  # doctest: +SKIP
        StoredSplit('train', windows=2940, layers=13, width=384)
        >>> batch = next(store["train"].batches(32))  # doctest: +SKIP
    """

    def __init__(self, location: str | Path) -> None:
        self.folder, self.remote = _open(location)
        super().__init__(read_manifest(self.folder))
        if self.manifest.get("live"):
            raise BadInput(
                f"{self.folder} holds no states (its run was live); run: bertvision extract TASK ... --to STORE"
            )

    def __repr__(self) -> str:
        location = self.remote.url if self.remote else str(self.folder)
        layers, dtype = len(self.layers), self.manifest["dtype"]
        return f"Store({location!r}, layers={layers}, dtype={dtype}, tokens={self.tokens}, id={self.id})"

    def _split(self, name: str) -> StoredSplit:
        if name not in self.manifest["splits"]:
            raise BadInput(f"store {self.folder} has no split {name!r}; it has {', '.join(self.manifest['splits'])}")
        return StoredSplit(self, name)

    def shard_path(self, record: dict[str, Any]) -> Path:
        """The local path of a shard; remote shards are downloaded first."""
        return fetch_shard(self.remote, self.folder, record) if self.remote else self.folder / record["file"]


def _open(location: str | Path) -> tuple[Path, Remote | None]:
    """The local folder of a store and its URL, if it has one; task and manifest of a remote store are cached."""
    if not is_url(location):
        source = Path(location) / REMOTE_FILE
        if not source.exists():
            return Path(location), None
        location = str(json.loads(source.read_text(encoding="utf-8"))["url"])
    url = str(location)
    remote, folder = Remote(url), cache_folder(url)
    manifest = remote.document(MANIFEST)
    if manifest is None:
        raise BadInput(f"no finished store at {url} (no {MANIFEST}); run: bertvision extract TASK ... --to {url}")
    path = folder / MANIFEST
    cached = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    if manifest != cached:
        for outdated in folder.glob("*/shard-*.safetensors"):
            outdated.unlink()
        for name in ("task.json", *(f"{split}.jsonl" for split in manifest.get("splits", {}))):
            remote.get(f"task/{name}", folder / "task" / name)
        write_json(folder / REMOTE_FILE, {"url": remote.url})
        write_json(path, manifest)
    return folder, remote


class StoredSplit(ShardedSplit):
    """One split of a store."""

    def __init__(self, store: Store, name: str) -> None:
        records = store.manifest["splits"][name]["shards"]
        super().__init__(store, name, [int(record["windows"]) for record in records])
        self._records, self._path = records, store.shard_path

    def shard(self, number: int) -> Shard:
        return read_shard(self._path(self._records[number]))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished store."""
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
    """Raise an error for a file that is not a manifest, or has an unsupported format."""
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if version != FORMAT:
        problem = "not the manifest of a store" if version is None else f"of format {version}"
        raise BadInput(f"{path} is {problem}, expected format {FORMAT}; extract again, into another folder")


@dataclass(frozen=True)
class Damage:
    """A file of a store that is missing or has changed."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file} ({self.reason})"


def recorded(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The records of all files whose checksums are in a manifest."""
    for split in manifest["splits"].values():
        yield from split["shards"]
    if "statistics" in manifest:
        yield manifest["statistics"]


def find_damage(store: Store) -> list[Damage]:
    """All damaged files of a store; reads every file once."""
    checks = [(record["file"], _damage(store, record)) for record in recorded(store.manifest)]
    return [Damage(name, reason) for name, reason in checks if reason]


def _damage(store: Store, record: dict[str, Any]) -> str:
    """What is wrong with a file; empty if it is intact."""
    name = record["file"]
    if store.remote:
        if not store.remote.has(name):
            return "missing"
        return "" if store.remote.sha256(name) == record["sha256"] else "changed"
    path = store.folder / name
    if not path.exists():
        return "missing"
    size = path.stat().st_size
    if size != record.get("bytes", size):
        return f"{size:,} of {record['bytes']:,} bytes"
    return "" if file_sha256(path) == record["sha256"] else "changed"
