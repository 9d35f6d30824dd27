"""Splits of a dataset: cutting them, reading them, the distance between them."""
