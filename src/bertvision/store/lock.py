"""File locks for folders with a single writer; the operating system releases them when the holder dies."""

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
"""The lock file of a store; one left by a killed process is not locked any more."""


@dataclass(frozen=True)
class LockPurpose:
    """What a locked folder is, for error messages."""

    what: str
    elsewhere: str


STORE = LockPurpose("store", "choose another folder with --to")


@contextmanager
def writing(folder: Path, name: str = LOCK, shared: bool = False, purpose: LockPurpose = STORE) -> Iterator[None]:
    """Lock a folder for writing, exclusively or (``shared``) together with processes that write other shards."""
    descriptor = _acquire(folder, name, shared, purpose)
    try:
        yield
    finally:
        if not shared:
            with suppress(OSError):
                # The folder may have been moved, and another one with another lock be in its place.
                if (folder / name).stat().st_ino == os.fstat(descriptor).st_ino:
                    (folder / name).unlink()
        os.close(descriptor)


def _acquire(folder: Path, name: str, shared: bool, purpose: LockPurpose) -> int:
    """The descriptor of the locked file; retried if the previous holder deleted the file in between."""
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
            problem = f"{purpose.what} {folder} is being written by {_holder(path)}"
            raise BadInput(f"{problem}; wait for it, or end it") from None
        with suppress(FileNotFoundError):
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                holder = {"process": os.getpid(), "host": socket.gethostname()}
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(holder).encode(), 0)
                return descriptor
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Whether a process is writing the store."""
    try:
        with writing(folder):
            return False
    except BadInput:
        return True


def _holder(path: Path) -> str:
    try:
        holder: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return f"process {holder['process']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
