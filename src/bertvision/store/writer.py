"""Writing of stores, to a folder or, through a local cache folder, to a URL.

A shard is complete when its record (``shard-00000.json``: checksum, bytes, windows) exists. The records become the
manifest, which is written last and so marks the store as complete.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bertvision.core.files import file_sha256, write_json
from bertvision.store.remote import REMOTE_FILE, Remote, cache_folder, is_url
from bertvision.store.shard_file import Shard, write_shard

ShardRecord = dict[str, Any]


class StoreWriter:
    """Writes the files of a store to its folder and, for a remote store, to its URL."""

    def __init__(self, to: str | Path) -> None:
        self.name = str(to)
        self.remote = Remote(str(to)) if is_url(to) else None
        self.folder = cache_folder(str(to)) if is_url(to) else Path(to)

    def has(self, name: str) -> bool:
        return self.remote.has(name) if self.remote else (self.folder / name).exists()

    def document(self, name: str) -> Any:
        """The content of a JSON file of the store, or None if it does not exist."""
        if self.remote:
            return self.remote.document(name)
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def record(self, name: str) -> ShardRecord | None:
        """The record of a shard, or None if the shard is missing or differs from its record."""
        try:
            record = self.document(record_name(name))
        except (OSError, ValueError):
            return None
        if not isinstance(record, dict) or record.get("file") != name:
            return None
        if self.remote:
            return record if self.remote.has(name) else None  # uploads are atomic
        path = self.folder / name
        if not path.exists() or path.stat().st_size != record["bytes"]:
            return None
        return record if file_sha256(path) == str(record["sha256"]) else None

    def write_shard(self, shard: Shard, name: str, windows: int, seconds: float = 0.0) -> ShardRecord:
        """Write a shard, then its record; the local copy is deleted after an upload."""
        path = self.folder / name
        digest = write_shard(shard, path)
        record = {"file": name, "sha256": digest, "windows": windows, "bytes": path.stat().st_size, "seconds": seconds}
        if self.remote:
            self.remote.put(path, name)
            path.unlink()
        self.write(record_name(name), record)
        return record

    def fetch(self, name: str) -> Path | None:
        """The local path of a file of the store, downloaded if it is remote; None if it does not exist."""
        if not self.has(name):
            return None
        if self.remote:
            self.remote.get(name, self.folder / name)
        return self.folder / name

    def write(self, name: str, content: object) -> None:
        """Write a JSON file, and upload it."""
        write_json(self.folder / name, content)
        self.upload(name)

    def upload(self, name: str) -> None:
        if self.remote:
            self.remote.put(self.folder / name, name)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)
        if self.remote:
            self.remote.remove(name)

    def record_url(self) -> None:
        """Write the URL of a remote store into its cache folder."""
        if self.remote:
            write_json(self.folder / REMOTE_FILE, {"url": self.remote.url})


def record_name(shard: str) -> str:
    return shard.removesuffix(".safetensors") + ".json"
