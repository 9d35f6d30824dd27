"""The part `segments`: registers the importer of labels from releases of Segments.ai."""

from logloom.parts import Part

PART = Part(importers={"segments": "logloom.io.labels.tools.segments:read_segments"})
