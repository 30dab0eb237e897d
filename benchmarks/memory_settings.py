"""Memory settings of a process that does not use this project, to time other implementations fairly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bertvision.core.runtime import MMAP_THRESHOLD, TRIM_THRESHOLD, call_libc, retain_freed_memory, trim_memory

DEFAULTS = {MMAP_THRESHOLD: 32 * 2**20, TRIM_THRESHOLD: 64 * 2**20}
"""The values that glibc's dynamic thresholds reach after large blocks were freed."""


@contextmanager
def default_memory() -> Iterator[None]:
    """Suspend the settings of :func:`bertvision.core.runtime.retain_freed_memory`."""
    trim_memory()
    for setting, value in DEFAULTS.items():
        call_libc("mallopt", setting, value)
    try:
        yield
    finally:
        retain_freed_memory.cache_clear()
        retain_freed_memory()
