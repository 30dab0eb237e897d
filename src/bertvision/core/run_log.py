"""The log of a run: a line a finished step and a line a command, each with the versions it ran with.

What was typed is kept as it was typed, with the folder it was typed in, so that a report can say exactly how to
repeat the run. A line that a kill or a full disk tore is passed over, and tears no other.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from bertvision import __version__

COMMAND = "command"
"""The step of a line that holds what was typed."""
LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "optuna", "peft")
"""Those that compute or decide something; the last two are extras."""
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+(?=@)")


@cache
def versions() -> dict[str, str]:
    """Of everything that a result may depend on, as far as it is installed."""
    found = {"python": platform.python_version(), "bertvision": __version__}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


class RunLog:
    """One JSON line per finished step, appended to ``log.jsonl``."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / "log.jsonl"

    def write(self, step: str, **facts: object) -> None:
        """Append a line; ``facts`` are what was done and what it cost."""
        line = {"step": step, "time": time.strftime("%Y-%m-%dT%H:%M:%S"), **facts, "versions": versions()}
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as log:
                log.write(f"{_begin(log)}{json.dumps(line)}\n".encode())

    def read(self) -> list[dict[str, Any]]:
        """All whole lines so far, oldest first."""
        if self.path is None or not self.path.exists():
            return []
        found = [_whole(line) for line in self.path.read_bytes().splitlines()]
        return [line for line in found if line is not None]


def _begin(log: IO[bytes]) -> str:
    """What makes the next line a line of its own: nothing, unless the last one was torn off."""
    if log.seek(0, os.SEEK_END) == 0:
        return ""
    log.seek(-1, os.SEEK_END)
    return "" if log.read(1) == b"\n" else "\n"


def _whole(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "step" in found else None


@dataclass
class _Typed:
    words: list[str]
    folder: Path
    where: str  # the folder that relative paths among the words begin in
    noted: bool = False


_TYPED: ContextVar[_Typed | None] = ContextVar("typed", default=None)


@contextmanager
def typed(words: Sequence[str], folder: Path | None) -> Iterator[None]:
    """A command at work in a run's folder; passwords in addresses are not for the log."""
    plain = [_PASSWORD.sub("***", word) for word in words]
    told = None if folder is None else _Typed(plain, folder, _here())
    token = _TYPED.set(told)
    try:
        yield
    finally:
        _TYPED.reset(token)


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted meanwhile, which is no reason to refuse a command
        return ""


def note_command(folder: Path | None = None) -> None:
    """Write down what was typed, once: when it is done, or earlier by whoever writes the report of this folder."""
    now = _TYPED.get()
    if now is None or now.noted or not now.folder.is_dir():
        return
    if folder is None or folder.resolve() == now.folder.resolve():
        RunLog(now.folder).write(COMMAND, words=now.words, where=now.where)
        now.noted = True
