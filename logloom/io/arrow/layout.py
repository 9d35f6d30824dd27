"""Lossless conversion of rows to plain Arrow tables for Parquet and Lance.

Here: `ArrowLayout`, `ImageOptions`, the base of options of such outputs, and `layout_problems`.
Elsewhere: the arrays (arrays, columns), images (images), the files (logloom.io.formats).

A table has `log_id`, `timestamp` (int64 ns since the Unix epoch), the columns, and of those that come from a
topic `<column>.age` and `<column>.available`. Missing values are NaN, 0 or empty, as in every format. Only a
missing image is null, since readers decode images. The metadata of the schema has two texts: `logloom`, the
columns' own types, and `huggingface`, the columns with images:
https://huggingface.co/docs/datasets/about_dataset_features
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from logloom.blocks import Block, Values
from logloom.caching import cached_property
from logloom.errors import DatasetError, UsageError
from logloom.io.arrow.arrays import stored_array, stored_type
from logloom.io.arrow.columns import typed_values
from logloom.io.arrow.images import FORMS, IMAGE, image_array, image_problem, image_values
from logloom.io.storage.metadata import ChosenColumns, canonical, checked, parsed
from logloom.schema import STRING, TIMESTAMP, ColumnType, Schema, check_column_name
from logloom.values import dataclass

LOG_ID, TIME = "log_id", "timestamp"
_KEYS = {LOG_ID: STRING, TIME: TIMESTAMP}
_OURS, _HUB = b"logloom", b"huggingface"


class ImageOptions(ChosenColumns):
    """Options of outputs that are plain tables.

    Attributes:
        images: columns of images and their kinds: {camera.front: jpg}. Bytes are stored unchanged; pixels
            (uint8, or uint16 of one channel) as lossless `png`.
    """

    images: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True)
class ArrowLayout:
    """Layout of the rows of a schema in a table.

    Attributes:
        images: columns of images and their kinds.
        dot: replaces the dots of columns in the table's names.
    """

    schema: Schema
    images: Mapping[str, str] = field(default_factory=dict)
    dot: str = "."

    @classmethod
    def of(cls, arrow: Any, place: str) -> ArrowLayout | None:
        """Return the layout declared in a table's schema; None if logloom didn't write it, or it was changed.

        Args:
            arrow: pyarrow's schema.
            place: for messages.

        Raises:
            DatasetError: the stored layout is invalid.
        """
        text = (arrow.metadata or {}).get(_OURS)
        if text is None:
            return None
        stored = parsed(text, f"{place}: metadata of the schema")
        try:
            schema = Schema.from_json(stored["schema"])
            images = checked(dict[str, str], stored["images"], place)
            layout = cls(schema, images, checked(str, stored["dot"], place))
            if layout_problems(schema, images):
                return None
            wanted = layout.arrow
        except (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            raise DatasetError(f"{place}: metadata of the schema: damaged ({error})") from error
        found = {one.name: one.type for one in arrow}
        return layout if all(found.get(one.name) == one.type for one in wanted) else None

    @cached_property
    def types(self) -> dict[str, ColumnType]:
        """Types of all columns of the table by their own names."""
        return {**_KEYS, **self.schema.all}

    @cached_property
    def arrow(self) -> Any:
        """The table's schema, with its metadata."""
        fields = []
        for name, ctype in self.types.items():
            texts = {"unit": ctype.unit, "description": ctype.description}
            own = {key: text for key, text in texts.items() if text} or None
            kind = IMAGE if name in self.images else stored_type(ctype)
            fields.append(pa.field(self.stored(name), kind, metadata=own))
        stored = {"schema": self.schema.to_json(), "images": dict(self.images), "dot": self.dot}
        metadata = {_OURS: canonical(stored)}
        if self.images:
            features = {self.stored(name): {"_type": "Image"} for name in self.images}
            metadata[_HUB] = json.dumps({"info": {"features": features}}, sort_keys=True).encode()
        return pa.schema(fields, metadata)

    def stored(self, name: str) -> str:
        """Return the table's name of a column."""
        return name.replace(".", self.dot)

    def table(self, block: Block) -> Any:
        """Rows as a pyarrow Table.

        Raises:
            UsageError: a value that the table can't hold; names log and column.
        """
        rows = len(block)
        arrays = [pa.array([block.log_id], pa.string()).take(pa.array(np.zeros(rows, np.int64)))]
        for name, ctype in list(self.types.items())[1:]:
            try:
                values = block.columns[name]
                arrays.append(
                    image_array(values, ctype) if name in self.images else stored_array(values, ctype)
                )
            except (ValueError, OverflowError, pa.ArrowException) as error:
                raise UsageError(
                    f"{block.log_id}: column {name}, rows {block.timestamp[0]} to {block.timestamp[-1]}: "
                    f"{error}; leave it out by `columns` of the output"
                ) from error
        return pa.Table.from_arrays(arrays, schema=self.arrow)

    def values(self, table: Any, names: Sequence[str]) -> dict[str, Values]:
        """Return columns of a table, and `timestamp`.

        Raises:
            ValueError: not data of `table`.
        """
        found = {}
        for name in names:
            ctype = self.types[name]
            array = self._column(table, name)
            try:
                is_image = name in self.images
                found[name] = image_values(array, ctype) if is_image else typed_values(array, ctype)
            except (ValueError, pa.ArrowException) as error:
                raise ValueError(f"{name}: {error}") from error
        return found

    def log_runs(self, table: Any) -> list[tuple[str, int]]:
        """Return the log_id of each run of rows, and the row after its last one.

        Raises:
            ValueError: a row without a log_id.
        """
        array = self._column(table, LOG_ID)
        if array.null_count:
            raise ValueError(f"{LOG_ID}: a null")
        runs = pc.run_end_encode(array)
        return list(zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True))

    def _column(self, table: Any, name: str) -> Any:
        stored = self.stored(name)
        column, wanted = table.column(stored), self.arrow.field(stored).type
        if column.type != wanted:
            raise ValueError(f"{name}: {column.type}, should be {wanted}")
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], wanted)


def layout_problems(schema: Schema, images: Mapping[str, str]) -> list[str]:
    """List what a table can't contain, one line each."""
    problems = []
    for name, ctype in schema.columns.items():
        try:
            check_column_name(name)
        except UsageError as error:
            problems.append(f"column {name}: {error}")
        why = _unfit(ctype.dtype)
        if 0 in ctype.tail and ctype.num_ragged > 1:
            why = "an axis of length 0 behind ragged ones"
        if why:
            problems.append(f"column {name}: {why} is not supported in tables; cast it")
    for name, form in images.items():
        if name not in schema.columns:
            problems.append(f"images: no column {name!r} in this output")
        elif form not in FORMS:
            problems.append(f"images: {name}: unknown kind of image {form!r}; known are {', '.join(FORMS)}")
        elif problem := image_problem(schema.columns[name], form):
            problems.append(f"images: {name} {problem}")
    return problems


def _unfit(dtype: np.dtype[Any]) -> str:
    """Describe the part of a dtype that no Arrow type preserves; "" if there is none."""
    base = dtype.base
    if base.names is not None:
        return next((why for name in base.names if (why := _unfit(base[name]))), "") or (
            "" if base.names else "a structure without fields"
        )
    fits = base.kind in "biu" or base.str in ("<f2", "<f4", "<f8", "<c8", "<c16")
    return "" if fits or (base.kind == "U" and base.itemsize) else str(base)
