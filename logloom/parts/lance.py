"""Output `lance`: Lance tables."""

from logloom.parts import Part

PART = Part(outputs={"lance": "logloom.io.formats.lance.format:FORMAT"})
