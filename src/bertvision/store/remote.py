"""Stores at URLs that fsspec knows (s3://, gs://, hf://, memory://): files come and go whole."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput, install_line, missing_extra
from bertvision.core.files import file_sha256

CACHE_FOLDER, CACHE_GB = "BERTVISION_CACHE", "BERTVISION_CACHE_GB"
DEFAULT_GB = 20.0
SOURCE = "remote.json"
"""In a local folder that stands for a store elsewhere: where."""


def is_url(place: str | Path) -> bool:
    return "://" in str(place)


def cache_folder(url: str) -> Path:
    """The local folder that stands for a URL."""
    root = os.environ.get(CACHE_FOLDER) or Path.home() / ".cache" / "bertvision"
    return Path(root) / "stores" / hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]


def cache_limit() -> float:
    """Most bytes of shards that are kept here of stores elsewhere."""
    given = os.environ.get(CACHE_GB, "")
    try:
        limit = float(given) if given else DEFAULT_GB
    except ValueError:
        limit = -1.0
    if limit < 0:
        raise BadInput(f"{CACHE_GB} is {given!r}; expected gigabytes, e.g. 20")
    return limit * 1e9


class Remote:
    """A folder at a URL."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise missing_extra("fsspec", "remote") from None
        try:
            self.files, self.root = url_to_fs(self.url)
        except ImportError as error:
            raise BadInput(f"{self.url} cannot be reached: {error}; {install_line('remote')}") from error
        except ValueError as error:
            raise BadInput(f"{self.url} is no place for a store: {error}") from error

    def _at(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def put(self, path: Path, name: str) -> None:
        """Send a file; an object store shows it when it is whole."""
        try:
            self.files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
            self.files.put_file(str(path), self._at(name))
        except Exception as error:  # every kind of storage has its own
            raise BadInput(f"cannot write {self.url}/{name}: {_reason(error)}; the same command goes on") from error

    def get(self, name: str, path: Path) -> None:
        """Fetch a file; it is there whole or not at all."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"{path.name}.{os.getpid()}.part")
            self.files.get_file(self._at(name), str(part))
            os.replace(part, path)
        except FileNotFoundError as error:
            raise BadInput(f"there is no {self.url}/{name}") from error
        except Exception as error:
            raise BadInput(f"cannot read {self.url}/{name}: {_reason(error)}") from error

    def has(self, name: str) -> bool:
        return bool(self.files.exists(self._at(name)))

    def sha256(self, name: str) -> str:
        """Hash of a file's bytes, read in pieces and not kept."""
        digest = hashlib.sha256()
        with self.files.open(self._at(name), "rb") as file:
            while piece := file.read(1 << 22):
                digest.update(piece)
        return digest.hexdigest()

    def document(self, name: str) -> Any:
        """A JSON file, None where there is none."""
        try:
            return json.loads(self.files.cat_file(self._at(name)))
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.files.rm_file(self._at(name))


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def fetch_shard(remote: Remote, folder: Path, entry: dict[str, Any]) -> Path:
    """A shard as a local file, fetched and checked if it is not here; what was not used for longest makes room."""
    path = folder / str(entry["file"])
    if not path.exists():
        _make_room(folder, entry["bytes"], keep=path)
        remote.get(entry["file"], path)
        if file_sha256(path) != entry["sha256"]:
            path.unlink()
            raise BadInput(
                f"{remote.url}/{entry['file']} is not what was written there (sha256 differs); extract again"
            )
    os.utime(path)
    return path


def _make_room(folder: Path, wanted: int, keep: Path) -> None:
    """Delete shards, the longest unused first, until ``wanted`` bytes more stay within the limit."""
    shards = sorted(folder.parent.glob("*/*/shard-*.safetensors"), key=lambda path: path.stat().st_mtime)
    used = sum(path.stat().st_size for path in shards)
    for path in shards:
        if used + wanted <= cache_limit():
            return
        # Only what can be fetched again goes; what waits to be sent stays.
        if path != keep and (path.parents[1] / "manifest.json").exists():
            used -= path.stat().st_size
            path.unlink(missing_ok=True)
