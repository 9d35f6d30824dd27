"""Start more processes of this Python, with this process's import path.

`python -m` and `python -c` look for modules in the current folder first, so a file there with the name of one
of Python's modules would run. These processes search that folder only if this process's path contains it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess  # nosec B404 # starts this Python only
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing.connection import Connection

_SAFE = "PYTHONSAFEPATH"
_STDERR = 2  # `sys.stderr` may not be a file, e.g. in notebooks
_starting = threading.Lock()


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module in this Python.

    >>> module_command("logloom", "plan")[1:]
    ['-P', '-m', 'logloom', 'plan']
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def import_environment() -> dict[str, str]:
    """Return the environment in which such a command finds this process's modules."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(_folders(sys.path))}


def connected_process(module: str, **options: Any) -> tuple[subprocess.Popen[bytes], Connection]:
    """Run a module in this Python, connected to this process; it gets the number of its end.

    Args:
        options: of Popen.
    """
    import multiprocessing

    ours, theirs = multiprocessing.Pipe()
    with theirs:
        process = subprocess.Popen(
            module_command(module, str(theirs.fileno())),
            stdin=subprocess.DEVNULL,
            stdout=_STDERR,
            pass_fds=[theirs.fileno()],
            env=import_environment(),
            **options,
        )
    return process, ours


def _folders(path: Sequence[str]) -> Iterator[str]:
    """Folders of an import path; "" is the current one, as in interactive sessions."""
    for folder in path:
        if folder:
            yield folder
        else:
            with contextlib.suppress(FileNotFoundError):  # it was removed
                yield os.getcwd()


def process_pool(num_workers: int) -> ProcessPoolExecutor:
    """Start processes of Python's own fork server.

    They are no forks of this process: threads of it (progress, fsspec) may hold locks.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import forkserver

    with _starting:
        before = os.environ.get(_SAFE)
        os.environ[_SAFE] = "1"
        try:
            forkserver.ensure_running()  # its processes get this one's path with their work
        finally:
            if before is None:
                del os.environ[_SAFE]
            else:
                os.environ[_SAFE] = before
    return ProcessPoolExecutor(num_workers, multiprocessing.get_context("forkserver"))
