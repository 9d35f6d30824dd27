"""Checks of a pickle's opcodes before it is unpickled.

Here: `check`, which walks the opcodes and validates lengths, memo indices and frames.
Elsewhere: the names that a pickle may refer to, and unpickling (logloom.io.formats.annotations.pickles).

CPython's unpickler allocates memory before it validates: it fills a memo up to any index an opcode names, and
reserves a length before it looks for the bytes. At the end of a frame it drops the rest of an opcode that
extends beyond it, so frames are checked too: otherwise it would read other opcodes than those checked here.
"""

from __future__ import annotations

import re

# Opcodes by the bytes that follow them. Those with bytes of their own claim nothing.
_NONE = rb"[\]ael)t\x85-\x87}dsu\x8f-\x910(21NRbo\x81\x92\x93\x94\x88\x89Q\x97\x98]"
_ONE = rb"[Kqh\x80\x82]."
_TWO = rb"[M\x83].."
_FOUR = rb"[Jj\x84].{4}"
_EIGHT = rb"G.{8}"
_LINE = rb"[ISVFLPg][^\n]*+\n"
_LINES = rb"[ci][^\n]*+\n[^\n]*+\n"
_KINDS = (_NONE + b"++", _ONE, _TWO, _FOUR, _EIGHT, _LINE, _LINES)
_PLAIN = re.compile(b"(?:" + b"|".join(_KINDS) + b")*+", re.DOTALL)

_LENGTHS = dict(zip(b"UC\x8c\x8aTBX\x8b\x8e\x8d\x96", (1,) * 4 + (4,) * 4 + (8,) * 3, strict=True))
_PUT, _LONG_BINPUT, _FRAME, _STOP = b"pr\x95."
_INDEX = re.compile(rb"([0-9]{1,18})\n")


def check(data: bytes) -> None:
    """Check that no opcode claims more than the pickle can contain.

    Raises:
        ValueError: one does, or is unknown; names the byte.
    """
    place, end = 0, len(data)  # `end` is that of the frame at hand
    while True:
        place = _after_plain(data, place, end)
        if place == end < len(data):
            end = len(data)
        elif place >= end:
            raise ValueError(f"it ends at byte {end} without a STOP")
        elif data[place] == _STOP:
            return
        elif data[place] == _FRAME:
            if end < len(data):
                raise ValueError(f"a frame begins at byte {place}, within another")
            start = place + 9
            end = _within(data, place, start + _unsigned(data, place, 8, end), end)
            place = start
        else:
            place = _within(data, place, _after_claiming(data, place, end), end)


def _after_plain(data: bytes, start: int, end: int) -> int:
    found = _PLAIN.match(data, start, end)
    return found.end() if found else start


def _after_claiming(data: bytes, place: int, end: int) -> int:
    """Find the end of an opcode with a length or an index, which may be beyond `end`.

    Raises:
        ValueError: its index is too high, or it is none of these opcodes.
    """
    opcode = data[place]
    if opcode in _LENGTHS:
        return place + 1 + _LENGTHS[opcode] + _unsigned(data, place, _LENGTHS[opcode], end)
    if opcode == _LONG_BINPUT:
        index, stop = _unsigned(data, place, 4, end), place + 5
    elif opcode == _PUT and (line := _INDEX.match(data, place + 1, end)):
        index, stop = int(line[1]), line.end()
    elif opcode == _PUT or _after_plain(bytes([opcode]) + b"\n" * 8, 0, 9):
        raise ValueError(f"the opcode at byte {place} is cut short or has no fitting argument")
    else:
        raise ValueError(f"there is an unknown opcode {opcode:#04x} at byte {place}")
    # Each value in the memo has taken a byte before; counting may begin at 1.
    if index > place:
        raise ValueError(f"the memo index {index} at byte {place} is beyond all that can have come before")
    return stop


def _unsigned(data: bytes, place: int, width: int, end: int) -> int:
    start = place + 1
    return int.from_bytes(data[start : _within(data, place, start + width, end)], "little")


def _within(data: bytes, place: int, stop: int, end: int) -> int:
    """
    Returns:
        `stop`.

    Raises:
        ValueError: it is beyond `end`, that of the pickle or of a frame.
    """
    if stop > end:
        whose = "its frame" if end < len(data) else "the pickle"
        raise ValueError(f"the opcode at byte {place} goes on to byte {stop}, {whose} ends at {end}")
    return stop
