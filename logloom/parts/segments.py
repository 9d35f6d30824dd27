"""The part `segments`: registers the importer of labels from Segments.ai."""

from logloom.parts import Part

PART = Part(importers={"segments": "logloom.io.labels.tools.segments:read_segments"})
