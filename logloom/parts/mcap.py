"""MCAP files."""

from logloom.parts import Part

PART = Part(logs={"mcap": "logloom.io.logs.mcap.reader:KIND"})
