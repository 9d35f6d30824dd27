"""Rows in viewers: `logloom show`."""
