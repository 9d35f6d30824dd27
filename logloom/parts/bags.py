"""The part `bags`: registers the output format of granular's bags (not ROS bags)."""

from logloom.parts import Part

PART = Part(outputs={"bags": "logloom.io.formats.bags.format:FORMAT"})
