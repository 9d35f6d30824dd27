"""Statistics of a dataset's rows, and normalization to zero mean, unit deviation.

Here: which rows builds have counted already, and reading the others; `Normalize`.
Elsewhere: what statistics are (logloom.statistics).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from logloom.blocks import Array, Block, Ragged, Values
from logloom.datasets.views.column_choice import BatchFn, Pick, names_of
from logloom.errors import UsageError
from logloom.inference import common_shape, kind_of
from logloom.io.catalog.log_statistics import read_statistics_file
from logloom.io.rows.batches import Batch
from logloom.io.rows.log_ranges import Ints
from logloom.io.rows.sources import RowSource, values_of
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.schema import AGE, ColumnType, Schema
from logloom.statistics.columns import Statistics
from logloom.statistics.rows import RowStatistics
from logloom.statistics.summary import summary

if TYPE_CHECKING:
    import pyarrow as pa

    from logloom.datasets.dataset import Dataset
    from logloom.datasets.dataset_view import DatasetView

D = TypeVar("D", bound="DatasetView")
_FIRST_ROWS = 32  # that are read together, which tell what a row takes
_AT_ONCE = 64 << 20  # bytes of rows that are read together, about


def counted_logs(store: Store, logs: pa.Table, columns: Sequence[str]) -> Statistics:
    """What builds counted of some columns of logs.

    Args:
        logs: statistics and part of each.
    """
    names, parts = logs["statistics"].to_pylist(), logs["part"].to_pylist()
    pairs = zip(names, parts, strict=True)
    found = ahead(lambda pair: read_statistics_file(store, *pair), pairs)
    return Statistics.merged(one.part(columns) for one in found)


def stats_of(datasets: Sequence[Dataset[Any]], columns: str | Sequence[str] | None) -> dict[str, Any]:
    """Statistics of columns over the rows of datasets with equal columns; see `Dataset.stats`.

    Raises:
        UsageError: there is no such column, or functions left none; they changed windows; types differ.
    """
    names = _stats_names(datasets[0], columns)
    found = _summary(datasets, list(dict.fromkeys(name.removesuffix(".age") for name in names)))
    return found[names[0]] if isinstance(columns, str) else {name: found[name] for name in names}


def _stats_names(dataset: Dataset[Any], columns: str | Sequence[str] | None) -> tuple[str, ...]:
    source, schema = dataset.source, dataset.source.schema
    if columns is None:
        objects = {
            name for name, one in schema.columns.items() if one.kind == "array" and one.dtype.hasobject
        }
        left = dataset[0] if dataset.is_mapped and len(dataset) else dataset.columns
        shown = [name for name in dataset.columns if name in left and name not in objects]
        return tuple(name for name in shown if not name.endswith(".available"))
    try:
        names = names_of(columns, schema, None, source.place, source.left_out)
    except UsageError as error:
        if dataset.is_mapped:
            error.add_note(
                "stats counts stored columns, as functions given to map changed them; for a key that a "
                "function added: rows.to_pandas(['key'])['key'].astype(float).describe()"
            )
        raise
    flags = [name for name in names if name.endswith(".available")]
    if flags or (isinstance(columns, str) and len(names) > 1):
        raise UsageError(
            f"stats: {columns!r} is not a column; pass the name of one column or age, or a list of names"
        )
    return names


def _summary(datasets: Sequence[Dataset[Any]], columns: Sequence[str]) -> dict[str, dict[str, Any]]:
    """As builds counted them, where a dataset shows all rows of its source, unmapped; else rows are read.

    Args:
        columns: of the schema.
    """
    schema = datasets[0].source.schema.part(columns)
    counts = [(one.place, *counted(one, columns)) for one in datasets if len(one)]
    for place, _, other in counts[1:]:
        for name, ctype in counts[0][2].columns.items():
            if other.columns[name] != ctype:
                raise UsageError(
                    f"stats: {name} is {ctype} in {counts[0][0]} and {other.columns[name]} in {place}; make "
                    "them alike in a function given to map, or ask for the statistics of each"
                )
    if counts:
        return summary(Statistics.merged(known for _, known, _ in counts), counts[0][2])
    ages = {name: AGE for name in schema.meta if name.endswith(".age")}
    nothing = {"rows": 0, "unavailable": 0, "count": 0}
    return {
        name: {"type": str(ctype), **({"unit": ctype.unit} if ctype.unit else {}), **nothing}
        for name, ctype in {**schema.columns, **ages}.items()
    }


def counted(dataset: Dataset[Any], columns: Sequence[str]) -> tuple[Statistics, Schema]:
    """Statistics of columns over the rows of a dataset, with the types of the values.

    Rows are as functions given to `map` made them. Windows show rows several times, and count once.
    """
    source = dataset.source
    positions = dataset.positions
    schema = source.schema.part(columns)
    if dataset.is_mapped:
        return _counted_mapped(dataset, schema)
    if source.counted is not None and np.array_equal(np.sort(positions), np.arange(len(source))):
        return source.counted(tuple(columns)), schema
    counting = RowStatistics(schema)
    for _, block in _blocks(source, schema, positions):
        counting.update(block)
    return counting.close(), schema


def _blocks(source: RowSource, schema: Schema, positions: Ints) -> Iterator[tuple[Ints, Block]]:
    """Some positions at a time, and the columns of a schema there, with their ages."""
    at, step = 0, _FIRST_ROWS
    while at < len(positions):
        some = positions[at : at + step]
        batch = source.take(some, tuple(schema.all))
        values = {name: values_of(batch[name], f"{source.place}: {name}") for name in schema.all}
        block = Block("", "", 0, {"timestamp": some, **values})
        yield some, block
        at, step = at + len(some), max(1, _AT_ONCE * len(some) // max(1, block.nbytes))


def _counted_mapped(dataset: Dataset[Any], schema: Schema) -> tuple[Statistics, Schema]:
    source, fns = dataset.source, _row_fns(dataset)
    made: Schema | None = None
    for positions, block in _blocks(source, schema, dataset.positions):
        rows = source.rows(positions, dataset.columns)
        for fn in fns:
            rows = [fn(row) for row in rows]
        lacking = [name for name in schema.columns if not all(name in row for row in rows)]
        if lacking:
            raise UsageError(f"{dataset.place}: functions given to map left no {', '.join(lacking)}")
        values = {name: [_array(row[name], name, dataset.place) for row in rows] for name in schema.columns}
        if made is None:
            types = {name: _mapped_type(ctype, values[name]) for name, ctype in schema.columns.items()}
            made = Schema(types, schema.sampled)
            counting = RowStatistics(made)
        changed = {name: _column(values[name], ctype, dataset.place) for name, ctype in made.columns.items()}
        counting.update(Block("", "", 0, {**block.columns, **changed}))
    return (RowStatistics(schema).close(), schema) if made is None else (counting.close(), made)


def _row_fns(dataset: Dataset[Any]) -> tuple[Callable[[Any], Any], ...]:
    """The functions that make the rows of a dataset; of windows also those that treat all rows alike."""
    of_rows, of_samples = dataset.functions
    if dataset.window_steps and not all(isinstance(fn, Normalize | Pick) for fn in of_samples):
        raise UsageError(
            f"{dataset.place}: functions were given to map after window, so no row has their values; ask for "
            "statistics before window"
        )
    return (*of_rows, *of_samples)


def _array(value: Any, name: str, place: str) -> Any:
    try:
        return value if isinstance(value, str | bytes) else np.asarray(value)
    except ValueError as error:
        raise UsageError(f"{place}: functions given to map made {name} no array ({error})") from error


def _mapped_type(ctype: ColumnType, values: Sequence[Any]) -> ColumnType:
    """The type of what functions made of a column; axes are ragged as stored, or as these values are."""
    first = values[0]
    if isinstance(first, str | bytes):
        return ColumnType(np.dtype("u1"), (None,), kind_of(type(first)))
    shape = common_shape([value.shape for value in values])
    if shape is None:
        shape = (None,) * first.ndim
    if ctype.kind == "array" and len(ctype.shape) == len(shape):
        shape = (None,) * ctype.num_ragged + shape[ctype.num_ragged :]
    return replace(ctype, dtype=first.dtype, shape=shape, kind="array")


def _column(values: Sequence[Any], ctype: ColumnType, place: str) -> Values:
    if ctype.kind != "array":
        return values_of(list(values), place)
    try:
        return Ragged.from_rows(values, ctype) if ctype.is_ragged else np.stack(values)
    except ValueError as error:
        raise UsageError(f"{place}: functions gave a column values of several shapes ({error})") from error


class Normalize(BatchFn):
    """Brings columns of a sample to zero mean and unit standard deviation, as float32."""

    def __init__(self, stats: Mapping[str, Mapping[str, Any]], schema: Schema, place: str):
        """
        Args:
            stats: see `Dataset.stats`.

        Raises:
            UsageError: a column holds no numbers, or none that are finite.
        """
        self._scales: dict[str, tuple[Array, Array]] = {}
        for name, ctype in schema.columns.items():
            stats_of_column = stats.get(name, {})
            if "mean" not in stats_of_column:
                raise UsageError(f"normalized: column {name} of {place} contains no numbers; leave it out")
            if None in np.ravel(np.array(stats_of_column["mean"], object)):
                raise UsageError(f"normalized: column {name} of {place} has no finite number")
            mean, std = (_shaped(stats_of_column[key], ctype) for key in ("mean", "std"))
            self._scales[name] = mean, np.where(std > 0, std, 1.0)
        self.changes = tuple(self._scales)

    def part(self, names: Collection[str]) -> Normalize:
        """The same for some of the columns."""
        other = copy.copy(self)
        other._scales = {name: scale for name, scale in self._scales.items() if name in names}
        other.changes = tuple(other._scales)
        return other

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """
        Raises:
            UsageError: the sample lacks a column.
        """
        changed = dict(sample)
        for name, (mean, std) in self._scales.items():
            if name not in changed:
                raise UsageError(f"normalized: no {name!r} among {', '.join(map(str, sample))}")
            changed[name] = _normal(changed[name], mean, std)
        return changed

    def batched(self, batch: Batch) -> Batch:
        """As a call, of all samples of a batch.

        Raises:
            UsageError: the samples lack a column.
        """
        ragged = {name: batch[name] for name in self._scales if isinstance(batch.get(name), tuple)}
        changed = self({**batch, **{name: values for name, (values, *_) in ragged.items()}})
        return {**changed, **{name: (changed[name], *lengths) for name, (_, *lengths) in ragged.items()}}


def reading(dataset: D, picked: Pick) -> D:
    """Return the same samples without the columns that a choice drops, where no function needs these."""
    of_rows, fns = dataset.functions
    if of_rows or not all(isinstance(fn, Normalize) for fn in fns):
        return dataset
    beside = dataset.with_functions((), ()).keys
    names = []
    for name in dataset.columns:
        keys = dataset.with_functions((name,), ()).keys  # its own, and that of its mask
        if any(picked.keeps(key) for key in keys if key not in beside):
            names.append(name)
    return dataset.with_functions(names, [fn.part(names) for fn in fns if isinstance(fn, Normalize)])


def scales_windows(dataset: Dataset[Any], on_edge: str) -> bool:
    """Whether all functions of a dataset scale columns, and may scale windows of rows instead of rows.

    Not if a window is padded by values that would be scaled, too.
    """
    fns = dataset.functions[1]
    types = dataset.source.schema.all
    changed = [types[name] for fn in fns if isinstance(fn, Normalize) for name in fn.changes]
    scaled = on_edge == "pad" and any(ctype.is_ragged or ctype.dtype.kind != "f" for ctype in changed)
    return not scaled and all(isinstance(fn, Normalize) for fn in fns)


def _normal(value: Any, mean: Array, std: Array) -> Any:
    if isinstance(value, list):
        return [_normal(one, mean, std) for one in value]
    return np.asarray((np.asarray(value, np.float64) - mean) / std, np.float32)


def _shaped(stats_of_column: Any, ctype: ColumnType) -> Array:
    """Numbers of lanes in a shape that goes with values: of all elements, or of the last axis."""
    numbers = np.array(stats_of_column, np.float64)
    if numbers.size == math.prod(ctype.tail) and (ctype.tail or not ctype.is_ragged):
        return numbers.reshape(ctype.tail)
    return numbers.reshape(-1) if numbers.size > 1 else numbers.reshape(())
