"""The part `tar`: registers the format of tar shards in WebDataset's convention."""

from logloom.parts import Part

PART = Part(
    outputs={"tar": "logloom.io.formats.tar.format:FORMAT"},
    familiar=dict.fromkeys(("webdataset", "wds"), "tar"),
)
