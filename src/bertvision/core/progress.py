"""What the person watching sees: progress bars, log lines, times."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bertvision.core.runtime import T

if TYPE_CHECKING:
    pass


CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters but tab and newline, marks that turn the direction of the text after them, halves of surrogate
pairs: a label or a question may have them, but neither a terminal nor a page should be sent any."""

LINE_SECONDS = 60.0
"""How often progress is told where no terminal shows a bar."""


def progress(items: Iterable[T], what: str, total: int, unit: str = "batch") -> Iterator[T]:
    """The items, with progress and time left on stderr; see :func:`progress_bar`."""
    with progress_bar(what, total, unit) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def progress_bar(what: str, total: int, unit: str) -> Iterator[Callable[[int], object]]:
    """A bar on a terminal, a line a minute in a log; ``with progress_bar(...) as advance: advance(3)``.

    BERTVISION_PROGRESS=0 switches both off, 1 asks for the bar everywhere.
    """
    wanted = os.environ.get("BERTVISION_PROGRESS")
    if wanted != "0" and not (wanted or sys.stderr.isatty()):
        yield _Minutes(what, total, unit).advance
        return
    from tqdm.auto import tqdm

    with tqdm(desc=what, total=total, unit=unit, disable=wanted == "0", leave=False, file=sys.stderr) as bar:
        yield bar.update


class _Minutes:
    """Progress as plain lines, for logs: the first after a minute."""

    def __init__(self, what: str, total: int, unit: str) -> None:
        self.what, self.total, self.units = what, total, f"{unit}es" if unit.endswith("ch") else f"{unit}s"
        self.done, self.start, self.told = 0, time.monotonic(), time.monotonic()

    def advance(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self.told < LINE_SECONDS:
            return
        self.told = now
        left = (now - self.start) / self.done * (self.total - self.done) / 60
        log_line(f"{self.what}: {self.done:,} of {self.total:,} {self.units}, about {left:.0f} min left")


class Timer:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start


def log_line(text: str) -> None:
    """A line for the person watching: stderr, never stdout."""
    print(escape_control_chars(text), file=sys.stderr, flush=True)


def escape_control_chars(text: str) -> str:
    """A text for a terminal: what in it would steer the terminal or turn the text around is written out (``\\x1b``)."""
    return re.sub(f"[{CONTROLS}]", lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
