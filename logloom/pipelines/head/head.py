"""Rows of a version, optionally with lineage: the answer of `logloom head`.

Here: values that print as tables or JSON. No Beam.
Elsewhere: lineage (why), printing (logloom.cli).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from logloom.errors import UsageError
from logloom.io.catalog.entries import Entry, read_log_part
from logloom.io.catalog.manifest import Manifest, open_root
from logloom.io.catalog.pages import LogRecord
from logloom.io.formats.registry import by_preference, open_unit, options_of
from logloom.io.storage.store import Store
from logloom.schema import NO_AGE, Schema
from logloom.text import counted, human_time, iso8601
from logloom.values import dataclass

if TYPE_CHECKING:
    from logloom.pipelines.head.why import Explainer, Why

_JPEG = b"\xff\xd8\xff"


@dataclass(frozen=True)
class RowOrigin:
    """The log and the unit that a row of a version comes from.

    Attributes:
        folder: of its unit, within the root.
    """

    record: LogRecord
    entry: Entry
    folder: str


@dataclass(frozen=True)
class ShownRow:
    """A row of a dataset.

    Attributes:
        values: log_id and timestamp where rows have them, columns, and ages and availabilities if read.
        number: of the row, from 0.
        origin: of a row of a version.
        why: its lineage, if requested.
    """

    values: Mapping[str, Any]
    schema: Schema
    columns: tuple[str, ...]
    number: int
    origin: RowOrigin | None = None
    why: Why | None = None

    def headline(self) -> str:
        """Describe the row, and with lineage its files."""
        if "timestamp" not in self.schema.columns and "timestamp" in self.values:
            stamp = int(self.values["timestamp"])
            name = f"{self.values['log_id']} {stamp} ({human_time(stamp)})"
        else:
            name = f"row {self.number:,}"
        if self.origin is None or self.why is None:
            return name
        made = ", ".join(f"{package} {version}" for package, version in self.origin.entry.software.items())
        return "\n".join([name, *self.origin.record.uris, f"made by {made or 'unknown software'}"])

    def lines(self) -> list[tuple[str, ...]]:
        """(column, value) for a table, with lineage (message time, the same in UTC, age, place).

        A value without a usable message is marked, as 0, False and "" are values, too.
        """
        lines: list[tuple[str, ...]] = []
        for name in self.columns:
            value = brief(self.values[name])
            if self._is_missing(name):
                value = f"{value} (unavailable)".lstrip()
            lines += self.why.lines(name, value, self._age(name)) if self.why else [(name, value)]
        return lines

    def recipe_lines(self) -> list[str]:
        """The columns in the recipe whose lineage was requested."""
        return [line for name in self.columns if self.why and (line := self.why.recipe_line(name))]

    def _is_missing(self, name: str) -> bool:
        return not self.values.get(f"{name}.available", True)

    def _age(self, name: str) -> int | None:
        age = int(self.values.get(f"{name}.age", NO_AGE))
        return None if age == NO_AGE else age

    def to_json(self) -> dict[str, Any]:
        keys = [key for key in ("log_id", "timestamp") if key in self.values]
        row = {name: as_json(self.values[name]) for name in (*keys, *self.columns)}
        row |= {f"{name}.available": False for name in self.columns if self._is_missing(name)}
        if self.origin is None or self.why is None:
            return row
        entry = self.origin.entry
        lineage = {
            name: {
                "age": as_json(self.values.get(f"{name}.age")),
                "available": as_json(self.values.get(f"{name}.available")),
                **self.why.to_json(name),
                "recipe": self.why.recipe_line(name),
            }
            for name in self.columns
        }
        why: dict[str, Any] = {
            "timestamp_iso": iso8601(row["timestamp"]),
            "uris": list(self.origin.record.uris),
        }
        unit = {"output": entry.output, "partition": entry.partition, "folder": self.origin.folder}
        why["software"] = dict(entry.software)
        return row | {"why": {**why, "unit": unit, "columns": lineage}}


def head(
    root: str,
    version: int | str = "latest",
    *,
    output: str | None = None,
    start: int = 0,
    count: int = 5,
    numbers: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    why: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> list[ShownRow]:
    """Read rows `start` to `start + count` of a version through its connector.

    Args:
        output: None for the default of `logloom.datasets.open`.
        numbers: rows to read instead, ascending, from 0.
        why: also find their lineage in the logs.

    Raises:
        UsageError: no such version, output, column or row.
    """
    store, manifest = open_root(Store.at(root, storage_options), version)
    output = output or by_preference(manifest.outputs)[0]
    if output not in manifest.outputs:
        raise UsageError(f"no output {output!r} in version {manifest.version}; {', '.join(manifest.outputs)}")
    explainer: Explainer | None = None
    if why:
        from logloom.pipelines.head.why import Explainer  # which imports readers of logs and recipes

        explainer = Explainer(store, manifest)
    schema, outputs = Schema.from_json(manifest.schema), options_of(store, manifest, [output])
    shown: list[ShownRow] = []
    wanted_rows = _rows_of(store, manifest, start, count) if numbers is None else numbers
    for record, entry, first, own in _units_with(store, manifest, output, wanted_rows):
        reader = open_unit(store, schema, outputs, entry)
        names, folder = reader.schema.select(columns), store.stored_name(entry.folder)
        wanted = (*names, *(m for m in reader.schema.meta if m.rsplit(".", 1)[0] in names))
        for number in own:
            values, origin = reader.row(number - first, wanted), RowOrigin(record, entry, folder)
            found = explainer.why(record, int(values["timestamp"]), names) if explainer else None
            shown.append(ShownRow(values, reader.schema, names, number, origin, found))
    return shown


def _rows_of(store: Store, manifest: Manifest, start: int, count: int) -> range:
    """Return the numbers of some rows of a version.

    Raises:
        UsageError: there is no row `start`.
    """
    rows = manifest.counts["rows"]
    if 0 < start >= rows:
        raise UsageError(
            f"{store.uri}: version {manifest.version} has {counted(rows, 'row')}, so none is at {start:,}"
        )
    return range(start, min(rows, start + count))


def _units_with(
    store: Store, manifest: Manifest, output: str, numbers: Sequence[int]
) -> Iterator[tuple[LogRecord, Entry, int, list[int]]]:
    """Return the units of an output that have some rows of a version; of each log, its units are listed once.

    Returns:
        Of each unit its log, its entry, the number of its first row, and the rows in it.
    """
    counts, rows = manifest.logs.column("rows").to_numpy(), np.array(numbers, np.int64)
    ends = np.cumsum(counts)
    in_log = np.searchsorted(ends, rows, side="right")
    logs = np.unique(in_log).tolist()
    for at, record in zip(logs, manifest.logs.take(logs), strict=True):
        units, own = read_log_part(store, record.part, brief=True), rows[in_log == at]
        chosen, lengths = units.with_rows(output, record.rows)
        starts = ends[at] - counts[at] + np.cumsum(lengths) - lengths
        in_unit = np.searchsorted(starts, own, side="right") - 1
        for unit in np.unique(in_unit).tolist():
            yield record, units[int(chosen[unit])], int(starts[unit]), own[in_unit == unit].tolist()


def brief(value: Any) -> str:
    """Format a value in one line."""
    if isinstance(value, bytes):
        kind = " (JPEG)" if value.startswith(_JPEG) else ""
        return f"{counted(len(value), 'byte')}{kind}"
    if isinstance(value, np.ndarray) and value.ndim:
        if value.size > 9 or value.dtype.names:
            kind = "struct" if value.dtype.names else str(value.dtype)
            return f"{kind} {' x '.join(map(str, value.shape))}"
        with np.printoptions(formatter={"float_kind": lambda number: f"{number:.6g}"}, linewidth=1000):
            return np.array2string(value, separator=", ").replace("\n", "")
    if isinstance(value, list):  # of arrays
        text = f"[{', '.join(map(brief, value))}]"
    else:
        text = f"{value:.9g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def as_json(value: Any) -> Any:
    """Return a value as JSON: bytes as their length, non-finite floats as text."""
    if isinstance(value, bytes):
        return {"bytes": len(value)}
    if isinstance(value, np.ndarray) and value.dtype.names:
        if value.ndim:
            return [as_json(item) for item in value]
        return {name: as_json(value[name]) for name in value.dtype.names}
    if isinstance(value, np.void):
        return {name: as_json(value[name]) for name in value.dtype.names or ()}
    if isinstance(value, np.ndarray):
        return [as_json(item) for item in value] if value.ndim else as_json(value[()])
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(value)
    if isinstance(value, np.generic):
        return as_json(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value
