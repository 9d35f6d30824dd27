"""Tar member headers: creation for many rows at once, and parsing.

Here: `HeaderTemplate` (the headers of one member of every sample) and `parse_header`, `parse_pax`.
Elsewhere: walking over an archive (logloom.io.formats.tar.members), the content of members
(logloom.io.formats.tar.samples).
Headers are USTAR: mode 644, owner, group and time 0. A name that USTAR can't hold, because it is too long or
not ASCII, gets a PAX header in front.
"""

from __future__ import annotations

import re
import zlib

import numpy as np
from numpy.typing import NDArray

from logloom.errors import UsageError

BLOCK = 512
END = bytes(2 * BLOCK)  # two zero blocks end an archive
MAX_SIZE = 8**11 - 1  # what a USTAR header can say

_PREFIX = slice(345, 500)
_SIZE = slice(124, 135)
_CHECKSUM = slice(148, 154)
_OCTAL = re.compile(rb" *([0-7]*)(?:[ \0].*)?", re.DOTALL)

Bytes2D = NDArray[np.uint8]


def padded(size: int) -> int:
    """The size rounded up to whole blocks."""
    return -(-size // BLOCK) * BLOCK


class HeaderTemplate:
    """Headers of members whose names differ only in digits: `<before><digits><after>`, digits of one width.

    Attributes:
        nbytes: of one header; more than 512 where names need PAX.
    """

    def __init__(self, before: str, width: int, after: str):
        name = before + "0" * width + after
        self._width = width
        split = _split_name(name)
        if split is not None:
            prefix, base = split
            self._head, self._places = _ustar(base, prefix), [len(base) - len(after) - width]
        else:
            # The digits come first in the short name, which readers without PAX would see.
            short = ("0" * width + after).encode("ascii", "replace")[:100]
            record = _pax_record("path", name)
            extended = _ustar(b"PaxHeaders/0", b"", b"x", len(record))
            self._head = _with_checksum(extended) + record.ljust(padded(len(record)), b"\0")
            at = len(record) - 1 - len(after.encode()) - width
            self._places = [BLOCK + at, len(self._head)]
            self._head += _ustar(short, b"")
        self.nbytes = len(self._head)
        # Of the last block, with its digits and size as "0" and blanks for the sum itself, which ends in NUL.
        self._sum = sum(self._head[-BLOCK:])
        at = self.nbytes - BLOCK + _CHECKSUM.stop
        self._head = self._head[:at] + b"\0" + self._head[at + 1 :]

    def fill(self, digits: Bytes2D, sizes: NDArray[np.int64], out: Bytes2D) -> None:
        """Writes a header per row.

        Args:
            digits: (n, width) ASCII.
            sizes: (n,) bytes of each member, at most MAX_SIZE.
            out: (n, nbytes) receives the headers.
        """
        out[:] = np.frombuffer(self._head, np.uint8)
        for place in self._places:
            out[:, place : place + self._width] = digits
        block = out[:, -BLOCK:]
        octal = _octal(sizes, 11)
        block[:, _SIZE] = octal + 48
        sums = self._sum + octal.sum(1, np.int64) + digits.sum(1, np.int64) - 48 * self._width
        block[:, _CHECKSUM] = _octal(sums, 6) + 48


def _octal(values: NDArray[np.int64], width: int) -> Bytes2D:
    """(n, width) the octal digits of each value as numbers 0 to 7."""
    return ((values[:, None] >> np.arange(3 * width - 3, -3, -3)) & 7).astype(np.uint8)


def _split_name(name: str) -> tuple[bytes, bytes] | None:
    """The name as USTAR's (prefix, name) fields, or None where it doesn't fit."""
    if not name.isascii():
        return None
    if len(name) <= 100:
        return b"", name.encode()
    # The longest prefix that fits: the name field must not be empty, and both end at a slash.
    cut = name.rfind("/", 0, 156)
    if cut <= 0 or not 0 < len(name) - cut - 1 <= 100:
        return None
    return name[:cut].encode(), name[cut + 1 :].encode()


def _ustar(name: bytes, prefix: bytes, kind: bytes = b"0", size: int = 0) -> bytes:
    """A header block whose checksum is still blank."""
    return b"".join(
        [
            name.ljust(100, b"\0"),
            b"0000644\0" + 2 * b"0000000\0",  # mode, owner, group
            b"%011o\0" % size + b"00000000000\0",  # size, time
            b" " * 8 + kind + bytes(100),  # checksum, type, link
            b"ustar\x0000" + bytes(64) + 2 * b"0000000\0",  # magic, version, names of owner and group, device
            prefix.ljust(155, b"\0"),
        ]
    ).ljust(BLOCK, b"\0")


def _with_checksum(head: bytes) -> bytes:
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]


def _pax_record(key: str, value: str) -> bytes:
    """`<length> <key>=<value>\\n`, the length counting itself."""
    body = f" {key}={value}\n".encode()
    length = len(body)
    while len(str(length)) + len(body) != length:
        length = len(str(length)) + len(body)
    return str(length).encode() + body


Header = tuple[str, int, bytes]  # a plain tuple, since there are millions: name, size, and the type byte


def is_end(block: bytes) -> bool:
    return not block[0] and block.count(0) == BLOCK


def parse_header(block: bytes) -> Header:
    """Reads a header block of 512 bytes.

    Raises:
        ValueError: not a tar header, or a damaged one.
    """
    # The lower half of Adler-32 is the sum of all bytes and 1: a quick way to add 512 of them. The checksum
    # counts its own eight bytes as blanks.
    field = block[148:156]
    stored_sum = int(field[:6], 8) if field[6] == 0 and field[:6].isdigit() else _octal_of(field)
    if zlib.adler32(block) & 0xFFFF != stored_sum - 255 + sum(field):
        _check_signed_sum(block, stored_sum)
    name = block[:100].rstrip(b"\0")
    if 0 in name:
        name = name.partition(b"\0")[0]
    if block[345] and block[257:263] == b"ustar\0":
        name = block[_PREFIX].partition(b"\0")[0] + b"/" + name
    size = block[124:136]
    length = int(size[:11], 8) if size[11] == 0 and size[:11].isdigit() else _number(size)
    return name.decode("utf-8", "surrogateescape"), length, block[156:157]


def _check_signed_sum(block: bytes, stored_sum: int) -> None:
    rest = block[:148] + block[156:]
    signed = sum(rest) - 256 * sum(byte >= 128 for byte in rest)  # some early tars add signed bytes
    if stored_sum - 256 not in (sum(rest), signed):
        raise ValueError("the tar header is damaged (its checksum doesn't fit)")


def _number(field: bytes) -> int:
    if field[0] < 0x80:
        return _octal_of(field)
    if field[0] != 0x80:
        raise ValueError("a tar header with a negative size")
    return int.from_bytes(field[1:], "big")  # GNU: big-endian binary


def _octal_of(field: bytes) -> int:
    found = _OCTAL.fullmatch(field)
    if not found:
        raise ValueError("not a tar header")
    return int(found[1] or b"0", 8)


def parse_pax(data: bytes) -> dict[str, str]:
    """The records of a PAX header.

    Raises:
        ValueError: a record is malformed.
    """
    records: dict[str, str] = {}
    at = 0
    while at < len(data) and data[at] != 0:
        digits, space, _ = data[at : at + 20].partition(b" ")
        end = at + int(digits) if digits.isdigit() else 0
        key, equals, value = data[at + len(digits) + 1 : end - 1].partition(b"=")
        if not (space and equals and at < end <= len(data) and data[end - 1] == 0x0A):
            raise ValueError("a malformed PAX record")
        records[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        at = end
    return records


def check_size(size: int, what: str) -> None:
    """
    Raises:
        UsageError: a tar header can't say this size.
    """
    if size > MAX_SIZE:
        raise UsageError(f"{what}: {size} bytes, a tar member has at most {MAX_SIZE}")
