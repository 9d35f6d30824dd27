"""Check names of Flink's settings: Flink ignores unknown ones, which are mostly typing errors."""

from __future__ import annotations

import pathlib
import re
import zipfile
from collections.abc import Iterable

from logloom.errors import UsageError
from logloom.text import near_to

_DECLARE = re.compile(r"org/apache/flink/.*(?:Options|ConfigConstants)\.class")
# A text among the constants of a class: a tag, its length in two bytes, and the text.
_CONSTANT = re.compile(rb"\x01[\x00-\xff]{2}([a-z][\w-]*(?:\.[\w-]+)+\.?)(?=[\x00-\x1f])")
# Families whose members are not all declared: plugins and file systems add theirs.
_OPEN = ("fs.", "s3.", "env.", "kubernetes.", "metrics.", "security.")


def known_settings(jars: Iterable[pathlib.Path]) -> set[str]:
    """Names that Flink's classes declare; one that ends in a dot is a prefix.

    Args:
        jars: Flink's own, or one that holds them.
    """
    known: set[str] = set()
    for path in jars:
        with zipfile.ZipFile(path) as jar:
            for name in filter(_DECLARE.fullmatch, jar.namelist()):
                known.update(text.decode() for text in _CONSTANT.findall(jar.read(name)))
    return known


def refuse_unknown(names: Iterable[str], known: set[str]) -> None:
    """Checks the names of settings.

    Raises:
        UsageError: Flink doesn't declare the name; names the nearest that there is.
    """
    starts = (*_OPEN, *(name for name in known if name.endswith(".")))
    for name in names:
        if known and name not in known and not name.startswith(starts):
            hint = near_to(name, sorted(known), most=0)
            raise UsageError(f"runner option {name!r}: Flink knows no such setting{hint}")
