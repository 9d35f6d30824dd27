"""RVL, a lossless code of depth images (A. D. Wilson, 2017).

RVL codes runs of zeros, and differences of other pixels.

Each little-endian word of 32 bits has eight nibbles, the highest first. A number takes a nibble for each
three of its bits, the lowest first; the fourth bit means that more follow. Numbers are, until all pixels are
coded: the length of a run of zeros, that of a run of other pixels, and for each of these its zigzag-coded
difference from the last one that isn't zero. Zeros fill the last word.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAX_NIBBLES = 11  # of a number of 32 bits
_MAX_BYTES = 3  # of a pixel: 17 bits of difference


def decode(data: NDArray[np.uint8], count: int) -> NDArray[np.uint16]:
    """Decode pixels.

    Args:
        data: of the words.
        count: how many pixels there are.

    Raises:
        ValueError: the data codes another number of pixels, or is no RVL.
    """
    numbers = _numbers(data[: _MAX_BYTES * count + 16])
    number = numbers.item
    lengths: list[int] = []
    heads: list[int] = []
    at = done = 0
    while done < count:
        if at + 1 >= len(numbers):
            raise ValueError(f"RVL data that ends after {done} of {count} pixels")
        zeros, others = number(at), number(at + 1)
        if not zeros and not others:
            raise ValueError(f"RVL data with an empty run after {done} of {count} pixels")
        lengths += (zeros, others)
        heads.append(at)
        at, done = at + 2 + others, done + zeros + others
    if done > count or at > len(numbers):
        raise ValueError(f"RVL data whose runs don't fit {count} pixels")
    is_difference = np.ones(at, np.bool_)
    run_starts = np.array(heads, np.intp)
    is_difference[run_starts] = is_difference[run_starts + 1] = False
    coded = numbers[:at][is_difference]
    pixels = np.zeros(count, np.uint16)
    is_other = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
    pixels[is_other] = np.cumsum((coded >> 1) ^ -(coded & 1)).astype(np.uint16)
    return pixels


def _numbers(data: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return all numbers in words."""
    octets = np.frombuffer(data[: len(data) // 4 * 4].tobytes(), "<u4").byteswap().view(np.uint8)
    nibbles: Any = np.stack([octets >> 4, octets & 15], axis=1).reshape(-1)
    ends = np.flatnonzero(nibbles < 8)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    lengths = ends - starts
    if (lengths >= _MAX_NIBBLES).any():
        raise ValueError("RVL data with a number of more than 32 bits")
    nibbles &= 7
    numbers: NDArray[np.int64] = nibbles[starts].astype(np.int64)
    longer = np.flatnonzero(lengths)
    for place in range(1, _MAX_NIBBLES):
        if not len(longer):
            break
        numbers[longer] |= nibbles[starts[longer] + place].astype(np.int64) << 3 * place
        longer = longer[lengths[longer] > place]
    return numbers
