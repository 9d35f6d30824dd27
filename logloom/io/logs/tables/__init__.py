"""Folders of Parquet, Feather or CSV tables, each a topic."""

from logloom.io.logs.tables.reader import KIND

__all__ = ["KIND"]
