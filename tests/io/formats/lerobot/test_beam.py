"""Blocks into a LeRobot dataset, and out again, in Beam."""

import itertools

import apache_beam as beam

import logloom as ll
from logloom.blocks import Block
from logloom.io.beam import ReadFrom, WriteTo
from tests.files import files_in
from tests.io.beam.steps import finish, read_here
from tests.io.formats.lerobot.making import SCHEMA, STEP, assemble, make_block, options


def test_blocks_in_any_order_make_the_dataset_that_a_build_makes(tmp_path):
    logs = [make_block(12, seed, log_id=log) for seed, log in enumerate(("a", "b/c"))]
    expected, _ = assemble(tmp_path, logs)
    blocks = [
        Block(log.log_id, "p", start, log.take(slice(start, stop)))
        for log in logs
        for start, stop in itertools.pairwise([0, 5, 12])
    ]
    place = tmp_path / "one"
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = (
            pipeline
            | beam.Create(blocks[::-1])
            | WriteTo(place, "lerobot", SCHEMA, options().model_dump(mode="json"), period=STEP)
        )
    found = files_in(place)
    assert found.pop("_written.json")
    assert found == files_in(expected)
    reading = ReadFrom(place, columns=["observation.state"])
    finish(WriteTo(tmp_path / "two", "parquet", reading.schema), read_here(reading))
    rows, again = ll.open(place, columns=["observation.state"]), ll.open(tmp_path / "two")
    assert len(rows) == len(again) == 24
    for row, other in zip(rows, again, strict=True):
        assert row["observation.state"].tolist() == other["observation.state"].tolist()
