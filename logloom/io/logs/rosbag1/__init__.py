"""ROS 1 bags, format 2.0: indices, chunks and records, and recovery after damage."""

from logloom.io.logs.rosbag1.reader import KIND

__all__ = ["KIND"]
