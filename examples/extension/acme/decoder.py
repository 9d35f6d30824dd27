import numpy as np

from logloom.errors import UsageError
from logloom.io.logs.files.container import every_offset
from logloom.io.logs.interface import MIN_TIME
from logloom.schema import ColumnType

PAYLOAD = np.dtype([("stamp", "<i8"), ("xyz", "<f4", 3)])


class AcmeDecoder:
    """See logloom.io.logs.messages.raw_messages.Decoder. Pure and thread-safe."""

    def __init__(self, info):
        self.info = info

    def column_type(self, spec):
        if spec.adapter or spec.paths != ("xyz",):
            raise UsageError(f"topic {self.info.topic}: an acme message has one field, xyz")
        return ColumnType(np.dtype("<f4"), (3,), unit="m s-2")

    def time_source(self, sources):
        return next(iter(sources), None)  # header, log, publish: these messages have all of them

    def check(self, raw):
        return raw.length == PAYLOAD.itemsize

    def header_time(self, raw):
        times = np.full(len(raw), MIN_TIME, np.int64)  # for messages too short for a stamp
        fits = np.flatnonzero(self.check(raw))
        times[fits] = payloads(raw.take(fits))["stamp"]
        return times

    def take(self, raw, spec):
        self.column_type(spec)
        return np.ascontiguousarray(payloads(raw)["xyz"])

    def has_value(self, raw, spec):
        return None  # each message has one


def payloads(raw):
    """(N,) of PAYLOAD, gathered from all buffers."""
    found = np.empty(len(raw), PAYLOAD)
    for number, buffer in enumerate(raw.buffers):
        mine = np.flatnonzero(raw.buffer == number)
        found[mine] = every_offset(buffer, PAYLOAD)[raw.start[mine]]
    return found
