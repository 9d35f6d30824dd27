"""Weave raw drive logs into versioned training datasets, and read them back for training and for proof."""

__version__ = "0.1.0"
