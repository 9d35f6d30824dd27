"""ROS 2 bags: SQLite files, compressed files, and metadata."""

from logloom.io.logs.rosbag2.reader import KIND

__all__ = ["KIND"]
