"""The log of a run: one JSON line per finished step and per command, each with the library versions.

The words of a command are kept as typed, with the working directory, so that a report can say exactly how to
repeat the run. A line that a kill or a full disk truncated is skipped and does not damage the next one.
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
"""The ``step`` of a line that records a command."""

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "optuna", "peft")
"""Libraries that results may depend on; the last two are extras."""

_PASSWORD = re.compile(r"(?<=://)[^/@\s]+(?=@)")


@cache
def versions() -> dict[str, str]:
    """Versions of Python, this package and the installed :data:`LIBRARIES`."""
    installed = {"python": platform.python_version(), "bertvision": __version__}
    for name in LIBRARIES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


class RunLog:
    """One JSON line per finished step, appended to ``log.jsonl``."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / "log.jsonl"

    def write(self, step: str, **facts: object) -> None:
        """Append a line about a finished step."""
        line = {"step": step, "time": time.strftime("%Y-%m-%dT%H:%M:%S"), **facts, "versions": versions()}
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                file.write(f"{_line_start(file)}{json.dumps(line)}\n".encode())

    def read(self) -> list[dict[str, Any]]:
        """All complete lines so far, oldest first."""
        if self.path is None or not self.path.exists():
            return []
        lines = []
        for text in self.path.read_bytes().splitlines():
            try:
                line = json.loads(text)
            except ValueError:  # truncated
                continue
            if isinstance(line, dict) and "step" in line:
                lines.append(line)
        return lines


def _line_start(file: IO[bytes]) -> str:
    """A newline if the last line of the file lacks one."""
    if file.seek(0, os.SEEK_END) == 0:
        return ""
    file.seek(-1, os.SEEK_END)
    return "" if file.read(1) == b"\n" else "\n"


@dataclass
class _Command:
    words: list[str]
    folder: Path
    where: str  # the working directory; empty if it was deleted
    logged: bool = False


_COMMAND: ContextVar[_Command | None] = ContextVar("command", default=None)


@contextmanager
def typed(words: Sequence[str], folder: Path | None) -> Iterator[None]:
    """Remember the command that works in a run's folder; passwords in URLs are masked."""
    try:
        where = os.getcwd()
    except OSError:  # it was deleted meanwhile, which is no reason to refuse a command
        where = ""
    masked = [_PASSWORD.sub("***", word) for word in words]
    token = _COMMAND.set(None if folder is None else _Command(masked, folder, where))
    try:
        yield
    finally:
        _COMMAND.reset(token)


def log_command(folder: Path | None = None) -> None:
    """Log the current command once: when it is done, or earlier by the report of this folder."""
    command = _COMMAND.get()
    if command is None or command.logged or not command.folder.is_dir():
        return
    if folder is None or folder.resolve() == command.folder.resolve():
        RunLog(command.folder).write(COMMAND, words=command.words, where=command.where)
        command.logged = True
