"""ROS 2 bags."""

from logloom.parts import Part

PART = Part(logs={"rosbag2": "logloom.io.logs.rosbag2.reader:KIND"}, requires=("mcap",))
