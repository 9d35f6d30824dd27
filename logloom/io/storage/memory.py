"""Settings of the C library's memory: freed memory stays mapped for the next rows.

Here: `keep_freed_memory`.
Elsewhere: reading files (logloom.io.storage.files) and builds (logloom.transforms.build.partition); the
memory of chunks of logs (logloom.io.logs.files.compression).
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
    """Make the C library keep up to 256 MiB of freed memory; does nothing for other libraries than glibc.

    By default glibc gives the memory of large blocks back to the system at once, and rows of megabytes then
    wait for fresh pages, each cleared when first touched, several times longer than for their bytes. An
    environment with MALLOC_TRIM_THRESHOLD_ has precedence.
    """
    if "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    mallopt(_M_TRIM_THRESHOLD, _KEPT)
    mallopt(_M_MMAP_THRESHOLD, _LARGEST)
