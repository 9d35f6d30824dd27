"""Parsing packets of AV1: keyframes, numbers of pictures, sizes.

Here: OBUs, sequence headers, the start of frame headers; `Av1`.
Elsewhere: decoding (frames).
Source: AV1 Bitstream & Decoding Process Specification, version 1.0.0 with errata 1, 5.3 (OBUs), 5.5 (sequence
headers), 5.9 (frame headers).
"""

from __future__ import annotations

from collections.abc import Iterator

from logloom.io.video.bits import CLOSED, LOST, MAX_UNITS, NO_KEY, NO_KEYFRAME, Bits, Look, checked_size
from logloom.values import dataclass

HEAD_BYTES = 64
MAX_SEQUENCE_BYTES = 1024
_SEQUENCE, _FRAME_HEADER, _FRAME = 1, 3, 6
_KEY, _INTRA_ONLY, _SWITCH = 0, 2, 3
_SLOTS = 8
_CHOSEN_BY_FRAME = 2  # SELECT_SCREEN_CONTENT_TOOLS, SELECT_INTEGER_MV


@dataclass(frozen=True)
class SequenceHeader:
    """The fields of a sequence header that frame headers depend on; and the size of pictures."""

    width: int
    height: int
    is_still: bool
    time_bits: int  # of the presentation time in each shown frame's header; 0 without
    has_model: bool
    id_bits: int  # 0 without frame ids
    order_bits: int  # 0 without order hints
    screen_tools: int
    integer_mv: int


def sequence_header(data: bytes) -> SequenceHeader:
    """Parse the payload of a sequence header OBU (5.5.1).

    Raises:
        ValueError: it is truncated or invalid.
    """
    bits = Bits(data[:MAX_SEQUENCE_BYTES])
    bits.read(4)
    is_still, time_bits, has_model = bits.flag(), 0, False
    if is_still:
        bits.read(5)
    else:
        time_bits, has_model = _skip_operating_points(bits)
    across, down = bits.read(4) + 1, bits.read(4) + 1
    width, height = checked_size(bits.read(across) + 1, bits.read(down) + 1)
    id_bits = 0
    if not is_still and bits.flag():
        difference = bits.read(4) + 2
        id_bits = difference + bits.read(3) + 1
    bits.read(3)
    order_bits, screen_tools, integer_mv = 0, _CHOSEN_BY_FRAME, _CHOSEN_BY_FRAME
    if not is_still:
        bits.read(4)
        has_order = bits.flag()
        if has_order:
            bits.read(2)
        screen_tools = _CHOSEN_BY_FRAME if bits.flag() else bits.read(1)
        if screen_tools:
            integer_mv = _CHOSEN_BY_FRAME if bits.flag() else bits.read(1)
        order_bits = bits.read(3) + 1 if has_order else 0
    return SequenceHeader(
        width, height, is_still, time_bits, has_model, id_bits, order_bits, screen_tools, integer_mv
    )


def _skip_operating_points(bits: Bits) -> tuple[int, bool]:
    """Skip operating points; return the bits of presentation times in frame headers, and whether there is
    a decoder model.
    """
    delay_bits = time_bits = 0
    has_model = equal_steps = False
    if bits.flag():
        bits.read(64)
        equal_steps = bits.flag()
        if equal_steps:
            bits.ue()
        has_model = bits.flag()
        if has_model:
            delay_bits = bits.read(5) + 1
            bits.read(32 + 5)
            time_bits = 0 if equal_steps else bits.read(5) + 1
            if equal_steps:
                bits.read(5)
    has_delay = bits.flag()
    for _ in range(bits.read(5) + 1):
        bits.read(12)
        if bits.read(5) > 7:
            bits.flag()
        if has_model and bits.flag():
            bits.read(2 * delay_bits + 1)
        if has_delay and bits.flag():
            bits.read(4)
    return time_bits, has_model


def units_of(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """List (type, start, start of its payload, end) of each OBU of a packet.

    Raises:
        ValueError: sizes don't fit, or there are too many.
    """
    at = count = 0
    while at < len(data):
        start, head = at, data[at]
        if head & 0x81:
            raise ValueError("an OBU of it has no valid header")
        at += 2 if head & 4 else 1
        size = len(data) - at
        if head & 2:
            size, at = _leb128(data, at)
        if size < 0 or at + size > len(data):
            raise ValueError("an OBU of it is cut")
        count += 1
        if count > MAX_UNITS:
            raise ValueError(f"it has more than {MAX_UNITS} OBUs")
        yield head >> 3 & 15, start, at, at + size
        at += size


def _leb128(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(8):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << (7 * i)
        if not byte & 128:
            return value, at
    raise ValueError("an OBU of it has no valid size")


@dataclass
class _Frame:
    """The start of a frame header. `order` is -1 if unknown."""

    is_shown: bool
    is_key: bool = False
    order: int = -1


class Av1:
    """See `PacketReader`.

    If a sequence has order hints, shown pictures are numbered consecutively, so that a lost one leaves a gap.
    Everything after it is refused, up to a keyframe that is shown itself.
    """

    def __init__(self) -> None:
        self._sequence: SequenceHeader | None = None
        self._config: tuple[bytes, ...] = ()
        self._slots = [-1] * _SLOTS  # order hints of the stored frames; -1 if unknown
        self._order = -1  # of the picture shown last
        self._why = NO_KEYFRAME

    @property
    def config(self) -> tuple[bytes, ...]:
        return self._config

    @property
    def horizon(self) -> int:
        return 1 << self._sequence.order_bits if self._sequence else 1

    def lose(self, why: str) -> None:
        self._why, self._order = why, -1

    def look(self, data: bytes) -> Look:
        frames: list[_Frame] = []
        for kind, start, body, stop in units_of(data):
            if kind == _SEQUENCE:
                if stop - body > MAX_SEQUENCE_BYTES:
                    raise ValueError(f"a sequence header of it has {stop - body} bytes")
                self._sequence, self._config = sequence_header(data[body:stop]), (data[start:stop],)
            elif kind in (_FRAME_HEADER, _FRAME):
                if self._sequence is None:
                    raise ValueError("it needs a sequence header, which no packet before it has")
                frames.append(self._frame(Bits(data[body : min(stop, body + HEAD_BYTES)]), self._sequence))
        shown = [frame for frame in frames if frame.is_shown]
        if not frames:
            return Look()
        if len(shown) != 1:
            raise ValueError(f"it shows {len(shown)} pictures, but a message must have one")
        return self._look_at(frames[0], shown[0])

    def _look_at(self, first: _Frame, shown: _Frame) -> Look:
        assert self._sequence is not None
        size = self._sequence.width, self._sequence.height
        before, self._order = self._order, shown.order
        if first.is_key and first.is_shown:
            self._why = ""
            return Look(1, CLOSED, size=size)
        repeats = before >= 0 and shown.order == before
        if before >= 0 and shown.order >= 0 and shown.order != (before + 1) % self.horizon:
            self._why = self._why or LOST
        return Look(1, NO_KEY, reason=self._why, repeats=repeats, size=size)

    def _frame(self, bits: Bits, sequence: SequenceHeader) -> _Frame:
        if sequence.is_still:
            return _Frame(True, True)
        if bits.flag():  # shows an existing frame
            return _Frame(True, False, self._slots[bits.read(3)])
        kind, is_shown = bits.read(2), bits.flag()
        if is_shown:
            bits.read(sequence.time_bits)
        else:
            bits.flag()
        resilient = kind == _SWITCH or (kind == _KEY and is_shown) or bits.flag()
        bits.flag()
        screen = bits.read(1) if sequence.screen_tools == _CHOSEN_BY_FRAME else sequence.screen_tools
        if screen and sequence.integer_mv == _CHOSEN_BY_FRAME:
            bits.flag()
        bits.read(sequence.id_bits)
        if kind != _SWITCH:
            bits.flag()
        if not sequence.order_bits:
            return _Frame(is_shown, kind == _KEY)
        order = bits.read(sequence.order_bits)
        if not (kind in (_KEY, _INTRA_ONLY) or resilient):
            bits.read(3)
        if sequence.has_model:  # skip the times of removal, whose length depends on its frames
            self._slots = [-1] * _SLOTS
            return _Frame(is_shown, kind == _KEY, order)
        kept = 255 if kind == _SWITCH or (kind == _KEY and is_shown) else bits.read(8)
        self._slots = [order if kept >> i & 1 else old for i, old in enumerate(self._slots)]
        return _Frame(is_shown, kind == _KEY, order)
