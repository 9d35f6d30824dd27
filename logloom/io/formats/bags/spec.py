"""The spec of a dataset of bags: the type of each key, in spec.json.

Here: checking and reading specs, and the codec of each key.
Elsewhere: the codecs (logloom.io.formats.bags.codecs), the datasets (logloom.io.formats.bags.dataset_writer,
dataset_reader).

spec.json maps each key to its type, sorted. In the first two generations refs.bag lists, for each datapoint,
the records of the bags that belong to it: a msgpack list in the order of the keys, a number for a plain key,
[first, count] for a sequence, [] for an empty one. In the third, datapoint i is record i.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from logloom.errors import DatasetError, UsageError
from logloom.io.formats.bags.codecs import ArrayDecoder
from logloom.io.formats.bags.files import SPEC, Folder
from logloom.io.storage.metadata import parsed

REFS = "refs"
_KEY = re.compile(r"[a-z_][^/\\\x00-\x1f\x7f]{0,199}")
_TYPE = re.compile(r"[a-z_][^\[\]]*(\[\])?")
_MAX_SPEC = 16 << 20

Codecs = Mapping[str, Callable[[Any], Any]] | None


def is_sequence(type_name: str) -> bool:
    return type_name.endswith("[]")


def check_spec(spec: Mapping[str, str], place: str) -> dict[str, str]:
    """Check a spec, and return it sorted.

    Raises:
        UsageError: a key can't name a file of the folder, or a type is invalid.
    """
    for key, type_name in spec.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key) or not _encodable(key):
            raise UsageError(
                f"{place}: key {key!r} can't name a bag; begin with a-z or _, and leave out slashes and "
                "control characters"
            )
        if not isinstance(type_name, str) or not _TYPE.fullmatch(type_name):
            raise UsageError(
                f"{place}: {key} has type {type_name!r}; types look like utf8, or utf8[] for lists"
            )
    return dict(sorted(spec.items()))


def _encodable(key: str) -> bool:
    try:
        return len(key.encode()) <= 250
    except UnicodeEncodeError:
        return False


def codecs_for(spec: Mapping[str, str], codecs: Codecs, kind: str, place: str) -> dict[str, Any]:
    """Choose the encoder or decoder of each key; None where values are bytes already.

    Raises:
        UsageError: a type has none.
    """
    if codecs is None:
        return dict.fromkeys(spec)
    found = {}
    for key, type_name in spec.items():
        try:
            codec = codecs[type_name.removesuffix("[]")]
        except KeyError:
            known = ", ".join(sorted(codecs))
            raise UsageError(
                f"{place}: no {kind} for type {type_name!r} of {key!r}; there are {known}"
            ) from None
        found[key] = ArrayDecoder() if isinstance(codec, ArrayDecoder) else codec
    return found


def read_spec(folder: Folder) -> dict[str, str]:
    file = folder.file(SPEC)
    try:
        size = file.size
        if size > _MAX_SPEC:
            raise DatasetError(f"{file.name}: {size} bytes, a spec has {_MAX_SPEC} at most")
        spec = parsed(file.read(0, size), f"{file.name}: no spec of a dataset of bags")
        if not isinstance(spec, dict):
            raise ValueError("it is no JSON object")
        return check_spec(spec, file.name)
    except ValueError as error:
        raise DatasetError(f"{file.name}: no spec of a dataset of bags ({error})") from error
