"""Garbage collection: `logloom gc`."""
