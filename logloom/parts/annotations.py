"""The part `annotations`: registers the format of OpenMMLab 2.0 annotation files."""

from logloom.parts import Part

PART = Part(
    outputs={"annotations": "logloom.io.formats.annotations.format:FORMAT"},
    familiar=dict.fromkeys(("mmdet3d", "mmdetection3d", "openmmlab"), "annotations"),
)
