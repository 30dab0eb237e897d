"""Atomic file writes, JSON, and hashes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from bertvision.core.errors import BadInput, shorten

if TYPE_CHECKING:
    from torch import Tensor


T = TypeVar("T")

_KEYS: dict[type[Any], Mapping[str, str]] = {}
_ADDED: dict[type[Any], Mapping[str, Any]] = {}


def hash_json(content: Any) -> str:
    """sha256 of plain data, independent of the order of keys."""
    return hashlib.sha256(_json_bytes(content)).hexdigest()


def hash_lines(lines: Iterable[Any]) -> str:
    """sha256 of an iterable of records, read one at a time."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(_json_bytes(line) + b"\n")
    return digest.hexdigest()


def _json_bytes(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, ensure_ascii=True).encode()


def hash_tensors(named: Iterable[tuple[str, Tensor]]) -> str:
    """sha256 of the names, types, shapes and values of tensors, in name order."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda item: item[0]):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name}\0{plain.dtype}\0{tuple(plain.shape)}\0".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def hashed_as(*same: str, added: Sequence[str] = (), **keys: str) -> Callable[[type[T]], type[T]]:
    """Class decorator that fixes the key of each dataclass field in hashes, so that fields can be renamed.

    ``same`` lists the fields whose key is their name, ``keys`` maps the others: ``@hashed_as("epochs", rate="lr")``.
    ``added`` lists fields that earlier versions did not have: they count only if they differ from their default, so
    that hashes from before stay the same. Every field must be listed.
    """
    table = {**{name: name for name in (*same, *added)}, **keys}

    def register(cls: type[T]) -> type[T]:
        declared = {item.name for item in fields(cls)}  # type: ignore[arg-type]
        for what, names in (("has no key in hashes", declared - {*table}), ("is not a field", {*table} - declared)):
            if names:
                raise TypeError(f"{cls.__name__}.{min(names)} {what}; see hashed_as above the class")
        if len({*table.values()}) < len(table):
            raise TypeError(f"{cls.__name__}: two fields have the same key in hashes; see hashed_as above the class")
        _KEYS[cls] = table
        _ADDED[cls] = {item.name: item.default for item in fields(cls) if item.name in added}  # type: ignore[arg-type]
        return cls

    return register


def hashed_keys(cls: type[Any]) -> Mapping[str, str]:
    """The key of each field of a dataclass in hashes."""
    if cls not in _KEYS:
        raise TypeError(f"{cls.__name__} has no keys for hashes; decorate it with hashed_as")
    return _KEYS[cls]


def hashed_fields(record: Any) -> dict[str, Any]:
    """A dataclass as plain data with its fixed keys, for :func:`hash_json`."""
    keys, added = hashed_keys(type(record)), _ADDED[type(record)]
    values = {
        key: getattr(record, name)
        for name, key in keys.items()
        if name not in added or getattr(record, name) != added[name]
    }
    return {key: hashed_fields(value) if is_dataclass(value) else value for key, value in values.items()}


def file_sha256(path: Path) -> str:
    """sha256 of a file, read in chunks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path, which is synced and renamed to ``path`` at the end, so that no partial file remains."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def atomic_open(path: Path) -> Iterator[IO[str]]:
    """Open a text file for writing; it replaces ``path`` atomically when the block ends."""
    with atomic_path(path) as part, part.open("w", encoding="utf-8") as file:
        yield file


def write_json(path: Path, content: object) -> None:
    """Write a JSON document atomically."""
    with atomic_open(path) as file:
        json.dump(content, file, indent=1)
        file.write("\n")


def read_json_or_empty(path: Path) -> dict[str, Any]:
    """The JSON document in a file, or an empty one if the file does not exist."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def reuse(path: Path, fingerprint: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The JSON document at ``path`` if its fingerprint matches; otherwise compute and write it."""
    document = read_json_or_empty(path)
    if document.get("made_from") != fingerprint:
        document = {"made_from": fingerprint, **make()}
        write_json(path, document)
    return document


def folder_bytes(folder: Path) -> int:
    """Total size in bytes of all files in a folder and its subfolders."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An ``object_pairs_hook`` for ``json.load`` that rejects repeated keys; Python would keep only the last."""
    row = dict(pairs)
    if len(row) < len(pairs):
        repeated = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {shorten(repeated)} is given twice, expected it once")
    return row
