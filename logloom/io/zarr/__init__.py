"""Zarr datasets: a group per log, one array per column, that xarray and zarr open.

`ZarrReader` reads rows, blocks and batches; `ReadFromZarr` and `WriteToZarr` are Beam transforms over blocks.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logloom.io.zarr.beam import ReadFromZarr, WriteToZarr
    from logloom.io.zarr.options import ZarrOptions
    from logloom.io.zarr.reader import ZarrReader

__all__ = ["ReadFromZarr", "WriteToZarr", "ZarrOptions", "ZarrReader"]

_LAZY = {"ReadFromZarr": "beam", "WriteToZarr": "beam", "ZarrOptions": "options", "ZarrReader": "reader"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
