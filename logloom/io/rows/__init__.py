"""Rows of any dataset, in order and by number."""
