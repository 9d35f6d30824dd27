"""The connectors on a real Flink, which repeats a whole job when a step of it fails."""

import os
import pathlib

import apache_beam as beam
import numpy as np
import pytest

import logloom as ll
from logloom.blocks import Block
from logloom.io.beam import GroupRows, ReadFrom, WriteTo, to_rows
from logloom.runners import RunnerOptions
from logloom.runners.engine import Size, run
from logloom.schema import ColumnType, Schema
from logloom.testing.rows import SCHEMA as ALL_KINDS
from logloom.testing.rows import cut, random_block, rows_in
from tests.io.beam.test_write import FORMATS

pytestmark = pytest.mark.engines
SCHEMA = Schema({"speed": ColumnType("<f4"), "attempt": ColumnType("<i4")})


def block(log_id, folder):
    """Ten rows, and the number of the attempt that made them: a step that isn't deterministic."""
    attempt = len(list(pathlib.Path(folder).iterdir()))
    stamps = np.arange(10)
    columns = {"timestamp": stamps, "speed": stamps.astype("f4"), "attempt": np.full(10, attempt, "i4")}
    return Block(log_id, "", 0, columns)


def fail_once(element, folder, name):
    """Ends the worker process the first time, so that Flink repeats the whole job."""
    try:
        (pathlib.Path(folder) / name).touch(exist_ok=False)
    except FileExistsError:
        return element
    os._exit(1)


@pytest.mark.parametrize("form", FORMATS)
def test_a_job_that_fails_on_the_way_and_after_its_end_meets_its_own_result(tmp_path, form):
    deaths, place = tmp_path / "deaths", tmp_path / "one"
    deaths.mkdir()

    def construct(pipeline):
        return (
            pipeline
            | beam.Create([f"drive-{number}" for number in range(6)])
            | beam.Reshuffle()
            | beam.Map(block, str(deaths))
            | "DieOnTheWay" >> beam.Map(fail_once, str(deaths), "on the way")
            | WriteTo(place, form, SCHEMA)
            | "Afterwards" >> beam.Reshuffle()
            | "DieAfterwards" >> beam.Map(fail_once, str(deaths), "afterwards")
        )

    run(construct, RunnerOptions("flink", workers=2), Size(), name="connectors")
    assert sorted(path.name for path in deaths.iterdir()) == ["afterwards", "on the way"]
    found = ll.open(place)
    assert len(found) == 60
    assert {int(row["attempt"]) for row in found} <= {0, 1}  # and not 2, of the attempt that came too late
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deaths", "one"]
    copy = tmp_path / "copy"
    run(
        lambda pipeline: pipeline | ReadFrom(place) | WriteTo(copy, form, SCHEMA),
        RunnerOptions("flink", workers=2),
        Size(),
        name="connectors",
    )
    assert [row["speed"] for row in ll.open(copy)] == [row["speed"] for row in found]


def test_rows_of_beam_pass_through_java_and_become_the_blocks_that_they_came_from(tmp_path):
    blocks = [random_block(ALL_KINDS, 30, seed, log_id) for seed, log_id in enumerate("ab")]
    parts = [part for block in blocks for part in cut(block, [5, 11])]

    def construct(pipeline):
        rows = pipeline | beam.Create(parts) | to_rows(ALL_KINDS) | beam.Reshuffle()
        return rows | GroupRows(ALL_KINDS) | WriteTo(tmp_path / "rows", "zarr", ALL_KINDS)

    run(construct, RunnerOptions("flink", workers=2), Size(), name="connectors")
    names = list(ALL_KINDS.all)
    found = ll.open(tmp_path / "rows", columns=names)
    for one, other in zip(found, rows_in(blocks, ALL_KINDS, names), strict=True):
        for name, value in other.items():
            assert repr(np.asarray(one[name]).tolist()) == repr(np.asarray(value).tolist()), name
