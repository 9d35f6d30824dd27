"""Tar shards in the WebDataset convention: `TarWriter`, `TarReader`, and their Beam transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logloom.io.tar.reader import TarReader
from logloom.io.tar.writer import TarWriter

if TYPE_CHECKING:
    from logloom.io.tar.beam import ReadFromTar, WriteToTar

__all__ = ["ReadFromTar", "TarReader", "TarWriter", "WriteToTar"]


def __getattr__(name: str) -> Any:
    if name in ("ReadFromTar", "WriteToTar"):  # they import Beam, which readers don't need
        from logloom.io.tar import beam

        return getattr(beam, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
