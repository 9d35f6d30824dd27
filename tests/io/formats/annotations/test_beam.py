"""Blocks into an annotation file and out again, in Beam."""

import itertools
import json

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

import logloom.io.formats.annotations
from logloom.errors import UsageError
from logloom.io.beam import WriteTo
from logloom.io.formats.annotations import AnnotationReader, ReadFromAnnotations, WriteToAnnotations
from logloom.io.formats.annotations.format import FORMAT
from tests.files import files_in
from tests.io.beam.steps import finish
from tests.io.formats.annotations.making import SCHEMA, assemble, make_block, options, part, stage, store_at


def test_blocks_in_any_order_make_the_file_that_a_build_makes(tmp_path):
    store = store_at(tmp_path)
    logs = [make_block(20, seed, log_id=log) for seed, log in enumerate(("a", "b/c"))]
    units = [unit for block in logs for unit in stage(store, block, [7])]
    expected, _ = assemble(store, units)
    blocks = [part(block, a, b) for block in logs for a, b in itertools.pairwise([0, 7, 12, 20])][::-1]
    folder = tmp_path / "written"
    with beam.Pipeline("FnApiRunner") as pipeline:
        written = pipeline | beam.Create(blocks) | WriteToAnnotations(folder, SCHEMA, options())
        assert_that(written | beam.Map(lambda one: one.uri), equal_to([str(folder / "annotations/all.json")]))
    found = files_in(folder)
    assert found.pop("_written-annotations%2Fall.json")
    assert found.pop("annotations/all.json") == files_in(expected)["annotations/all.json"]
    assert len(found) == 40
    staged = {
        name: data for unit in units for name, data in files_in(tmp_path / "store" / unit.folder).items()
    }
    assert all(staged[name] == data for name, data in found.items())
    assert not (tmp_path / "written.stage").exists()


def test_infos_read_in_beam_are_those_of_the_file(tmp_path):
    store = store_at(tmp_path)
    folder, _ = assemble(store, stage(store, make_block(9)))
    path = folder / "annotations/all.json"
    with beam.Pipeline("FnApiRunner") as pipeline:
        blocks = pipeline | ReadFromAnnotations(str(path), max_bytes=20_000)
        rows = blocks | beam.FlatMap(
            lambda block, schema: [block.row(i, schema)["data_info"] for i in range(len(block))],
            AnnotationReader(path).schema,
        )
        expected = [row["data_info"] for row in AnnotationReader(path)]
        assert_that(rows, equal_to(expected))
    assert [json.loads(text) for text in expected] == json.loads(path.read_text())["data_list"]


@pytest.mark.parametrize("transform", [WriteToAnnotations, lambda at, *more: WriteTo(at, FORMAT, *more)])
def test_a_file_that_is_there_is_never_written_over(tmp_path, transform):
    store = store_at(tmp_path)
    folder, _ = assemble(store, stage(store, make_block(3)))
    before = files_in(folder)["annotations/all.json"]
    with pytest.raises(UsageError, match="there is a dataset already"):
        finish(transform(folder, SCHEMA, options()), [make_block(4)])
    assert files_in(folder)["annotations/all.json"] == before


@pytest.mark.parametrize(
    ("file", "split", "name"),
    [("a{{1}}/{split}.json", "all", "a{1}/all.json"), ("{split}.json", "{odd}", "{odd}.json")],
)
def test_braces_in_names_stay(tmp_path, file, split, name):
    writing = WriteToAnnotations(tmp_path, SCHEMA, options(file=file), split)
    assert writing._dataset._plan([]).unit["file"] == writing._dataset.place.file == name


def test_a_file_of_no_rows_is_named_after_all(tmp_path):
    plan = FORMAT.plan_assembly(store_at(tmp_path), [], SCHEMA, options(), None)
    assert plan.marks == ["annotations/all.json"]


def test_an_image_of_another_dataset_is_not_passed_off_as_ours(tmp_path):
    finish(WriteToAnnotations(tmp_path / "one", SCHEMA, options()), [make_block(3)])
    image = next(
        name for name in files_in(tmp_path / "one") if not name.startswith(("annotations/", "_written"))
    )
    other = tmp_path / "two" / image
    other.parent.mkdir(parents=True)
    other.write_bytes(b"another")
    with pytest.raises(UsageError, match=f"{image}: another dataset's file"):
        finish(WriteToAnnotations(tmp_path / "two", SCHEMA, options()), [make_block(3)])


def test_two_files_at_once_never_overwrite_each_other_s_images(tmp_path):
    one, two = (WriteToAnnotations(tmp_path / "at", SCHEMA, options(), split) for split in ("train", "val"))
    marks = []
    for writing, seed in ((one, 1), (two, 2)):
        dataset = writing._dataset
        pieces = [piece for _, piece in dataset.stage_block(make_block(3, seed))]
        units = list(dataset.make_unit(pieces))
        files = [made for task in dataset.tasks(units) for made in dataset.write_file(task)]
        marks.append(dataset.claim(units, files))  # neither has moved a file yet
    for moves in one._dataset.moves(marks[0]):
        one._dataset.place.move(moves)
    before = files_in(tmp_path / "at")
    (moves,) = two._dataset.moves(marks[1])
    with pytest.raises(UsageError, match="another dataset's file"):
        two._dataset.place.move(moves)
    assert before.items() <= files_in(tmp_path / "at").items()


def test_two_files_of_one_run_have_stages_of_their_own(tmp_path):
    splits = ("train", "val")
    writings = [WriteToAnnotations(tmp_path, SCHEMA, options(), split, run_id="nightly") for split in splits]
    assert len({writing._dataset.place.stage.uri for writing in writings}) == 2


def test_columns_that_do_not_fit_are_refused_at_once(tmp_path):
    with pytest.raises(UsageError, match="no column 'camera'"):
        WriteToAnnotations(tmp_path, SCHEMA, options(images={"img_path": "camera"}))


def test_public_names_are_those_in_the_list():
    for name in logloom.io.formats.annotations.__all__:
        public = getattr(logloom.io.formats.annotations, name)
        assert getattr(public, "__name__", "FORMAT") == name
    with pytest.raises(AttributeError, match="nothing"):
        logloom.io.formats.annotations.nothing  # noqa: B018
