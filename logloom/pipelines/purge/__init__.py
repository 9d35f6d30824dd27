"""Erasing logs: `logloom purge`."""
