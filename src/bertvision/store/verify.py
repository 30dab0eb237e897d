"""Whether a store is still what was written: every file against its recorded checksum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bertvision.core.runtime import file_sha256
from bertvision.store.store import Store


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


def damages(store: Store) -> list[Damage]:
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
