"""The part `tar`: registers the output format of tar shards in the WebDataset convention."""

from logloom.parts import Part

PART = Part(
    outputs={"tar": "logloom.io.formats.tar.format:FORMAT"},
    familiar=dict.fromkeys(("webdataset", "wds"), "tar"),
)
