"""The part `zarr`: registers the output format of zarr groups, one for each log."""

from logloom.parts import Part

PART = Part(outputs={"zarr": "logloom.io.formats.zarr.format:FORMAT"})
