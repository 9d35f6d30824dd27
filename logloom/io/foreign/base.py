"""What a foreign dataset is to whoever reads its rows: logs, parts, a schema, blocks.

Here: `ForeignDataset`, `ForeignLog`, `LogRange`, and names of columns made from names that others chose.
Elsewhere: the kinds of datasets (a module each), learning types from values (survey), datasets whose files
don't say what a row is (rows).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from logloom.blocks import Block
from logloom.errors import UsageError
from logloom.io.storage import Store
from logloom.io.units import Reader
from logloom.schema import COLUMN_NAME, RESERVED_LAST_PARTS, RESERVED_NAMES, Schema


@dataclass(frozen=True)
class LogRange:
    """Consecutive rows of one log: what one worker reads, alone.

    Attributes:
        name: within its log.
        start, stop: half-open, int64 ns; the parts of a log lie end to end.
        rows: how many.
        identity: digest of all that the rows depend on.
        size: about how many bytes they take where they lie.
        where: for the dataset alone; small and picklable.
    """

    name: str
    start: int
    stop: int
    rows: int
    identity: str
    where: Any
    size: int = 0


@dataclass(frozen=True)
class ForeignLog:
    """A log of a dataset, its parts in row order."""

    log_id: str
    uri: str
    parts: tuple[LogRange, ...]


@dataclass(frozen=True)
class LostFiles:
    """Files that were left out, since they are damaged.

    Attributes:
        content: digest of what they hold.
        reason: names file and place.
    """

    place: str
    content: str
    reason: str


class FolderKind(Protocol):
    """What tells and opens folders of a kind; see `logloom.io.units.Format`, which says all of it, too."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def is_generic(self) -> bool: ...

    @property
    def source(self) -> str: ...

    @property
    def foreign(self) -> str: ...

    def recognises(self, store: Store) -> bool: ...

    def units(self, store: Store) -> Sequence[Reader]: ...


class ForeignDataset(Protocol):
    """A dataset that logloom didn't build. Picklable, so that workers read its parts.

    Attributes:
        kind: its name on the command line.
        schema: of every row.
        hints: options by output format that keep more of what was there, such as which bytes are jpg.
        notes: what a user should know of how rows were made.
    """

    kind: str
    uri: str
    schema: Schema
    hints: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...]

    def logs(self) -> Sequence[ForeignLog]:
        """All logs, by log_id."""
        ...

    def blocks(
        self, log_id: str, part: LogRange, columns: Sequence[str] | None = None, max_bytes: int = 64 << 20
    ) -> Iterator[Block]:
        """The rows of a part in order, with `timestamp` and the named columns; None is all, ages included.

        Raises:
            DatasetError: files are damaged, gone, or hold something else than when the dataset was opened.
        """
        ...


def column_names(names: Iterable[str], place: str) -> dict[str, str]:
    """Names of columns for names that others chose: lower case, with _ for what a name can't have.

    Raises:
        UsageError: two names become the same.
    """
    found: dict[str, str] = {}
    for name in names:
        column = column_name(name)
        other = next((known for known, made in found.items() if made == column), None)
        if other is not None:
            raise UsageError(f"{place}: {other!r} and {name!r} would both be column {column!r}; rename one")
        found[name] = column
    return found


def column_name(name: str) -> str:
    """The name of a column for one that others chose."""
    parts = [re.sub(r"[^a-z0-9_]", "_", part) for part in name.lower().split(".")]
    column = ".".join(part if part[:1] and not part[0].isdigit() else f"_{part}" for part in parts)
    assert COLUMN_NAME.fullmatch(column), column
    is_reserved = column in RESERVED_NAMES or column.rpartition(".")[2] in RESERVED_LAST_PARTS
    return f"{column}_" if is_reserved else column
