"""L5Kit datasets: four structured arrays in a zarr group, read and written as the original does.

`ChunkedDataset` opens one; `ReadFromL5Kit` and `WriteToL5Kit` are Beam transforms over blocks.
"""

from typing import Any

from logloom.io.l5kit.dtypes import (
    AGENT_DTYPE,
    FORMAT_VERSION,
    FRAME_DTYPE,
    LABELS,
    SCENE_DTYPE,
    TL_FACE_DTYPE,
    TL_FACE_LABELS,
)

__all__ = [
    "AGENT_DTYPE",
    "FORMAT_VERSION",
    "FRAME_DTYPE",
    "LABELS",
    "SCENE_DTYPE",
    "TL_FACE_DTYPE",
    "TL_FACE_LABELS",
    "ChunkedDataset",
]

_LAZY = {"ChunkedDataset": "chunked"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
