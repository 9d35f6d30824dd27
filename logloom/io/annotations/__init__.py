"""Annotation files of OpenMMLab 2.0, read and written, with the files they name beside.

`AnnotationReader` gives the data infos of a file; `ReadFromAnnotations` and `WriteToAnnotations` are Beam
transforms over blocks. OpenMMLab's own interface to such files is logloom.datasets.openmmlab.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logloom.io.annotations.beam import ReadFromAnnotations, WriteToAnnotations
    from logloom.io.annotations.files import AnnotationError
    from logloom.io.annotations.options import Options
    from logloom.io.annotations.reader import AnnotationReader

__all__ = ["AnnotationError", "AnnotationReader", "Options", "ReadFromAnnotations", "WriteToAnnotations"]

_LAZY = {
    "AnnotationError": "files",
    "AnnotationReader": "reader",
    "Options": "options",
    "ReadFromAnnotations": "beam",
    "WriteToAnnotations": "beam",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
