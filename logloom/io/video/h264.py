"""Parsing packets of H.264: keyframes, lost packets, sizes.

Here: sequence and picture parameter sets, the start of slice headers, recovery points; `H264`.
Elsewhere: decoding (frames).
Source: ITU-T H.264 (08/2021), 7.3.2 (parameter sets), 7.3.3 and 7.4.3 (slice headers and gaps in frame_num),
8.2.1 (order of pictures), D.2.8 (recovery points).
"""

from __future__ import annotations

from logloom.io.video.bits import (
    CLOSED,
    LEADING,
    LOST,
    MAX_SET_BYTES,
    NO_KEY,
    OPEN,
    SLICE_BYTES,
    Bits,
    Look,
    SetReader,
    checked_size,
    nal_units,
    order_behind,
    unescaped,
)
from logloom.values import dataclass

_SLICE, _IDR, _SEI, _SPS, _PPS = 1, 5, 6, 7, 8
_PARTITIONS = (2, 3, 4)
_RECOVERY_POINT = 6
_WITH_CHROMA = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)  # profiles


@dataclass(frozen=True)
class H264Sequence:
    """The fields of a sequence parameter set that slice headers depend on; and the size of pictures."""

    id: int
    width: int
    height: int
    has_planes: bool
    frame_num_bits: int
    order_type: int
    order_bits: int
    frames_only: bool


def sequence_parameters(data: bytes) -> H264Sequence:
    """Parse a sequence parameter set (without its first byte).

    Raises:
        ValueError: it is truncated or invalid.
    """
    bits = Bits(unescaped(data[:MAX_SET_BYTES]))
    profile = bits.read(8)
    bits.read(16)
    number = bits.ue(31)
    chroma, has_planes = 1, False
    if profile in _WITH_CHROMA:
        chroma = bits.ue(3)
        has_planes = chroma == 3 and bits.flag()
        bits.ue(6), bits.ue(6), bits.flag()
        if bits.flag():
            _skip_scaling(bits, 12 if chroma == 3 else 8)
    frame_num_bits = bits.ue(12) + 4
    order_type, order_bits = bits.ue(2), 0
    if order_type == 0:
        order_bits = bits.ue(12) + 4
    elif order_type == 1:
        bits.flag(), bits.se(), bits.se()
        for _ in range(bits.ue(255)):
            bits.se()
    bits.ue(16)
    # gaps may be intended; encoders declare so that leave none, so a gap counts as loss all the same
    bits.flag()
    width, height = 16 * (bits.ue() + 1), 16 * (bits.ue() + 1)
    frames_only = bits.flag()
    height *= 1 if frames_only else 2
    if not frames_only:
        bits.flag()
    bits.flag()
    if bits.flag():
        across = 2 if chroma in (1, 2) and not has_planes else 1
        down = (2 if chroma == 1 else 1) * (1 if frames_only else 2)
        width -= across * (bits.ue() + bits.ue())
        height -= down * (bits.ue() + bits.ue())
    checked_size(width, height)
    return H264Sequence(
        number, width, height, has_planes, frame_num_bits, order_type, order_bits, frames_only
    )


def _skip_scaling(bits: Bits, lists: int) -> None:
    for i in range(lists):
        if not bits.flag():
            continue
        last = following = 8
        for _ in range(16 if i < 6 else 64):
            if following:
                following = (last + bits.se()) % 256
            last = following or last


def recovers_at_once(data: bytes) -> bool:
    """Return whether supplemental information (without its first byte) declares all right from this
    picture on.
    """
    data = unescaped(data)
    at = 0
    while at + 2 < len(data):
        kind = size = 0
        while at < len(data) and data[at] == 255:
            kind, at = kind + 255, at + 1
        kind, at = kind + (data[at] if at < len(data) else 0), at + 1
        while at < len(data) and data[at] == 255:
            size, at = size + 255, at + 1
        size, at = size + (data[at] if at < len(data) else 0), at + 1
        if kind == _RECOVERY_POINT:
            try:
                return Bits(data[at : at + size]).ue() == 0
            except ValueError:
                return False
        at += size
    return False


@dataclass
class _Slice:
    """The start of a picture's first slice header."""

    sequence: H264Sequence
    is_idr: bool
    is_reference: bool
    is_intra: bool
    frame_num: int
    order: int  # the lower bits of the picture's place in display order


class H264(SetReader):
    """See `PacketReader`.

    Reference pictures are numbered (frame_num), so a lost packet that others need leaves a gap.
    Everything after it is refused, up to a keyframe.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sequences: dict[int, H264Sequence] = {}
        self._of_picture: dict[int, int] = {}  # by picture parameter set, the sequence's
        self._frame_num = -1  # of the reference picture before
        self._order = (0, 0)  # of the same, upper and lower bits
        self._key_order: int | None = None  # of an open keyframe
        self._leading = ""  # why pictures leading it can't be right

    def look(self, data: bytes) -> Look:
        recovers = False
        heads: list[tuple[int, Bits]] = []
        for start, stop in nal_units(data):
            kind, body = data[start] & 31, start + 1
            if data[start] & 128:
                raise ValueError("a NAL unit of it has its forbidden bit set")
            if kind == _SPS:
                self._take_sequence(data[start:stop])
            elif kind == _PPS:
                self._take_picture_set(data[start:stop])
            elif kind == _SEI:
                recovers |= recovers_at_once(data[body : min(stop, body + SLICE_BYTES)])
            elif kind in (_SLICE, _IDR):
                bits = Bits(unescaped(data[body : min(stop, body + SLICE_BYTES)]))
                if bits.ue() == 0:
                    heads.append((data[start], bits))
            elif kind in _PARTITIONS:
                raise ValueError("its slices are partitioned, which decoders don't support")
        if not heads:
            return Look()
        if len(heads) > 1:
            raise ValueError(f"it has {len(heads)} pictures, but a message must have one")
        return self._look_at(self._slice(*heads[0]), recovers)

    def _take_sequence(self, unit: bytes) -> None:
        if len(unit) > MAX_SET_BYTES:
            raise ValueError(f"a sequence parameter set of it has {len(unit)} bytes")
        found = sequence_parameters(unit[1:])
        self._sequences[found.id] = found
        self._sets[_SPS, found.id] = unit
        self.horizon = 1 << found.frame_num_bits

    def _take_picture_set(self, unit: bytes) -> None:
        if len(unit) > MAX_SET_BYTES:
            raise ValueError(f"a picture parameter set of it has {len(unit)} bytes")
        bits = Bits(unescaped(unit[1 : 1 + SLICE_BYTES]))
        number, sequence = bits.ue(255), bits.ue(31)
        self._of_picture[number] = sequence
        self._sets[_PPS, number] = unit

    def _slice(self, first: int, bits: Bits) -> _Slice:
        kind, number = bits.ue(9), bits.ue(255)
        sequence = self._sequences.get(self._of_picture.get(number, -1))
        if sequence is None:
            raise ValueError("it needs parameters (SPS, PPS), which no packet before it has")
        if sequence.has_planes:
            bits.read(2)
        frame_num = bits.read(sequence.frame_num_bits)
        if not sequence.frames_only and bits.flag():
            raise ValueError("it has a single field, but a message must have a whole picture")
        is_idr = first & 31 == _IDR
        if is_idr:
            bits.ue()
        order = bits.read(sequence.order_bits)
        return _Slice(sequence, is_idr, bool(first & 96), kind % 5 in (2, 4), frame_num, order)

    def _look_at(self, head: _Slice, recovers: bool) -> Look:
        sequence = head.sequence
        size = sequence.width, sequence.height
        if head.is_idr:
            self._why, self._leading, self._key_order = "", "", None
            self._frame_num, self._order = 0, (0, head.order)
            return Look(1, CLOSED, size=size)
        repeats = head.is_reference and head.frame_num == self._frame_num
        expected = (self._frame_num + 1) % (1 << sequence.frame_num_bits)
        if head.frame_num != expected:
            self._why = self._why or LOST
        order = self._order_of(head)
        key = NO_KEY
        if recovers and head.is_intra and sequence.order_type != 1:
            key, repeats = OPEN, False
            self._leading = LEADING if self._why else ""
            self._why, self._key_order = "", order
        leading = not key and self._key_order is not None and order < self._key_order
        if head.is_reference:
            self._frame_num = head.frame_num
            upper = order - head.order
            self._order = upper, head.order
        return Look(1, key, leading, self._why or (self._leading if leading else ""), repeats, size)

    def _order_of(self, head: _Slice) -> int:
        """Return its place in display order; that of packets if it isn't declared."""
        if head.sequence.order_type != 0:
            return 0
        return order_behind(*self._order, head.order, head.sequence.order_bits)
