"""`ReadFrom` over every format: the rows of plain reading, by whatever name a dataset has."""

import importlib
import json
import pickle
import re
import shutil
from collections import Counter

import apache_beam as beam
import fsspec
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.display import DisplayData

import logloom
import logloom.io.formats.bags as bags
from logloom.blocks import Block
from logloom.datasets.opening import open_rows
from logloom.demo import demo_recipe
from logloom.digests import digests_of_rows
from logloom.errors import DatasetError, UsageError
from logloom.io.beam import ReadAllFrom, ReadFrom
from logloom.io.beam import read as reading
from logloom.io.catalog.manifest import entries_of, open_root
from logloom.io.catalog.tags import change_tags
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.registry import format_named
from logloom.io.storage.store import Store
from logloom.recipe import Recipe
from logloom.schema import ColumnType, Schema
from tests.absent import needs, outputs_present, present
from tests.cases import case
from tests.io.beam.steps import read_here, tracked
from tests.tier import by_tier

FORMATS = present("bags", "l5kit", "lance", "parquet", "table", "tar", "zarr")
OUTPUTS = outputs_present("""
  bags: {types: {camera.front: jpg}}
  table: {index: [ego.speed]}
  zarr: {}
  parquet: {images: {camera.front: jpg}}
  lance: {images: {camera.front: jpg}}
partition: {rows: 4}
""")
FOUND = []  # what steps of a pipeline in this process found


@pytest.fixture(scope="module")
def root(logs_of, root_of):
    """A version of two logs of some partitions in every format with rows."""
    text = demo_recipe(logs_of(2, 2))
    return root_of(Recipe.from_yaml(text.rstrip() + OUTPUTS))


def noted(name, block):
    FOUND.append((name, block))


def partitions_of(blocks):
    """How many rows each partition of each log has; checks that blocks are numbered by them."""
    rows = Counter()
    for block in blocks:
        assert block.first_row == rows[block.log_id, block.partition]
        rows[block.log_id, block.partition] += len(block)
    return rows


def folder_of(root, name):
    """A split of an output as a version's view shows it."""
    return root / f"v00000001/{name}/all{format_named(name).suffix}"


@pytest.fixture(scope="module")
def plain(root, tmp_path_factory):
    """Gives a copy of an output's folder, which is of no version."""
    place = tmp_path_factory.mktemp("plain")

    def copied(name):
        folder = place / name
        if not folder.exists():
            shutil.copytree(folder_of(root, name), folder)
        return folder

    return copied


def test_columns_and_rows_are_chosen_when_the_pipeline_is_made(root):
    few = ReadFrom(root, columns=["ego.*", "camera.front.available"], where="row < 3")
    assert list(few.schema.columns) == ["ego.position", "ego.rotation", "ego.speed", "camera.front"]
    assert few.schema.sampled == ("camera.front",)
    names = tuple(sorted(["timestamp", *few.schema.all]))
    with beam.Pipeline("FnApiRunner") as pipeline:
        blocks = pipeline | few
        shown = blocks | beam.Map(lambda block: (block.log_id, len(block), tuple(sorted(block.columns))))
        assert_that(shown, equal_to([("drive-00", 3, names), ("drive-01", 3, names)]))


def test_places_may_come_from_the_pipeline(root, plain):
    needs("zarr", "tar")
    FOUND.clear()
    with beam.Pipeline("FnApiRunner") as pipeline:
        places = pipeline | beam.Create([str(root), f"{plain('zarr')}"])
        _ = places | ReadAllFrom(columns="ego.speed") | beam.Map(lambda block: noted("all", block))
        _ = (
            places
            | "again" >> ReadAllFrom("zarr", where="row < 3")
            | beam.Map(lambda block: noted("filtered", block))
        )
    of_all = [block for name, block in FOUND if name == "all"]
    assert {frozenset(block.columns) for block in of_all} == {frozenset(["timestamp", "ego.speed"])}
    assert set(Counter(stamps_of(of_all)).values()) == {2}
    assert Counter(len(block) for name, block in FOUND if name == "filtered") == {3: 4}


@pytest.mark.parametrize("name", FORMATS)
class TestEveryFormat:
    def test_blocks_of_a_version_are_its_partitions(self, root, name):
        source, _ = open_rows(str(root), None, name, None, None, {}, False, None)
        one, small = ReadFrom(root, output=name), ReadFrom(root, output=name, max_bytes=3000)
        assert one.schema == source.schema
        wanted = digests_of_rows(source.blocks(tuple(source.schema.all)), source.schema)
        store, manifest = open_root(Store.at(str(root)))
        units = [entry for _, entry in entries_of(store, manifest.logs) if entry.output == name]
        counts = {(unit.log_id, unit.partition): unit.rows for unit in units if unit.rows}
        assert len(counts) > 4
        found = [read_here(one), read_here(small)]
        for blocks in found:
            assert digests_of_rows(blocks, source.schema) == wanted
            assert partitions_of(blocks) == counts
        assert len(found[1]) > len(found[0])

    def test_blocks_of_a_plain_folder_are_those_of_a_conversion(self, plain, name):
        source = open_foreign(str(plain(name)))
        one, small = ReadFrom(plain(name)), ReadFrom(plain(name), name, max_bytes=3000)
        assert one.schema == source.schema
        wanted = digests_of_rows(source.blocks(), source.schema)
        parts = {(log.log_id, part.name): part.rows for log in source.logs() for part in log.parts}
        if name in ("l5kit", "table", "zarr"):  # these datasets have logs alone
            parts = {(log.log_id, ""): log.record.rows for log in source.logs()}
        for blocks in (read_here(one), read_here(small)):
            assert digests_of_rows(blocks, source.schema) == wanted
            assert partitions_of(blocks) == parts

    def test_filters_keep_the_rows_that_they_keep_in_training(self, root, plain, name):
        filters = ["log_id != 'drive-00' and row > 2", "timestamp > 0 for 300ms and row < 5"]
        if name != "l5kit":  # whose frames have columns of their own
            filters += ["ego.speed > 11", "ego.speed > 11 for 300ms"]
            filters += ["ego.speed * 2 - 11 > 11 and timestamp >= '2020-01-01'"]
        for place, more in ((root, {"output": name}), (plain(name), {})):
            rows_of_all = len(logloom.open(place, **more))
            for where in filters[FORMATS.index(name) % 2 :: by_tier(2, 1)]:
                with case(place, where):
                    blocks = read_here(ReadFrom(place, where=where, max_bytes=5000, **more))
                    wanted = logloom.open(place, where=where, **more).index
                    assert 0 < len(wanted) < rows_of_all
                    rows = list(zip(wanted["log_id"], wanted["timestamp"], strict=True))
                    assert stamps_of(blocks) == rows
                    assert len(set(map(numbered, blocks))) == len(blocks)


def numbered(block):
    return block.log_id, block.partition, block.first_row


def stamps_of(blocks):
    return [(block.log_id, int(stamp)) for block in blocks for stamp in block.timestamp]


def test_a_dataset_is_read_by_any_of_its_names(root, plain, tmp_path):
    needs("zarr", "tar", "parquet")
    view = root / "v00000001"
    change_tags(Store.at(str(root)), lambda tags: {**tags, "good": 1})
    in_memory = "memory://test_read/root"
    fsspec.filesystem("memory").put(f"{plain('zarr')}/", f"{in_memory}/one.zarr/", recursive=True)
    splits = tmp_path / "splits"
    for split in ("train", "val"):
        shutil.copytree(plain("tar"), splits / split)
    for log in ("a", "b"):
        shutil.copytree(plain("zarr"), tmp_path / f"{log}.zarr")
    shards = sorted(path.name.partition(".")[0] for path in plain("tar").iterdir())
    names = {
        "root": root,
        "number": f"{root}@1",
        "tag": f"{root}@good",
        "view": view / "zarr",
        "split": str(view / "zarr/all.zarr"),
        "memory": f"{in_memory}/one.zarr",
        "folder": plain("zarr"),
        "files": f"{plain('parquet')}/*.parquet",
        "braces": f"{plain('tar')}/{{{shards[0]}..{shards[-1]}}}.tar",
        "list": [plain("zarr")],
    }
    twice = {"splits": splits, "glob": f"{tmp_path}/*.zarr", "several": [plain("zarr"), plain("zarr")]}
    chosen = {name: ReadFrom(place) for name, place in (names | twice).items()}
    chosen["train"] = ReadFrom(splits, splits="train")
    found = {name: read_here(transform) for name, transform in chosen.items()}
    wanted = stamps_of(found["root"])
    assert len(wanted) > 10
    for name in [*names, "train"]:
        assert stamps_of(found[name]) == wanted, name
    for name in twice:
        assert Counter(stamps_of(found[name])) == dict.fromkeys(wanted, 2), name
        assert len(set(map(numbered, found[name]))) == len(found[name])
    assert {block.partition.partition(".")[0] for block in found["splits"]} == {"train", "val"}


def test_mistakes_show_when_the_pipeline_is_made(root, plain, tmp_path):
    needs("zarr")
    other = Schema({"x": ColumnType("<f4")})
    for given, message in [
        (
            lambda: ReadFrom(root, columns=["ego.sped"]),
            "'ego.sped'; did you mean ego.speed",
        ),
        (lambda: ReadFrom(root, where="ego.sped > 3"), "ego.sped"),
        (lambda: ReadFrom(root, where="ego.speed >"), "ego.speed >"),
        (lambda: ReadFrom(root, output="zar"), "no output 'zar'"),
        (lambda: ReadFrom(root, splits="tran"), "no split 'tran'"),
        (lambda: ReadFrom(f"{root}@7"), "7"),
        (lambda: ReadFrom(plain("zarr"), splits="train"), "leave split= out"),
        (lambda: ReadFrom(plain("zarr"), output="zarr"), "leave output= out"),
        (lambda: ReadFrom(plain("zarr"), "zart"), "the format 'zart'; did you mean zarr"),
        (lambda: ReadFrom(plain("zarr"), schema=other), "leave schema= out"),
        (lambda: ReadFrom(plain("zarr"), max_bytes=0), "max_bytes=0"),
        (lambda: ReadAllFrom(max_bytes=0), "max_bytes=0"),
        (lambda: ReadFrom([]), "no places"),
        (lambda: ReadFrom(""), "names no root"),
        (lambda: ReadFrom(tmp_path / "nothing"), "nothing"),
        (lambda: ReadFrom(f"{tmp_path}/*.zarr"), "nothing matches"),
        (lambda: ReadFrom(f"{tmp_path}/**/a.zarr"), "a glob for each depth"),
    ]:
        with case(message), pytest.raises((UsageError, DatasetError), match=re.escape(message)):
            given()


def test_a_place_with_other_columns_is_refused(plain):
    needs("zarr", "l5kit")
    both = ReadFrom([plain("zarr"), plain("l5kit")])
    with pytest.raises(UsageError, match="has other columns than the first place"):
        read_here(both)


@pytest.mark.parametrize("name", present("bags", "tar"))
def test_types_come_from_the_writer_or_from_the_caller(root, plain, tmp_path, name):
    schema = open_rows(str(root), None, name, None, None, {}, False, None)[0].schema
    folder = tmp_path / name
    shutil.copytree(plain(name), folder)
    mark = folder / format_named(name).mark_folder / "_written.json"
    mark.write_text(json.dumps({"format": name, "schema": schema.to_json()}))
    assert open_foreign(str(plain(name))).schema != schema  # not all is in the files
    units = sorted(plain(name).iterdir())
    variant = getattr(importlib.import_module(f"logloom.io.formats.{name}"), f"ReadFrom{name.title()}")
    wanted = digests_of_rows(read_here(ReadFrom(root, output=name)), schema)
    given = ReadFrom(plain(name), schema=schema)
    for one in (ReadFrom(folder), given, variant(units, schema, max_bytes=20_000)):
        blocks = read_here(one)
        assert digests_of_rows(blocks, schema) == wanted
        assert len(set(map(numbered, blocks))) == len(blocks)
    assert logloom.open(folder).schema == schema
    mark.write_text("{}")
    with pytest.raises(DatasetError, match="no description of a dataset"):
        ReadFrom(folder)


def test_splits_whose_types_differ_are_read_with_common_ones(tmp_path):
    needs("bags")
    spec = {"log_id": "utf8", "timestamp": "i64", "x": "array"}
    for split, lists in {"train": [[1, 2], [3, 4]], "val": [[5], [6, 7, 8]]}.items():
        with bags.DatasetWriter(tmp_path / split, spec, bags.encoders) as writer:
            for stamp, values in enumerate(lists):
                writer.append({"log_id": split, "timestamp": stamp, "x": np.array(values)})
    one = ReadFrom(tmp_path)
    blocks = read_here(one)
    assert one.schema.columns["x"].shape == (None,)
    assert [[row.tolist() for row in block.columns["x"]] for block in blocks] == [
        [[1, 2], [3, 4]],
        [[5], [6, 7, 8]],
    ]
    assert [numbered(block) for block in blocks] == [("train", "train.000000", 0), ("val", "val.000000", 0)]


@pytest.mark.parametrize("name", present("parquet", "tar", "zarr"))
def test_ranges_of_rows_are_split_anywhere(root, plain, monkeypatch, name):
    """As runners split them: before work, and while a range is read."""
    monkeypatch.setattr(reading, "_SPLIT_BYTES", 1)
    for place, where in ((root, None), (plain(name), "row != 2")):
        reader = ReadFrom(place, max_bytes=2000, where=where)._reader
        step = reading._ReadShare(reader)
        rows, again, ranges = [], [], 0
        for share in reader.shares(next(reader.datasets(("", str(place))))):
            whole = step.initial_restriction(share)
            rows += [*step.process(share, tracked(whole)[0])]
            for part in step.split(share, whole):
                ranges += 1
                again += split_while_read(step, share, part)
        if name != "tar" or place == root:  # a shard without declared types is read from its start
            assert ranges > len({numbered(block)[:2] for block in rows})
        assert sorted(stamps_of(again)) == sorted(stamps_of(rows))
        assert len(set(map(numbered, again))) == len(again) >= len(rows)


def split_while_read(step, share, restriction):
    """The blocks of a range, half of whose rest is given to others after each block."""
    view, tracker = tracked(restriction)
    for block in step.process(share, view):
        yield block
        if (parts := tracker.try_split(0.5)) is not None:
            yield from split_while_read(step, share, parts[1])
    tracker.check_done()
    assert step.restriction_size(share, restriction) > 0


def test_pipelines_show_what_is_read(root, plain):
    needs("zarr")
    one = ReadFrom([root, plain("zarr")], columns="ego.speed", output="zarr")
    shown = {item.key: item.value for item in DisplayData.create_from(one).items}
    assert shown["columns"] == "ego.speed"
    assert str(root) in shown["place"]
    assert one.default_label() == "ReadFrom"
    pipeline = beam.Pipeline("FnApiRunner")
    first = pipeline | ReadFrom(root)
    second = pipeline | "second" >> ReadFrom(root, max_bytes=1000)
    assert first.element_type is second.element_type is Block
    _ = first | beam.Map(lambda block: noted("first", block))
    counters = pipeline.run().metrics().query()["counters"]
    sums = Counter()
    for counter in counters:
        sums[counter.key.metric.name] += counter.committed
    assert sums["rows_read"] == 2 * len(logloom.open(root))
    assert sums["bytes_read"] > 100_000
    assert sums["units_read"] == 2 * 6


@pytest.mark.parametrize("name", present("annotations", *FORMATS))
def test_each_package_has_its_format_and_a_reader_by_its_name(name):
    package = importlib.import_module(f"logloom.io.formats.{name}")
    assert package.FORMAT is format_named(name)
    reader = f"ReadFrom{'L5Kit' if name == 'l5kit' else name.title()}"
    assert issubclass(getattr(package, reader), ReadFrom)


def test_many_places_make_no_larger_pipeline(plain):
    needs("zarr")

    def steps(count):
        pipeline = beam.Pipeline("FnApiRunner")
        _ = pipeline | ReadFrom([plain("zarr")] * count)
        return len(pipeline.to_runner_api().components.transforms)

    assert steps(100) == steps(2)


def test_a_root_is_read_in_one_version(root, plain):
    reader = ReadFrom(root)._reader
    (share, *_) = reader.shares(("", str(root)))
    assert share.place == f"{root}@1"


def test_units_of_a_folder_are_opened_by_who_reads_them(plain):
    needs("tar")
    shares = [*ReadFrom(plain("tar"))._reader.shares(("", str(plain("tar"))))]
    names = sorted(path.name for path in plain("tar").iterdir())
    assert len(shares) == len(names) > 2
    for share, name in zip(shares, names, strict=True):
        others = {other for other in names if other != name}
        data = pickle.dumps(share)
        assert name.encode() in data
        assert not any(other.encode() in data for other in others)
