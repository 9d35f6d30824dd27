"""The part `openmmlab`: OpenMMLab's interface to the output `annotations`.

The interface is in logloom.datasets.openmmlab.
"""

from logloom.parts import Part

PART = Part(requires=("annotations",))
