"""Identity of a process in shared notes, and whether it still runs.

Several machines and containers may have one host name, and each numbers its processes by itself. So a note
also contains the boot of the machine and the namespace of the number: only if both equal those of the
reader does an unused number prove that the process has ended.

Here: `Process`.
Elsewhere: processes of this machine (logloom.io.storage.disk), the notes of builds
(logloom.transforms.build.run_note) and of attempts (logloom.transforms.build.quarantine).
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import socket
import sys
import uuid

from logloom.io.storage.disk import is_running, start_of
from logloom.io.storage.metadata import Count, Text
from logloom.values import dataclass


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process, as named in its notes.

    Attributes:
        host: the name of its machine or container, which others may have, too.
        pid: its number there.
        process: random, so that no other process is taken for it; "" where it isn't known.
        boot: the boot of its machine; "" where it isn't known.
        namespace: in which processes are numbered; "" where it isn't known.
        began: its start, in clock ticks since the boot; 0 where it isn't known.
    """

    host: Text
    pid: Count
    process: Text = ""
    boot: Text = ""
    namespace: Text = ""
    began: Count = 0

    @property
    def is_own(self) -> bool:
        """Whether it is the current process."""
        return self.process == own_process().process

    @property
    def lives(self) -> bool | None:
        """Whether it runs; None if unknown, as for another machine or container."""
        here = own_process()
        if self.process == here.process:
            return True
        if not (here.boot and here.namespace) or _numbering(self) != _numbering(here):
            return None
        if self.pid == here.pid:
            return False  # this process has its number now
        return is_running(self.pid, self.began)


def own_process() -> Process:
    """Return the current process."""
    pid = os.getpid()
    return Process(
        host=socket.gethostname(),
        pid=pid,
        process=_random_name(pid),
        boot=_boot(),
        namespace=_namespace(),
        began=start_of(pid),
    )


def _numbering(process: Process) -> tuple[str, str, str]:
    """Return the boot and the namespace in which numbers of processes are valid."""
    return process.host, process.boot, process.namespace


@functools.cache
def _random_name(pid: int) -> str:
    """Return a random name of this process; a fork has another number, and so another name."""
    return uuid.uuid4().hex


def _boot() -> str:
    if sys.platform == "darwin":
        return _session_of_macos()
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, ValueError):
        return ""


def _namespace() -> str:
    if sys.platform == "darwin":
        return "machine"  # it numbers all processes together
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _session_of_macos() -> str:
    try:
        found, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
        refused = ctypes.CDLL(None).sysctlbyname(b"kern.bootsessionuuid", found, ctypes.byref(size), None, 0)
        return "" if refused else found.value.decode()
    except (AttributeError, OSError, ValueError):
        return ""
