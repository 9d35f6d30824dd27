"""ROS 2 bags: SQLite files, compressed files, and what their metadata says."""

from logloom.io.logs.rosbag2.reader import KIND

__all__ = ["KIND"]
