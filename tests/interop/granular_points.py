"""Datapoints that tests make here and in granular's own environments, and digests to compare them by."""

import hashlib
import json

import numpy as np

SPEC = {
    "a": "utf8",
    "b": "int",
    "d": "msgpack",
    "f": "bytes",
    "g": "array",
    "i": "png",
    "k": "tree",
    "m": "i64",
    "n": "u64",
}
SEQUENCES = {"c": "utf8[]", "e": "int[]", "h": "array[]"}


def points(count, sequences):
    for i in range(count):
        point = {
            "a": f"hello né {i}",
            "b": [0, 1, 5, 100, 127, 300, 1000][i % 7],
            "d": {"foo": "bar", "baz": [i, None, 1.5]},
            "f": bytes(range(i)),
            "g": np.arange(i * 4, dtype=["<f4", ">i2", "<f8", "|u1"][i % 4]).reshape(i, 4),
            "i": np.full((6, 5, 4), i, np.uint8),
            "k": [{"a": [np.ones(i), np.zeros((2, i), "f4")]}, np.array(i), "hello", b"x", {"b": None}],
            "m": -i * 10**15,
            "n": 2**64 - 1 - i,
        }
        if sequences:
            point |= {
                "c": [f"word{j}" for j in range(i)],
                "e": [i] * (i % 3),
                "h": [np.full((j,), j, "f4") for j in range(i)],
            }
        yield point


def plain(value):
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return ["array", value.dtype.str, list(value.shape), value.tobytes().hex()]
    return ["bytes", bytes(value).hex()] if isinstance(value, (bytes, memoryview)) else value


def digest(point):
    return hashlib.sha256(json.dumps(plain(point), sort_keys=True).encode()).hexdigest()
