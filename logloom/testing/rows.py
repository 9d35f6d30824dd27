"""Rows for contracts: random types, difficult values, and comparison of values.

Equal seeds give equal rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Array, Block, Lists, Ragged, Values
from logloom.schema import BYTES, STRING, ColumnType, Schema

START = 1_700_000_000_000_000_000
STRUCT = np.dtype(
    [("x", "<f4"), ("pose", "<f8", (2, 3)), ("label", "<U5"), ("inner", [("flag", "?"), ("id", "<i2", (2,))])]
)
NUMBERS = ["?", "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"]
TYPES = [
    *[ColumnType(np.dtype(d), shape) for d in NUMBERS for shape in ((), (3,), (2, 2), (0,), (None,))],
    ColumnType(STRUCT),
    ColumnType(STRUCT, (2,)),
    ColumnType(STRUCT, (None,)),
    ColumnType(np.dtype("<f4"), (None, 4)),
    ColumnType(np.dtype("u1"), (None, None, None)),
    ColumnType(np.dtype("<f8"), (None, None), "lists"),
    ColumnType(STRUCT, (None, None), "lists"),
    ColumnType(np.dtype("<i2"), (None, None, 3), "lists"),
    ColumnType(np.dtype("<U7")),
    ColumnType(np.dtype("<f8"), (3000,)),  # of which few rows are many bytes
    BYTES,
    STRING,
]
"""Column types of every kind that a format has to hold: numbers, text, bytes, structures, ragged, lists."""
SCHEMA = Schema(
    {
        "camera.front": BYTES,
        "lidar.points": ColumnType(np.dtype("<f4"), (None, 4)),
        "ego.position": ColumnType(np.dtype("<f8"), (3,), unit="m"),
        "speed": ColumnType(np.dtype("<f4"), unit="m s-1", description="of the rear axle"),
        "steps": ColumnType(np.dtype("<i8")),
        "moving": ColumnType(np.dtype("?")),
        "note": STRING,
        "objects": ColumnType(STRUCT, (None,)),
    },
    ("camera.front", "speed"),
)


def random_array(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Values of any bits that the type allows: NaN payloads, infinities and -0.0 too."""
    if dtype.names is not None:
        values = np.zeros(shape, dtype)
        for name in dtype.names:
            base, inner = dtype[name].subdtype or (dtype[name], ())
            values[name] = random_array(rng, base, shape + inner)
        return values
    if dtype.kind == "U":
        words = np.array(["", "a", "né", "日本", "x" * (dtype.itemsize // 4)])
        return rng.choice(words, shape).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    bits = rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8).reshape(-1)
    numbers: Array = bits.view(dtype).reshape(shape).copy()
    if dtype.kind == "f" and numbers.size:
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 1 / 3], dtype)
        numbers.reshape(-1)[:: max(2, numbers.size // 5)] = rng.choice(special)
    return numbers


def random_column(rng: np.random.Generator, ctype: ColumnType, num_rows: int) -> Values:
    """Values of a column; ragged rows in either form that a `Ragged` has."""
    if ctype.kind == "string":
        words = ['"quoted"', "né %s %d", "", "line\nbreak\0", "日本", "{}", "\\u0000"]
        return Ragged.from_bytes([str(rng.choice(words)).encode() for _ in range(num_rows)])
    if ctype.kind == "lists":
        counts = rng.integers(0, 4, num_rows)
        lengths = rng.integers(0, 4, int(counts.sum()))
        values = random_array(rng, ctype.dtype, (int(lengths.sum()), *ctype.tail))
        return Lists(values, counts, lengths)
    if ctype.is_ragged:
        shapes = rng.integers(0, 5, (num_rows, ctype.num_ragged))
        rows = [random_array(rng, ctype.dtype, (*map(int, shape), *ctype.tail)) for shape in shapes]
        ragged = Ragged.from_rows(rows, ctype)
        return Ragged(ragged.values, ragged.shapes) if rng.random() < 0.5 else ragged
    return random_array(rng, ctype.dtype, (num_rows, *ctype.tail))


def random_block(schema: Schema, num_rows: int, seed: int, log_id: str = "car/drive") -> Block:
    """Rows of a schema with random values, ages and availabilities too, at uneven times."""
    rng = np.random.default_rng(seed)
    columns = {name: random_column(rng, ctype, num_rows) for name, ctype in schema.all.items()}
    columns["timestamp"] = START + np.cumsum(rng.integers(1, 10**6, num_rows))
    return Block(log_id, "p3", 0, columns)


def cut(block: Block, at: Iterable[int]) -> list[Block]:
    """The block's rows as blocks that end at the given rows."""
    bounds = sorted({0, len(block), *[min(a, len(block)) for a in at]})
    return [
        Block(block.log_id, block.partition, start, block.take(slice(start, stop)))
        for start, stop in itertools.pairwise(bounds)
    ]


def rows_in(
    blocks: Sequence[Block], schema: Schema, columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """The rows of blocks as users see them."""
    return [block.row(row, schema, columns) for block in blocks for row in range(len(block))]


def assert_equal_values(found: Any, expected: Any) -> None:
    """Equal type, shape and bits."""
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray | np.generic):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for found_item, expected_item in zip(found, expected, strict=True):
            assert_equal_values(found_item, expected_item)
    else:
        assert found == expected


def assert_equal_rows(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Equal columns in equal order, of equal values."""
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert_equal_values(found[name], value)
