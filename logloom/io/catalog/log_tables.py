"""Facts about a log from tables beside it: host, index columns and labels.

Here: `Catalogued`, and reading it from a record's text.
Elsewhere: the tables themselves (logloom.recipe.log_table, logloom.io.labels.label_tables), records
(logloom.io.catalog.pages), outputs that take it (`AssembledFormat.takes` in logloom.io.formats.interface).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import field

from logloom.io.storage.metadata import STRICT, Int64, Name, Unicode, canonical, checked, parsed
from logloom.values import dataclass


@dataclass(frozen=True)
class Catalogued:
    """Facts about a log from a table.

    Attributes:
        host: of its scenes; "" where it doesn't say.
        index: columns of a table's index with their values, in order; a missing number is None.
        labels: by column of labels the digest that names the log's (logloom.io.catalog.labels).
        label_files: by column the names of the files that these labels came from. No row depends on them.
    """

    __pydantic_config__ = STRICT

    host: Unicode = ""
    index: tuple[tuple[Unicode, bool | Int64 | float | Unicode | None], ...] = ()
    labels: Mapping[Unicode, Name] = field(default_factory=dict)
    label_files: Mapping[Unicode, tuple[Unicode, ...]] = field(default_factory=dict)


@functools.lru_cache(maxsize=1024)
def catalogued(text: str) -> Catalogued:
    """Parse `LogRecord.catalogue`.

    Raises:
        DatasetError: it is no such text.
    """
    return checked(Catalogued, parsed(text, "catalogue"), "catalogue") if text else Catalogued()


def with_labels(text: str, digests: Mapping[str, str], files: Mapping[str, Sequence[str]]) -> str:
    """`LogRecord.catalogue` of a log that has labels; as it is where there are none.

    Args:
        files: see `Catalogued.label_files`.
    """
    if not digests:
        return text
    known = parsed(text, "catalogue") if text else {}
    return canonical(known | {"labels": dict(digests), "label_files": dict(files)}).decode()


def without_label_files(text: str) -> str:
    """What a log's record depends on, of `LogRecord.catalogue`: labels may move to other files."""
    if '"label_files"' not in text:
        return text
    known = parsed(text, "catalogue")
    return canonical({name: value for name, value in known.items() if name != "label_files"}).decode()
