"""`Dataset`: the rows that `logloom.datasets.open` opens, and every view of them.

Here: one class whose methods give other views, or read rows.
Elsewhere: what it holds and says of them (logloom.datasets.dataset_view), opening (logloom.datasets.opening),
arrays of positions (logloom.datasets.views.positions), sources (logloom.io.rows.sources), batches
(logloom.io.rows.batches).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, SupportsIndex, cast, overload

import numpy as np
from numpy.typing import ArrayLike

from logloom.blocks import Array, empty
from logloom.datasets.dataset_view import DatasetView
from logloom.datasets.search.log_matches import passing
from logloom.datasets.views import positions as views
from logloom.datasets.views.column_choice import BatchFn, Pick, instead_of, names_of
from logloom.datasets.views.scan import mask_of
from logloom.datasets.views.windows import mapped_windows, sample_windows, window_batch
from logloom.durations import Time
from logloom.errors import UsageError
from logloom.io.rows import batches
from logloom.io.rows.batches import Batch
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import batched as as_batched

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from matplotlib.figure import Figure
    from typing_extensions import TypeVar

    Sample = TypeVar("Sample", default=dict[str, Any], covariant=True)
    Made = TypeVar("Made")
else:
    from typing import TypeVar

    Sample, Made = TypeVar("Sample"), TypeVar("Made")


class RowNumberError(UsageError, TypeError):
    """A dataset was indexed by something that is no row number; the message names the method for it."""


class Dataset(DatasetView, Generic[Sample]):
    """Rows by number: `len(dataset)`, `dataset[7]`, `dataset[-1]`, `for row in dataset`.

    A row is a dict: log_id and timestamp, then the columns, as numpy values (bytes and str for those kinds).
    Every method gives another view and leaves this one as it is; rows are read when they are asked for.
    Opens files when first read, pickles without them, serves forked and spawned workers and many threads.

    Attributes:
        columns: names of the columns that rows have.
    """

    def _repr_html_(self) -> str:
        """What notebooks show: the columns, and small pictures of the first rows."""
        from logloom.datasets.notebook import html_of

        return html_of(self)

    # --- views ------------------------------------------------------------------------------------------

    def select(self, columns: str | Sequence[str]) -> Dataset[dict[str, Any]]:
        """The same rows with fewer columns; no others are read.

        Args:
            columns: names or globs in which `*` crosses dots; ages and availabilities (`c.age`) by name.
                After `map` these are keys of what the function gave.

        Raises:
            UsageError: one matches nothing; names the nearest.

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset").select(["ego.*", "camera.front"])
            >>> rows.columns
            ('ego.position', 'ego.rotation', 'ego.speed', 'camera.front')
        """
        if self._fns or self._row_fns:
            return cast("Dataset[Any]", self).map(Pick([columns] if isinstance(columns, str) else columns))
        source = self._source
        chosen = names_of(columns, source.schema, self.columns, source.place, source.left_out)
        return cast("Dataset[dict[str, Any]]", self._with(columns=chosen))

    def window(
        self,
        offsets: views.Offsets | Mapping[str, views.Offsets],
        stride: int = 1,
        on_edge: views.OnEdge = "drop",
        *,
        max_gap: Time | None = "recipe",
        tolerance: Time | None = "recipe",
        mask: str = "mask",
    ) -> Dataset[dict[str, Any]]:
        """Each row with rows around it: its neighbours in the log as stored, whatever this view shows.

        A sample then holds (k, *shape) arrays, and lists of k values where these are ragged, bytes or text;
        `log_id` stays one.

        Args:
            offsets: of the k rows: range(-10, 1) is ten rows before and the row itself. Or times, for the
                rows nearest to these: texts ("-200ms"), timedeltas, or seconds of which one at least is a
                float ([-0.2, 0.0]). Or both by column, {"camera": range(-1, 1), "action": range(0, 16)},
                which is also the form of LeRobot's `delta_timestamps`: each of these columns (names or globs;
                "timestamp" too) then has its own k, and is read at these rows alone; the other columns have
                the row's own value.
            stride: what offsets are multiplied by.
            on_edge: what becomes of windows that would leave their log, or span a gap: "drop" leaves these
                samples out; "pad" fills in NaN, 0, false or nothing; "repeat" the first or last row that
                there is; both say under `mask` which rows are real, (k,) bool; "error" raises when such a
                sample is asked for.
            max_gap: time between two rows of a log beyond which no window goes, as a text ("300ms") or in
                seconds (0.3); None for no limit; "recipe" is one and a half periods of the recipe's clock, no
                limit where it has none.
            tolerance: from a time to its row; a time without a row that near is one beyond the edge. None for
                any row, between the first and the last; "recipe" is half a period of the recipe's clock,
                None where it has none.
            mask: the key of the mask; of columns that have windows of their own its last part: "action.mask".

        Raises:
            UsageError: these are windows already, or an argument makes no sense.

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset", columns=["ego.position", "camera.front"])
            >>> sample = rows.window(range(-4, 1))[0]
            >>> sample["timestamp"].shape, sample["ego.position"].shape, len(sample["camera.front"])
            ((5,), (5, 3), 5)
            >>> rows.window([-1, 0], on_edge="pad")[0]["mask"].tolist()
            [False, True]
            >>> ranges = {"camera.front": ["-200ms", "0ms"], "ego.position": range(4)}
            >>> sample = rows.window(ranges, on_edge="repeat")[0]
            >>> sample["camera.front.mask"].tolist(), sample["ego.position"].shape
            ([False, True], (4, 3))
        """
        if self._window is not None:
            raise UsageError("window: these rows are windows already; give all offsets in one call")
        source, known = self._source, None if self.is_mapped else self.columns
        windows = sample_windows(
            source, offsets, stride, on_edge, max_gap, tolerance, mask, known, self.borders
        )
        rows = windows.whole(self.positions, source) if on_edge == "drop" else self._rows
        made = self._with(_rows=rows, _window=windows, _row_fns=self._row_fns + self._fns, _fns=())
        return cast("Dataset[dict[str, Any]]", made)

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

        Raises:
            UsageError: there is no such row.
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

    def filter(
        self,
        where: str | Callable[[Any], Any],
        columns: str | Sequence[str] | None = None,
        *,
        batched: bool = False,
    ) -> Self:
        """The rows that pass. Reads, here and now, what the filter looks at, of all rows of this view.

        Args:
            where: as for `logloom.datasets.open`: on rows as they are stored, whatever `window` and `map`
                make of them; of windows, on the row that each is around. Or a function that is given a
                sample of this view and says whether it stays.
            columns: those that the function is given, and no others are read; all of this view by default.
            batched: whether the function is given many samples at once, as `get_many` gives them, and gives
                (n,) bool.

        Raises:
            UsageError: the filter can't be parsed, or names unknown columns; the function gave no (n,) bool.

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset")
            >>> fast = rows.filter("ego.speed > 9 and available(camera.front)")
            >>> busy = rows.filter(lambda row: len(row["objects"]) > 2, columns="objects")
            >>> same = rows.filter(lambda batch: batch["ego.speed"] > 9, columns="ego.speed", batched=True)
            >>> len(fast) == len(same) < len(rows)
            True
        """
        if isinstance(where, str):
            if columns is not None or batched:
                raise UsageError("filter: columns= and batched= go with a function; text names its columns")
            return self._with(_rows=passing(self._source, self.positions, where))
        if not callable(where):
            raise UsageError(f"filter: expected text or a function, got a {type(where).__name__}")
        view: Dataset[Any] = self if columns is None else self.select(columns)
        return self.take(mask_of(view, where, batched))

    def map(self, fn: Callable[[Sample], Made]) -> Dataset[Made]:
        """What a function makes of each row, or of each window where `window` came first.

        Args:
            fn: gives a dict, or anything; of the top level of a module, so that workers can be spawned.

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset", columns="ego.speed")
            >>> kmh = rows.map(lambda row: {"kmh": 3.6 * row["ego.speed"]})
            >>> bool(kmh[0]["kmh"] == 3.6 * rows[0]["ego.speed"])
            True
        """
        return cast("Dataset[Made]", self._with(_fns=(*self._fns, fn)))

    def torch(self) -> Dataset[dict[str, Any]]:
        """Makes tensors of numbers and arrays that torch has a type for; the rest stays as it is.

        Returns:
            The dataset, mapped: take it as it is for `torch.utils.data.DataLoader`.
        """
        return cast("Dataset[Any]", self).map(batches.to_tensors)

    def normalized(
        self, columns: str | Sequence[str], like: Dataset[Any] | None = None
    ) -> Dataset[dict[str, Any]]:
        """The same samples with columns brought to zero mean and unit standard deviation, as float32.

        Of vectors each element, of points each field and of images each channel by its own mean; what doesn't
        vary becomes 0. NaN stays.

        Args:
            columns: names or globs; of numbers.
            like: the rows whose statistics count; these by default.

        Raises:
            UsageError: a column is missing, or holds no numbers.

        Examples:
            >>> train = logloom.datasets.open("demo/dataset")
            >>> val = logloom.datasets.open("demo/dataset").head(10)
            >>> value = val.normalized("ego.position", like=train)[0]["ego.position"]
            >>> value.dtype, value.shape
            (dtype('float32'), (3,))
        """
        from logloom.datasets.statistics import Normalize, counted
        from logloom.statistics.summary import summary

        model = self if like is None else like
        names = names_of(columns, model.source.schema, None, model.place)
        known, schema = counted(model, names)
        normalize = Normalize(summary(known, schema), schema, model.place)
        return cast("Dataset[Any]", self).map(normalize)

    def stats(self, column: str) -> dict[str, Any]:
        """Statistics of a column over the rows of this view, as `map` and `normalized` made them.

        What builds counted is put together where this view shows all rows of its splits as they are stored;
        else they are read. Rows that `window` shows several times count once.

        Args:
            column: its name, or that of an age.

        Returns:
            count, unavailable, min, max, mean, std, quantiles and their errors, histogram, …: the keys that
            `logloom stats --json` has, see docs/statistics.md.

        Raises:
            UsageError: there is no such column, or functions left none; or they changed windows.
            DatasetError: what must be read is damaged.

        Examples:
            >>> speed = logloom.datasets.open("demo/dataset").stats("ego.speed")
            >>> speed["min"] <= speed["mean"] <= speed["max"], speed["unit"], list(speed["quantiles"])
            (True, 'm s-1', ['1', '10', '50', '90', '99'])
        """
        from logloom.datasets.statistics import stats_of

        names = names_of([column], self._source.schema, None, self._source.place)
        if len(names) > 1 or names[0].endswith(".available"):
            raise UsageError(f"stats: {column!r} names no single column; its name, or that of an age, does")
        return stats_of(self, [names[0].removesuffix(".age")])[names[0]]

    def plot(self, columns: str | Sequence[str] | None = None, *, rows: int = 2000) -> Figure:
        """Columns of numbers over time, in the order of this view: one panel a column, one line a number.

        Lines break where a column is unavailable, and between logs.

            rows.plot(["ego.speed", "ego.position"])

        Args:
            columns: names or globs; by default those of this view that are numbers or short vectors.
            rows: that are read and drawn, at most; evenly chosen.

        Returns:
            A matplotlib Figure, which notebooks show; `savefig` writes it to a file.

        Raises:
            UsageError: matplotlib isn't installed; a column is missing, or can't be drawn; too many columns.
        """
        from logloom.datasets.notebook import drawable, plot_of

        if columns is None:
            names = drawable(self.schema, self.columns)
        else:
            names = names_of(columns, self._source.schema, None, self._source.place)
        return plot_of(self, names, max(1, operator.index(rows)))

    # --- rows -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Sample]:
        return (self._samples([number])[0] for number in range(len(self)))

    @overload
    def __getitem__(self, number: SupportsIndex) -> Sample: ...

    @overload
    def __getitem__(self, number: slice) -> Self: ...

    def __getitem__(self, number: SupportsIndex | slice) -> Sample | Self:
        """A sample; a view for a slice.

        Raises:
            IndexError: there is no such row, so that a for loop ends.
            DatasetError: what is stored is damaged.
            RowNumberError: (a TypeError) a column's name, or a list; names the method to call instead.
        """
        if isinstance(number, slice):
            return self.take(number)
        if not hasattr(number, "__index__") or (isinstance(number, np.ndarray) and number.ndim):
            raise RowNumberError(instead_of(number, self._source.schema, len(self), self.place))
        sample: Sample = self._samples([operator.index(number)])[0]
        return sample

    def __getitems__(self, numbers: Sequence[int]) -> list[Sample]:
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

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset")
            >>> batch = rows.get_many([5, 40, 17], ["ego.position", "lidar.points"])
            >>> points, lengths = batch["lidar.points"]  # ragged: values end to end
            >>> batch["ego.position"].shape, points.shape == (lengths.sum(), 4)
            ((3, 3), True)
        """
        if columns is not None:
            return self.select(columns).get_many(numbers, out=out)
        chosen = self._chosen(numbers)
        of_batches = [fn for fn in self._fns if isinstance(fn, BatchFn)]
        if len(of_batches) == len(self._fns) and not self._row_fns:
            batch = self._stored_many(views.at(self._rows, chosen), {} if of_batches else out or {})
            for fn in of_batches:
                batch = fn.batched(batch)
            return batch
        samples = self._samples(chosen.tolist())
        if odd := next((type(one).__name__ for one in samples if not isinstance(one, Mapping)), ""):
            raise UsageError(f"{self.place}: a function given to map made a {odd}; batches are made of dicts")
        positions = views.at(self._rows, chosen)
        return batches.stacked_rows(samples, {}, f"{self._source.place}, mapped", positions)

    def _stored_many(self, positions: Ints, out: Mapping[str, Array]) -> Batch:
        """Rows, or windows, before functions given to `map`; of no rows, too, with the types of columns."""
        source, types = self._source, self._source.schema.all
        if len(positions) and self._window is None:
            return source.take(positions, self.columns, out)
        if len(positions):
            assert self._window is not None
            return window_batch(source, self._window, positions, self.columns, out)
        stamps: Batch = {"log_id": [], "timestamp": np.empty(0, np.int64)} if source.has_stamps else {}
        batch = {
            name: as_batched(source.place, name, empty(types[name]), types[name]) for name in self.columns
        }
        windows = self._window
        if windows is None:
            return stamps | batch
        batch = stamps | batch
        for name in batch:
            if spec := windows.of(name):
                batch |= batches.folded({name: batch[name]}, 0, len(spec.steps))
        masks = windows.masks(self.columns).items()
        return batch | {key: np.empty((0, len(spec.steps)), np.bool_) for key, spec in masks}

    @property
    def spec(self) -> dict[str, tuple[np.dtype[Any], tuple[int | None, ...]]]:
        """Dtype and shape of each value of a sample, as the first one has them; `log_id` as wide as any.

        Texts and bytes are objects; an axis is None where, by the column's type, rows differ in length.

        Raises:
            UsageError: there is no sample, or a value has no fixed shape.
        """
        from logloom.datasets.loader.batch_filler import spec_of

        if not len(self):
            raise UsageError(f"{self._source.place}: no rows, so the form of a sample is unknown")
        sample = self._samples([0])[0]
        ragged = self._ragged_spec(sample)
        spec = spec_of({key: value for key, value in sample.items() if key not in ragged}) | ragged
        for key, width in () if self._fns else self.text_widths.items():
            if key in spec:
                spec[key] = (np.dtype(f"<U{max(1, width)}"), ())
        return {key: spec[key] for key in sample}

    def _ragged_spec(self, sample: Any) -> dict[str, tuple[np.dtype[Any], tuple[int | None, ...]]]:
        """Of the columns with one ragged axis, unless functions may have changed their shape."""
        if self._row_fns or not all(isinstance(fn, BatchFn) for fn in self._fns):
            return {}
        spec: dict[str, tuple[np.dtype[Any], tuple[int | None, ...]]] = {}
        for name, ctype in self.schema.columns.items():
            if ctype.kind == "array" and ctype.num_ragged == 1 and name in sample:
                value = sample[name][0] if self.steps_of(name) else sample[name]
                if isinstance(value, np.ndarray) and not value.dtype.hasobject:
                    steps = [self.steps_of(name)] if self.steps_of(name) else []
                    spec[name] = value.dtype, (*steps, *ctype.shape)
        return spec

    # --- other libraries --------------------------------------------------------------------------------

    def to_batches(
        self, columns: str | Sequence[str] | None = None, rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The samples as Arrow record batches of one schema, read one after the other.

        An axis of fixed length becomes a fixed-size list, a ragged one a list; bytes are binary, structured
        values structs. `timestamp` and ages stay int64 ns.

        Args:
            columns: names or globs; all that this view has by default.
            rows: of a batch; by default as many as take some 64 MiB.

        Raises:
            UsageError: Arrow can't hold the values of a column; names it.
        """
        if rows is not None and operator.index(rows) < 1:
            raise UsageError(f"to_batches: rows={rows}; a batch has at least one")
        from logloom.datasets.arrow import batches_of

        return batches_of(self if columns is None else self.select(columns), rows)

    def to_arrow(self, columns: str | Sequence[str] | None = None) -> pa.Table:
        """All samples as an Arrow table in memory; see `to_batches`.

        Args:
            columns: names or globs; None is all that the dataset shows.
        """
        from logloom.datasets.arrow import table_of

        return table_of(self if columns is None else self.select(columns))

    def to_pandas(self, columns: str | Sequence[str] | None = None) -> pd.DataFrame:
        """All samples as a DataFrame in memory.

        Numbers and text are columns of their types, all other values are as rows have them: numpy arrays,
        bytes. `timestamp` and ages stay int64 ns.

        Args:
            columns: names or globs; None is all that the dataset shows.
        """
        from logloom.datasets.arrow import frame_of

        return frame_of(self if columns is None else self.select(columns))

    def to_polars(self, columns: str | Sequence[str] | None = None) -> pl.DataFrame:
        """All samples as a polars DataFrame in memory; types as in `to_batches`.

        Args:
            columns: names or globs; None is all that the dataset shows.

        Raises:
            UsageError: polars isn't installed.
        """
        try:
            import polars
        except ImportError as error:
            raise UsageError("to_polars needs polars: pip install polars") from error
        return cast("pl.DataFrame", polars.from_arrow(self.to_arrow(columns)))

    def _chosen(self, numbers: ArrayLike) -> Ints:
        return views.checked(numbers, len(self), IndexError)

    def _samples(self, numbers: Sequence[int]) -> list[Any]:
        positions = views.at(self._rows, self._chosen(numbers))
        if not len(positions):
            return []
        if self._window is None:
            samples: list[Any] = self._source.rows(positions, self.columns)
        elif self._row_fns:
            samples = mapped_windows(self._source, self._window, positions, self.columns, self._row_fns)
        else:
            found = window_batch(self._source, self._window, positions, self.columns, {})
            single = [name for name in found if name in self.columns and not self.steps_of(name)]
            samples = batches.windows_of(found, len(positions), single)
        for fn in self._fns:
            samples = [fn(sample) for sample in samples]
        return samples
