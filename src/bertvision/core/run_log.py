"""The log of a run: one JSON line per finished step and per command, each with the library versions.

Commands are logged with their arguments and working directory, so that a report can show how to repeat the run.
Lines truncated by a crash or a full disk are skipped and do not affect later lines.
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
from typing import Any

from bertvision import __version__

COMMAND = "command"
"""The ``step`` of log lines that record a command."""

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "optuna", "peft")
"""Libraries that can affect results; the last two are extras."""

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
    """The file ``log.jsonl`` of a run folder; without a folder, nothing is written."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / "log.jsonl"

    def write(self, step: str, **facts: object) -> None:
        """Append a line about a finished step."""
        line = {"step": step, "time": time.strftime("%Y-%m-%dT%H:%M:%S"), **facts, "versions": versions()}
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                # Start a new line if the last one was truncated.
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 1))
                start = "" if size == 0 or file.read(1) == b"\n" else "\n"
                file.write(f"{start}{json.dumps(line)}\n".encode())

    def read(self) -> list[dict[str, Any]]:
        """All complete lines, oldest first."""
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


@dataclass
class _Command:
    words: list[str]
    folder: Path
    where: str  # the working directory; empty if it was deleted
    logged: bool = False


_COMMAND: ContextVar[_Command | None] = ContextVar("command", default=None)


@contextmanager
def record_command(words: Sequence[str], folder: Path | None) -> Iterator[None]:
    """Remember the current command and its run folder for :func:`log_command`; passwords in URLs are masked."""
    try:
        where = os.getcwd()
    except OSError:  # the working directory was deleted, which should not stop the command
        where = ""
    masked = [_PASSWORD.sub("***", word) for word in words]
    token = _COMMAND.set(None if folder is None else _Command(masked, folder, where))
    try:
        yield
    finally:
        _COMMAND.reset(token)


def log_command(folder: Path | None = None) -> None:
    """Log the current command once: at its end, or earlier before a report on ``folder`` is written."""
    command = _COMMAND.get()
    if command is None or command.logged or not command.folder.is_dir():
        return
    if folder is None or folder.resolve() == command.folder.resolve():
        RunLog(command.folder).write(COMMAND, words=command.words, where=command.where)
        command.logged = True
