"""Memory settings of a process that does not use this project, to time other implementations fairly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bertvision.core.runtime import MMAP_THRESHOLD, TRIM_THRESHOLD, call_libc, retain_freed_memory, trim_memory

USUAL = {MMAP_THRESHOLD: 32 * 2**20, TRIM_THRESHOLD: 64 * 2**20}
"""Where glibc's own, moving thresholds end up once large blocks have been freed."""


@contextmanager
def usual_memory() -> Iterator[None]:
    """Undo, for a while, what :func:`bertvision.core.runtime.retain_freed_memory` asks of the C library and keeps."""
    trim_memory()
    for setting, value in USUAL.items():
        call_libc("mallopt", setting, value)
    try:
        yield
    finally:
        retain_freed_memory.cache_clear()
        retain_freed_memory()
