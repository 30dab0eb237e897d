"""Stores below a folder, which of them nobody needs, and their deletion, file by file."""

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

OURS = (
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
"""What extraction writes; anything else in the folder is somebody's, and stays."""

DAY = 86_400


@dataclass(frozen=True)
class Found:
    """A store on disk."""

    folder: Path
    bytes: int
    days: float  # since it was written
    finished: bool
    used: bool  # by a run with heads

    @property
    def orphaned(self) -> bool:
        """Begun and left, or of no run."""
        return not (self.finished and self.used)


def find_stores(folders: Sequence[Path], source: str) -> list[Found]:
    """All stores below the folders, the newest first; ``source`` is the file by which a run names a store elsewhere."""
    for folder in folders:
        if not folder.is_dir():
            raise BadInput(f"no folder at {folder}")
    named = {_named(path) for folder in folders for path in folder.rglob(source)}
    places = {
        path.parent.resolve(): name == "manifest.json"
        for name in ("started.json", "manifest.json")
        for folder in folders
        for path in folder.rglob(name)
        if _is_ours(path, name)
    }
    found = [_found(place, finished, named) for place, finished in places.items()]
    return sorted(found, key=lambda store: (store.days, str(store.folder)))


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _named(path: Path) -> Path | None:
    content = _read(path)
    return Path(content["store"]).resolve() if isinstance(content, dict) and "store" in content else None


def _is_ours(path: Path, name: str) -> bool:
    """A manifest with a fingerprint, or a fingerprint; what a live run leaves holds no states."""
    content = _read(path)
    if path.is_symlink() or not isinstance(content, dict) or content.get("live"):
        return False
    return {"encoder", "data", "plan"} <= set(
        content.get("fingerprint", content) if name == "manifest.json" else content
    )


def _found(place: Path, finished: bool, named: set[Path | None]) -> Found:
    mark = place / ("manifest.json" if finished else "started.json")
    days = (time.time() - mark.stat().st_mtime) / DAY
    in_run = place.name == "store" and (place.parent / "heads").is_dir()
    return Found(place, folder_bytes(place), days, finished, in_run or place in named)


def choose(
    stores: Sequence[Found], older: float | None = None, max_gb: float | None = None, orphaned: bool = False
) -> list[Found]:
    """Those that are older, of no run, or (the oldest first) too much for the limit; what is being written never is."""
    chosen = [s for s in stores if (older is not None and s.days > older) or (orphaned and s.orphaned)]
    left = [store for store in stores if store not in chosen]  # newest first
    while max_gb is not None and left and sum(store.bytes for store in left) > max_gb * 1e9:
        chosen.append(left.pop())
    return [store for store in stores if store in chosen and not is_locked(store.folder)]


def delete(store: Found) -> None:
    """Remove a store's files, and its folders if nothing else is in them."""
    for pattern in OURS:
        for path in store.folder.glob(pattern):
            if path.is_file() or path.is_symlink():
                path.unlink()
    for folder in (*(child for child in store.folder.iterdir() if child.is_dir()), store.folder):
        with suppress(OSError):  # not empty: not ours alone
            folder.rmdir()
