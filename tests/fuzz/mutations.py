"""Damage: what disks, networks and strangers do to files.

Here: injuries of bytes, and of values inside JSON, YAML and text. Equal seeds give equal damage.
"""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any


def mutated(data: bytes, rng: random.Random) -> bytearray:
    """A copy with one to three injuries; or one that is cut off, which hides nothing else.

    (Of a chunk without its end the checksum says nothing, so there a second injury could not be noticed.)
    """
    damaged = bytearray(data)
    if not damaged or rng.random() < 0.1:
        del damaged[rng.randrange(len(damaged) + 1) :]
        return damaged
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(damaged))
        size = rng.choice([1, 2, 4, 8, rng.randrange(1, 2000)])
        match rng.choice(["flip", "noise", "zero", "huge", "drop", "repeat", "swap"]):
            case "flip":
                damaged[at] ^= 1 << rng.randrange(8)
            case "noise":
                damaged[at : at + size] = rng.randbytes(size)
            case "zero":
                damaged[at : at + size] = bytes(size)
            case "huge":
                damaged[at : at + 8] = rng.choice([b"\xff" * 8, b"\0" * 7 + b"\x7f", b"\xff" * 4 + bytes(4)])
            case "drop":
                del damaged[at : at + size]
                if not damaged:
                    return damaged
            case "repeat":
                damaged[at:at] = damaged[at : at + size]
            case "swap":
                other = rng.randrange(len(damaged))
                damaged[at : at + size], damaged[other : other + size] = (
                    damaged[other : other + size],
                    damaged[at : at + size],
                )
    return damaged


_HOSTILE: tuple[Any, ...] = (
    *(None, True, 0, -1, 7, 1 << 31, 1 << 63, -(1 << 63), 10**30, 0.5, float("nan"), 1e400),
    *("", "x", "../../../tmp/outside", "/etc/passwd", "a/../b", "\0", "\x1b[2J", "é" * 300, "-1", "NaN"),
    *([], [0], [[]], {}, {"": 0}, {"name": "x"}),
)


def mutated_value(value: Any, rng: random.Random) -> Any:
    """A copy of JSON data in which one to three places hold something else, or nothing."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice([1, 1, 2, 3])):
        places = list(_places(value))
        if not places:
            return rng.choice(_HOSTILE)
        parent, key = rng.choice(places)
        match rng.choice(["hostile", "hostile", "other", "drop", "deep", "more"]):
            case "hostile":
                parent[key] = rng.choice(_HOSTILE)
            case "other":  # a value that is right elsewhere
                other, its_key = rng.choice(places)
                parent[key] = json.loads(json.dumps(other[its_key]))
            case "drop":
                del parent[key]
            case "deep":
                for _ in range(rng.choice([2, 50, 400])):
                    parent[key] = [parent[key]]
            case "more":
                if isinstance(parent, list):
                    parent.append(rng.choice(_HOSTILE))
                else:
                    parent[rng.choice(["extra", "", "__class__", "../x"])] = rng.choice(_HOSTILE)
    return value


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from _places(item)


def mutated_text(text: str, rng: random.Random, words: tuple[str, ...]) -> str:
    """A copy of a text in which one to four pieces are taken out, doubled, moved or replaced."""
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice([1, 1, 3, 10, 40]))
        match rng.choice(["drop", "repeat", "word", "character", "deep"]):
            case "drop":
                text = text[:at] + text[end:]
            case "repeat":
                text = text[:end] + text[at:end] * rng.choice([1, 2, 50]) + text[end:]
            case "word":
                text = text[:at] + rng.choice(words) + text[end:]
            case "character":
                text = (
                    text[:at] + chr(rng.choice([0, 10, 27, 34, 39, 92, 0x202E, 0xD7FF, 0x1F600])) + text[end:]
                )
            case "deep":
                text = text[:at] + rng.choice("([{") * rng.choice([3, 2000]) + text[at:]
    return text


def mutated_file(data: bytes, rng: random.Random) -> bytes:
    """A damaged copy of a file; of one that holds JSON, half of the time one that still does."""
    if rng.random() < 0.5 and data[:1] in b"{[":
        with contextlib.suppress(ValueError, RecursionError):  # of values that were put into each other
            return json.dumps(mutated_value(json.loads(data), rng)).encode()
    return bytes(mutated(data, rng))
