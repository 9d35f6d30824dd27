"""The part `coco`: registers the importer of labels from COCO's annotation files."""

from logloom.parts import Part

PART = Part(importers={"coco": "logloom.io.labels.tools.coco:read_coco"})
