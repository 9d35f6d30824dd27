"""The structure of compressed pictures: whether a JPEG or PNG is complete.

Here: topics with compressed pictures, and faults in the structure of pictures. Nothing is decoded,
so a picture of sound structure may still not decode.
Elsewhere: refusing messages (logloom.io.logs.message_times), decoding (logloom.io.logs.messages.images).
"""

from __future__ import annotations

import re
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from logloom.errors import OF_CONTENT
from logloom.io.logs.interface import FieldSpec, TopicInfo
from logloom.io.logs.messages.partial import take_partly
from logloom.io.logs.messages.raw_messages import Decoder, RawMessages

# sensor_msgs/CompressedImage, sensor_msgs/msg/CompressedImage, foxglove.CompressedImage and the like.
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
_HEAD = 1024  # bytes in which the segments of a JPEG usually are before its scan
_NEAR_END = 256  # bytes in which the end of a whole JPEG usually is
_CHUNK = struct.Struct(">I4s")  # length and type
# Bytes of a PNG's picture data whose CRCs are checked: for more, CRCs would take a tenth of a build's time.
_CHECKED = 64 << 10
_BATCH = 64 << 20  # bytes of messages that are checked together


def has_pictures(info: TopicInfo, decoder: Decoder) -> bool:
    """Return whether messages of a topic are compressed pictures, by their type's name and fields."""
    if not _TYPE.search(info.type):
        return False
    try:
        return decoder.column_type(DATA).kind == "bytes"
    except OF_CONTENT:
        return False


def picture_problems(raw: RawMessages, decoder: Decoder, rows: NDArray[np.intp]) -> dict[int, str]:
    """Find faults in the structure of pictures, by row, without the sound ones.

    Args:
        rows: (n,) the messages to look at.
    """
    found: dict[int, str] = {}
    ends = np.cumsum(raw.length[rows])
    cuts = np.flatnonzero(np.diff(ends // _BATCH)) + 1
    for some in np.split(rows, cuts) if len(cuts) else [rows] if len(rows) else []:
        # A message that doesn't decode is reported elsewhere.
        values, readable, _ = take_partly(lambda part: decoder.take(raw.take(part), DATA), some)
        for row, data in zip(some[readable].tolist(), values or (), strict=True):
            if problem := structure_problem(data.data):
                found[row] = problem
    return found


def structure_problem(data: bytes | memoryview) -> str:
    """Describe what is wrong with the structure of a picture; "" for nothing, or an unknown format.

    A JPEG is sound if its segments lead to a scan, and an end of image follows. Behind that may be anything:
    padding, or further pictures. A PNG is sound if its chunks lead from IHDR to IEND and have correct CRCs;
    of large picture data, only the CRCs of the beginning are computed.
    """
    head = bytes(data[:_HEAD])
    if head.startswith(_JPEG):
        return _jpeg_problem(memoryview(data), head)
    for start in (0, _DEPTH_HEADER):
        if head.startswith(_PNG, start):
            return _png_problem(memoryview(data)[start:])
    if not head:
        return "a picture without data"
    if _JPEG.startswith(head) or _PNG.startswith(head):
        return f"a picture of {len(data)} bytes"
    return ""


def _jpeg_problem(data: memoryview, head: bytes) -> str:
    place, size = 2, len(data)
    for _ in range(_MAX_SEGMENTS):
        if place + 4 > len(head) < size:
            head = bytes(data)
        if place + 2 > size:
            return _cut("JPEG", size, "before its first scan")
        marker = head[place + 1]
        if head[place] != 0xFF or marker in (0x00, _SOI):
            return f"a JPEG with no segment at byte {place} of {size}"
        if marker == _EOI:
            return f"a JPEG without a scan: it ends at byte {place} of {size}"
        if marker == 0xFF:  # fills
            place += 1
            continue
        if marker in _STANDALONE:
            place += 2
            continue
        if place + 4 > size:
            return _cut("JPEG", size, "before its first scan")
        length = head[place + 2] << 8 | head[place + 3]
        if length < 2:
            return f"a JPEG whose segment at byte {place} has a length of {length}"
        place += 2 + length
        if place > size:
            return _cut("JPEG", size, "before its first scan")
        if marker == _SOS:
            # Within a scan no 0xff is followed by 0xd9, so a cut one contains no such pair.
            if _END in bytes(data[max(place, size - _NEAR_END) :]) or _END in bytes(data[place:]):
                return ""
            return _cut("JPEG", size, "in its picture data")
    return f"a JPEG with more than {_MAX_SEGMENTS} segments before its first scan"


def _png_problem(data: memoryview) -> str:
    place, size, unchecked = len(_PNG), len(data), _CHECKED
    is_first = True
    for _ in range(_MAX_CHUNKS):
        if place + 12 > size:
            return _cut("PNG", size, "before its end")
        length, kind = _CHUNK.unpack_from(data, place)
        if is_first and kind != b"IHDR":
            return f"a PNG that begins with {kind!r}, not with IHDR"
        stop = place + 12 + length
        if stop > size or not kind.isalpha():
            return _cut("PNG", size, f"or damaged at byte {place}")
        if unchecked > 0 or kind != b"IDAT":
            unchecked -= length
            if zlib.crc32(data[place + 4 : stop - 4]) != int.from_bytes(data[stop - 4 : stop]):
                return f"a PNG whose chunk at byte {place} doesn't have the CRC that it states"
        if kind == b"IEND":
            return ""
        place, is_first = stop, False
    return f"a PNG with more than {_MAX_CHUNKS} chunks"


def _cut(kind: str, size: int, where: str) -> str:
    return f"a {kind} of {size} bytes that is cut {where}"
