"""The package pylance, which is imported on use, its errors, and its use in forked processes.

pylance keeps threads, which a forked process lacks: where its parent had used pylance, it crashes or hangs
there, anywhere, in 3 to 70 of 1 000 processes. So such a process leaves the work to a helper, a process that
was not forked (logloom.io.lance.helper). What may run there is a function marked by `anywhere`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa

from logloom.errors import DatasetError, UsageError
from logloom.extras import needed

P = ParamSpec("P")
T = TypeVar("T")

_PANIC = "PanicException"  # what fails in Rust unforeseen; no Exception, and named by no module
_forked = False  # whether this process was forked by one that had imported pylance


def lance() -> Any:
    """The package.

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
    """A function of a module that uses pylance; in a forked process, a helper calls it.

    Its arguments and its result are pickled there; its first argument is the place that errors name.
    """

    @functools.wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> T:
        if not _forked:
            return function(*arguments, **options)
        # Few processes need it.
        helped = importlib.import_module("logloom.io.lance.helper").helped
        found: T = helped(called, arguments, options)
        return found

    return called


@contextlib.contextmanager
def damage(place: str) -> Iterator[None]:
    """What pylance says in the block against a file or table at `place` is a DatasetError that names it."""
    try:
        yield
    except DatasetError:
        raise
    except BaseException as error:
        known = isinstance(error, pa.ArrowException | ValueError | RuntimeError | OSError | KeyError)
        if not known and type(error).__name__ != _PANIC:
            raise
        said = str(error).partition(", /")[0]  # where it stands in pylance's own source isn't told
        raise DatasetError(f"{place}: no Lance data, or damaged ({said:.300})") from error
