"""The part `lance`: registers the output format of Lance tables."""

from logloom.parts import Part

PART = Part(outputs={"lance": "logloom.io.formats.lance.format:FORMAT"})
