"""Output `annotations`: files of OpenMMLab 2.0."""

from logloom.parts import Part

PART = Part(outputs={"annotations": "logloom.io.formats.annotations.format:FORMAT"})
