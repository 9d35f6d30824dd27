"""Zarr datasets: a group per log, one array per column, that xarray and zarr open.

`ZarrReader` reads rows, blocks and batches; `ReadFromZarr` and `WriteToZarr` are Beam transforms over blocks.
"""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use

if TYPE_CHECKING:
    from logloom.io.formats.zarr.beam import ReadFromZarr, WriteToZarr
    from logloom.io.formats.zarr.format import FORMAT
    from logloom.io.formats.zarr.layout import ZarrOptions
    from logloom.io.formats.zarr.reader import ZarrReader

__all__ = ["FORMAT", "ReadFromZarr", "WriteToZarr", "ZarrOptions", "ZarrReader"]

_LAZY = {
    ".beam": ["ReadFromZarr", "WriteToZarr"],
    ".format": ["FORMAT"],
    ".layout": ["ZarrOptions"],
    ".reader": ["ZarrReader"],
}

__getattr__ = imported_on_use(__name__, _LAZY)
