"""Output `zarr`: a group for each log."""

from logloom.parts import Part

PART = Part(outputs={"zarr": "logloom.io.formats.zarr.format:FORMAT"})
