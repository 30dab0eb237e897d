"""Stores at fsspec URLs (s3://, gs://, hf://, memory://), and their local cache."""

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
REMOTE_FILE = "remote.json"
"""Holds the URL of a store in its local cache folder."""


def is_url(location: str | Path) -> bool:
    return "://" in str(location)


def cache_folder(url: str) -> Path:
    """The local cache folder of a URL."""
    root = os.environ.get(CACHE_FOLDER) or Path.home() / ".cache" / "bertvision"
    return Path(root) / "stores" / hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]


def cache_limit() -> float:
    """The size limit of cached shards, in bytes."""
    value = os.environ.get(CACHE_GB, "")
    try:
        limit = float(value) if value else DEFAULT_GB
    except ValueError:
        limit = -1.0
    if limit < 0:
        raise BadInput(f"{CACHE_GB} is {value!r}; expected gigabytes, e.g. 20")
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
            raise BadInput(f"{self.url} cannot hold a store: {error}") from error

    def _path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def put(self, path: Path, name: str) -> None:
        """Upload a file."""
        try:
            self.files.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
            self.files.put_file(str(path), self._path(name))
        except Exception as error:  # exceptions depend on the storage backend
            raise BadInput(
                f"cannot write {self.url}/{name}: {_reason(error)}; rerun the same command to resume"
            ) from error

    def get(self, name: str, path: Path) -> None:
        """Download a file atomically."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"{path.name}.{os.getpid()}.part")
            self.files.get_file(self._path(name), str(part))
            os.replace(part, path)
        except FileNotFoundError as error:
            raise BadInput(f"{self.url}/{name} does not exist") from error
        except Exception as error:
            raise BadInput(f"cannot read {self.url}/{name}: {_reason(error)}") from error

    def has(self, name: str) -> bool:
        return bool(self.files.exists(self._path(name)))

    def sha256(self, name: str) -> str:
        """Hash of a file, read in chunks."""
        digest = hashlib.sha256()
        with self.files.open(self._path(name), "rb") as file:
            while chunk := file.read(1 << 22):
                digest.update(chunk)
        return digest.hexdigest()

    def document(self, name: str) -> Any:
        """The content of a JSON file, or None if it does not exist."""
        try:
            return json.loads(self.files.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.files.rm_file(self._path(name))


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def fetch_shard(remote: Remote, folder: Path, record: dict[str, Any]) -> Path:
    """The local file of a shard, downloaded and verified if it is not in the cache."""
    path = folder / str(record["file"])
    if not path.exists():
        _evict(folder, record["bytes"], keep=path)
        remote.get(record["file"], path)
        if file_sha256(path) != record["sha256"]:
            path.unlink()
            raise BadInput(f"{remote.url}/{record['file']} has changed (its sha256 differs); extract again")
    os.utime(path)
    return path


def _evict(folder: Path, needed: int, keep: Path) -> None:
    """Delete the least recently used shards until ``needed`` more bytes fit into the limit."""
    shards = sorted(folder.parent.glob("*/*/shard-*.safetensors"), key=lambda path: path.stat().st_mtime)
    used = sum(path.stat().st_size for path in shards)
    for path in shards:
        if used + needed <= cache_limit():
            return
        # Never delete shards that are waiting for their upload.
        if path != keep and (path.parents[1] / "manifest.json").exists():
            used -= path.stat().st_size
            path.unlink(missing_ok=True)
