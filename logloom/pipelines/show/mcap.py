"""Rows of a log as an MCAP file that Foxglove opens: `logloom show --mcap`.

Here: `write_mcap`. A topic for each column, such as /camera.front, and for each age, /camera.front.age; the
log time of a message is the row's tick. A row without a usable message of a column has none on its topic, so
that a plot has a gap there. /meta has the number of the row. The same rows give the same bytes with the same
packages.
Elsewhere: which rows (show), the messages (foxglove), the log's own messages beside them (log).
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from logloom import __version__
from logloom.errors import UsageError
from logloom.extras import needed
from logloom.io.storage.disk import PARTIAL, appear, own_name
from logloom.pipelines.show.foxglove import message_of, schema_of, to_json
from logloom.pipelines.show.log import RawMessage
from logloom.pipelines.show.show import ShownColumn, ShownRows
from logloom.schema import ColumnType

_ROW = ShownColumn("meta", ColumnType(np.dtype([("row", "<i8"), ("timestamp", "<i8")])))


def write_mcap(rows: ShownRows, path: pathlib.Path, raw: Iterable[RawMessage] = ()) -> dict[str, int]:
    """Writes rows of a log to a new MCAP file; it appears whole or not at all.

    Args:
        raw: messages of the log to be shown beside them, about in the order of their log times.

    Returns:
        By column, how many values were left out because no such message can hold them: bytes among images
        that are none, poses that aren't finite.

    Raises:
        UsageError: the file exists already, or can't be created; a row is before 1970.
        DatasetError: what is stored is damaged.
    """
    with needed("mcap", "build"):
        from mcap.writer import Writer

    with new_file(path) as partial, partial.open("wb") as file:
        writer = Writer(file)
        writer.start(library=f"logloom {__version__}")
        shown = _Channels(writer, rows)
        writer.add_metadata(
            "logloom",
            {
                "dataset": rows.name,
                "version": str(rows.version),
                "log_id": rows.record.log_id,
                "rows": rows.title,
            },
        )
        waiting = iter(raw)
        message = next(waiting, None)
        for number, values in zip(rows.numbers, rows, strict=True):
            tick = int(values["timestamp"])
            if tick < 0:
                raise UsageError(
                    f"{rows.record.log_id}: row {number} is at {tick} ns: MCAP has no time before 1970"
                )
            while message is not None and message.log_time <= tick:
                shown.copy(message)
                message = next(waiting, None)
            shown.row(number, values)
        while message is not None:
            shown.copy(message)
            message = next(waiting, None)
        writer.finish()
    return shown.left_out


class _Channels:
    """The channels of a file, registered with their first message.

    Attributes:
        left_out: see `write_mcap`.
    """

    def __init__(self, writer: Any, rows: ShownRows):
        self._writer, self._rows = writer, rows
        self._taken = {f"/{name}" for name in (_ROW.name, *rows.names)}
        self._columns: dict[str, tuple[int, ShownColumn]] = {}
        self._raw: dict[tuple[Any, ...], int] = {}
        self._schemas: dict[tuple[str, str, bytes], int] = {}
        self._sequences: dict[int, int] = {}
        self.left_out: dict[str, int] = {}

    def row(self, number: int, values: Mapping[str, Any]) -> None:
        tick = int(values["timestamp"])
        self._add(self._of(_ROW), tick, tick, to_json({"value": {"row": number, "timestamp": tick}}))
        for column in self._rows.usable(values):
            message = message_of(column, values)
            if message is None:
                self.left_out[column.name] = self.left_out.get(column.name, 0) + 1
            else:
                self._add(self._of(column), tick, tick, to_json(message))

    def copy(self, message: RawMessage) -> None:
        """Takes a message of the log as it was recorded."""
        source = message.channel
        key = (source.topic, source.encoding, source.type, source.definition_encoding, source.definition)
        if key not in self._raw:
            is_bare = not (source.definition_encoding or source.definition)
            schema = (
                0 if is_bare else self._schema(source.type, source.definition_encoding, source.definition)
            )
            topic = f"/log{source.topic}" if source.topic in self._taken else source.topic
            self._raw[key] = self._writer.register_channel(topic, source.encoding, schema)
        self._add(self._raw[key], message.log_time, message.publish_time, message.data)

    def _of(self, column: ShownColumn) -> int:
        known = self._columns.get(column.name)
        if known is None or known[1].kind != column.kind:
            name, schema = schema_of(column)
            number = self._schema(name, "jsonschema", to_json(schema))
            known = self._writer.register_channel(f"/{column.name}", "json", number), column
            self._columns[column.name] = known
        return known[0]

    def _schema(self, name: str, encoding: str, data: bytes) -> int:
        key = name, encoding, data
        if key not in self._schemas:
            self._schemas[key] = self._writer.register_schema(name, encoding, data)
        return self._schemas[key]

    def _add(self, channel: int, log_time: int, publish_time: int, data: bytes) -> None:
        sequence = self._sequences.get(channel, 0)
        self._sequences[channel] = sequence + 1
        self._writer.add_message(channel, log_time, data, publish_time, sequence & 0xFFFFFFFF)


@contextlib.contextmanager
def new_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a name to write to, which is renamed to `path` if the block succeeds.

    Raises:
        UsageError: that is taken, or its folder doesn't exist.
    """
    taken = UsageError(f"{path}: exists already; choose a new name")
    if path.exists():
        raise taken
    if not path.resolve().parent.is_dir():
        raise UsageError(f"{path}: its folder doesn't exist")
    partial = path.resolve().parent / f".{own_name()}{PARTIAL}"
    try:
        yield partial
        if not appear(partial, path):
            raise taken
    finally:
        partial.unlink(missing_ok=True)
