"""Base of decoders of messages with a definition: what the definition implies.

Here: `TypedDecoder`.
Elsewhere: decoding by a fixed layout (logloom.io.logs.messages.ros.decoders), by objects of a library
(object_decoders).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import Values
from logloom.errors import UsageError
from logloom.io.logs.interface import FieldSpec, TimeSource, TopicInfo
from logloom.io.logs.messages import adapters
from logloom.io.logs.messages.cursor import MisfitError
from logloom.io.logs.messages.definitions import Struct
from logloom.io.logs.messages.field_times import field_time
from logloom.io.logs.messages.fields import Selection, select, stamp_in
from logloom.io.logs.messages.partial import examine
from logloom.io.logs.messages.raw_messages import RawMessages
from logloom.io.logs.messages.values import UnfitError
from logloom.schema import ColumnType


class TypedDecoder:
    """Messages of one type with the definition `root`; pickles by its topic.

    Attributes:
        stamps: where stamps are: ROS headers, Foxglove messages, and the first of a list of transforms.
    """

    root: Struct
    stamps: tuple[str, ...] = ("header.stamp", "timestamp", "transforms[].header.stamp")

    def __init__(self, info: TopicInfo):
        self.info = info

    def __reduce__(self) -> tuple[type, tuple[TopicInfo]]:
        return type(self), (self.info,)

    def root_for(self, spec: FieldSpec) -> Struct:
        """Return the type of messages, as far as a column reads them."""
        return self.root

    def column_type(self, spec: FieldSpec) -> ColumnType:
        """See `Log.column_type`."""
        try:
            return adapters.column_type(spec, self.root_for(spec))
        except UsageError as error:
            raise type(error)(f"topic {self.info.topic} ({self.info.type}): {error}") from None

    def reader(self, raw: RawMessages, spec: FieldSpec) -> adapters.Read:
        """Return a function that reads fields of messages, for a column."""
        root = self.root_for(spec)

        def read(paths: Sequence[str], width: int, rows: NDArray[np.intp] | None = None) -> Sequence[Values]:
            if rows is None:
                return self.read_fields(raw, root, paths, width)
            try:
                return self.read_fields(raw.take(rows), root, paths, width)
            except UnfitError as error:
                raise UnfitError(int(rows[error.row]), str(error)) from error
            except MisfitError as error:
                raise MisfitError(rows[error.rows], error.reason) from error

        return read

    def read_fields(
        self, raw: RawMessages, root: Struct, paths: Sequence[str], width: int
    ) -> Sequence[Values]:
        """Read the fields at some paths, of all messages in order."""
        raise NotImplementedError

    def has_value(self, raw: RawMessages, spec: FieldSpec) -> NDArray[np.bool_] | None:
        """See `Messages.has_value`."""
        root = self.root_for(spec)
        held = self._has_fields(raw, spec, root)
        if not adapters.may_lack_value(spec):
            return held

        def by_adapter(rows: NDArray[np.intp]) -> NDArray[np.bool_]:
            return adapters.has_value(spec, root, self.reader(raw.take(rows), spec))

        found = np.ones(len(raw), np.bool_) if held is None else held
        every = adapters.may_lack_value_at(spec, raw.length)
        examine(found, every[found[every]], by_adapter)
        return found

    def _has_fields(self, raw: RawMessages, spec: FieldSpec, root: Struct) -> NDArray[np.bool_] | None:
        """(N,) whether each message has the fields that a column reads; None if all have them."""
        paths = adapters.paths(spec, root).values() if spec.adapter else spec.paths
        selections = [select(root, path, spec.strings) for path in paths]
        lacking = [selection for selection in selections if self.may_lack(selection)]
        return self.has_elements(raw, lacking) if lacking else None

    def may_lack(self, selection: Selection) -> bool:
        """Return whether a message may lack what is selected."""
        return selection.may_lack

    def has_elements(self, raw: RawMessages, selections: Sequence[Selection]) -> NDArray[np.bool_]:
        """(N,) whether each message has the selected fields and elements; also those that don't fit."""
        raise NotImplementedError

    def time_source(self, sources: Sequence[TimeSource]) -> TimeSource | None:
        """See `Log.time_source`."""
        stamped = self._stamp() is not None
        return next((source for source in sources if source != "header" or stamped), None)

    def check_field_time(self, path: str, unit: str) -> None:
        """Check that a field is a time, see `logloom.io.logs.messages.field_times.field_time`."""
        field_time(self.root, path, unit)

    def _stamp(self) -> Selection | None:
        return stamp_in(self.root, self.stamps)
