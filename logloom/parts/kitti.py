"""Labels from KITTI's label files."""

from logloom.parts import Part

PART = Part(importers={"kitti": "logloom.io.labels.tools.kitti:read_kitti"})
