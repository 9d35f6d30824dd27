"""The part `l5kit`: registers the output format of L5Kit's zarr datasets."""

from logloom.parts import Part

PART = Part(outputs={"l5kit": "logloom.io.formats.l5kit.format:FORMAT"})
