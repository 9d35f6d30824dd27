"""Memory that rows are read into: kept by the process when it is freed, so that the next rows find it mapped.

Here: `keep_freed_memory`.
Elsewhere: who reads files (logloom.io.storage.files) and builds (logloom.transforms.build.partition); the
memory of chunks of logs (logloom.io.logs.files.chunk_memory).
"""

from __future__ import annotations

import ctypes
import functools
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_KEPT = 256 << 20
_LARGEST = 32 << 20  # the most that glibc takes from its heap, instead of mapping pages for it alone


@functools.cache
def keep_freed_memory() -> None:
    """Has the C library keep up to 256 MiB of freed memory; does nothing where it can't be told.

    By default glibc gives the memory of large blocks back to the system at once, and rows of megabytes then
    wait for fresh pages, each cleared when first touched, several times longer than for their bytes. Who sets
    MALLOC_TRIM_THRESHOLD_ decides for himself.
    """
    if "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    mallopt(_M_TRIM_THRESHOLD, _KEPT)
    mallopt(_M_MMAP_THRESHOLD, _LARGEST)
