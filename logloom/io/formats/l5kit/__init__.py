"""L5Kit datasets: structured arrays of frames and agents in a zarr group.

`ChunkedDataset` opens one; `ReadFromL5Kit` and `WriteToL5Kit` are Beam transforms over blocks.
"""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use
from logloom.io.formats.l5kit.dtypes import (
    AGENT_DTYPE,
    FORMAT_VERSION,
    FRAME_DTYPE,
    LABELS,
    SCENE_DTYPE,
    TL_FACE_DTYPE,
    TL_FACE_LABELS,
)

if TYPE_CHECKING:
    from logloom.io.formats.l5kit.beam import ReadFromL5Kit, WriteToL5Kit
    from logloom.io.formats.l5kit.chunked_dataset import ChunkedDataset
    from logloom.io.formats.l5kit.format import FORMAT

__all__ = [
    "AGENT_DTYPE",
    "FORMAT",
    "FORMAT_VERSION",
    "FRAME_DTYPE",
    "LABELS",
    "SCENE_DTYPE",
    "TL_FACE_DTYPE",
    "TL_FACE_LABELS",
    "ChunkedDataset",
    "ReadFromL5Kit",
    "WriteToL5Kit",
]

_LAZY = {
    ".beam": ["ReadFromL5Kit", "WriteToL5Kit"],
    ".chunked_dataset": ["ChunkedDataset"],
    ".format": ["FORMAT"],
}

__getattr__ = imported_on_use(__name__, _LAZY)
