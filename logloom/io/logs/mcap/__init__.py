"""MCAP files: indices, chunks and records, and recovery after damage."""

from logloom.io.logs.mcap.reader import KIND

__all__ = ["KIND"]
