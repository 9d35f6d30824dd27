"""Rows for the tests of tables: drives with columns of every kind, equal for equal arguments."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.schema import ColumnType, Schema

PERIOD = 100_000_000
OBJECT = np.dtype([("class", "<U8"), ("box", "<f4", (4,)), ("score", "<f8")])


def drive(num_logs: int = 3, rows: int = 20, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of some logs, 10 Hz, with cameras, lidar, radar and small columns."""
    rng = np.random.default_rng(seed)
    return [
        {
            "log_id": f"drive-{log}",
            "timestamp": (log * 1000 + row) * PERIOD,
            "camera.front": rng.bytes(int(rng.integers(50, 90))),
            "lidar.points": rng.random((int(rng.integers(0, 9)), 4), np.float32),
            "lidar.pose": rng.random((4, 4)),
            "radar.returns": rng.integers(0, 99, int(rng.integers(0, 5))).astype(np.int16),
            "ego.position": rng.random(3),
            "speed": float(rng.random()),
            "pedestrians_count": int(rng.integers(0, 8)),
            "weather": ["sun", "rain", "snow"][int(rng.integers(3))],
        }
        for log in range(num_logs)
        for row in range(rows)
    ]


def labels(rows: Sequence[Mapping[str, Any]], every: int = 1) -> list[dict[str, Any]]:
    """Rows of a labels table for every n-th of some rows."""
    return [
        {
            "log_id": row["log_id"],
            "timestamp": row["timestamp"],
            "labels.boxes": np.full((number % 4, 7), number, np.float32),
            "labels.count": np.int32(number),
        }
        for number, row in enumerate(rows)
        if number % every == 0
    ]


def assert_rows_equal(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Every column of `found` has the value and type it was written with."""
    for name, value in found.items():
        assert name in wanted, f"{name} was never written"
        if isinstance(value, np.ndarray):
            assert value.shape == np.shape(wanted[name]), name
            np.testing.assert_array_equal(value, wanted[name], err_msg=name)
        else:
            assert value == wanted[name], name


ALL_TYPES = Schema(
    {
        **{
            f"n.{dtype}": ColumnType(np.dtype(dtype))
            for dtype in (
                "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
                "float16", "float32", "float64", "complex64", "complex128",
            )
        },
        "vector": ColumnType(np.dtype("<f4"), (3,), unit="m", description="where it is"),
        "empty": ColumnType(np.dtype("<f4"), (0, 2)),
        "image": ColumnType(np.dtype("u1"), (None, None, 3)),
        "points": ColumnType(np.dtype("<f4"), (None, 4)),
        "odd": ColumnType(np.dtype("<i2"), (None,)),
        "jpeg": ColumnType(np.dtype("u1"), (None,), "bytes"),
        "name": ColumnType(np.dtype("u1"), (None,), "string"),
        "objects": ColumnType(OBJECT, (None,)),
        "object": ColumnType(OBJECT),
        "flag": ColumnType(np.dtype("?"), (5,)),
    }
)  # fmt: skip


def typed_row(rng: np.random.Generator) -> dict[str, Any]:
    """A row of `ALL_TYPES` with random values."""
    row: dict[str, Any] = {}
    for name, ctype in ALL_TYPES.columns.items():
        shape = tuple(int(rng.integers(0, 6)) if n is None else n for n in ctype.shape)
        if ctype.kind == "bytes":
            row[name] = rng.bytes(shape[0])
        elif ctype.kind == "string":
            row[name] = "".join(rng.choice(list("aé漢🚗"), shape[0]))
        elif ctype.dtype.names:
            values = np.zeros(shape, ctype.dtype)
            values["class"] = rng.choice(["car", "tram-öö"], shape)
            values["box"] = rng.random((*shape, 4))
            values["score"] = rng.random(shape)
            row[name] = values if shape else values[()]
        else:
            row[name] = (rng.random(shape) * 100).astype(ctype.dtype)
            row[name] = row[name] if shape else ctype.dtype.type(row[name])
    return row
