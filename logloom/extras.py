"""Packages that not every installation has: one line says what is missing, and which extra brings it."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Iterator

from logloom.errors import UsageError


@contextlib.contextmanager
def needed(what: str, extra: str) -> Iterator[None]:
    """Imports in the block are of an optional package.

    Args:
        what: the package's name for people, or what it is for.
        extra: of logloom, that brings it.

    Raises:
        UsageError: it isn't there.
    """
    try:
        yield
    except ImportError as error:
        raise UsageError(f"{what} is not installed ({error}); pip install 'logloom[{extra}]'") from error


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Imports in the block aren't searched for garbage, of which modules are none; nor are they ever after.

    The search takes a sixth of the time of large imports.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


@contextlib.contextmanager
def beam_needed() -> Iterator[None]:
    """The same for Beam, which without Google's clients warns of I/O that nobody asked for."""
    root = logging.getLogger()
    before = root.handlers[:]  # to warn, it makes one
    root.addFilter(_is_news)
    try:
        with needed("Beam", "build"):
            yield
    finally:
        root.removeFilter(_is_news)
        root.handlers[:] = before


def _is_news(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("apitools not found")
