"""What every step needs of the machine: seeds, device, threads, time, progress and whole files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from bertvision.core.errors import BadInput

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""glibc's numbers for two of malloc's settings."""

POLICY, ASLEEP, SPINS = "OMP_WAIT_POLICY", "PASSIVE", "GOMP_SPINCOUNT"
"""Variables of OpenMP that say how threads wait for each other."""

LOAD = Path("/proc/loadavg")
"""Linux tells there what runs."""

CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters but tab and newline, marks that turn the direction of the text after them, halves of surrogate
pairs: a label or a question may have them, but neither a terminal nor a page should be sent any."""

LINE_SECONDS = 60.0
"""How often progress is told where no terminal shows a bar."""


def wait_kindly() -> None:
    """Have threads of torch sleep at a barrier where others want the processors, unless told otherwise.

    Of use before torch is loaded. Awake, as is usual, they take the time of the busy neighbour that they wait
    for, and lose half their speed; asleep they take up to 1.7 times as long where there is none.
    """
    told = POLICY in os.environ or SPINS in os.environ
    if not told and "torch" not in sys.modules and wanted_by_others():
        os.environ[POLICY] = ASLEEP


def wanted_by_others(looks: int = 5, pause: float = 0.005) -> bool:
    """Whether others want more of the processors than threads of ours leave; yes where that cannot be told.

    Who computes is ready to run at every look, who only passes by is not.
    """
    try:
        others = min(_ready(pause) for _ in range(looks)) - 1
        return others > (os.cpu_count() or 1) - int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
    except (OSError, ValueError, IndexError, AttributeError):
        return True


def _ready(pause: float) -> int:
    """How many threads of the machine run or wait for a processor now, this one among them."""
    time.sleep(pause)
    return int(LOAD.read_text(encoding="ascii").split()[3].partition("/")[0])


def choose_device(name: str = "auto") -> torch.device:
    """``auto`` is the first of cuda, mps, cpu that is there."""
    device = _device(name)
    if device.type == "cpu":
        keep_freed_memory()
    return device


@cache
def keep_freed_memory() -> None:
    """Have the C library reuse large blocks instead of giving them back to the system.

    glibc returns every freed block over 32 MB, and a new one costs a page fault for each 4 kB that is
    touched: a quarter of the time of a step of the larger heads. Other C libraries are left as they are.
    """
    for setting in (MMAP_THRESHOLD, TRIM_THRESHOLD):
        c_library("mallopt", setting, 2**31 - 1)


def give_back_memory() -> None:
    """Have the C library return what it kept: blocks of many sizes leave gaps, which grow with the data."""
    c_library("malloc_trim", 0)


def c_library(name: str, *values: int) -> None:
    """Call a function of the C library, if it has it."""
    import ctypes

    with suppress(OSError, AttributeError, TypeError):
        getattr(ctypes.CDLL(None), name)(*values)


def _device(name: str) -> torch.device:
    import torch

    there = [kind for kind, found in (("cuda", torch.cuda), ("mps", torch.backends.mps)) if found.is_available()]
    there.append("cpu")
    if name == "auto":
        return torch.device(there[0])
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BadInput(f"device {name!r} is not known; expected auto, {', '.join(there)}") from error
    if device.type not in there:
        raise BadInput(f"device {name!r} is not there; expected auto, {', '.join(there)}")
    return device


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block under its own torch seed and leave the caller's random state as it was."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


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
        say(f"{self.what}: {self.done:,} of {self.total:,} {self.units}, about {left:.0f} min left")


def rate_at(step: int, steps: int, warmup: float, decay: str = "linear") -> float:
    """Share of the peak rate: linear rise over the warm-up, then linear to zero, or constant."""
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    return 1.0 if decay == "constant" else max(0.0, (steps - step) / max(1, steps - rise))


class Timer:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start


def say(text: str) -> None:
    """A line for the person watching: stderr, never stdout."""
    print(harmless(text), file=sys.stderr, flush=True)


def harmless(text: str) -> str:
    """A text for a terminal: what in it would steer the terminal or turn the text around is written out (``\\x1b``)."""
    return re.sub(f"[{CONTROLS}]", lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def file_sha256(path: Path) -> str:
    """Hash of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def renamed_when_whole(path: Path) -> Iterator[Path]:
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
def written_whole(path: Path) -> Iterator[IO[str]]:
    """A text file that is there whole or not at all."""
    with renamed_when_whole(path) as part, part.open("w", encoding="utf-8") as file:
        yield file


@contextmanager
def gentle_stop(at_once: bool = False) -> Iterator[Callable[[], bool]]:
    """Ctrl-C and a polite kill ask to stop; the block looks when it suits it. A second Ctrl-C stops at once.

    ``at_once`` the first does, too, but is remembered: who looks learns of one that a library's callback swallowed.
    Outside of the main thread signals cannot be caught, and nothing ever asks.
    """
    asked: list[int] = []

    def ask(number: int, _frame: object) -> None:
        asked.append(number)
        if at_once or len(asked) > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def peak_bytes(device: torch.device) -> int:
    """Most memory held so far: of the device's where it counts its own, else of this process."""
    import resource

    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def write_json(path: Path, content: object) -> None:
    """A JSON document, written whole."""
    with written_whole(path) as file:
        json.dump(content, file, indent=1)
        file.write("\n")


def known_json(path: Path) -> dict[str, Any]:
    """A document that was written before, or nothing where there is none."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
