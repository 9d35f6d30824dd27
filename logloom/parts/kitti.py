"""The part `kitti`: registers the importer of labels from KITTI's label files."""

from logloom.parts import Part

PART = Part(importers={"kitti": "logloom.io.labels.tools.kitti:read_kitti"})
