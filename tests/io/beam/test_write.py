"""Any format in Beam: what `WriteTo` does beyond what the transforms named after formats need."""

import dataclasses
import pathlib
import shutil
import time
from collections import Counter

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to

from logloom.blocks import Block
from logloom.digests import RowsDigest, digests_of_rows
from logloom.errors import DatasetError, UsageError
from logloom.io.beam import ReadFrom, WriteTo
from logloom.io.formats.interface import FolderKind
from logloom.io.formats.table import read_index, row_loader, verify
from logloom.io.formats.table.format import TableFormat
from logloom.io.formats.table.unit import BlockReader
from logloom.io.formats.tar.format import TarFormat, TarOptions
from logloom.io.formats.zarr.format import ZarrFormat
from logloom.io.formats.zarr.layout import ZarrOptions
from logloom.io.rows.unit_rows import LoadedReader
from logloom.io.storage.store import Store
from logloom.schema import ColumnType, Schema
from logloom.testing.rows import SCHEMA, cut, random_block
from tests.absent import needs
from tests.files import files_in

SPEED = Schema({"speed": ColumnType("<f4")})


def speeds(first, count, start=0):
    stamps = np.arange(start, start + count) + 1
    return Block("drive", "p0", first, {"timestamp": stamps, "speed": stamps.astype("<f4")})


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
    with beam.Pipeline() as pipeline:
        blocks = pipeline | beam.Create([speeds(3, 2, 3), speeds(0, 3)])
        blocks | WriteTo(tmp_path / "out", Scaled(), SPEED, file="shard.tar")
    unit = {"rows": 5, "bytes": (tmp_path / "out/drive/p0/shard.tar").stat().st_size}
    reader = Scaled().reader(
        str(tmp_path / "out/drive/p0"), SPEED, Scaled.Options(), unit | {"log_id": "drive", "partition": "p0"}
    )
    (block,) = reader.blocks()
    assert block.columns["speed"].tolist() == [2, 4, 6, 8, 10]


def test_units_are_told_and_nothing_else_is_left(tmp_path):
    with beam.Pipeline() as pipeline:
        written = pipeline | beam.Create([speeds(0, 3)]) | WriteTo(tmp_path / "out", TarFormat(), SPEED)
        said = written | beam.Map(lambda unit: (unit["uri"], unit["log_id"], unit["partition"]))
        assert_that(said, equal_to([(f"{tmp_path}/out/drive/p0", "drive", "p0")]))
    assert sorted(files_in(tmp_path)) == ["out/drive/p0/shard.tar"]


def test_a_unit_that_is_there_is_kept_and_needs_no_pieces(tmp_path):
    written = WriteTo(tmp_path, TarFormat(), SPEED)._dataset
    staged = [written.stage_block(speeds(first, 2, first))[1] for first in (0, 2)]
    said = written.join((("drive", "p0"), staged))
    before = (tmp_path / "drive/p0/shard.tar").read_bytes()
    written.join((("drive", "p0"), [written.stage_block(speeds(0, 5))[1]]))
    assert (tmp_path / "drive/p0/shard.tar").read_bytes() == before
    shutil.rmtree(tmp_path / "tmp/pieces")  # as another pipeline with equal blocks does
    assert written.join((("drive", "p0"), staged)) == said
    (tmp_path / "drive/p0/shard.tar").unlink()
    with pytest.raises(DatasetError):
        written.join((("drive", "p0"), staged))


def test_a_unit_in_an_object_store_is_kept():
    store = Store.at("memory://test_beam/out")
    found = []
    for count in (3, 4):
        with beam.Pipeline() as pipeline:
            pipeline | beam.Create([speeds(0, count)]) | WriteTo(store.uri, TarFormat(), SPEED)
        found.append(store.read("drive/p0/shard.tar"))
    assert found[0] == found[1]
    assert [name for name in store.sizes("") if not name.startswith("drive/")] == []


@pytest.mark.parametrize("form", [TarFormat(), ZarrFormat()], ids=lambda form: form.name)
def test_each_piece_that_was_left_over_is_removed_by_itself(tmp_path, monkeypatch, form):
    removed = []
    monkeypatch.setattr(
        Store, "remove_all", lambda store, folder: removed.append(f"{store.uri}/{folder}".rstrip("/"))
    )
    with beam.Pipeline() as pipeline:
        pipeline | beam.Create([speeds(n, 1, n) for n in range(4)]) | WriteTo(tmp_path / "out", form, SPEED)
    stage = tmp_path / ("out.stage" if form.name == "zarr" else "out/tmp/pieces")
    pieces = sorted(str(path.parent) for path in stage.rglob("entry.json"))
    assert len(pieces) == 4
    assert sorted(removed[:4]) == pieces
    assert removed[4:] == ([str(stage)] if form.name == "zarr" else [])


def test_two_write_to_one_folder_at_a_time(tmp_path):
    with beam.Pipeline() as pipeline:
        for log in ("a", "b"):
            blocks = [dataclasses.replace(speeds(n, 1, n), log_id=log) for n in range(3)]
            _ = (
                pipeline
                | log >> beam.Create(blocks)
                | f"write {log}" >> WriteTo(tmp_path, TarFormat(), SPEED)
            )
    assert sorted(files_in(tmp_path)) == [f"{log}/p0/shard.tar" for log in "ab"]


def test_files_that_a_view_shows_of_a_unit_go_to_the_dataset(tmp_path):
    blocks = [random_block(SCHEMA, 9, seed, log_id=log) for seed, log in enumerate(("a", "b/c"))]
    cuts = [part for block in blocks for part in cut(block, [2, 3, 7])][::-1]
    path = str(tmp_path / "table")
    with beam.Pipeline() as pipeline:
        written = pipeline | beam.Create(cuts) | WriteTo(path, TableFormat(), SCHEMA)
        assert_that(written, equal_to([path]))
    assert verify(path) == []
    found = list(BlockReader(row_loader(read_index(path))).blocks())
    assert digests_of_rows(found, SCHEMA) == digests_of_rows(blocks, SCHEMA)
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


def test_a_format_reads_what_it_wrote(tmp_path):
    needs("zarr")
    blocks = [random_block(SCHEMA, 9, seed, log_id=log) for seed, log in enumerate(("a", "b"))]
    with beam.Pipeline() as pipeline:
        pipeline | beam.Create(blocks) | WriteTo(tmp_path / "one.zarr", ZarrFormat(), SCHEMA)

    def check(found):
        assert digests_of_rows(
            sorted(found, key=lambda block: (block.log_id, block.first_row)), SCHEMA
        ) == digests_of_rows(blocks, SCHEMA)

    with beam.Pipeline() as pipeline:
        assert_that(pipeline | ReadFrom(tmp_path / "one.zarr", ZarrFormat(), max_bytes=5000), check)


class Loaded(LoadedReader):
    """A unit that is loaded whole: a file with its first row's number."""

    def __init__(self, place, loads):
        self.place, self._loads = place, loads

    def load(self):
        (self._loads / f"{time.monotonic_ns()}-{pathlib.Path(self.place).name}").touch()
        return SPEED, speeds(0, 3, int(pathlib.Path(self.place).read_text()))


class LoadedFormat(FolderKind):
    name = "loaded"

    def __init__(self, loads):
        self.loads = loads

    def units(self, store):
        return [Loaded(f"{store.uri}/{name}", self.loads) for name in store.names()]


def test_units_that_are_loaded_whole_are_loaded_once_to_list_them_and_once_to_read_them(tmp_path):
    for folder in ("units", "loads"):
        (tmp_path / folder).mkdir()
    for number in range(6):
        (tmp_path / "units" / f"{number}").write_text(str(10 * number))
    with beam.Pipeline() as pipeline:
        rows = pipeline | ReadFrom(tmp_path / "units", LoadedFormat(tmp_path / "loads"))
        stamps = rows | beam.FlatMap(lambda block: block.timestamp.tolist())
        assert_that(stamps, equal_to([10 * n + row + 1 for n in range(6) for row in range(3)]))
    loads = Counter(path.name.rpartition("-")[2] for path in (tmp_path / "loads").iterdir())
    assert loads == {str(number): 2 for number in range(6)}


def test_a_dataset_is_never_written_over_and_what_that_left_serves_no_other_options(tmp_path):
    schema = Schema({"a": ColumnType("<f4"), "b": ColumnType("<f4")})
    values = {name: np.arange(4, dtype="<f4") + 10 * n for n, name in enumerate(("a", "b"))}
    block = Block("drive", "p0", 0, {"timestamp": np.arange(4), **values})
    path = tmp_path / "one.zarr"

    def write(options):
        with beam.Pipeline() as pipeline:
            pipeline | beam.Create([block]) | WriteTo(path, ZarrFormat(), schema, options)

    write(ZarrOptions())
    before = files_in(path)
    with pytest.raises(UsageError, match="there is a dataset already"):
        write(ZarrOptions())  # leaves its stage
    assert files_in(path) == before
    assert path.with_name("one.zarr.stage").exists()
    shutil.rmtree(path)
    write(ZarrOptions(columns=["b"]))
    (found,) = ZarrFormat().rows(Store.at(str(path))).blocks()
    assert sorted(found.columns) == ["b", "timestamp"]
    assert found.columns["b"].tolist() == values["b"].tolist()


def test_columns_and_logs_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(UsageError, match="no column 'acceleration'"):
        WriteTo(tmp_path / "out", TarFormat(), SPEED, TarOptions(ext={"acceleration": "npy"}))
    block = dataclasses.replace(speeds(0, 3), log_id="../up")
    with pytest.raises(UsageError, match="can't name tar members"), beam.Pipeline() as pipeline:
        pipeline | beam.Create([block]) | WriteTo(tmp_path / "out", TarFormat(), SPEED)
    assert not (tmp_path / "up").exists()
