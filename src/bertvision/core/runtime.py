"""Device, seeds, threads, memory and signals."""

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
from typing import TYPE_CHECKING

from bertvision.core.errors import BadInput

if TYPE_CHECKING:
    import torch


MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Parameter numbers of glibc's ``mallopt``."""

POLICY, PASSIVE, SPIN_COUNT = "OMP_WAIT_POLICY", "PASSIVE", "GOMP_SPINCOUNT"
"""OpenMP variables for waiting at barriers, and the value for sleeping."""

LOADAVG = Path("/proc/loadavg")
"""Contains the number of runnable threads on Linux."""


def set_omp_wait_policy() -> None:
    """Let OpenMP threads sleep at barriers if other processes compete for the CPUs and the user set no policy.

    OpenMP threads spin at barriers by default. On a busy machine this slows down other processes and halves our own
    speed; on an idle one, sleeping takes up to 1.7 times as long. Has no effect once torch is loaded.
    """
    if POLICY in os.environ or SPIN_COUNT in os.environ:
        return
    if "torch" not in sys.modules and cpus_contended():
        os.environ[POLICY] = PASSIVE


def cpus_contended(samples: int = 5, pause: float = 0.005) -> bool:
    """Whether other processes need more CPUs than our threads leave free; true if that is unknown.

    The run queue is sampled several times to ignore short-lived processes.
    """
    try:
        runnable = []
        for _ in range(samples):
            time.sleep(pause)
            runnable.append(int(LOADAVG.read_text(encoding="ascii").split()[3].partition("/")[0]))
        others = min(runnable) - 1  # without this thread
        return others > (os.cpu_count() or 1) - int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
    except (OSError, ValueError, IndexError, AttributeError):
        return True


def choose_device(name: str = "auto") -> torch.device:
    """The torch device of a name; ``auto`` selects the first available of cuda, mps and cpu."""
    import torch

    backends = {"cuda": torch.cuda, "mps": torch.backends.mps}
    available = [*(kind for kind, backend in backends.items() if backend.is_available()), "cpu"]
    try:
        device = torch.device(available[0] if name == "auto" else name)
    except RuntimeError as error:
        raise BadInput(f"unknown device {name!r}; expected auto, {', '.join(available)}") from error
    if device.type not in available:
        raise BadInput(f"device {name!r} is not available; expected auto, {', '.join(available)}")
    if device.type == "cpu":
        retain_freed_memory()
    return device


@cache
def retain_freed_memory() -> None:
    """Make glibc reuse large freed blocks instead of returning them to the system.

    By default it returns every freed block above 32 MB. A new block costs a page fault per 4 kB, which takes a quarter
    of the step time of larger heads. Has no effect with other C libraries.
    """
    for setting in (MMAP_THRESHOLD, TRIM_THRESHOLD):
        call_libc("mallopt", setting, 2**31 - 1)


def trim_memory() -> None:
    """Return free memory to the system; freed blocks of many sizes leave gaps that grow with the data."""
    call_libc("malloc_trim", 0)


def call_libc(name: str, *values: int) -> None:
    """Call a C library function, if it exists."""
    import ctypes

    with suppress(OSError, AttributeError, TypeError):
        getattr(ctypes.CDLL(None), name)(*values)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block with a torch seed of its own and restore the random state afterwards."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextmanager
def graceful_interrupt(at_once: bool = False) -> Iterator[Callable[[], bool]]:
    """Turn SIGINT and SIGTERM into a flag that the block polls; the second signal raises KeyboardInterrupt.

    With ``at_once`` the first signal raises too; the flag then reports an interrupt that a callback of a library
    swallowed. Outside the main thread, signals cannot be caught and the flag is never set.
    """
    received: list[int] = []

    def handle(number: int, _frame: object) -> None:
        received.append(number)
        if at_once or len(received) > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def peak_bytes(device: torch.device) -> int:
    """Peak memory so far: of the GPU for CUDA devices, otherwise of this process."""
    import resource

    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
