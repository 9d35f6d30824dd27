"""Annotation files of OpenMMLab 2.0, with the image and point files they name.

`AnnotationReader` yields the data infos of a file; `ReadFromAnnotations` and `WriteToAnnotations` are Beam
transforms over blocks. OpenMMLab's own interface to such files is logloom.datasets.openmmlab.
"""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use

if TYPE_CHECKING:
    from logloom.io.formats.annotations.beam import ReadFromAnnotations, WriteToAnnotations
    from logloom.io.formats.annotations.files import AnnotationError
    from logloom.io.formats.annotations.format import FORMAT
    from logloom.io.formats.annotations.options import Options
    from logloom.io.formats.annotations.reader import AnnotationReader

__all__ = [
    "FORMAT",
    "AnnotationError",
    "AnnotationReader",
    "Options",
    "ReadFromAnnotations",
    "WriteToAnnotations",
]

_LAZY = {
    ".beam": ["ReadFromAnnotations", "WriteToAnnotations"],
    ".files": ["AnnotationError"],
    ".format": ["FORMAT"],
    ".options": ["Options"],
    ".reader": ["AnnotationReader"],
}

__getattr__ = imported_on_use(__name__, _LAZY)
