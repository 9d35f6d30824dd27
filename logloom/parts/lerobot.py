"""The part `lerobot`: registers the output format of LeRobot datasets, v3.0."""

from logloom.parts import Part

PART = Part(outputs={"lerobot": "logloom.io.formats.lerobot.format:FORMAT"}, requires=("parquet",))
