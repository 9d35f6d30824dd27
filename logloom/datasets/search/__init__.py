"""Filters over the rows of a dataset, and the intervals that they find."""
