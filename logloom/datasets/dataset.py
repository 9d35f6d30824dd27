"""`Dataset`: the rows that `logloom.datasets.open` opens, and every view of them.

Here: one small class that holds a source of rows, an array of row positions, and what is done to rows.
Elsewhere: opening (logloom.datasets.opening), arrays of positions (logloom.datasets.views), sources
(logloom.datasets.sources), batches (logloom.datasets.batches).
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Array
from logloom.datasets import batches, views
from logloom.datasets.batches import Batch
from logloom.datasets.picking import Pick, names_of
from logloom.datasets.sources.base import Ints, RowSource
from logloom.errors import UsageError
from logloom.schema import RESERVED_LAST_PARTS, Schema

if TYPE_CHECKING:
    import pandas as pd

Fn = Callable[[dict[str, Any]], Any]
_STAMP_KEYS = ("log_id", "timestamp")


class Dataset:
    """Rows by number: `len(dataset)`, `dataset[7]`, `dataset[-1]`, `for row in dataset`.

    A row is a dict: log_id and timestamp, then the columns, as numpy values (bytes and str for those kinds).
    Every method gives another view and leaves this one as it is; rows are read when they are asked for.
    Opens files when first read, pickles without them, serves forked and spawned workers and many threads.

    Attributes:
        positions: (len(self),) which rows of the source these are, in stored order counted from 0.
        columns: names of the columns that rows have.
    """

    def __init__(self, source: RowSource, positions: Ints, columns: tuple[str, ...]):
        """See `logloom.datasets.open`."""
        self._source = source
        self.positions = positions
        self.columns = columns
        self._row_fns: tuple[Fn, ...] = ()
        self._window: views.Window | None = None
        self._fns: tuple[Fn, ...] = ()

    def _with(self, **changes: Any) -> Self:
        other = copy.copy(self)
        other.__dict__.update(changes)
        return other

    def __repr__(self) -> str:
        window = f", windows of {len(self._window.steps)}" if self._window is not None else ""
        return f"<Dataset {self._source.place}: {len(self)} rows of {', '.join(self.columns)}{window}>"

    # --- views ------------------------------------------------------------------------------------------

    def select(self, columns: str | Sequence[str]) -> Self:
        """The same rows with fewer columns; no others are read.

        Args:
            columns: names or globs in which `*` crosses dots; ages and availabilities (`c.age`) by name.
                After `map` these are keys of what the function gave.

        Raises:
            UsageError: one matches nothing; names the nearest.
        """
        if self._fns or self._row_fns:
            return self.map(Pick([columns] if isinstance(columns, str) else columns))
        return self._with(columns=names_of(columns, self._source.schema, self.columns, self._source.place))

    def window(
        self,
        offsets: Sequence[int],
        stride: int = 1,
        on_edge: views.OnEdge = "drop",
        *,
        max_gap: int | Literal["recipe"] | None = "recipe",
        mask: str = "mask",
    ) -> Self:
        """Each row with rows around it: its neighbours in the log as stored, whatever this view shows.

        A sample then holds (k, *shape) arrays, and lists of k values where these are ragged, bytes or text;
        `log_id` stays one.

        Args:
            offsets: of the k rows: range(-10, 1) is ten rows before and the row itself.
            stride: what offsets are multiplied by.
            on_edge: what becomes of windows that would leave their log, or span a gap: "drop" leaves these
                samples out; "pad" fills in NaN, 0, false or nothing and says under `mask` which rows are
                real, (k,) bool; "error" raises when such a sample is asked for.
            max_gap: ns between two rows of a log beyond which no window goes; None for no limit; "recipe"
                is one and a half periods of the recipe's clock, no limit where it has none.
            mask: the key of the mask.

        Raises:
            UsageError: these are windows already, or an argument makes no sense.
        """
        if self._window is not None:
            raise UsageError("window: these rows are windows already; give all offsets in one call")
        if on_edge not in views.ON_EDGE:
            raise UsageError(f"window: on_edge={on_edge!r}; there are {', '.join(views.ON_EDGE)}")
        if on_edge == "pad" and mask in (*self.columns, *_STAMP_KEYS):
            raise UsageError(f"window: {mask!r} is a column; name the mask otherwise, with mask=…")
        gap = self._source.max_gap if max_gap == "recipe" else max_gap
        if gap is not None and max_gap != "recipe" and self._source.stamps is None:
            raise UsageError(f"window: rows of {self._source.place} have no timestamps: max_gap=None")
        stamps = self._source.stamps if gap is not None else None
        runs = views.runs_of(self._source.stretches, stamps, gap)
        window = views.Window(views.steps_of(offsets, stride), runs, on_edge, mask)
        positions = window.whole(self.positions) if on_edge == "drop" else self.positions
        return self._with(positions=positions, _window=window, _row_fns=self._row_fns + self._fns, _fns=())

    def shuffle(self, seed: int = 0) -> Self:
        """The same rows in an order that follows from the seed alone."""
        return self._with(positions=views.shuffled(self.positions, seed))

    def shard(self, number: int, count: int) -> Self:
        """Every `count`-th row from the `number`-th on, for one of `count` machines.

        Raises:
            UsageError: there is no such shard.
        """
        return self._with(positions=views.shard_of(self.positions, number, count))

    def take(self, rows: int | Sequence[int] | slice | Array) -> Self:
        """The first `rows` rows; or those of the given numbers, in that order; or where a mask is true.

        Raises:
            UsageError: there is no such row.
        """
        return self._with(positions=views.taken(self.positions, rows))

    def map(self, fn: Fn) -> Self:
        """What a function makes of each row, or of each window where `window` came first.

        Args:
            fn: gives a dict, or anything; of the top level of a module, so that workers can be spawned.
        """
        return self._with(_fns=(*self._fns, fn))

    def torch(self) -> Self:
        """Tensors for numbers and arrays that torch has a type for; the rest stays as it is."""
        return self.map(batches.to_tensors)

    # --- what there is ----------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """The types of the columns as stored, in the recipe's order."""
        own = set(self.columns)
        of = {name.rpartition(".")[0] for name in own if name.rpartition(".")[2] in RESERVED_LAST_PARTS}
        schema = self._source.schema
        columns = {name: ctype for name, ctype in schema.columns.items() if name in own or name in of}
        return Schema(columns, tuple(name for name in schema.sampled if name in columns))

    @property
    def max_gap(self) -> int | None:
        """ns between two rows of a log from which on there is a gap; None where no clock says."""
        return self._source.max_gap

    @property
    def spec(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Dtype and shape of each value of a sample, as the first one has them; text as wide as any log_id.

        Raises:
            UsageError: there is no sample, or a value has no fixed shape.
        """
        from logloom.datasets.filling import spec_of

        if not len(self):
            raise UsageError(f"{self._source.place}: no rows, so nothing says what a sample looks like")
        spec = spec_of(self[0])
        if "log_id" in spec and not self._fns:
            widest = max(map(len, self._source.stretches.log_ids))
            spec["log_id"] = (np.dtype(f"<U{max(1, widest)}"), ())
        return spec

    @property
    def index(self) -> pd.DataFrame:
        """A row for each row: log_id, timestamp, partition, split, its number in its log, index columns."""
        import pandas as pd

        stretches, positions = self._source.stretches, self.positions
        numbers = stretches.number_of(positions)

        def texts(values: Sequence[str]) -> Any:
            known, codes = np.unique(np.asarray(values, object), return_inverse=True)
            return pd.Categorical.from_codes(codes[numbers], pd.Index(known, dtype=str))

        columns: dict[str, Any] = {"log_id": texts(stretches.log_ids)}
        if self._source.stamps is not None:
            columns["timestamp"] = self._source.stamps[positions]
        columns["partition"] = texts(stretches.partitions)
        columns["split"] = texts(stretches.splits)
        columns["row"] = positions - stretches.log_starts()[numbers]
        for name, values in self._source.small.items():
            columns.setdefault(name, values[positions])
        return pd.DataFrame(columns)

    # --- rows -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: Any) -> Any:
        """A sample; a view for a slice.

        Raises:
            IndexError: there is no such row, so that a for loop ends.
            DatasetError: what is stored is damaged.
        """
        if isinstance(number, slice):
            return self.take(number)
        return self._samples([operator.index(number)])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Many samples in the order asked for, read together, as torch's DataLoader asks for them."""
        return self._samples(numbers)

    def get_many(
        self,
        numbers: Sequence[int] | Array,
        columns: str | Sequence[str] | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Batch:
        """Many samples as one array per column.

        Args:
            numbers: (n,) in any order, repeating or not.
            columns: names or globs; all that this view has by default.
            out: arrays to fill by column, where these have a fixed shape; others are ignored.

        Returns:
            log_id: list of n; timestamp: (n,); a column of fixed shape: (n, *shape); a ragged one: (values,
            lengths) with values (total, *tail) and lengths (n,); bytes and strings: list of n. Of windows of
            k: (n, k, *shape), lengths (n, k), lists of n lists, and the (n, k) mask. After `map`: what it
            gave, stacked.

        Raises:
            IndexError: there is no such row.
            UsageError: mapped values can't be stacked.
        """
        if columns is not None:
            return self.select(columns).get_many(numbers, out=out)
        chosen = self._chosen(numbers)
        if not self._fns and not self._row_fns and len(chosen):
            if self._window is None:
                return self._source.batch(self.positions[chosen], self.columns, out)
            return self._window_batch(self._window, self.positions[chosen], out or {})
        samples = self._samples(chosen.tolist())
        return batches.stacked_rows(samples, {}, f"{self._source.place}, mapped", self.positions[chosen])

    def _chosen(self, numbers: Any) -> Ints:
        found = np.asarray(numbers)
        length = len(self)
        if found.size and found.dtype.kind in "iu":
            outside = (found < -length) | (found >= length)
            if outside.any():
                raise IndexError(f"row {found[outside][0]} of {length}")
        return views.checked(found, length)

    def _samples(self, numbers: Sequence[int]) -> list[Any]:
        positions = self.positions[self._chosen(numbers)]
        if not len(positions):
            return []
        if self._window is None:
            samples: list[Any] = self._source.rows(positions, self.columns)
        elif self._row_fns:
            samples = self._mapped_windows(self._window, positions)
        else:
            samples = batches.windows_of(self._window_batch(self._window, positions, {}), len(positions))
        for fn in self._fns:
            samples = [fn(sample) for sample in samples]
        return samples

    def _window_rows(self, window: views.Window, positions: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        rows, exists = window.rows(positions)
        if window.on_edge != "pad" and not exists.all():
            number = int((~exists).any(axis=1).argmax())
            stretches = self._source.stretches
            stretch = int(stretches.number_of(positions[number : number + 1])[0])
            row = int(positions[number] - stretches.log_starts()[stretch])
            raise UsageError(
                f"{self._source.place}: row {row} of log {stretches.log_ids[stretch]!r} has no rows at "
                f"offsets {window.steps[~exists[number]].tolist()}: the log ends there or has a gap; "
                'on_edge="drop" or "pad" goes on'
            )
        return rows, exists

    def _window_batch(self, window: views.Window, positions: Ints, out: Mapping[str, Array]) -> Batch:
        rows, exists = self._window_rows(window, positions)
        count, steps = rows.shape
        flat = {
            name: array.reshape(count * steps, *array.shape[2:])
            for name, array in out.items()
            if array.shape[:2] == (count, steps) and array.flags.c_contiguous
        }
        wanted, is_whole = rows[exists], bool(exists.all())
        unique, back = np.unique(wanted, return_inverse=True)
        if len(unique) == len(wanted) and len(wanted):
            batch = self._source.batch(wanted, self.columns, flat if is_whole else None)
        else:  # rows that several windows share are read once; types stand in the row itself if none is there
            read = unique if len(wanted) else positions[:1]
            batch = batches.take(self._source.batch(read, self.columns), back)
        log_ids = {"log_id": self._log_ids(positions)} if batch.pop("log_id", None) is not None else {}
        if not is_whole:
            batch = batches.filled_up(batch, exists.reshape(-1), self._source.schema.all, flat)
        mask = {window.mask: exists} if window.on_edge == "pad" else {}
        return {**log_ids, **batches.folded(batch, count, steps), **mask}

    def _log_ids(self, positions: Ints) -> list[str]:
        stretches = self._source.stretches
        return [stretches.log_ids[number] for number in stretches.number_of(positions).tolist()]

    def _mapped_windows(self, window: views.Window, positions: Ints) -> list[Any]:
        """Windows of rows that went through functions, each row once."""
        rows, exists = self._window_rows(window, positions)
        wanted, back = np.unique(np.concatenate([rows[exists], positions]), return_inverse=True)
        mapped: list[Any] = self._source.rows(wanted, self.columns)
        for fn in self._row_fns:
            mapped = [fn(row) for row in mapped]
        places = np.full(exists.shape, -1)
        places[exists] = back[: len(back) - len(positions)]
        windows = []
        for number in range(len(positions)):
            own = [mapped[place] if place >= 0 else None for place in places[number].tolist()]
            sample = batches.stacked_window(own, mapped[back[len(back) - len(positions) + number]])
            windows.append({**sample, window.mask: exists[number]} if window.on_edge == "pad" else sample)
        return windows
