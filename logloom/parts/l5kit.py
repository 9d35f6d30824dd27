"""Output `l5kit`: zarr groups as L5Kit has them."""

from logloom.parts import Part

PART = Part(outputs={"l5kit": "logloom.io.formats.l5kit.format:FORMAT"})
