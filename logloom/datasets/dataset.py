"""`Dataset`: the rows that `logloom.datasets.open` opens, and every view of them.

Here: one class whose methods give other views, or read rows.
Elsewhere: what it holds and says of them (logloom.datasets.dataset_view), opening (logloom.datasets.opening),
arrays of positions (logloom.datasets.views.positions), sources (logloom.io.rows.sources), batches
(logloom.io.rows.batches).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Never, Self, SupportsIndex, cast, overload

import numpy as np
from numpy.typing import ArrayLike

from logloom.blocks import Array
from logloom.datasets.dataset_view import STAMP_KEYS, DatasetView
from logloom.datasets.search.log_matches import passing
from logloom.datasets.views import positions as views
from logloom.datasets.views.column_choice import (
    BatchFn,
    Pick,
    given_names,
    instead_of,
    is_many,
    names_of,
    without_keys,
)
from logloom.datasets.views.renamed_source import (
    RenamedSource,
    check_new_names,
    check_old_names,
    renamed,
    renamed_windows,
)
from logloom.datasets.views.scan import check_unchanged, column_values, mask_of, order_by
from logloom.datasets.views.windows import mapped_windows, sample_windows, stored_batch, window_batch
from logloom.durations import Time
from logloom.errors import UsageError
from logloom.io.rows import batches
from logloom.io.rows.batches import Batch
from logloom.io.rows.log_ranges import Ints

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
                Rows have log_id and timestamp in any case. After `map`: keys of the function's result.

        Raises:
            UsageError: one matches nothing; names the nearest.

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset").select(["ego.*", "camera.front"])
            >>> rows.columns
            ('ego.position', 'ego.rotation', 'ego.speed', 'camera.front')
        """
        if self._fns or self._row_fns:
            from logloom.datasets.statistics import reading

            picked = Pick([columns] if isinstance(columns, str) else columns)
            return cast("Dataset[Any]", reading(self, picked)).map(picked)
        source = self._source
        wanted = without_keys(columns, source.has_stamps)
        chosen = names_of(wanted, source.schema, self.columns, source.place, source.left_out)
        return cast("Dataset[dict[str, Any]]", self._with(columns=chosen))

    def drop(self, columns: str | Sequence[str]) -> Dataset[dict[str, Any]]:
        """The same rows without some columns; these aren't read.

        Args:
            columns: as for `select`.

        Raises:
            UsageError: one matches nothing; or log_id or timestamp, which all rows have.

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset").select(["ego.*", "camera.front"])
            >>> rows.drop("ego.*").columns
            ('camera.front',)
        """
        given, source = given_names(columns, "columns"), self._source
        if self.is_mapped:
            return cast("Dataset[Any]", self).map(Pick(given, keeps=False))
        if kept := [name for name in given if name in STAMP_KEYS and source.has_stamps]:
            raise UsageError(f"drop: all rows have {kept[0]}; a function given to map can leave it out")
        gone = names_of(given, source.schema, self.columns, source.place, source.left_out)
        left = tuple(name for name in self.columns if name not in gone)
        return cast("Dataset[Any]", self._with(columns=left))

    def rename(self, columns: Mapping[str, str]) -> Dataset[dict[str, Any]]:
        """The same rows with other names of columns, and of their ages; views of it use the new names.

        Args:
            columns: the new names, by name; `{"a": "b", "b": "a"}` swaps two.

        Raises:
            UsageError: there is no such column; a new name is reserved, or there twice; rows were mapped.

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset").rename({"ego.speed": "speed"})
            >>> rows.filter("speed > 9").select("speed").columns
            ('speed',)
        """
        if self.is_mapped:
            raise UsageError(
                "rename: rows were mapped; call rename before map, normalized and torch, or let the function "
                "return other names"
            )
        check_old_names(columns, self.columns, self._source)
        windows = None if self._window is None else renamed_windows(self._window, self.columns, columns)
        shown = tuple(renamed(name, columns) for name in self.columns)
        made = self._with(_source=RenamedSource(self._source, columns), columns=shown, _window=windows)
        check_new_names(columns, made.keys, self.place)
        return cast("Dataset[dict[str, Any]]", made)

    def sort_by(
        self, columns: str | Sequence[str], descending: bool | Sequence[bool] = False, **others: Never
    ) -> Self:
        """The same rows by the values of columns. Reads these columns of all rows of this view, here and now.

        Rows of equal values keep their order; those without a value (unavailable, NaN) come last. Windows
        are ordered by the row that each is around, and have their neighbours in the log, as ever.

        Args:
            columns: numbers or texts, also log_id, timestamp, and columns of `index`; the first decides.
            descending: whether the largest comes first, for all columns or for each.
            others: none; the names of other libraries, `ascending` and `reverse`, are refused.

        Raises:
            UsageError: there is no such column, or rows have more than one number or text of it; `descending`
                is something else.

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset").sort_by("ego.speed", descending=True)
            >>> bool(rows[0]["ego.speed"] >= rows[-1]["ego.speed"])
            True
        """
        if others:
            raise UsageError(
                f"sort_by: no argument {min(others)}; descending=True puts the largest first, and a list "
                "such as descending=[True, False] has a flag for each column"
            )
        order = order_by(self, given_names(columns, "columns"), descending)
        return self._with(_rows=views.at(self._rows, order))

    def unique(self, column: str) -> Array:
        """The different values of a column, ascending; without those that are unavailable or NaN.

        Args:
            column: as for `sort_by`.

        Returns:
            (k,) numbers; texts and bytes as objects.

        Raises:
            UsageError: there is no such column, or rows have more than one number or text of it.

        Examples:
            >>> logloom.datasets.open("demo/dataset").unique("log_id").tolist()[:2]
            ['drive-00', 'drive-01']
        """
        values, missing = column_values(self, column, "unique")
        return np.unique(values[~missing])

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

        A sample has (k, *shape) arrays, lists of k values if ragged, bytes or text, and one `log_id`.

        Args:
            offsets: of the k rows: range(-10, 1) is ten rows before and the row itself. Or times, for the
                rows nearest to these: texts ("-200ms"), timedeltas, or seconds, one a float ([-0.2, 0.0]). Or
                both by column, {"camera": range(-1, 1), "action": range(0, 16)}, as in LeRobot's
                `delta_timestamps`: each of these columns (names or globs; "timestamp" too) then has its own
                k, and is read at these rows alone; the other columns have the row's own value.
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
        from logloom.datasets.statistics import scales_windows

        if self._window is not None:
            raise UsageError("window: these rows are windows already; give all offsets in one call")
        source, known = self._source, None if self.is_mapped else self.columns
        asked = offsets, stride, on_edge, max_gap, tolerance, mask
        windows = sample_windows(source, *asked, known, self.borders)
        rows = windows.whole(self.positions, source) if on_edge == "drop" else self._rows
        scales = scales_windows(self, on_edge)
        row_fns, of_windows = ((), self._fns) if scales else (self._row_fns + self._fns, ())
        made = self._with(_rows=rows, _window=windows, _row_fns=row_fns, _fns=of_windows)
        return cast("Dataset[dict[str, Any]]", made)

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
                make of them; of windows, on the row that each is around. It names no column that
                `normalized` changed. Or a function of a sample of this view that returns whether it stays.
            columns: those that the function is given, and no others are read; all of this view by default.
            batched: whether the function is given many samples at once, as `get_many` gives them, and gives
                (n,) bool.

        Raises:
            UsageError: the filter can't be parsed, or names unknown or normalized columns; the function
                returned no (n,) bool.

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
            check_unchanged(self, where)
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

    def stats(self, columns: str | Sequence[str] | None = None) -> dict[str, Any]:
        """Statistics of columns over the rows of this view, as `map` and `normalized` made them.

        What builds counted is put together where this view shows all rows of its splits as they are stored;
        else they are read. Rows that `window` shows several times count once.

        Args:
            columns: the name of a column, or of an age; or several, names or globs; None for all.

        Returns:
            Of one name: count, unavailable, min, max, mean, std, quantiles and their errors, histogram, …:
            the keys that `logloom stats --json` has, see docs/statistics.md. Of several: these by name.

        Raises:
            UsageError: there is no such column, or functions left none; or they changed windows.
            DatasetError: what must be read is damaged.

        Examples:
            >>> speed = logloom.datasets.open("demo/dataset").stats("ego.speed")
            >>> speed["min"] <= speed["mean"] <= speed["max"], speed["unit"], list(speed["quantiles"])
            (True, 'm s-1', ['1', '10', '50', '90', '99'])
            >>> list(logloom.datasets.open("demo/dataset").stats(["ego.speed", "ego.pos*"]))
            ['ego.position', 'ego.speed']
        """
        from logloom.datasets.statistics import stats_of

        return stats_of([self], columns)

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
    def __getitem__(self, number: views.Many) -> Self: ...

    @overload
    def __getitem__(self, number: SupportsIndex) -> Sample: ...

    def __getitem__(self, number: Any) -> Sample | Self:
        """A sample; a view for a slice, a list or (n,) array of numbers, or (len(self),) bool.

        Raises:
            IndexError: there is no such row, so that a for loop ends.
            DatasetError: what is stored is damaged.
            RowNumberError: (a TypeError) a column's name, or several; names the method to call instead.
            UsageError: a mask has another length.

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset")
            >>> len(rows[2:5]), len(rows[[1, -1]]), len(rows[rows.index["log_id"] == "drive-00"]) < len(rows)
            (3, 2, True)
        """
        if isinstance(number, slice):
            return self.take(number)
        if is_many(number):
            return self._with(_rows=views.at(self._rows, self._chosen(number)))
        is_bool = isinstance(number, bool) or getattr(number, "dtype", None) == np.bool_
        if is_bool or not hasattr(number, "__index__") or (isinstance(number, np.ndarray) and number.ndim):
            raise RowNumberError(instead_of(number, self._source.schema, len(self), self.place))
        sample: Sample = self._samples([operator.index(number)])[0]
        return sample

    def __getitems__(self, numbers: Sequence[int]) -> list[Sample]:
        """Many samples in the order asked for, read together, as torch's DataLoader asks for them."""
        return self._samples(numbers)

    def get_many(
        self,
        numbers: Sequence[int] | Array | slice,
        columns: str | Sequence[str] | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Batch:
        """Many samples as one array per column.

        Args:
            numbers: (n,) in any order, repeating or not, negative ones from the end; a slice; or
                (len(self),) bool.
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
            changed = {name for fn in of_batches for name in fn.changes}
            plain = {name: array for name, array in (out or {}).items() if name not in changed}
            positions = views.at(self._rows, chosen)
            batch = stored_batch(self._source, self._window, positions, self.columns, plain)
            for fn in of_batches:
                batch = fn.batched(batch)
            return batch
        samples = self._samples(chosen.tolist())
        if odd := next((type(one).__name__ for one in samples if not isinstance(one, Mapping)), ""):
            raise UsageError(f"{self.place}: a function given to map made a {odd}; batches are made of dicts")
        positions = views.at(self._rows, chosen)
        return batches.stacked_rows(samples, {}, f"{self._source.place}, mapped", positions)

    @property
    def spec(self) -> dict[str, tuple[np.dtype[Any], tuple[int | None, ...]]]:
        """Dtype and shape of each value of a sample, as the first one has them; `log_id` as wide as any.

        Texts and bytes are objects; an axis is None where, by the column's type, rows differ in length; lists
        of lists have two such axes.

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
        """Of the columns with ragged axes, unless functions may have changed their shape."""
        if self._row_fns or not all(isinstance(fn, BatchFn) for fn in self._fns):
            return {}
        spec: dict[str, tuple[np.dtype[Any], tuple[int | None, ...]]] = {}
        for name, ctype in self.schema.columns.items():
            if ctype.kind in ("array", "lists") and ctype.is_ragged and name in sample:
                value = sample[name][0] if self.steps_of(name) else sample[name]
                if ctype.kind == "lists":
                    value = value[0] if value else self.get_many([0], name)[name][0]
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
            UsageError: Arrow can't store the values of a column; names it.
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

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The samples for libraries that read Arrow's C stream: `polars.DataFrame(rows)`, `pa.table(rows)`.

        Args:
            requested_schema: types that the library prefers; see Arrow's PyCapsule interface.

        Examples:
            >>> import pyarrow
            >>> rows = logloom.datasets.open("demo/dataset", columns="ego.speed")
            >>> pyarrow.table(rows).column_names
            ['log_id', 'timestamp', 'ego.speed']
        """
        from logloom.datasets.arrow import stream_of

        return stream_of(self).__arrow_c_stream__(requested_schema)

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

    def _chosen(self, numbers: ArrayLike | slice) -> Ints:
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
            single = [name for name in found if name in self.keys and not self.steps_of(name)]
            samples = batches.windows_of(found, len(positions), single)
        for fn in self._fns:
            samples = [fn(sample) for sample in samples]
        return samples
