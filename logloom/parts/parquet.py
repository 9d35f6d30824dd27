"""The part `parquet`: registers the output format of plain Parquet files."""

from logloom.parts import Part

PART = Part(
    outputs={"parquet": "logloom.io.formats.parquet.format:FORMAT"},
    familiar=dict.fromkeys(("huggingface", "hf", "datasets", "arrow"), "parquet"),
)
