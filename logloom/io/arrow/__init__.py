"""Rows as Arrow tables and back: what Parquet, Lance and LeRobot share."""
