"""Annotation files of OpenMMLab 2.0: a dict with `metainfo` and `data_list` in JSON, YAML or a pickle.

Here: reading such a file, and lists of names, from any fsspec URI; joining paths as data sets name them.
Elsewhere: what is made of the infos (logloom.datasets.openmmlab), writing files (stage, assemble).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from logloom.errors import DatasetError
from logloom.io.annotations import pickles
from logloom.io.checks import check_bytes
from logloom.io.filesystems import filesystem
from logloom.uris import is_local

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MAX_NAMES_BYTES = 64 << 20
_SHOULD = {"metainfo": "should be a dict", "data_list": "should be a list"}


class AnnotationError(DatasetError, ValueError):
    """An annotation file is damaged, or not what its name says."""


def is_absolute(path: str) -> bool:
    """Whether a path stands on its own: from the root of the file system, or a URI."""
    return os.path.isabs(path) or _SCHEME.match(path) is not None


def joined(base: str, path: str) -> str:
    """`path` as seen from the folder or URI `base`; an absolute one as it is."""
    if not base or is_absolute(path):
        return path
    if _SCHEME.match(base):
        return f"{base.rstrip('/')}/{path}"
    return os.path.join(base, path)


def load_annotations(uri: str, storage_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The dict that an annotation file holds, with `metainfo` and `data_list`.

    Raises:
        FileNotFoundError: it isn't there.
        TypeError: its suffix says no known format, or it holds something else than a dict.
        AnnotationError: (a ValueError) it is damaged, would run code, or lacks one of the two keys.
    """
    value = load(uri, storage_options)
    if not isinstance(value, dict):
        raise TypeError(f"{uri}: an annotation file holds a dict, found {type(value)}")
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
    """What a .json, .yaml, .yml, .pkl or .pickle file holds; see `load_annotations`."""
    suffix = uri.rsplit("/", 1)[-1].rpartition(".")[2].lower() if "." in uri else ""
    if suffix not in LOADERS:
        known = ", ".join(f".{name}" for name in LOADERS)
        raise TypeError(f"{uri or 'ann_file'!r}: annotation files end in {known}")
    data = _read(uri, storage_options)
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


def read_names(uri: str, storage_options: Mapping[str, Any] | None = None) -> list[str] | None:
    """The lines of a text file, such as names of classes; None where there is no such file."""
    if is_local(uri):
        path = uri.split("://", 1)[-1]
        if not os.path.isfile(path):
            return None
        with open(path, encoding="utf-8") as file:
            return [line.rstrip("\r\n") for line in file]
    try:
        fs, path = filesystem(uri, storage_options)
        data: bytes = fs.cat_file(path, start=0, end=_MAX_NAMES_BYTES)
    except Exception:  # every store has its own way to say that there is none
        return None
    return data.decode("utf-8").splitlines()


def _read(uri: str, storage_options: Mapping[str, Any] | None) -> bytes:
    if is_local(uri):
        with open(uri.split("://", 1)[-1], "rb") as file:
            return file.read()
    fs, path = filesystem(uri, storage_options)
    data: bytes = fs.cat_file(path)
    return data


def _load_json(data: bytes) -> Any:
    return json.loads(data)


def _load_yaml(data: bytes) -> Any:
    import yaml

    try:
        return yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # nosec B506 # safe
    except yaml.YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from error


LOADERS = {
    "json": _load_json,
    "yaml": _load_yaml,
    "yml": _load_yaml,
    "pkl": pickles.loads,
    "pickle": pickles.loads,
}
