"""A store: shards per split, and a manifest that is written last and so proves them complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bertvision.errors import BadInput
from bertvision.store.fingerprint import FORMAT
from bertvision.store.shards import Shard, read_shard
from bertvision.store.split import ShardedSplit, States

MANIFEST = "manifest.json"


class Store(States):
    """States on disk, opened for reading."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        super().__init__(read_manifest(self.folder))
        if self.manifest.get("live"):
            raise BadInput(
                f"{self.folder} holds no states: its run was live; run: bertvision extract TASK ... --to STORE"
            )

    def __getitem__(self, split: str) -> StoredSplit:
        if split not in self.manifest["splits"]:
            raise BadInput(f"store {self.folder} has no split {split!r}; it has {', '.join(self.manifest['splits'])}")
        return StoredSplit(self, split)


class StoredSplit(ShardedSplit):
    """One split of a store."""

    def __init__(self, store: Store, name: str) -> None:
        entries = store.manifest["splits"][name]["shards"]
        super().__init__(store, name, [int(entry["windows"]) for entry in entries])
        self._paths = [store.folder / entry["file"] for entry in entries]

    def shard(self, number: int) -> Shard:
        return read_shard(self._paths[number])


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
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BadInput(f"{path} is not the manifest of a store of format {FORMAT}; extract again, into another folder")
    return manifest
