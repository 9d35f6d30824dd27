"""Handlers of unreadable shards and samples, called as those of webdataset.

A handler gets the exception. It raises, or says whether to go on (past the sample, or the rest of the shard);
False ends the iteration. Only False: a function that returns nothing goes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from logloom.errors import UsageError

Handler = Callable[[Exception], Any]


def reraise_exception(error: Exception) -> bool:
    """Raises the error.

    Args:
        error: what a shard or a sample raised.

    Returns:
        Never; the error is raised.
    """
    raise error


def warn_and_continue(error: Exception) -> bool:
    """Warns and goes on.

    Args:
        error: what a shard or a sample raised.

    Returns:
        True: the next one is read.
    """
    warnings.warn(f"passed over: {type(error).__name__}: {error}", stacklevel=2)
    return True


def ignore_and_continue(error: Exception) -> bool:
    """Goes on silently.

    Args:
        error: what a shard or a sample raised.

    Returns:
        True: the next one is read.
    """
    return True


def warn_and_stop(error: Exception) -> bool:
    """Warns and ends the iteration.

    Args:
        error: what a shard or a sample raised.

    Returns:
        False: no more are read.
    """
    warnings.warn(f"stopped at: {type(error).__name__}: {error}", stacklevel=2)
    return False


def ignore_and_stop(error: Exception) -> bool:
    """Ends the iteration silently.

    Args:
        error: what a shard or a sample raised.

    Returns:
        False: no more are read.
    """
    return False


_NAMED: dict[str, Handler] = {
    "raise": reraise_exception,
    "warn": warn_and_continue,
    "ignore": ignore_and_continue,
}
_NAMED |= {function.__name__: function for function in (*_NAMED.values(), warn_and_stop, ignore_and_stop)}


def handler_of(chosen: str | Handler | None) -> Handler | None:
    """A handler by its name, or as it is.

    Raises:
        UsageError: there is none of that name.
    """
    if chosen is None or callable(chosen):
        return chosen
    if chosen not in _NAMED:
        raise UsageError(f"handler={chosen!r}: {', '.join(_NAMED)}, or a function of the exception")
    return _NAMED[chosen]
