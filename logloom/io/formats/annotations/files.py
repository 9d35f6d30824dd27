"""Annotation files of OpenMMLab 2.0: parsing JSON, YAML and pickles.

Such a file contains a dict with `metainfo` and `data_list`.

Here: reading such files, and lists of names, from any fsspec URI; joining paths as data sets name them.
Elsewhere: the use of the data infos (logloom.datasets.openmmlab), writing files (stage, assemble).
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from logloom.errors import DatasetError, UsageError
from logloom.io.formats.annotations import pickles
from logloom.io.storage.faults import MISSING
from logloom.io.storage.filesystems import contents
from logloom.io.storage.known_files import check_bytes
from logloom.uris import is_local

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MAX_NAMES_BYTES = 64 << 20
_MAX_NAME_BYTES = 255  # of a file on a disk; the system refuses to look for a longer one
_SHOULD = {"metainfo": "should be a dict", "data_list": "should be a list"}


class AnnotationError(DatasetError, ValueError):
    """An annotation file is damaged, or of another format than its name."""


def is_absolute(path: str) -> bool:
    """Whether a path is absolute: from the root of the file system, or a URI."""
    return os.path.isabs(path) or _SCHEME.match(path) is not None


def joined(base: str, path: str) -> str:
    """`path` as seen from the folder or URI `base`; an absolute one as it is."""
    if not base or is_absolute(path):
        return path
    if _SCHEME.match(base):
        return f"{base.rstrip('/')}/{path}"
    return os.path.join(base, path)


def load_annotations(uri: str, storage_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Read the dict in an annotation file, with `metainfo` and `data_list`.

    Raises:
        FileNotFoundError: there is no such file.
        StorageError: it can't be read.
        TypeError: its suffix is of no known format, or its content is no dict.
        AnnotationError: (a ValueError) it is damaged, would run code, or lacks one of the two keys.
    """
    value = load(uri, storage_options)
    if not isinstance(value, dict):
        raise TypeError(f"{uri}: an annotation file contains a dict, found {type(value)}")
    missing = [key for key in ("metainfo", "data_list") if key not in value]
    if missing:
        raise AnnotationError(
            f"{uri}: Annotation must have data_list and metainfo keys, this one lacks {' and '.join(missing)}"
            "; convert it, or override load_data_list"
        )
    for key, kinds in (("metainfo", Mapping), ("data_list", (list, tuple))):
        if not isinstance(value[key], kinds):
            raise AnnotationError(f"{uri}: {key} is a {type(value[key]).__name__}, {_SHOULD[key]}")
    return value


def load(uri: str, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Parse a .json, .yaml, .yml, .pkl or .pickle file; see `load_annotations`."""
    suffix = uri.rsplit("/", 1)[-1].rpartition(".")[2].lower() if "." in uri else ""
    if suffix not in LOADERS:
        known = ", ".join(f".{name}" for name in LOADERS)
        raise TypeError(f"{uri or 'ann_file'!r}: annotation files end in {known}")
    data = contents(uri, storage_options)
    check_bytes(uri, data, storage_options)
    try:
        return LOADERS[suffix](data)
    except pickles.UnsafePickleError as error:
        raise AnnotationError(
            f"{uri}: the pickle {error}; only plain values and numpy arrays are read from pickles: "
            "save it as JSON"
        ) from error
    except (ValueError, RecursionError) as error:
        raise AnnotationError(f"{uri}: damaged, or no {suffix} file ({error})") from error


def read_names(uri: str) -> list[str] | None:
    """The lines of a text file, such as names of classes; None where there is no such file.

    Raises:
        AnnotationError: it is larger than any list of names.
        StorageError: it can't be read, or its store doesn't say whether it is there.
    """
    if is_local(uri) and max(map(len, os.fsencode(uri).split(b"/"))) > _MAX_NAME_BYTES:
        return None
    try:
        data = contents(uri, most=_MAX_NAMES_BYTES + 1)
    except (*MISSING, UsageError, ValueError):  # a text that can be no URI, too
        return None
    if len(data) > _MAX_NAMES_BYTES:
        raise AnnotationError(f"{uri}: larger than {_MAX_NAMES_BYTES >> 20} MiB, which is no list of names")
    return [line.rstrip("\r\n") for line in io.StringIO(data.decode("utf-8"), newline=None)]


def _load_yaml(data: bytes) -> Any:
    import yaml

    try:
        return yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # nosec B506 # safe
    except yaml.YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from error


LOADERS: dict[str, Callable[[bytes], Any]] = {
    "json": json.loads,
    "yaml": _load_yaml,
    "yml": _load_yaml,
    "pkl": pickles.loads,
    "pickle": pickles.loads,
}
