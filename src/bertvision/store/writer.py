"""Where a store is written: a folder, or a URL with a folder in which shards wait to be sent.

A shard counts as made when its entry (``shard-00000.json``: checksum, bytes, windows) lies beside it.
Entries become the manifest, which is written last and so proves the store complete.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bertvision.core.files import file_sha256, write_json
from bertvision.store.remote import SOURCE, Remote, cache_place, is_url
from bertvision.store.shard_file import Shard, write_shard

Entry = dict[str, Any]


class Site:
    """A place that takes shards."""

    def __init__(self, to: str | Path) -> None:
        self.name = str(to)
        self.remote = Remote(str(to)) if is_url(to) else None
        self.folder = cache_place(str(to)) if is_url(to) else Path(to)

    def has(self, name: str) -> bool:
        return self.remote.has(name) if self.remote else (self.folder / name).exists()

    def document(self, name: str) -> Any:
        """A JSON file of the store, None where there is none."""
        if self.remote:
            return self.remote.document(name)
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def entry(self, name: str) -> Entry | None:
        """What is recorded of a shard, if it is there as it was recorded."""
        try:
            known = self.document(entry_name(name))
        except (OSError, ValueError):
            return None
        if not isinstance(known, dict) or known.get("file") != name:
            return None
        return known if self._is_whole(known) else None

    def _is_whole(self, entry: Entry) -> bool:
        if self.remote:
            return self.remote.has(entry["file"])  # objects are there whole or not at all
        path = self.folder / entry["file"]
        if not path.exists() or path.stat().st_size != entry["bytes"]:
            return False
        return file_sha256(path) == str(entry["sha256"])

    def keep(self, shard: Shard, name: str, windows: int, seconds: float = 0.0) -> Entry:
        """Write a shard, then its entry; what was sent away need not stay here."""
        path = self.folder / name
        digest = write_shard(shard, path)
        entry = {"file": name, "sha256": digest, "windows": windows, "bytes": path.stat().st_size}
        entry["seconds"] = seconds
        if self.remote:
            self.remote.put(path, name)
            path.unlink()
        self.write(entry_name(name), entry)
        return entry

    def fetch(self, name: str) -> Path | None:
        """A file of the store as a local one; a copy of what is no longer there does not count."""
        if not self.has(name):
            return None
        if self.remote:
            self.remote.get(name, self.folder / name)
        return self.folder / name

    def write(self, name: str, content: object) -> None:
        """A JSON file, here and there."""
        write_json(self.folder / name, content)
        self.send(name)

    def send(self, name: str) -> None:
        if self.remote:
            self.remote.put(self.folder / name, name)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)
        if self.remote:
            self.remote.remove(name)

    def sign(self) -> None:
        """Let the local folder say where its store really is."""
        if self.remote:
            write_json(self.folder / SOURCE, {"url": self.remote.url})


def entry_name(shard: str) -> str:
    return shard.removesuffix(".safetensors") + ".json"
