"""Tables of messages keep what kinds of logs promise."""

from logloom.io.logs import tables
from logloom.io.logs.interface import FieldSpec
from logloom.testing import LogContract, Recorded, Recording
from tests.io.logs.tables import test_tables


class TestParquet(LogContract):
    kind = tables.KIND
    suffix = ".parquet"

    def record(self, folder):
        frame = test_tables.poses(50)
        path = test_tables.write(frame, folder / f"pose{self.suffix}")
        names = ("tx_m", "tracks", "category", "moving")
        values = {FieldSpec((name,)): frame[name].tolist() for name in names}
        return Recording([path], {"/pose": Recorded(frame["timestamp_ns"].to_numpy(), values)})


class TestFeather(TestParquet):
    suffix = ".feather"


class TestCsv(TestParquet):
    suffix = ".csv"
    knows_lengths = False  # a number that is cut is a shorter number
