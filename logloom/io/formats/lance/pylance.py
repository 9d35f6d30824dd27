"""The package pylance: import on use, errors, and use in forked processes.

pylance keeps threads, which a forked process lacks: where its parent had used pylance, it crashes or hangs in
3 to 70 of 1 000 processes. So a forked process leaves the work to a helper, a process that was not forked
(logloom.io.formats.lance.helper). Functions that may run there are decorated with `anywhere`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa

from logloom.errors import DatasetError, LogloomError, StorageError, UsageError
from logloom.extras import needed
from logloom.io.storage.faults import fault_of

P = ParamSpec("P")
T = TypeVar("T")

_NUMBER = re.compile(r"\(os error (\d+)\)")
# What Rust's clients of stores say of a request; a file that isn't there, or is too short, is damage.
_REFUSED = re.compile("Error performing (?!.*(404 Not Found|416 Range))|lacked (the necessary|valid auth)")
_PANIC = "PanicException"  # a panic in Rust: no Exception, and in no module
_forked = False  # whether this process was forked by one that had imported pylance


def lance() -> Any:
    """Import the package.

    Raises:
        UsageError: it isn't installed, or this process was forked by one that had imported it.
    """
    if _forked:
        raise UsageError("pylance crashes in a process forked by one that used it; start processes by spawn")
    with needed("pylance", "lance"):
        import lance as package  # type: ignore[import-not-found,import-untyped,unused-ignore]
        import lance.file  # type: ignore[import-not-found,import-untyped,unused-ignore]
    return package


def _note_fork() -> None:
    global _forked
    _forked = _forked or "lance" in sys.modules


os.register_at_fork(after_in_child=_note_fork)


def anywhere(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function of a module that uses pylance; in a forked process, a helper calls it.

    Its arguments and its result are pickled there; its first argument is the place that errors name.
    """

    @functools.wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> T:
        if not _forked:
            return function(*arguments, **options)
        # Few processes need it.
        helped = importlib.import_module("logloom.io.formats.lance.helper").helped
        found: T = helped(called, arguments, options)
        return found

    return called


@contextlib.contextmanager
def damage(place: str) -> Iterator[None]:
    """Convert errors of pylance in the block to errors that name the file or table at `place`.

    Raises:
        DatasetError: it is damaged.
        StorageError: the machine or the store refused.
    """
    try:
        yield
    except LogloomError:
        raise
    except BaseException as error:
        known = isinstance(error, pa.ArrowException | ValueError | RuntimeError | OSError | KeyError)
        if not known and type(error).__name__ != _PANIC:
            raise
        reason = f"{str(error).partition(', /')[0]:.300}"  # without where it stands in pylance's own source
        if _REFUSED.search(str(error)):
            raise StorageError(f"{place}: {reason}") from error
        damage = DatasetError(f"{place}: no Lance data, or damaged ({reason})")
        raise fault_of(place, _with_number(error)) or damage from error


def _with_number(error: BaseException) -> BaseException:
    """The system's error in the text of pylance's error; otherwise that error."""
    found = _NUMBER.search(str(error))
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else error
