"""Schemas and blocks of every kind, for the tests of tar shards."""

import itertools

import numpy as np
from hypothesis import strategies as st

from logloom.blocks import Block, Ragged, concatenate, take
from logloom.digests import ColumnDigest
from logloom.schema import BYTES, STRING, ColumnType, Schema

STRUCT = np.dtype(
    [("x", "<f4"), ("pose", "<f8", (2, 3)), ("label", "<U5"), ("inner", [("flag", "?"), ("id", "<i2", (2,))])]
)
NUMBERS = ["?", "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"]
TYPES = [
    *[ColumnType(np.dtype(d), shape) for d in NUMBERS for shape in ((), (3,), (2, 2), (0,), (None,))],
    ColumnType(STRUCT),
    ColumnType(STRUCT, (2,)),
    ColumnType(STRUCT, (None,)),
    ColumnType("<f4", (None, 4)),
    ColumnType("u1", (None, None, None)),
    ColumnType("<U7"),
    ColumnType("<f8", (3000,)),  # more than is copied next to its header
    BYTES,
    STRING,
]


def random_array(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
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
        return rng.random(shape) < 0.5
    bits = rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8).reshape(-1)
    values = bits.view(dtype).reshape(shape).copy()
    if dtype.kind == "f" and values.size:
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 1 / 3], dtype)
        values.reshape(-1)[:: max(2, values.size // 5)] = rng.choice(special)
    return values


def random_column(rng: np.random.Generator, ctype: ColumnType, num_rows: int):
    if ctype.kind == "string":
        words = ['"quoted"', "né %s %d", "", "line\nbreak\0", "日本", "{}", "\\u0000"]
        return Ragged.from_bytes([str(rng.choice(words)).encode() for _ in range(num_rows)])
    if ctype.is_ragged:
        shapes = rng.integers(0, 5, (num_rows, ctype.num_ragged))
        rows = [random_array(rng, ctype.dtype, (*map(int, shape), *ctype.tail)) for shape in shapes]
        ragged = Ragged.from_rows(rows, ctype)
        return Ragged(ragged.values, ragged.shapes) if rng.random() < 0.5 else ragged
    return random_array(rng, ctype.dtype, (num_rows, *ctype.tail))


def random_block(
    schema: Schema, num_rows: int, seed: int, start=1_700_000_000_000_000_000, log_id="car/drive"
):
    rng = np.random.default_rng(seed)
    columns = {name: random_column(rng, ctype, num_rows) for name, ctype in schema.all.items()}
    columns["timestamp"] = 1_700_000_000_000_000_000 + np.cumsum(rng.integers(1, 10**6, num_rows))
    return Block(log_id, "p3", 0, columns)


def schema_of(types: list[ColumnType], sampled: bool = True) -> Schema:
    columns = {f"c{k}.part": ctype for k, ctype in enumerate(types)}
    return Schema(columns, tuple(columns)[::2] if sampled else ())


@st.composite
def schemas(draw) -> Schema:
    return schema_of(draw(st.lists(st.sampled_from(TYPES), max_size=5)))


def cut(block: Block, at: list[int]) -> list[Block]:
    """The block's rows as blocks that end at the given rows."""
    bounds = sorted({0, len(block), *[min(a, len(block)) for a in at]})
    return [
        Block(
            block.log_id,
            block.partition,
            start,
            {name: take(values, slice(start, stop)) for name, values in block.columns.items()},
        )
        for start, stop in itertools.pairwise(bounds)
    ]


def digests(blocks: list[Block], schema: Schema) -> dict[str, str]:
    """Each column's digest, over rows in blocks of any size."""
    found = {}
    for name, ctype in {"timestamp": ColumnType("<i8"), **schema.all}.items():
        digest = ColumnDigest(name, ctype)
        digest.update(concatenate([block.columns[name] for block in blocks]))
        found[name] = digest.hexdigest()
    return found


def assert_equal_values(found, expected) -> None:
    """Equal type, shape and bits."""
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray | np.generic):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()
    else:
        assert found == expected
