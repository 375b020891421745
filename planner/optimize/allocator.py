"""The C library's allocator, told to keep the pages of a large search."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of <malloc.h>
_LARGEST_MMAP_THRESHOLD = 32 * 2**20
_NEVER = 2**31 - 1


@contextmanager
def kept_pages() -> Iterator[None]:
    """Reuse the pages of freed arrays inside, instead of handing them to the system and back.

    Every block of a search frees and asks for the same arrays of some MiB; glibc maps each anew,
    and the faults of its first touch cost as much as the arithmetic. Afterwards glibc has
    the largest thresholds it would choose for itself, and gives back what is beyond them.
    Nothing happens with other C libraries.
    """
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    library = ctypes.CDLL(None)
    library.mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    library.mallopt(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        library.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_MMAP_THRESHOLD)
