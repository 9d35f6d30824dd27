"""ROS 1 bags."""

from logloom.parts import Part

PART = Part(logs={"rosbag1": "logloom.io.logs.rosbag1.reader:KIND"})
