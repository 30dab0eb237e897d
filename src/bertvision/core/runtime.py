"""What every step needs of the machine: seeds, device, threads, memory, signals."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

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


def set_omp_wait_policy() -> None:
    """Have threads of torch sleep at a barrier where others want the processors, unless told otherwise.

    Of use before torch is loaded. Awake, as is usual, they take the time of the busy neighbour that they wait
    for, and lose half their speed; asleep they take up to 1.7 times as long where there is none.
    """
    told = POLICY in os.environ or SPINS in os.environ
    if not told and "torch" not in sys.modules and cpus_contended():
        os.environ[POLICY] = ASLEEP


def cpus_contended(looks: int = 5, pause: float = 0.005) -> bool:
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
        retain_freed_memory()
    return device


@cache
def retain_freed_memory() -> None:
    """Have the C library reuse large blocks instead of giving them back to the system.

    glibc returns every freed block over 32 MB, and a new one costs a page fault for each 4 kB that is
    touched: a quarter of the time of a step of the larger heads. Other C libraries are left as they are.
    """
    for setting in (MMAP_THRESHOLD, TRIM_THRESHOLD):
        c_library("mallopt", setting, 2**31 - 1)


def trim_memory() -> None:
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


def lr_factor(step: int, steps: int, warmup: float, decay: str = "linear") -> float:
    """Share of the peak rate: linear rise over the warm-up, then linear to zero, or constant."""
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    return 1.0 if decay == "constant" else max(0.0, (steps - step) / max(1, steps - rise))


@contextmanager
def graceful_interrupt(at_once: bool = False) -> Iterator[Callable[[], bool]]:
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
