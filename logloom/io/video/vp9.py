"""Parsing packets of VP9: keyframes and sizes.

Here: superframes and the start of frame headers; `Vp9`.
Elsewhere: lost packets, which VP9 doesn't number (index); decoding (frames).
Source: VP9 Bitstream & Decoding Process Specification, version 0.6, 6.2 (frame headers), Annex B
(superframes).
"""

from __future__ import annotations

from logloom.io.video.bits import CLOSED, NO_KEY, NO_KEYFRAME, Bits, Look, checked_size

HEAD_BYTES = 32
_SYNC = 0x498342
_SRGB = 7


class Vp9:
    """See `PacketReader`. A keyframe needs no parameters, and losses can't be detected."""

    config: tuple[bytes, ...] = ()
    horizon = 1

    def __init__(self) -> None:
        self._why = NO_KEYFRAME
        self._size = (0, 0)

    def lose(self, why: str) -> None:
        self._why = why

    def look(self, data: bytes) -> Look:
        shown = key = 0
        for number, (start, stop) in enumerate(frames_of(data)):
            bits = Bits(data[start : min(stop, start + HEAD_BYTES)])
            is_shown, size = _head(bits)
            shown += is_shown
            if size is not None:
                if number == 0:  # frames before a keyframe in a packet would be shown without one
                    key, self._why = CLOSED, ""
                self._size = size
        if shown == 0:
            raise ValueError("it shows no picture")
        if shown > 1:
            raise ValueError(f"it has {shown} pictures, but a message must have one")
        return Look(1, key or NO_KEY, reason=self._why, size=self._size)


def frames_of(data: bytes) -> list[tuple[int, int]]:
    """Find the frames of a packet: several in a superframe, which ends with an index.

    Raises:
        ValueError: it is empty, or its index doesn't fit it.
    """
    if not data:
        raise ValueError("it is empty")
    marker = data[-1]
    count, width = (marker & 7) + 1, (marker >> 3 & 3) + 1
    index = 2 + count * width
    if marker >> 5 != 6 or len(data) < index or data[-index] != marker:
        return [(0, len(data))]
    sizes = [
        int.from_bytes(data[len(data) - index + 1 + i * width :][:width], "little") for i in range(count)
    ]
    if sum(sizes) + index > len(data):
        raise ValueError("its superframe is cut")
    found, at = [], 0
    for size in sizes:
        if size:
            found.append((at, at + size))
        at += size
    return found


def _head(bits: Bits) -> tuple[bool, tuple[int, int] | None]:
    """Return whether a frame is shown; and for a keyframe (width, height)."""
    if bits.read(2) != 2:
        raise ValueError("it doesn't start as a frame of VP9 does")
    profile = bits.read(1) + 2 * bits.read(1)
    if profile == 3 and bits.flag():
        raise ValueError("it is of a profile that VP9 doesn't have")
    if bits.flag():  # shows an existing frame
        bits.read(3)
        return True, None
    is_key, is_shown, _ = not bits.flag(), bits.flag(), bits.flag()
    if not is_key:
        return is_shown, None
    if bits.read(24) != _SYNC:
        raise ValueError("it has no sync code, as a keyframe of VP9 does")
    if profile >= 2:
        bits.flag()
    if bits.read(3) != _SRGB:
        bits.flag()
        if profile in (1, 3):
            bits.read(3)
    elif profile in (1, 3):
        bits.flag()
    return is_shown, checked_size(bits.read(16) + 1, bits.read(16) + 1)
