"""Every kind of log keeps what kinds promise."""

import pytest
from rosbags.rosbag2 import StoragePlugin

from logloom.io.logs import mcap, rosbag1, rosbag2, tables
from logloom.io.logs.interface import FieldSpec
from logloom.testing import LogContract, Recorded, Recording
from tests.io.logs.making import (
    BYTES,
    ROS1,
    as_rosbags_reads,
    make_messages,
    ros1_payload,
    write_bag,
    write_mcap,
)
from tests.io.logs.rosbag2 import test_rosbag2
from tests.io.logs.tables import test_tables

MESSAGES = make_messages(60, payload=ros1_payload)


def recorded(path, messages=MESSAGES):
    """What a file of messages of the definition `ROS1` holds."""
    topics = {}
    for topic in {message.topic for message in messages}:
        own = [message for message in messages if message.topic == topic]
        bodies = [message.data[20:] for message in own]
        topics[topic] = Recorded([message.log_time for message in own], {BYTES: bodies})
    return Recording([path], topics)


class TestMcap(LogContract):
    kind = mcap.KIND
    has_checksums = True

    def record(self, folder):
        schema = (ROS1[0], "ros1msg", ROS1[1].encode())
        path = write_mcap(folder / "drive.mcap", MESSAGES, encoding="ros1", schema=schema)
        return recorded(path)


class TestRosbag1(LogContract):
    kind = rosbag1.KIND

    def record(self, folder):
        return recorded(write_bag(folder / "drive.bag", MESSAGES, compression="lz4"))


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


class TestParquet(LogContract):
    kind = tables.KIND
    suffix = ".parquet"

    @pytest.fixture(autouse=True)
    def fresh(self):
        tables.KIND  # noqa: B018

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
