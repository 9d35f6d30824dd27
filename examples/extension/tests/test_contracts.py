import numpy as np
from acme.lines import LinesFormat
from acme.npz import NpzFormat
from acme.telemetry import KIND, MAGIC

from logloom.io.logs.interface import FieldSpec
from logloom.testing import AssembledContract, FormatContract, LogContract, Recorded, Recording


class TestNpz(FormatContract):
    format = NpzFormat()
    has_checksums = True


class TestLines(AssembledContract):
    format = LinesFormat()


class TestTelemetry(LogContract):
    kind = KIND

    def record(self, folder):
        records = np.zeros(500, [("log_time", "<i8"), ("stamp", "<i8"), ("xyz", "<f4", 3)])
        records["log_time"] = 1_700_000_000_000_000_000 + np.arange(500) * 1_000_000
        records["stamp"] = records["log_time"] - 300_000
        records["xyz"] = np.random.default_rng(0).normal(size=(500, 3))
        path = folder / "drive.telem"
        path.write_bytes(MAGIC + records.tobytes())
        values = {FieldSpec(("xyz",)): records["xyz"]}
        return Recording([path], {"/acceleration": Recorded(records["log_time"], values)})
