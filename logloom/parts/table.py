"""Output `table`: blob tables."""

from logloom.parts import Part

PART = Part(outputs={"table": "logloom.io.formats.table.format:FORMAT"})
