"""Output `bags`: granular's format."""

from logloom.parts import Part

PART = Part(outputs={"bags": "logloom.io.formats.bags.format:FORMAT"})
