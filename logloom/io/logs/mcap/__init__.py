"""MCAP files: indices, chunks and records, and reading on past damage."""

from logloom.io.logs.mcap.reader import KIND

__all__ = ["KIND"]
