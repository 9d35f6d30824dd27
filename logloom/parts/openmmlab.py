"""`logloom.datasets.openmmlab`: OpenMMLab's own interface to output `annotations`."""

from logloom.parts import Part

PART = Part(requires=("annotations",))
