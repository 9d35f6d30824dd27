"""The chosen rows of a dataset, and facts about them that need no reading.

Here: `DatasetView`: a source of rows, an array of row positions, functions to apply to rows, views of other
positions, and the facts that follow from these without reading a row.
Elsewhere: other views and the rows themselves (logloom.datasets.dataset), sources (logloom.io.rows.sources).
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from logloom.blocks import Array
from logloom.datasets.views import positions as views
from logloom.errors import UsageError
from logloom.io.rows.log_ranges import Ints, Stretches
from logloom.io.rows.sources import RowSource
from logloom.schema import RESERVED_LAST_PARTS, Schema
from logloom.text import near_to

if TYPE_CHECKING:
    import pandas as pd

Fn = Callable[[Any], Any]
STAMP_KEYS = ("log_id", "timestamp")

# A repr fits a screen of 80 columns and 24 lines.
_WIDTH = 80
_COLUMNS = 16  # that are listed
_LOGS = 3
_NAME = 48  # letters of a column's name


class DatasetView:
    """The rows that a dataset shows, and in which form; the base of `logloom.datasets.Dataset`.

    Attributes:
        columns: names of the columns that rows have.
    """

    def __init__(self, source: RowSource, rows: views.Rows, columns: tuple[str, ...]):
        """See `logloom.datasets.open`."""
        self._source = source
        self._rows = rows
        self.columns = columns
        self._row_fns: tuple[Fn, ...] = ()
        self._borders: Array | None = None
        self._window: views.SampleWindows | None = None
        self._fns: tuple[Fn, ...] = ()

    def _with(self, **changes: Any) -> Self:
        other = copy.copy(self)
        other.__dict__.update(changes)
        return other

    if not TYPE_CHECKING:  # else any attribute would do for type checkers

        def __getattr__(self, name):
            from logloom.familiar_names import DATASET, ours

            if name.startswith("_") or hasattr(type(self), name):
                return object.__getattribute__(self, name)  # the error of a property, or Python's own
            columns = self.__dict__.get("columns", ())
            if name in columns:
                hint = f"; rows.select({name!r}) has that column, and rows[0][{name!r}] its first value"
            elif any(column.startswith(f"{name}.") for column in columns):
                hint = f"; rows.select('{name}.*') has these columns"
            else:
                known = [one for one in dir(type(self)) if not one.startswith("_")]
                hint = ours(name, DATASET) or near_to(name, [*known, *columns], most=0)
            raise AttributeError(f"a dataset has no attribute {name!r}{hint}")

    def shuffle(self, seed: int = 0) -> Self:
        """The same rows in an order that follows from the seed alone.

        Args:
            seed: another seed gives another order.
        """
        return self._with(_rows=views.shuffled(self.positions, seed))

    def shard(self, number: int, count: int) -> Self:
        """Every `count`-th row from the `number`-th on, for one of `count` machines.

        Raises:
            UsageError: there is no such shard.
        """
        return self._with(_rows=views.shard_of(self._rows, number, count))

    def take(self, rows: int | Sequence[int] | slice | Array) -> Self:
        """The first `rows` rows; or those of the given numbers, in that order; or where a mask is true.

        Args:
            rows: how many; numbers, of which negative ones count from the end; a slice; or (len(self),) bool.

        Raises:
            UsageError: there is no such row, or a mask has another length.
        """
        return self._with(_rows=views.taken(self._rows, rows))

    def apart(self, which: Array, labels: Array) -> Self:
        """The rows where a mask is true; their windows hold rows of one label only.

        Args:
            which: (len(self),) bool.
            labels: (N,) of all rows that are stored, whatever this view shows; see `positions`.

        Raises:
            UsageError: these are windows already; a label, or a truth, for other rows.
        """
        if self._window is not None or len(labels) != len(self._source):
            raise UsageError(f"apart: {len(labels)} labels for {len(self._source)} rows, before windows")
        borders = np.append(True, labels[1:] != labels[:-1])[: len(labels)]
        borders = borders if self.borders is None else borders | self.borders
        return self._with(_rows=views.taken(self._rows, np.asarray(which, np.bool_)), _borders=borders)

    def head(self, rows: int = 5) -> Self:
        """The first rows; as `take`.

        Args:
            rows: how many.
        """
        return self.take(operator.index(rows))

    def tail(self, rows: int = 5) -> Self:
        """The last rows.

        Args:
            rows: how many.

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset")
            >>> len(rows.tail(3)), rows.tail(1)[0]["timestamp"] == rows[-1]["timestamp"]
            (3, True)
        """
        return self._with(_rows=views.last_of(self._rows, rows))

    def __repr__(self) -> str:
        notes = []
        if self._window is not None:
            notes.append(str(self._window))
        if self._fns or self._row_fns:
            notes.append("mapped; the columns are those that functions are given")
        stretches, types = self._source.stretches, self._source.schema.all
        logs = sorted({stretches.log_ids[number] for number in _touched(stretches, self._rows)})
        named = ", ".join([*logs[:_LOGS], *(["…"] if len(logs) > _LOGS else [])])
        rows = f"{_count(len(self._rows), 'row')} of {_count(len(logs), 'log')}{named and ': '}{named}"
        lines = [
            f"<Dataset {_shortened(self.place, _WIDTH - 10)}",
            rows,
            *notes,
            f"{_count(len(self.columns), 'column')}:",
        ]
        shown = self.columns if len(self.columns) <= _COLUMNS else self.columns[: _COLUMNS - 1]
        wide = min(_NAME, max(map(len, shown), default=0))
        for name in shown:
            ctype = types.get(name)
            unit = f"  {ctype.unit}" if ctype is not None and ctype.unit else ""
            short = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
            lines.append(f"  {short:{wide}}  {ctype or 'object'}{unit}")
        if len(shown) < len(self.columns):
            lines.append(f"  … and {len(self.columns) - len(shown)} more")
        return "\n".join([lines[0], *(_cut(f"  {line}") for line in lines[1:])]) + ">"

    def _ipython_key_completions_(self) -> list[str]:
        """The columns, which notebooks offer for what is typed between brackets."""
        return list(self.columns)

    @property
    def place(self) -> str:
        """The URI of what was opened."""
        return self._source.place

    @property
    def positions(self) -> Ints:
        """(len(self),) which rows of the source these are, in stored order counted from 0."""
        return views.array_of(self._rows)

    @property
    def stored_rows(self) -> views.Rows:
        """As `positions`, or a range, which takes no memory."""
        return self._rows

    @property
    def left_out(self) -> Mapping[str, str]:
        """Data of the dataset that rows don't have, by name, and why: zarr arrays that can't be columns."""
        return self._source.left_out

    @property
    def schema(self) -> Schema:
        """The types of the columns as stored, in the recipe's order."""
        own = set(self.columns)
        of = {name.rpartition(".")[0] for name in own if name.rpartition(".")[2] in RESERVED_LAST_PARTS}
        schema = self._source.schema
        columns = {name: ctype for name, ctype in schema.columns.items() if name in own or name in of}
        return Schema(columns, tuple(name for name in schema.sampled if name in columns))

    @property
    def keys(self) -> tuple[str, ...]:
        """What a sample has, before functions given to `map` change it."""
        masks = () if self._window is None else self._window.masks(self.columns)
        stamps = STAMP_KEYS if self._source.has_stamps else ()
        key = (self._source.key_name,) if self._source.key_name else ()
        return (*stamps, *key, *self.columns, *masks)

    @property
    def is_mapped(self) -> bool:
        """Whether functions were given to `map`."""
        return bool(self._fns or self._row_fns)

    @property
    def functions(self) -> tuple[tuple[Fn, ...], tuple[Fn, ...]]:
        """The functions given to `map`: of rows that windows are made of, and of samples."""
        return self._row_fns, self._fns

    def with_functions(self, columns: Sequence[str], fns: Sequence[Fn]) -> Self:
        """The same samples of some columns, changed by other functions.

        Args:
            columns: names of the columns that are read.
            fns: that samples are given to, instead of those given to `map`.
        """
        return self._with(columns=tuple(columns), _fns=tuple(fns))

    @property
    def window_steps(self) -> int:
        """How many rows a window has, the longest where columns have their own; 0 where samples are rows."""
        return 0 if self._window is None else max(len(spec.steps) for spec in self._window.specs)

    def steps_of(self, name: str) -> int:
        """How many rows a sample has of a column; 0 where it has the value of one row.

        Args:
            name: of the column, or "timestamp".
        """
        spec = None if self._window is None else self._window.of(name)
        return 0 if spec is None else len(spec.steps)

    @property
    def source(self) -> RowSource:
        """Where the rows come from."""
        return self._source

    @property
    def borders(self) -> Array | None:
        """(N,) bool, of all rows that are stored, before which a run of rows ends that windows stay within:
        where another split begins, see `apart`. None: logs, and gaps, alone end runs."""
        found = self._source.row_splits if self._borders is None else None
        return self._borders if found is None else found.borders

    @property
    def max_gap_ns(self) -> int | None:
        """ns between two rows of a log from which on there is a gap; None where no clock says."""
        return self._source.max_gap

    @property
    def text_widths(self) -> dict[str, int]:
        """Characters of the longest value of texts that batches hold: of `log_id`, where rows have one."""
        if not self._source.has_stamps:
            return {}
        return {"log_id": max(map(len, self._source.stretches.log_ids), default=0)}

    @property
    def index(self) -> pd.DataFrame:
        """A row for each row: log_id, timestamp, partition, split, its number in its log, index columns."""
        import pandas as pd

        source, positions = self._source, self.positions
        stretches = source.stretches.by_partition
        numbers = stretches.number_of(positions)

        def texts(values: Sequence[str], numbers: Any = numbers) -> Any:
            known, codes = np.unique(np.asarray(values, object), return_inverse=True)
            return pd.Categorical.from_codes(codes[numbers], pd.Index(known, dtype=str))

        columns: dict[str, Any] = {"log_id": texts(stretches.log_ids)}
        if source.stamps is not None:
            columns["timestamp"] = source.stamps[positions]
        columns["partition"] = texts(stretches.partitions)
        labels = source.row_splits
        columns["split"] = (
            texts(stretches.splits) if labels is None else texts(labels.texts, labels.numbers[positions])
        )
        columns["row"] = positions - stretches.log_starts()[numbers]
        for name, values in source.small.items():
            columns.setdefault(name, values[positions])
        return pd.DataFrame(columns)


def _touched(stretches: Stretches, positions: views.Rows) -> list[int]:
    """The stretches that rows are in."""
    if isinstance(positions, range) and positions and abs(positions.step) == 1:
        first, last = np.sort(stretches.number_of(np.array([positions[0], positions[-1]]))).tolist()
        numbers = first + np.flatnonzero(stretches.counts[first : last + 1])
    else:
        numbers = np.unique(stretches.number_of(views.array_of(positions))) if len(positions) else np.empty(0)
    return [int(number) for number in numbers]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _cut(line: str) -> str:
    return line if len(line) < _WIDTH else f"{line[: _WIDTH - 2]}…"


def _shortened(place: str, width: int) -> str:
    """The end of a URI, the part in which URIs differ."""
    return place if len(place) <= width else f"…{place[1 - width :]}"
