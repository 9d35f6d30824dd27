"""What tables beside a log say of it, as the log's record keeps it: for outputs, and as labels.

Here: `Catalogued`, and reading it from a record's text.
Elsewhere: the tables themselves (logloom.recipe.catalogue, logloom.io.labels.tables), records
(logloom.io.shards), outputs that take it (`AssembledFormat.takes` in logloom.io.units).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from logloom.io.metadata import STRICT, Int64, Name, Unicode, canonical, checked, parsed


@dataclass(frozen=True)
class Catalogued:
    """What a table says of a log.

    Attributes:
        host: of its scenes; "" where it doesn't say.
        index: columns of a table's index with their values, in order; a missing number is None.
        labels: by column of labels the digest that names the log's (logloom.io.labels.stored).
    """

    __pydantic_config__ = STRICT

    host: Unicode = ""
    index: tuple[tuple[Unicode, bool | Int64 | float | Unicode | None], ...] = ()
    labels: Mapping[Unicode, Name] = field(default_factory=dict)


@functools.lru_cache(maxsize=1024)
def catalogued(text: str) -> Catalogued:
    """What `LogRecord.catalogue` says.

    Raises:
        DatasetError: it is no such text.
    """
    return checked(Catalogued, parsed(text, "catalogue"), "catalogue") if text else Catalogued()


def with_labels(text: str, digests: Mapping[str, str]) -> str:
    """`LogRecord.catalogue` of a log that has labels; as it is where there are none."""
    if not digests:
        return text
    known = parsed(text, "catalogue") if text else {}
    return canonical(known | {"labels": dict(digests)}).decode()
