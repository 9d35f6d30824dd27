"""Rows as Arrow tables and back, shared by Parquet, Lance and LeRobot."""
