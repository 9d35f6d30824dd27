"""The part `cvat`: registers the importer of labels from CVAT's XML."""

from logloom.parts import Part

PART = Part(importers={"cvat": "logloom.io.labels.tools.cvat:read_cvat"})
