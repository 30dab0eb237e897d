"""Progress bars, log lines on stderr, and timers."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

CONTROL_CHARS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""Characters that must not reach a terminal or a page, but may occur in data: control characters except tab and
newline, bidirectional overrides, and lone surrogates."""

LINE_SECONDS = 60.0
"""Seconds between progress lines if stderr is not a terminal."""


def progress(items: Iterable[T], what: str, total: int, unit: str = "batch") -> Iterator[T]:
    """Iterate and show progress and remaining time on stderr; see :func:`progress_bar`."""
    with progress_bar(what, total, unit) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def progress_bar(what: str, total: int, unit: str) -> Iterator[Callable[[int], object]]:
    """A progress bar on a terminal, otherwise one line per minute; ``with progress_bar(...) as advance: advance(3)``.

    ``BERTVISION_PROGRESS=0`` disables both, ``1`` shows the bar even without a terminal.
    """
    mode = os.environ.get("BERTVISION_PROGRESS")
    if mode != "0" and not (mode or sys.stderr.isatty()):
        yield _ProgressLines(what, total, unit).advance
        return
    from tqdm.auto import tqdm

    with tqdm(desc=what, total=total, unit=unit, disable=mode == "0", leave=False, file=sys.stderr) as bar:
        yield bar.update


class _ProgressLines:
    """Progress as plain lines, the first after a minute."""

    def __init__(self, what: str, total: int, unit: str) -> None:
        self.what, self.total, self.units = what, total, f"{unit}es" if unit.endswith("ch") else f"{unit}s"
        self.done = 0
        self.start = self.last_line = time.monotonic()

    def advance(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self.last_line < LINE_SECONDS:
            return
        self.last_line = now
        left = (now - self.start) / self.done * (self.total - self.done) / 60
        log_line(f"{self.what}: {self.done:,} of {self.total:,} {self.units}, about {left:.0f} min left")


class Timer:
    """Seconds since construction."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start


def log_line(text: str) -> None:
    """Print a line to stderr; stdout is reserved for results."""
    print(escape_control_chars(text), file=sys.stderr, flush=True)


def escape_control_chars(text: str) -> str:
    """Replace control characters by escape sequences such as ``\\x1b``, so that text is safe for a terminal."""
    return re.sub(f"[{CONTROL_CHARS}]", lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
