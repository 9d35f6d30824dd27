"""The part `rosbag2`: registers ROS 2 bags as a kind of log."""

from logloom.parts import Part

PART = Part(logs={"rosbag2": "logloom.io.logs.rosbag2.reader:KIND"}, requires=("mcap",))
