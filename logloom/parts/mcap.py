"""The part `mcap`: registers MCAP files as a kind of log."""

from logloom.parts import Part

PART = Part(logs={"mcap": "logloom.io.logs.mcap.reader:KIND"})
