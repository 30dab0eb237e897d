"""Whole files, JSON and hashes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from bertvision.core.errors import BadInput, shorten

if TYPE_CHECKING:
    from torch import Tensor


T = TypeVar("T")

_KEYS: dict[type[Any], Mapping[str, str]] = {}


def hash_json(content: Any) -> str:
    """sha256 of plain data, independent of the order of keys."""
    return hashlib.sha256(_text(content)).hexdigest()


def hash_lines(lines: Iterable[Any]) -> str:
    """sha256 over many records without holding their text."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(_text(line) + b"\n")
    return digest.hexdigest()


def _text(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, ensure_ascii=True).encode()


def hash_tensors(named: Iterable[tuple[str, Tensor]]) -> str:
    """sha256 over names, types, shapes and values, in name order."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda item: item[0]):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name}\0{plain.dtype}\0{tuple(plain.shape)}\0".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def hashed_as(*same: str, **keys: str) -> Callable[[type[T]], type[T]]:
    """Decorator of a dataclass: the key of each field in hashes, which stays when the field is renamed.

    ``same`` are fields whose key is their name, ``keys`` are the others: ``@hashed_as("epochs", rate="lr")``. Every
    field must be named, so that a new one is decided on: with it, whatever was hashed before has another hash.
    """
    table = {**{name: name for name in same}, **keys}

    def note(cls: type[T]) -> type[T]:
        there = {item.name for item in fields(cls)}  # type: ignore[arg-type]
        for what, names in (("has no key in hashes", there - {*table}), ("is no field", {*table} - there)):
            if names:
                raise TypeError(f"{cls.__name__}.{min(names)} {what}; see hashed_as above the class")
        if len({*table.values()}) < len(table):
            raise TypeError(f"{cls.__name__}: two fields have one key in hashes; see hashed_as above the class")
        _KEYS[cls] = table
        return cls

    return note


def hashed_keys(cls: type[Any]) -> Mapping[str, str]:
    """By field of a dataclass its key in hashes."""
    if cls not in _KEYS:
        raise TypeError(f"{cls.__name__} is not hashed by its fields; put hashed_as above the class")
    return _KEYS[cls]


def hashed_fields(record: Any) -> dict[str, Any]:
    """A dataclass as plain data for :func:`hash_json`, under the keys that do not change."""
    values = {key: getattr(record, name) for name, key in hashed_keys(type(record)).items()}
    return {key: hashed_fields(value) if is_dataclass(value) else value for key, value in values.items()}


def file_sha256(path: Path) -> str:
    """Hash of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary neighbour to write to, synced and renamed at the end: the file is there whole or not at all."""
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
    """A text file that is there whole or not at all."""
    with atomic_path(path) as part, part.open("w", encoding="utf-8") as file:
        yield file


def write_json(path: Path, content: object) -> None:
    """A JSON document, written whole."""
    with atomic_open(path) as file:
        json.dump(content, file, indent=1)
        file.write("\n")


def read_json_or_empty(path: Path) -> dict[str, Any]:
    """A document that was written before, or nothing where there is none."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def reuse(path: Path, fingerprint: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The JSON document at ``path`` if it was made from what has this fingerprint; else it is made and written."""
    document = read_json_or_empty(path)
    if document.get("made_from") != fingerprint:
        document = {"made_from": fingerprint, **make()}
        write_json(path, document)
    return document


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def distinct_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object whose keys all differ: of two values under one key readers would keep the last in silence."""
    row = dict(pairs)
    if len(row) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise ValueError(f"the key {shorten(twice)} is given twice, expected it once")
    return row
