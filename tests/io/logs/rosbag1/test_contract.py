"""ROS 1 bags keep what kinds of logs promise."""

from logloom.io.logs import rosbag1
from logloom.testing import LogContract
from tests.io.logs.making import MESSAGES, recorded, write_bag


class TestRosbag1(LogContract):
    kind = rosbag1.KIND

    def record(self, folder):
        return recorded(write_bag(folder / "drive.bag", MESSAGES, compression="lz4"))
