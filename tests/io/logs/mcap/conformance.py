"""MCAP's conformance files, made from what the specification says of their records.

Each file is a case (what is recorded) written with a set of features (how): chunks, indices, summary records,
bytes that follow a record's last field. `mcap_conformance.txt` beside this has the SHA-256 of the files of
MCAP's own suite by name, so that what is made here is proven to be them.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from zlib import crc32

MAGIC = b"\x89MCAP0\r\n"
FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, MESSAGE_INDEX, CHUNK_INDEX = range(2, 9)
ATTACHMENT, ATTACHMENT_INDEX, STATISTICS, METADATA, METADATA_INDEX, SUMMARY_OFFSET, DATA_END = range(9, 16)
FIXED = {FOOTER, MESSAGE, DATA_END}  # records that no later version makes longer
PADDING = b"\x01\xff\xff"
FEATURES = ("ax", "ch", "chx", "mdx", "mx", "pad", "rch", "rsh", "st", "sum")
SUMMARIES = {"ax", "chx", "mdx", "rch", "rsh", "st"}
DIGESTS = pathlib.Path(__file__).parent / "mcap_conformance.txt"


@dataclass(frozen=True)
class Case:
    """What a file records.

    Attributes:
        messages: (log time, publish time, sequence) of each, all of channel 1.
    """

    schema: bytes = b""
    channel: bytes = b""
    messages: tuple[tuple[int, int, int], ...] = ()
    attachment: bool = False
    metadata: bool = False


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode()


def mapping(**entries: str) -> bytes:
    body = b"".join(text(key) + text(value) for key, value in entries.items())
    return struct.pack("<I", len(body)) + body


EXAMPLE = struct.pack("<H", 1) + text("Example") + text("c") + struct.pack("<I", 3) + b"\x04\x05\x06"
DESCRIBED = struct.pack("<HH", 1, 1) + text("example") + text("a") + mapping(foo="bar")
SCHEMALESS = struct.pack("<HH", 1, 0) + text("example") + text("text") + mapping()
PAYLOAD = b"\x01\x02\x03"
ONE = ((2, 1, 10),)
TEN = tuple((time, time, number) for number, time in enumerate((0, 2, 1, 3, 3, 5, 4, 7, 8, 9)))
CASES = {
    "NoData": Case(),
    "OneAttachment": Case(attachment=True),
    "OneMessage": Case(EXAMPLE, DESCRIBED, ONE),
    "OneMetadata": Case(metadata=True),
    "OneSchemalessMessage": Case(b"", SCHEMALESS, ONE),
    "TenMessages": Case(EXAMPLE, DESCRIBED, TEN),
}


def files() -> Iterator[tuple[str, Case, frozenset[str]]]:
    """Name, case and features of every file."""
    for name, case in CASES.items():
        for count in range(len(FEATURES) + 1):
            for features in map(frozenset, combinations(FEATURES, count)):
                if makes_sense(case, features):
                    yield "-".join([name, *sorted(features)]), case, features


def makes_sense(case: Case, features: frozenset[str]) -> bool:
    needs = {"ax": case.attachment, "mdx": case.metadata, "rsh": case.schema, "rch": case.channel}
    needs |= {"ch": case.channel, "chx": "ch" in features, "mx": "ch" in features}
    needs["sum"] = features & SUMMARIES
    return all(needs.get(feature, True) for feature in features)


def make(case: Case, features: frozenset[str]) -> bytes:
    """The bytes of a file as the suite has it."""
    return Writer(case, features).write()


@dataclass
class Writer:
    """Writes one file.

    Attributes:
        padding: what follows the last fields of records, with the feature "pad".
        pads_chunks: whether that goes for chunks and the records in them, too.
    """

    case: Case
    features: frozenset[str]
    padding: bytes = PADDING
    pads_chunks: bool = False
    data: bytearray = field(default_factory=lambda: bytearray(MAGIC))

    def record(self, opcode: int, content: bytes, in_chunk: bool = False) -> bytes:
        grows = opcode not in FIXED and (self.pads_chunks or not (in_chunk or opcode == CHUNK))
        padding = self.padding if grows and "pad" in self.features else b""
        return struct.pack("<BQ", opcode, len(content) + len(padding)) + content + padding

    def put(self, opcode: int, content: bytes) -> tuple[int, int]:
        """Where the record starts, and its length."""
        start = len(self.data)
        self.data += self.record(opcode, content)
        return start, len(self.data) - start

    def write(self) -> bytes:
        self.put(1, text("") + text(""))
        attachment = self.attachment() if self.case.attachment else b""
        metadata = self.metadata() if self.case.metadata else b""
        chunk_index = self.messages()
        self.put(DATA_END, struct.pack("<I", crc32(self.data)))
        self.summary(
            {
                SCHEMA: self.case.schema if "rsh" in self.features else b"",
                CHANNEL: self.case.channel if "rch" in self.features else b"",
                STATISTICS: self.statistics() if "st" in self.features else b"",
                METADATA_INDEX: metadata if "mdx" in self.features else b"",
                ATTACHMENT_INDEX: attachment if "ax" in self.features else b"",
                CHUNK_INDEX: chunk_index if "chx" in self.features else b"",
            }
        )
        return bytes(self.data) + MAGIC

    def attachment(self) -> bytes:
        name, times = text("myFile") + text("application/octet-stream"), struct.pack("<QQ", 2, 1)
        content = times + name + struct.pack("<Q", len(PAYLOAD)) + PAYLOAD
        place = self.put(ATTACHMENT, content + struct.pack("<I", crc32(content)))
        return struct.pack("<QQ", *place) + times + struct.pack("<Q", len(PAYLOAD)) + name

    def metadata(self) -> bytes:
        name = text("myMetadata")
        return struct.pack("<QQ", *self.put(METADATA, name + mapping(foo="bar"))) + name

    def messages(self) -> bytes:
        """Writes schema, channel and messages, in a chunk or without; gives the chunk's index."""
        case = self.case
        whole = [(SCHEMA, case.schema), (CHANNEL, case.channel)]
        whole += [
            (MESSAGE, struct.pack("<HIQQ", 1, sequence, *times) + PAYLOAD)
            for *times, sequence in case.messages
        ]
        records = [(opcode, content) for opcode, content in whole if content]
        if "ch" not in self.features:
            for opcode, content in records:
                self.put(opcode, content)
            return b""
        body, entries = b"", b""
        for opcode, content in records:
            if opcode == MESSAGE:
                entries += struct.pack("<8sQ", content[6:14], len(body))
            body += self.record(opcode, content, in_chunk=True)
        times = [message[0] for message in case.messages]
        span, size = struct.pack("<QQ", min(times), max(times)), struct.pack("<Q", len(body))
        content = span + size + struct.pack("<I", crc32(body)) + text("") + size + body
        place = self.put(CHUNK, content)
        offsets, length = b"", 0
        if "mx" in self.features:
            index = struct.pack("<HI", 1, len(entries)) + entries
            start, length = self.put(MESSAGE_INDEX, index)
            offsets = struct.pack("<HQ", 1, start)
        head = span + struct.pack("<QQI", *place, len(offsets)) + offsets
        return head + struct.pack("<Q", length) + text("") + size + size

    def statistics(self) -> bytes:
        case = self.case
        times = [message[0] for message in case.messages] or [0]
        counts = struct.pack("<HQ", 1, len(case.messages)) if case.messages else b""
        others = bool(case.channel), case.attachment, case.metadata, "ch" in self.features
        head = struct.pack("<QHIIII", len(case.messages), bool(case.schema), *others)
        return head + struct.pack("<QQI", min(times), max(times), len(counts)) + counts

    def summary(self, records: dict[int, bytes]) -> None:
        start, offset_start = len(self.data), 0
        groups = [(opcode, *self.put(opcode, content)) for opcode, content in records.items() if content]
        if "sum" in self.features:
            offset_start = len(self.data)
            for group in groups:
                self.put(SUMMARY_OFFSET, struct.pack("<BQQ", *group))
        footer = struct.pack("<QQ", start if groups else 0, offset_start)
        head = struct.pack("<BQ", FOOTER, len(footer) + 4)
        self.data += head + footer + struct.pack("<I", crc32(self.data[start:] + head + footer))


def digests() -> dict[str, str]:
    """SHA-256 by file name, as MCAP's suite has them."""
    lines = DIGESTS.read_text().splitlines()
    return {name: digest for digest, name in map(str.split, lines)}
