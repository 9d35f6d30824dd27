"""A helper process that runs pylance on behalf of a forked process.

See logloom.io.formats.lance.pylance for the reason.

Here: `helped`, and the helper: python -m logloom.io.formats.lance.helper.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from signal import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP
from typing import Any

from logloom.errors import DatasetError, LogloomError, StorageError
from logloom.interpreter import connected_process
from logloom.io.storage.faults import storage_error

_CRASHES = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTRAP}  # that a process brings about itself


class _Helper:
    """The helper process, in the process that it works for; it ends with that process."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._process, self.connection = connected_process(__name__)

    def close(self) -> int:
        """End it; return its exit code."""
        self.connection.close()
        return self._process.wait()


_idle: list[_Helper] = []  # each is asked by one thread at a time


def helped(function: Callable[..., Any], arguments: Any, options: Mapping[str, Any]) -> Any:
    """Call a function of a module in a helper, and return its result.

    Raises:
        DatasetError: the helper died of it; names the first argument.
        StorageError: no helper can be started, or it was ended, for example because memory ran out.
        Exception: what the function raises.
    """
    try:
        helper = _taken()
    except OSError as refused:
        raise storage_error(f"{arguments[0]}: a process for pylance", refused) from refused
    try:
        helper.connection.send((function.__module__, function.__qualname__, arguments, options))
        result, error = helper.connection.recv()
    except (EOFError, OSError) as died:
        raise _death(arguments[0], helper.close()) from died
    except BaseException:  # its answer, which comes late, must not be the next one's
        helper.close()
        raise
    _idle.append(helper)
    if error is not None:
        raise error
    return result


def _death(place: str, code: int) -> LogloomError:
    if -code in _CRASHES:
        return DatasetError(f"{place}: damaged, pylance dies of it (code {code})")
    return StorageError(
        f"{place}: the process that reads it was ended (code {code}), as happens where memory is short"
    )


def _taken() -> _Helper:
    """A helper of this process that no other thread uses."""
    with contextlib.suppress(IndexError):
        while True:
            helper = _idle.pop()
            if helper.owner == os.getpid():
                return helper
            helper.connection.close()  # of the process that forked this one
    return _Helper()


@atexit.register
def _close_all() -> None:
    while _idle:
        _idle.pop().connection.close()


# --- in the helper --------------------------------------------------------------------------------------


def main() -> None:
    """Run the calls that the parent process requests, until it ends."""
    asker = Connection(int(sys.argv[1]))
    with contextlib.suppress(EOFError, OSError):
        while True:
            module, name, arguments, options = asker.recv()
            asker.send(_answer(getattr(importlib.import_module(module), name), arguments, options))


def _answer(function: Callable[..., Any], arguments: Any, options: Mapping[str, Any]) -> tuple[Any, Any]:
    try:
        return function(*arguments, **options), None
    except Exception as error:
        return None, error


if __name__ == "__main__":
    main()
