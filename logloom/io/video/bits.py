"""Reading bits of headers in the standards' notation; and properties of packets.

Here: `Bits`, NAL units of H.264 and H.265 in Annex B, the base of their readers (`SetReader`), `Look`.
Elsewhere: parsing packets (h264, h265, av1, vp9).
Sources: ITU-T H.264 (08/2021), 7.3.1, 9.1 and Annex B; H.265 (08/2021), 7.3.1, 9.2 and Annex B.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

MAX_PIXELS = 1 << 26  # of a picture; level 6.2 of H.264 and H.265 ends at 35 651 584
MAX_UNITS = 4096  # NAL units or OBUs of a packet
SLICE_BYTES = 512  # of a slice, enough for its header as far as it is read here
MAX_SET_BYTES = 4096  # of a parameter set
START_CODE = b"\0\0\1"

NO_KEY, CLOSED, OPEN = 0, 1, 2
NO_KEYFRAME = "no keyframe came before it"
LOST = "a packet before it, which it needs, is lost"
LEADING = "it needs packets from before its keyframe, which are lost"


class Look(NamedTuple):
    """Properties of a packet.

    Attributes:
        pictures: number of shown pictures: 1; or 0 for parameters only.
        key: `CLOSED` if decoding may begin with it; `OPEN` if it may, except for the leading pictures that
            follow; else `NO_KEY`.
        leading: whether it follows an open keyframe and is shown before that one.
        reason: why its picture can't be right; "" if it can.
        repeats: whether it has the number of the previous picture, as when two streams share a topic.
        size: (width, height) of its picture; (0, 0) if unknown.
    """

    pictures: int = 0
    key: int = NO_KEY
    leading: bool = False
    reason: str = ""
    repeats: bool = False
    size: tuple[int, int] = (0, 0)


class PacketReader(Protocol):
    """Parses the packets of one topic in order, with the state that later ones need."""

    @property
    def config(self) -> tuple[bytes, ...]:
        """The current parameters in the form that decoders need before a keyframe, including start codes."""

    @property
    def horizon(self) -> int:
        """Number of consecutive lost packets that leaves no gap in the numbers of the others."""

    def look(self, data: bytes) -> Look:
        """Parse a packet; the cost is the search for start codes and some bits.

        Raises:
            ValueError: not a packet of the codec, or truncated.
        """

    def lose(self, why: str) -> None:
        """Record that a packet can't be used, so that packets that may need it aren't either."""


class SetReader:
    """Base of the readers of H.264 and H.265: parameter sets in packets."""

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

    Every method raises a ValueError if bits end early.
    """

    __slots__ = ("_left", "_value")

    def __init__(self, data: bytes):
        self._value = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def read(self, count: int) -> int:
        """Read an unsigned number of this many bits."""
        if count > self._left:
            raise ValueError("its header ends early")
        self._left -= count
        return (self._value >> self._left) & ((1 << count) - 1)

    def flag(self) -> bool:
        return bool(self.read(1))

    def ue(self, most: int = (1 << 32) - 2) -> int:
        """Read an Exp-Golomb number, `most` at most."""
        zeros = 0
        while not self.read(1):
            zeros += 1
            if zeros > 32:
                raise ValueError("its header has a number of more than 32 bits")
        value = (1 << zeros) - 1 + self.read(zeros)
        if value > most:
            raise ValueError(f"its header has {value}, more than the maximum {most}")
        return value

    def se(self) -> int:
        """Read a signed Exp-Golomb number."""
        value = self.ue()
        return (value + 1) // 2 if value % 2 else -(value // 2)


def nal_units(data: bytes) -> Iterator[tuple[int, int]]:
    """Find the NAL units of a byte stream, without start codes and zeros around them.

    Raises:
        ValueError: there is no start code, or there are too many.
    """
    at = data.find(b"\0\0\1")
    if at < 0 or data[:at].strip(b"\0"):
        raise ValueError("it doesn't start with a start code, which Annex B requires")
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
                raise ValueError(f"it has more than {MAX_UNITS} NAL units")
            yield start, stop


def unescaped(data: bytes) -> bytes:
    """Return the payload of a NAL unit without the bytes that prevent start codes in it."""
    return data.replace(b"\0\0\3", b"\0\0")


def order_behind(upper: int, before: int, lower: int, bits: int) -> int:
    """Return a picture's place in display order from its `bits` lower bits: the nearest such place.

    H.264, 8.2.1.1, and H.265, 8.3.1.

    Args:
        upper, before: upper and lower bits of the previous picture's place.
    """
    size = 1 << bits
    if lower < before and before - lower >= size // 2:
        upper += size
    elif lower > before and lower - before > size // 2:
        upper -= size
    return upper + lower


def checked_size(width: int, height: int) -> tuple[int, int]:
    """
    Check the size of pictures.

    Raises:
        ValueError: it exceeds the limit of memory for decoders.
    """
    if width < 1 or height < 1 or width * height > MAX_PIXELS:
        raise ValueError(f"it declares pictures of {width} x {height} pixels")
    return width, height
