"""The number of CPUs that this process may use."""

from __future__ import annotations

import math
import os
import pathlib

_CGROUP = pathlib.Path("/sys/fs/cgroup")


def available_cpus(cgroup: pathlib.Path = _CGROUP) -> int:
    """CPUs of this process: those of its affinity, or fewer where its container has a limit; at least one.

    Args:
        cgroup: the folder of the limits of this container, of cgroup version 2 or 1.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cpus, math.ceil(_limit(cgroup))))


def _limit(cgroup: pathlib.Path) -> float:
    """CPUs that a container may use together; huge without a limit."""
    for names in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        try:
            quota, period = " ".join((cgroup / name).read_text() for name in names).split()
            if int(quota) > 0 and int(period) > 0:
                return int(quota) / int(period)
        except (OSError, ValueError):  # no such file; "max" is no limit
            continue
    return 1 << 20
