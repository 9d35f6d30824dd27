"""The part `rosbag1`: registers ROS 1 bags as a kind of log."""

from logloom.parts import Part

PART = Part(logs={"rosbag1": "logloom.io.logs.rosbag1.reader:KIND"})
