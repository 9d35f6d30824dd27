import numpy as np

from logloom.io.logs.files.container import Budget, Channel, Chunk, IndexBuilder
from logloom.io.logs.files.container_log import ContainerLog

MAGIC = b"TELEM\0\0\1"
RECORD = np.dtype([("log_time", "<i8"), ("payload", "V20")])
BLOCK = 65536  # records that are fetched and decoded together
CHANNEL = Channel(0, "/acceleration", "acme/Vector", "acme", "", b"")


class TelemetryFile:
    """A logloom.io.logs.files.container.Container. Keeps no handle; methods may run in several threads."""

    remedy = "copy it from the recorder again"
    settings = None  # only the file decides about the result of `decode`

    def __init__(self, file, options):
        self.file = file

    def read_index(self):
        return None  # the file has none, so it is scanned once

    def scan(self):
        builder = IndexBuilder(Budget(self.file), {CHANNEL.id: CHANNEL})
        count, torn = divmod(self.file.size - len(MAGIC), RECORD.itemsize)
        for first in range(0, count, BLOCK):
            start = len(MAGIC) + first * RECORD.itemsize
            length = min(BLOCK, count - first) * RECORD.itemsize
            builder.add(messages_in(self.file.read(start, start + length)), start, length, length)
        if torn:
            reason = "the file ends in the middle of a record"
            builder.lose(self.file.size - torn, torn, reason, torn=True)
        return builder.build(self.file.size)

    def decode(self, span, data):
        return messages_in(data)


def messages_in(data):
    """Return the messages of a block of records: payloads by offset, and times. Nothing is copied."""
    times = np.frombuffer(data, RECORD)["log_time"].astype(np.int64)
    offsets = np.arange(len(times), dtype=np.int64) * RECORD.itemsize
    return Chunk(
        np.frombuffer(data, np.uint8),
        channel=np.full(len(times), CHANNEL.id, np.int64),
        log_time=times,
        publish_time=times,
        offset=offsets,
        start=offsets + 8,
        length=np.full(len(times), 20, np.int64),
    )


class TelemetryKind:
    name = "telemetry"
    suffixes = (".telem",)

    def matches(self, uri, head):
        return head.startswith(MAGIC)

    def files_in(self, names):  # of a folder that is one log
        return [name for name in names if name.endswith(".telem")]

    def open(self, uris, options):
        return ContainerLog(uris, options, TelemetryFile)


KIND = TelemetryKind()
