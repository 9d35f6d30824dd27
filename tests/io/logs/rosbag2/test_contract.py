"""ROS 2 bags keep what kinds of logs promise."""

from rosbags.rosbag2 import StoragePlugin

from logloom.io.logs import rosbag2
from logloom.io.logs.interface import FieldSpec
from logloom.testing import LogContract, Recorded, Recording
from tests.io.logs.making import as_rosbags_reads
from tests.io.logs.rosbag2 import test_rosbag2


class TestRosbag2(LogContract):
    kind = rosbag2.KIND
    plugin, mode = StoragePlugin.SQLITE3, "NONE"
    velocity = FieldSpec(("angular_velocity",))

    def record(self, folder):
        bag = test_rosbag2.write_bag(folder / "bag", 60, plugin=self.plugin, mode=self.mode)
        rows = as_rosbags_reads(test_rosbag2.Reader(bag))["/imu"]
        times = [time for time, _, _ in rows]
        sent = [test_rosbag2.STORE.deserialize_cdr(data, "sensor_msgs/msg/Imu") for _, _, data in rows]
        values = [[*vars(message.angular_velocity).values()][:3] for message in sent]
        files = [path for path in bag.iterdir() if path.name != "metadata.yaml"]
        return Recording(files, {"/imu": Recorded(times, {self.velocity: values})})


class TestPackedRosbag2(TestRosbag2):
    plugin, mode = StoragePlugin.SQLITE3, "FILE"
