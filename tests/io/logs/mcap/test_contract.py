"""MCAP keeps what kinds of logs promise."""

from logloom.io.logs import mcap
from logloom.testing import LogContract
from tests.io.logs.making import MESSAGES, ROS1, recorded, write_mcap


class TestMcap(LogContract):
    kind = mcap.KIND
    has_checksums = True

    def record(self, folder):
        schema = (ROS1[0], "ros1msg", ROS1[1].encode())
        path = write_mcap(folder / "drive.mcap", MESSAGES, encoding="ros1", schema=schema)
        return recorded(path)
