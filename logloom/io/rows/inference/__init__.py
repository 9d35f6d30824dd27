"""Rows of datasets whose files do not state their types."""
