"""The part `table`: registers the output format of blob tables."""

from logloom.parts import Part

PART = Part(outputs={"table": "logloom.io.formats.table.format:FORMAT"})
