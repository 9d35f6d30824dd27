"""Blocks of anybody's pipeline as datasets of each format: the same contract for all.

`finish` does what `WriteTo` does, step by step; a few tests wire the steps into a real pipeline.
"""

import dataclasses
import itertools
import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing import test_stream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue

import logloom as ll
from logloom.blocks import Block, Ragged
from logloom.digests import RowsDigest
from logloom.errors import DatasetError, StorageError, UsageError
from logloom.io.beam import WriteTo
from logloom.io.formats.registry import format_named
from logloom.io.formats.tar.format import TarFormat, TarOptions
from logloom.io.storage import disk
from logloom.io.storage.store import Store
from logloom.schema import STRING, ColumnType, Schema
from tests.absent import needs, present
from tests.files import files_in
from tests.io.beam.steps import finish
from tests.tier import by_tier

SCHEMA = Schema(
    {
        "speed": ColumnType("<f4"),
        "pose": ColumnType("<f8", (2,)),
        "scan": ColumnType("<f4", (None,)),
        "name": STRING,
    }
)
FORMATS = present("table", "zarr", "parquet", "tar", "bags", "lance")
_FAILURES = by_tier(check=6, nightly=40)
MARKS = {"bags": "000000/_written.json"}
PLACES = ("disk", "objects")
PLACED = by_tier([*zip(FORMATS, itertools.cycle(PLACES))], [*itertools.product(FORMATS, PLACES)])


def rows(log_id, partition, stamps, first=0):
    """A block whose values follow from the timestamps."""
    stamps = np.array(stamps, np.int64)
    columns = {
        "timestamp": stamps,
        "speed": (stamps / 2).astype("f4"),
        "pose": np.stack([stamps, -stamps], 1).astype("f8"),
        "scan": Ragged(np.repeat(stamps, stamps % 3).astype("f4"), stamps % 3),
        "name": Ragged.from_bytes([f"{log_id} {stamp}".encode() for stamp in stamps.tolist()]),
    }
    return Block(log_id, partition, first, columns)


BLOCKS = [
    rows("b", "p0", range(10, 14)),
    rows("b", "p1", range(20, 26)),
    rows("b", "p2", range(30, 32)),
    rows("a/c", "p0", range(5, 8)),
]


def cut(blocks, at):
    """The same rows in blocks of other sizes."""
    for block in blocks:
        for start, stop in itertools.pairwise([0, *(n for n in at if n < len(block)), len(block)]):
            yield dataclasses.replace(block, columns=block.take(slice(start, stop)), first_row=start)


def stored(place, **options):
    """All rows of a dataset by log, in order, as `ll.open` has them."""
    found = {}
    for row in ll.open(place, **options):
        values = {name: np.asarray(row[name]).tolist() for name in ("speed", "pose", "scan")}
        found.setdefault(row["log_id"], []).append((int(row["timestamp"]), values, row["name"]))
    return found


def wanted(blocks):
    return {
        log_id: [
            (
                stamp,
                {"speed": stamp / 2, "pose": [stamp, -stamp], "scan": [stamp] * (stamp % 3)},
                f"{log_id} {stamp}",
            )
            for stamp in sorted(int(s) for block in blocks if block.log_id == log_id for s in block.timestamp)
        ]
        for log_id in {block.log_id for block in blocks}
    }


def dataset_files(place, form):
    """The files of a dataset but for the mark."""
    return {name: data for name, data in files_in(place).items() if name != MARKS.get(form, "_written.json")}


def test_two_stand_in_one_pipeline_by_their_names(tmp_path):
    with beam.Pipeline("FnApiRunner") as pipeline:
        blocks = pipeline | beam.Create(BLOCKS)
        for name in ("one", "two"):
            written = blocks | name >> WriteTo(tmp_path / name, "zarr", SCHEMA)
            assert_that(
                written | f"{name} rows" >> beam.Map(lambda one: one.rows), equal_to([15]), f"check {name}"
            )
    assert stored(tmp_path / "one") == stored(tmp_path / "two") == wanted(BLOCKS)


@pytest.mark.parametrize("form", FORMATS)
def test_blocks_in_any_order_and_of_any_size_make_the_same_dataset(tmp_path, form):
    assert finish(WriteTo(tmp_path / "one", form, SCHEMA), BLOCKS).rows == 15
    others = list(cut(BLOCKS, [1, 3]))
    random.Random(1).shuffle(others)
    finish(WriteTo(tmp_path / "two", form, SCHEMA), others)
    assert dataset_files(tmp_path / "one", form) == dataset_files(tmp_path / "two", form)
    assert stored(tmp_path / "one") == wanted(BLOCKS)
    assert list(stored(tmp_path / "one")) == ["a/c", "b"]
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]  # no stage


@pytest.mark.parametrize("form", FORMATS)
def test_rows_that_were_filtered_split_and_doubled_are_ordered_by_timestamp(tmp_path, form):
    blocks = [
        rows("b", "", [10, 14, 18]),
        rows("b", "", [12, 16, 18]),  # between the others; 18 is there twice
        rows("b", "p1", [18, 20]),  # overlaps another partition
        rows("a", "", []),
        rows("c", "", [3]),
        rows("c", "", [3]),
    ]
    written = finish(WriteTo(tmp_path / "one", form, SCHEMA), blocks)
    assert (written.logs, written.rows) == (2, 7)
    kept = [rows("b", "", [10, 12, 14, 16, 18, 20]), rows("c", "", [3])]
    assert stored(tmp_path / "one") == wanted(kept)


@pytest.mark.parametrize("form", FORMATS)
def test_rows_of_one_timestamp_with_other_values_are_an_error(tmp_path, form):
    other = dataclasses.replace(
        rows("b", "p9", [12]), columns={**rows("b", "", [12]).columns, "speed": np.ones(1, "f4")}
    )
    with pytest.raises(DatasetError, match="log b, timestamp 12: two rows have different values of speed"):
        finish(WriteTo(tmp_path / "one", form, SCHEMA), [*BLOCKS, other])
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("form", FORMATS)
def test_no_rows_make_a_dataset_without_rows_or_an_error(tmp_path, form):
    blocks = [rows("a", "", [])]
    if form in ("table", "zarr"):
        assert finish(WriteTo(tmp_path / "one", form, SCHEMA), blocks)[1:4] == (form, 0, 0)
        assert len(ll.open(tmp_path / "one")) == 0
    else:
        with pytest.raises(UsageError, match=f"one: no rows came, and {form} has no dataset without rows"):
            finish(WriteTo(tmp_path / "one", form, SCHEMA), blocks)
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("form", "place"), PLACED)
def test_a_run_that_fails_anywhere_and_is_repeated_makes_what_an_undisturbed_one_makes(
    tmp_path, monkeypatch, form, place
):
    uri = str(tmp_path / "one") if place == "disk" else f"memory://{tmp_path.name}/one"
    expected = tmp_path / "expected"
    blocks = list(cut(BLOCKS, [2]))
    finish(WriteTo(expected, form, SCHEMA), blocks)
    chance, failures = random.Random(form), [0]

    def failing(method):
        def call(store, *arguments, **named):
            if failures[0] < _FAILURES and chance.random() < 0.1:
                failures[0] += 1
                raise StorageError("no answer")
            result = method(store, *arguments, **named)
            if failures[0] < _FAILURES and chance.random() < 0.1:  # done, but nobody knows
                failures[0] += 1
                raise StorageError("the answer was lost")
            return result

        return call

    for name in ("create", "replace", "publish", "read", "sizes"):
        monkeypatch.setattr(Store, name, failing(getattr(Store, name)))
    while True:  # the whole job, as Flink's full failover has it
        try:
            written = WriteTo(uri, form, SCHEMA, run_id="run-1")
            found = finish(written, blocks, repeat=chance)
            break
        except StorageError:
            pass
    assert failures[0] == _FAILURES
    monkeypatch.undo()
    assert (found.rows, found.logs) == (15, 2)
    store = Store.at(uri)
    mark = MARKS.get(form, "_written.json")
    names = sorted(name for name in store.sizes("") if name != mark)
    assert {name: store.read(name) for name in names} == dataset_files(expected, form)
    assert Store.at(f"{uri}.stage").names() == []


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_that_meets_its_own_result_keeps_it(tmp_path, form):
    first = finish(WriteTo(tmp_path / "one", form, SCHEMA, run_id="run-1"), BLOCKS)
    before = files_in(tmp_path / "one")
    changed = [dataclasses.replace(b, columns={**b.columns, "speed": b.columns["speed"] + 1}) for b in BLOCKS]
    again = WriteTo(tmp_path / "one", form, SCHEMA, run_id="run-1")  # a step gave other values this time
    assert finish(again, changed) == first
    assert files_in(tmp_path / "one") == before
    assert sorted(os.listdir(tmp_path)) == ["one"]


@pytest.mark.parametrize(("form", "place"), PLACED)
def test_of_two_pipelines_into_one_place_one_fails_and_nothing_of_the_other_is_lost(tmp_path, form, place):
    uri = str(tmp_path / "one") if place == "disk" else f"memory://{tmp_path.name}/one"
    one, two = (WriteTo(uri, form, SCHEMA) for _ in range(2))
    assert finish(one, BLOCKS).rows == 15
    with pytest.raises(UsageError, match=r"one.*: there is a dataset already, or another pipeline"):
        finish(two, [rows("other", "", [1, 2])])
    assert stored(uri) == wanted(BLOCKS)
    assert Store.at(f"{uri}.stage").names() == []
    with pytest.raises(UsageError, match="there is a dataset already"):
        WriteTo(uri, form, SCHEMA)


def test_what_is_there_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "one").mkdir()
    WriteTo(tmp_path / "one", "parquet", SCHEMA)  # an empty folder is free
    (tmp_path / "one" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"one: there is a dataset already, or something else; remove it"):
        WriteTo(tmp_path / "one", "parquet", SCHEMA)
    with pytest.raises(UsageError, match="a file is there"):
        WriteTo(tmp_path / "one" / "notes.txt", "parquet", SCHEMA)
    with pytest.raises(UsageError, match="a whole bucket; choose a folder in it"):
        WriteTo("memory://bucket", "parquet", SCHEMA)
    assert files_in(tmp_path) == {"one/notes.txt": b"mine"}


def test_a_run_whose_stage_was_removed_before_all_was_moved_does_not_end_well():
    place = "memory://gone/one"
    writing = WriteTo(place, "parquet", SCHEMA, run_id="run-1")
    dataset = writing._dataset
    pieces = [piece for block in BLOCKS for piece in dataset.stage_block(block)]
    units = [made for piece in pieces for made in dataset.make_unit([piece[1]])]
    (moves,) = dataset.moves(dataset.claim(units, []))
    dataset.place.move(moves[:2])
    with pytest.raises(DatasetError, match="a pipeline is still writing it, or was ended"):
        ll.open(place)
    dataset.place.remove_stage()
    again = WriteTo(place, "parquet", SCHEMA, run_id="run-1")
    with pytest.raises(DatasetError, match="removed before all of memory://gone/one was moved there"):
        finish(again, BLOCKS)


def test_a_run_whose_code_was_mended_uses_no_unit_that_was_written_before(tmp_path):
    first = WriteTo(tmp_path / "one", "parquet", SCHEMA, {"row_group_bytes": 1}, run_id="run-1")
    for block in BLOCKS:
        for _, piece in first._dataset.stage_block(block):
            assert len(list(first._dataset.make_unit([piece]))) == 1  # and then it died
    finish(WriteTo(tmp_path / "one", "parquet", SCHEMA, run_id="run-1"), BLOCKS)
    finish(WriteTo(tmp_path / "two", "parquet", SCHEMA), BLOCKS)
    assert dataset_files(tmp_path / "one", "parquet") == dataset_files(tmp_path / "two", "parquet")


def test_attempts_of_one_run_at_once_end_well_with_one_result(tmp_path):
    for number in range(by_tier(3, 30)):
        place = tmp_path / f"{number}"
        runs = [WriteTo(place, "zarr", SCHEMA, run_id="run-1") for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            ends = list(pool.map(lambda run: finish(run, BLOCKS), runs))
        assert len(set(ends)) == 1
        assert stored(place) == wanted(BLOCKS)


def test_an_attempt_ends_well_whose_stage_another_removes_while_it_writes_a_block(tmp_path, monkeypatch):
    first, second = (WriteTo(tmp_path / "one", "parquet", SCHEMA, run_id="run-1") for _ in range(2))
    name_it, ends = disk.in_its_folder, []

    def name_late(*arguments):
        monkeypatch.setattr(disk, "in_its_folder", name_it)
        ends.append(finish(first, BLOCKS))
        return name_it(*arguments)

    monkeypatch.setattr(disk, "in_its_folder", name_late)
    assert [finish(second, BLOCKS)] == ends
    assert stored(tmp_path / "one") == wanted(BLOCKS)


def test_an_attempt_that_meets_another_of_its_run_meanwhile_leaves_the_stage_alone(monkeypatch):
    place = "memory://meanwhile/one"
    first, second = (WriteTo(place, "parquet", SCHEMA, run_id="run-1")._dataset.place for _ in range(2))
    first.stage.replace("kept", b"")
    mark = {"run": "run-1", "digest": "d", "whole": True}
    read = type(second)._read_mark

    def read_late(own):
        found = read(own)
        if found is None:
            first.store.create(first.claim_name, json.dumps(mark).encode())
        return found

    monkeypatch.setattr(type(second), "_read_mark", read_late)
    assert second.own_mark() == mark
    assert second.stage.exists("kept")


def test_a_claim_stays_where_another_attempt_of_its_run_moves_files_meanwhile(monkeypatch):
    place = "memory://moved/one"
    dataset = WriteTo(place, "parquet", SCHEMA, run_id="run-1")._dataset
    units = [
        made
        for block in BLOCKS
        for _, piece in dataset.stage_block(block)
        for made in dataset.make_unit([piece])
    ]
    create = Store.create

    def create_late(store, name, data, **how):
        made = create(store, name, data, **how)
        if name == dataset.place.claim_name and made:
            for moves in dataset.moves(dataset.claim(units, [])):  # of the other attempt
                dataset.place.move(moves)
        return made

    monkeypatch.setattr(Store, "create", create_late)
    mark = dataset.claim(units, [])
    assert dataset.finish(mark, []).rows == 15
    assert stored(place) == wanted(BLOCKS)


def test_another_dataset_of_the_same_run_id_is_refused(tmp_path):
    finish(WriteTo(tmp_path / "one", "parquet", SCHEMA, run_id="nightly"), BLOCKS)
    with pytest.raises(UsageError, match="run nightly wrote another dataset there, as parquet"):
        WriteTo(tmp_path / "one", "zarr", SCHEMA, run_id="nightly")


def test_of_two_datasets_with_one_run_id_the_second_is_refused_at_its_end_too(tmp_path):
    needs("zarr")
    one, two = (WriteTo(tmp_path / "one", form, SCHEMA, run_id="nightly") for form in ("zarr", "parquet"))
    assert finish(one, BLOCKS).format == "zarr"
    with pytest.raises(UsageError, match="run nightly wrote another dataset there, as zarr"):
        finish(two, BLOCKS)


def test_runs_of_formats_with_marks_elsewhere_refuse_each_other():
    needs("bags", "zarr")
    for number, forms in enumerate([("bags", "zarr"), ("zarr", "bags")]):
        place = f"memory://formats/{number}"
        one, two = (WriteTo(place, form, SCHEMA) for form in forms)
        assert finish(one, BLOCKS).rows == 15
        with pytest.raises(UsageError, match="there is a dataset already"):
            finish(two, BLOCKS)
        assert stored(place) == wanted(BLOCKS)


def test_steps_that_run_once_more_after_the_end_do_nothing(tmp_path):
    needs("zarr")
    writing = WriteTo(tmp_path / "one", "zarr", SCHEMA, run_id="run-1")
    dataset = writing._dataset
    pieces = [piece for _, piece in dataset.stage_block(BLOCKS[0])]
    units = list(dataset.make_unit(pieces))
    tasks = dataset.tasks(units)
    assert finish(writing, [BLOCKS[0]]).rows == 4
    assert [*dataset.make_unit(pieces), *dataset.tasks(units), *dataset.write_file(tasks[0])] == []


def test_a_piece_that_was_cut_short_is_written_again(tmp_path):
    dataset = WriteTo(tmp_path / "one", "parquet", SCHEMA)._dataset
    ((_, piece),) = dataset.stage_block(BLOCKS[0])
    path = dataset.place.stage.path_of(piece.name)
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(DatasetError, match="damaged"):
        list(dataset.make_unit([piece]))
    path.write_bytes(data[:-1] + b"?")
    with pytest.raises(DatasetError, match="its rows changed"):
        list(dataset.make_unit([piece]))
    path.write_bytes(data[:-1])
    assert list(dataset.stage_block(BLOCKS[0])) == [("b", piece)]
    assert path.read_bytes() == data


def test_a_link_to_an_empty_folder_is_followed(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "one").symlink_to(tmp_path / "there")
    finish(WriteTo(tmp_path / "one", "parquet", SCHEMA), BLOCKS)
    assert stored(tmp_path / "one") == stored(tmp_path / "there") == wanted(BLOCKS)


def test_stages_that_others_left_are_removed_once_untouched_for_long(tmp_path):
    finish_of = WriteTo(tmp_path / "one", "parquet", SCHEMA, stale_after="1h")
    for run, age in (("old", 3700), ("young", 3500)):
        file = tmp_path / "one.stage" / run / "parts" / "rows"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"")
        os.utime(file, (time.time() - age,) * 2)
    finish(finish_of, BLOCKS)
    assert os.listdir(tmp_path / "one.stage") == ["young"]


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_read_back_is_compared(tmp_path, monkeypatch, form):
    written = WriteTo(tmp_path / "one", form, SCHEMA)
    kind = type(format_named(form))
    monkeypatch.setattr(kind, "writer", lambda self, *given, real=kind.writer: Shifted(real(self, *given)))
    with pytest.raises(DatasetError, match="run the pipeline again"):
        finish(written, BLOCKS)
    assert not (tmp_path / "one").exists()
    finish(WriteTo(tmp_path / "two", form, SCHEMA, read_back=False), BLOCKS)


class Shifted:
    """A writer that stores other speeds than it is given."""

    def __init__(self, writer):
        self.writer = writer

    def append(self, block):
        self.writer.append(
            dataclasses.replace(block, columns={**block.columns, "speed": block.columns["speed"] + 1})
        )

    def close(self):
        return {**self.writer.close()}


class Scaled(TarFormat):
    """Speeds in another unit, so that its rows aren't those that were written."""

    keeps_columns = False

    class Options(TarOptions):
        factor: float = 2

    def writer(self, directory, schema, options, context):
        return ScaledWriter(super().writer(directory, schema, options, context), schema, options.factor)

    def again(self, options):
        return {**options, "factor": 1}


class ScaledWriter:
    def __init__(self, writer, schema, factor):
        self.writer, self.factor, self.digests = writer, np.float32(factor), RowsDigest(schema)

    def append(self, block):
        columns = {**block.columns, "speed": block.columns["speed"] * self.factor}
        block = dataclasses.replace(block, columns=columns)
        self.digests.update(block)
        self.writer.append(block)

    def close(self):
        return {**self.writer.close(), "columns": self.digests.hexdigests()}


def test_a_format_that_maps_values_maps_them_once(tmp_path):
    needs("tar")
    finish(WriteTo(tmp_path / "one", Scaled(), SCHEMA), [rows("b", "", [6, 8]), rows("b", "", [4])])
    assert [row["speed"] for row in ll.open(tmp_path / "one")] == [4, 6, 8]


# --- in Beam --------------------------------------------------------------------------------------------


def test_a_pipeline_writes_counts_and_describes(tmp_path):
    pipeline = beam.Pipeline("FnApiRunner")
    writing = WriteTo(tmp_path / "one", "parquet", SCHEMA, {"row_group_bytes": 1000})
    written = pipeline | beam.Create(list(cut(BLOCKS, [2]))[::-1]) | writing
    size = 0
    assert_that(written | beam.Map(lambda one: one[:5]), equal_to([(f"{tmp_path}/one", "parquet", 2, 15, 4)]))
    result = pipeline.run()
    result.wait_until_finish()
    size = sum(len(data) for name, data in dataset_files(tmp_path / "one", "parquet").items())
    counters = {c.key.metric.name: c.committed for c in result.metrics().query()["counters"]}
    assert counters["rows_written"] == 15
    assert counters["units_written"] == 4
    assert counters["bytes_written"] == size
    assert stored(tmp_path / "one") == wanted(BLOCKS)
    assert {item.key: item.value for item in _display_items(writing)} == {
        "path": f"{tmp_path}/one",
        "format": "parquet",
        "columns": "speed, pose, scan, name",
    }


def _display_items(transform):
    from apache_beam.transforms.display import DisplayData

    return DisplayData.create_from(transform).items


def test_windowed_input_is_put_into_one_window_and_unbounded_input_refused(tmp_path):
    with beam.Pipeline("FnApiRunner") as pipeline:
        windowed = (
            pipeline
            | beam.Create(BLOCKS)
            | beam.Map(lambda block: TimestampedValue(block, int(block.timestamp[0])))
            | beam.WindowInto(FixedWindows(2))
        )
        written = windowed | WriteTo(tmp_path / "one", "parquet", SCHEMA)
        assert_that(written | beam.Map(lambda one: one.rows), equal_to([15]))
    pipeline = beam.Pipeline("FnApiRunner")
    stream = pipeline | test_stream.TestStream()
    stream.is_bounded = False
    with pytest.raises(UsageError, match="the input is unbounded"):
        stream | WriteTo(tmp_path / "two", "parquet", SCHEMA)


def test_a_block_that_does_not_fit_ends_the_pipeline_with_its_place(tmp_path):
    bad = dataclasses.replace(BLOCKS[0], columns={**BLOCKS[0].columns, "speed": np.zeros(4)})
    with (
        pytest.raises(Exception, match=r"log b, partition p0, column speed: float64, the schema has float32"),
        beam.Pipeline("FnApiRunner") as pipeline,
    ):
        pipeline | beam.Create([bad]) | WriteTo(tmp_path / "one", "parquet", SCHEMA)
    assert not (tmp_path / "one").exists()


def test_mistakes_show_when_the_pipeline_is_made(tmp_path):
    with pytest.raises(UsageError, match="no installed part offers the format 'parquett'; did you mean parq"):
        WriteTo(tmp_path / "one", "parquett", SCHEMA)
    with pytest.raises(UsageError, match=r"pass WriteTo\(path, format, schema\)"):
        WriteTo(tmp_path / "one", "parquet", {"speed": "f4"})
    with pytest.raises(UsageError, match="must be a mapping, as in a recipe"):
        WriteTo(tmp_path / "one", "parquet", SCHEMA, "images")
    with pytest.raises(UsageError, match="row_group_byte"):
        WriteTo(tmp_path / "one", "parquet", SCHEMA, {"row_group_byte": 1})
    with pytest.raises(UsageError, match="run_id"):
        WriteTo(tmp_path / "one", "parquet", SCHEMA, run_id="../up")
    if present("tar"):
        with pytest.raises(UsageError, match="no column 'acceleration'"):
            WriteTo(tmp_path / "out", TarFormat(), SCHEMA, TarOptions(ext={"acceleration": "npy"}))
