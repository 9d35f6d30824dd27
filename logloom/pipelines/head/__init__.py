"""Rows of a version and their lineage: `logloom head`."""
