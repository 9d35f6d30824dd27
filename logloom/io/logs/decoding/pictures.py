"""The structure of compressed pictures: whether a JPEG or PNG is there from its beginning to its end.

Here: which topics hold compressed pictures, and what is wrong with the structure of each. Nothing is decoded,
so a picture of sound structure may still not decode.
Elsewhere: refusing messages (logloom.io.logs.stamps), decoding (images).
"""

from __future__ import annotations

import re
import zlib

import numpy as np
from numpy.typing import NDArray

from logloom.errors import OF_CONTENT
from logloom.io.logs.base import FieldSpec, TopicInfo
from logloom.io.logs.decoding.partly import take_partly
from logloom.io.logs.raw import Decoder, RawMessages

# sensor_msgs/CompressedImage, sensor_msgs/msg/CompressedImage, foxglove.CompressedImage and their kin.
_TYPE = re.compile(r"compressed_?image", re.IGNORECASE)
DATA = FieldSpec(("data",))

_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
_DEPTH_HEADER = 12  # bytes before the PNG of a compressedDepth
# Of segments before a JPEG's first scan, and of a PNG's chunks. Real pictures have some hundred at most, but
# for PNGs whose chunks are small; a hostile one of 100 MB could have millions.
_MAX_SEGMENTS, _MAX_CHUNKS = 10_000, 100_000
_STANDALONE = frozenset({0x01, *range(0xD0, 0xD8)})  # JPEG markers without a length
_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_END = bytes((0xFF, _EOI))
_NEAR_END = 1024  # bytes in which the end of a whole JPEG usually lies
_BATCH = 16 << 20  # bytes of messages that are looked at together


def has_pictures(info: TopicInfo, decoder: Decoder) -> bool:
    """Whether messages of a topic are compressed pictures, by the name of their type and its fields."""
    if not _TYPE.search(info.type):
        return False
    try:
        return decoder.column_type(DATA).kind == "bytes"
    except OF_CONTENT:
        return False


def picture_problems(raw: RawMessages, decoder: Decoder, rows: NDArray[np.intp]) -> dict[int, str]:
    """What is wrong with the structure of pictures, by row; rows whose picture is sound are left out.

    Args:
        rows: (n,) the messages to look at.
    """
    found: dict[int, str] = {}
    batches = np.cumsum(raw.length[rows]) // _BATCH
    for some in np.split(rows, np.flatnonzero(np.diff(batches)) + 1) if len(rows) else ():
        # A message that doesn't decode is none of ours.
        values, readable, _ = take_partly(lambda part: decoder.take(raw.take(part), DATA), some)
        for row, data in zip(some[readable].tolist(), values or (), strict=True):
            if problem := structure_problem(np.ascontiguousarray(data).data):
                found[row] = problem
    return found


def structure_problem(data: bytes | memoryview) -> str:
    """What is wrong with the structure of a picture; "" for nothing, or a format that isn't looked into.

    A JPEG is sound if its segments lead to a scan, and an end of image follows. Behind that may be anything:
    padding, or further pictures. A PNG is sound if its chunks lead from IHDR to IEND and have the CRCs that
    they state.
    """
    data = memoryview(data)
    if len(data) == 0:
        return "a picture without data"
    if data[: len(_JPEG)] == _JPEG:
        return _jpeg_problem(data)
    for start in (0, _DEPTH_HEADER):
        if data[start : start + len(_PNG)] == _PNG:
            return _png_problem(data[start:])
    if any(magic.startswith(bytes(data[: len(magic)])) for magic in (_JPEG, _PNG)):
        return f"a picture of {len(data)} bytes"
    return ""


def _jpeg_problem(data: memoryview) -> str:
    place = 2
    for _ in range(_MAX_SEGMENTS):
        if place + 2 > len(data):
            return _cut("JPEG", data, "before its first scan")
        marker = data[place + 1]
        if data[place] != 0xFF or marker in (0x00, _SOI):
            return f"a JPEG with no segment at byte {place} of {len(data)}"
        if marker == _EOI:
            return f"a JPEG without a scan: it ends at byte {place} of {len(data)}"
        if marker == 0xFF:  # fills
            place += 1
            continue
        if marker in _STANDALONE:
            place += 2
            continue
        length = int.from_bytes(data[place + 2 : place + 4])
        if place + 4 > len(data) or place + 2 + length > len(data):
            return _cut("JPEG", data, "before its first scan")
        if length < 2:
            return f"a JPEG whose segment at byte {place} has a length of {length}"
        place += 2 + length
        if marker == _SOS:
            # Within a scan no 0xff is followed by 0xd9, so a cut one contains no such pair.
            starts = (max(place, len(data) - _NEAR_END), place)
            has_end = any(bytes(data[start:]).rfind(_END) >= 0 for start in starts)
            return "" if has_end else _cut("JPEG", data, "in its picture data")
    return f"a JPEG with more than {_MAX_SEGMENTS} segments before its first scan"


def _png_problem(data: memoryview) -> str:
    place, wanted = len(_PNG), b"IHDR"
    for _ in range(_MAX_CHUNKS):
        if place + 12 > len(data):
            return _cut("PNG", data, "before its end")
        stop = place + 12 + int.from_bytes(data[place : place + 4])
        kind = bytes(data[place + 4 : place + 8])
        if wanted and kind != wanted:
            return f"a PNG that begins with {kind!r}, not with IHDR"
        if stop > len(data):
            return _cut("PNG", data, "before its end")
        if zlib.crc32(data[place + 4 : stop - 4]) != int.from_bytes(data[stop - 4 : stop]):
            return f"a PNG whose chunk at byte {place} doesn't have the CRC that it states"
        if kind == b"IEND":
            return ""
        place, wanted = stop, b""
    return f"a PNG with more than {_MAX_CHUNKS} chunks"


def _cut(kind: str, data: memoryview, where: str) -> str:
    return f"a {kind} of {len(data)} bytes that is cut {where}"
