"""One writer at a time: a lock that the system itself gives back when its holder dies."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput

LOCK = "lock"
"""The file in a store that its writer holds; left behind by a killed one, it is free all the same."""


@dataclass(frozen=True)
class LockPurpose:
    """What a folder is written for, so that whoever is refused reads of that and not of a lock."""

    what: str
    elsewhere: str


STORE = LockPurpose("store", "choose another --to")


@contextmanager
def writing(folder: Path, name: str = LOCK, shared: bool = False, purpose: LockPurpose = STORE) -> Iterator[None]:
    """Hold a folder for writing, alone or (``shared``) beside others who write other shards of it."""
    descriptor = _held(folder, name, shared, purpose)
    try:
        yield
    finally:
        if not shared:
            with suppress(OSError):
                (folder / name).unlink()
        os.close(descriptor)


def _held(folder: Path, name: str, shared: bool, purpose: LockPurpose) -> int:
    """An open, locked file; opened again if its last holder deleted it in between."""
    import fcntl  # not on Windows

    path = folder / name
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            reason = error.strerror or error
            raise BadInput(f"cannot write a {purpose.what} at {folder}: {reason}; {purpose.elsewhere}") from error
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            told = f"{purpose.what} {folder} is being written by {_holder(path)}"
            raise BadInput(f"{told}; wait for it, or end it") from None
        if _still_there(descriptor, path):
            _sign(descriptor)
            return descriptor
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Whether somebody is writing a store just now."""
    try:
        with writing(folder):
            return False
    except BadInput:
        return True


def _still_there(descriptor: int, path: Path) -> bool:
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _sign(descriptor: int) -> None:
    """Who holds it, for whoever meets it."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode(), 0)


def _holder(path: Path) -> str:
    try:
        known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return f"process {known['process']} on {known['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
