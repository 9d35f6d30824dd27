"""Bits of headers, as the standards of video write them; and what a packet says of itself.

Here: `Bits`, NAL units of H.264 and H.265 in Annex B, what readers of both share (`SetReader`), `Look`.
Elsewhere: what the bits mean (h264, h265, av1, vp9).
Sources: ITU-T H.264 (08/2021), 7.3.1, 9.1 and Annex B; H.265 (08/2021), 7.3.1, 9.2 and Annex B.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

MAX_PIXELS = 1 << 26  # of a picture; level 6.2 of H.264 and H.265 ends at 35 651 584
MAX_UNITS = 4096  # NAL units or OBUs of a packet
SLICE_BYTES = 512  # of a slice, that may hold its header as far as it is read here
MAX_SET_BYTES = 4096  # of a parameter set
START_CODE = b"\0\0\1"

NO_KEY, CLOSED, OPEN = 0, 1, 2
NO_KEYFRAME = "no keyframe came before it"
LOST = "a packet before it, which it needs, is lost"
LEADING = "it needs packets from before its keyframe, which are lost"


class Look(NamedTuple):
    """What a packet says of itself.

    Attributes:
        pictures: how many it shows: 1; or 0, of parameters alone.
        key: `CLOSED` where decoding may begin with it; `OPEN` where it may, but for the leading pictures
            that follow; else `NO_KEY`.
        leading: whether it follows an open keyframe and is shown before that one.
        reason: why its picture can't be right; "" where it can.
        repeats: whether it has the number of the picture before, as where two streams share a topic.
        size: (width, height) of its picture; (0, 0) where unknown.
    """

    pictures: int = 0
    key: int = NO_KEY
    leading: bool = False
    reason: str = ""
    repeats: bool = False
    size: tuple[int, int] = (0, 0)


class PacketReader(Protocol):
    """Looks at the packets of one topic, in their order; remembers what later ones need."""

    @property
    def config(self) -> tuple[bytes, ...]:
        """The parameters in force, as a decoder wants them before a keyframe, start codes included."""

    @property
    def horizon(self) -> int:
        """So many packets lost in a row show no gap in the numbers of the others."""

    def look(self, data: bytes) -> Look:
        """What a packet says of itself; a whole one costs its search for start codes and some bits.

        Raises:
            ValueError: it is no packet of the codec, or is cut; says what is wrong.
        """

    def lose(self, why: str) -> None:
        """Takes note that a packet can't be used, so that none that may need it is."""


class SetReader:
    """What the readers of H.264 and of H.265 have in common: parameter sets that packets bring."""

    def __init__(self) -> None:
        self._sets: dict[tuple[int, int], bytes] = {}
        self._why = NO_KEYFRAME
        self.horizon = 16

    @property
    def config(self) -> tuple[bytes, ...]:
        return tuple(START_CODE + self._sets[key] for key in sorted(self._sets))

    def lose(self, why: str) -> None:
        self._why = why


class Bits:
    """Bits of bytes, from the first one's highest on.

    Every method raises a ValueError where bits end early.
    """

    __slots__ = ("_left", "_value")

    def __init__(self, data: bytes):
        self._value = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def read(self, count: int) -> int:
        """An unsigned number of so many bits."""
        if count > self._left:
            raise ValueError("its header ends early")
        self._left -= count
        return (self._value >> self._left) & ((1 << count) - 1)

    def flag(self) -> bool:
        return bool(self.read(1))

    def ue(self, most: int = (1 << 32) - 2) -> int:
        """An Exp-Golomb number, `most` at most."""
        zeros = 0
        while not self.read(1):
            zeros += 1
            if zeros > 32:
                raise ValueError("its header holds a number of more than 32 bits")
        value = (1 << zeros) - 1 + self.read(zeros)
        if value > most:
            raise ValueError(f"its header says {value} where at most {most} can stand")
        return value

    def se(self) -> int:
        """A signed Exp-Golomb number."""
        value = self.ue()
        return (value + 1) // 2 if value % 2 else -(value // 2)


def nal_units(data: bytes) -> Iterator[tuple[int, int]]:
    """Where the NAL units of a byte stream start and end, without start codes and zeros around them.

    Raises:
        ValueError: there is no start code, or there are too many.
    """
    at = data.find(b"\0\0\1")
    if at < 0 or data[:at].strip(b"\0"):
        raise ValueError("it doesn't start with a start code, as Annex B wants it")
    count = 0
    while at >= 0:
        start = at + 3
        at = data.find(b"\0\0\1", start)
        stop = len(data) if at < 0 else at
        while stop > start and data[stop - 1] == 0:
            stop -= 1
        if stop > start:
            count += 1
            if count > MAX_UNITS:
                raise ValueError(f"it holds more than {MAX_UNITS} NAL units")
            yield start, stop


def unescaped(data: bytes) -> bytes:
    """The payload of a NAL unit, without the bytes that keep start codes out of it."""
    return data.replace(b"\0\0\3", b"\0\0")


def order_behind(upper: int, before: int, lower: int, bits: int) -> int:
    """A picture's place in the order of showing, of which it tells `bits` lower bits: the nearest such place.

    H.264, 8.2.1.1, and H.265, 8.3.1.

    Args:
        upper, before: of the picture before, the upper bits of its place and the lower ones.
    """
    size = 1 << bits
    if lower < before and before - lower >= size // 2:
        upper += size
    elif lower > before and lower - before > size // 2:
        upper -= size
    return upper + lower


def checked_size(width: int, height: int) -> tuple[int, int]:
    """
    Raises:
        ValueError: no decoder gets that much memory.
    """
    if width < 1 or height < 1 or width * height > MAX_PIXELS:
        raise ValueError(f"it claims pictures of {width} x {height} pixels")
    return width, height
