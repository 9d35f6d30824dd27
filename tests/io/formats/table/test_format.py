"""The output `table`: units that pipelines write, read back and put together."""

import pathlib
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

import logloom.io.formats.table as tt
from logloom.blocks import Block
from logloom.errors import UsageError
from logloom.io.catalog.entries import Entry, FileEntry
from logloom.io.catalog.pages import LogRecord
from logloom.io.formats.interface import StagedUnit, UnitContext
from logloom.io.formats.table.format import FORMAT, TableOptions
from logloom.io.formats.table.references import References
from logloom.io.formats.table.write.user_rows import open_rows
from logloom.io.storage.store import Store
from logloom.schema import Schema
from tests.io.formats.table.making import ALL_TYPES, PERIOD, assert_rows_equal, typed_row

SCHEMA = Schema(ALL_TYPES.columns, ("vector", "jpeg"))
OPTIONS = TableOptions(
    index=["vector", "n.int32"], groups={"sight": ["image", "points"]}, compress={"sight": "lz4"}
)


def log_rows(log_id, count, seed):
    rng = np.random.default_rng(seed)
    return [
        {
            "log_id": log_id,
            "timestamp": (seed * 1000 + n) * PERIOD,
            **typed_row(rng),
            "vector.age": n,
            "jpeg.age": -n,
        }
        for n in range(count)
    ]


def block_of(rows, partition, first):
    (batch,) = open_rows(rows, SCHEMA)[2]
    return Block(rows[0]["log_id"], partition, first, batch.columns)


def write_unit(root: pathlib.Path, rows, partition, options=OPTIONS, cuts=1):
    """Writes one partition as a pipeline does; gives its record and entry."""
    identity = f"{rows[0]['log_id']}-{partition}"
    folder = root / "parts/table" / identity
    folder.mkdir(parents=True)
    context = UnitContext(rows[0]["log_id"], "x.bag", partition, "all", PERIOD)
    writer = FORMAT.writer(folder, SCHEMA, options, context)
    for start in range(0, len(rows), cuts):
        writer.append(block_of(rows[start : start + cuts], partition, start))
    unit = writer.close()
    files = tuple(FileEntry(p.name, p.stat().st_size, "") for p in sorted(folder.iterdir()))
    entry = Entry(
        "table", identity, rows[0]["log_id"], "", partition, 0, 1, len(rows), files, {}, unit, {}, {}, ""
    )
    record = LogRecord(rows[0]["log_id"], ("x.bag",), "", "all", "", "done", "", 0, 0, {}, 0, ())
    return record, entry


def assemble(root: pathlib.Path, units, options=OPTIONS) -> pathlib.Path:
    """Puts units together and lays out the view."""
    store = Store.at(str(root))
    staged = [StagedUnit.of(record, entry) for record, entry in units]
    planned = FORMAT.plan_assembly(store, staged, SCHEMA, options, PERIOD)
    view = root / "view"
    files = dict(planned.files) | dict(FORMAT.make_chunk(store, task) for task in planned.tasks)
    for name, data in files.items():
        (view / name).parent.mkdir(parents=True, exist_ok=True)
        (view / name).write_bytes(data)
    for number, (_, entry) in enumerate(units):
        for file, shown in FORMAT.view(number, [file.name for file in entry.files]).items():
            (view / shown).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / entry.folder / file, view / shown)
    assert list(FORMAT.assembled_differences(str(view), planned.unit, {})) == []
    return view


def test_units_of_some_logs_become_a_table(tmp_path):
    first, second = log_rows("drive/1", 12, 0), log_rows("drive 2", 5, 1)
    units = [
        write_unit(tmp_path, first[:7], "0-7"),
        write_unit(tmp_path, first[7:], "7-14"),
        write_unit(tmp_path, second, "0-7"),
    ]
    view = assemble(tmp_path, units)
    index = tt.read_index(str(view), where="`vector.0` >= 0")
    rows = sorted([*first, *second], key=lambda row: (row["log_id"], row["timestamp"]))
    assert len(index) == 17
    loader = tt.row_loader(index, check=True)
    for found, wanted in zip(loader, rows, strict=True):
        assert_rows_equal(found, wanted)
    window = loader.get_rows(5 + 4, "points", range(-4, 6))  # across the partitions of drive/1
    for found, wanted in zip(window, first[:10], strict=True):
        assert_rows_equal(found, wanted)
    for found, wanted in zip(loader.get_rows(5 + 10, "points"), first[:10], strict=True):
        assert_rows_equal(found, wanted)
    with pytest.raises(tt.RowPositionError):
        loader.get_rows(5, "points", [-1])  # the row before is another log's
    assert tt.verify(str(view)) == []


def test_a_version_that_references_the_last_one_stores_only_what_is_new(tmp_path):
    rows = log_rows("a", 6, 0)
    base = assemble(tmp_path / "v1", [write_unit(tmp_path / "v1", rows, "0-6")])
    options = OPTIONS.model_copy(update={"reference": str(base)})
    rows[2]["jpeg"] = b"another"
    record, entry = write_unit(tmp_path / "v2", rows, "0-6", options)
    blobs = {file.name.partition("!")[2]: file.size for file in entry.files}
    assert {name for name, size in blobs.items() if size} == {"jpeg.blob", ""}
    folder = str(tmp_path / "v2" / entry.folder)
    assert_rows_equal(FORMAT.reader(folder, SCHEMA, options, entry.unit)[2], rows[2])
    view = assemble(tmp_path / "v2", [(record, entry)], options)
    for found, wanted in zip(tt.row_loader(tt.read_index(str(view)), check=True), rows, strict=True):
        assert_rows_equal(found, wanted)
    assert tt.verify(str(view)) == []


def test_a_partition_looks_at_its_own_share_of_a_referenced_table(tmp_path):
    rows = log_rows("a", 8, 0)
    base = assemble(tmp_path / "v1", [write_unit(tmp_path / "v1", rows, "0-8")])
    references = References([str(base)])
    stamps = [row["timestamp"] for row in rows]
    stored = pq.read_table(base / "index" / "a.parquet")
    hashes = [stored[name].to_pylist() for name in stored.column_names if name.endswith(".hash")]
    assert set(references.known("a", (stamps[2], stamps[5]))) == {h for own in hashes for h in own[2:5]}
    assert set(references.known("a")) == {h for own in hashes for h in own}
    assert references.known("a", (stamps[7] + 1, stamps[7] + 9)) == {}
    assert references.known("another") == {}


def test_options_that_do_not_fit_are_problems_not_crashes():
    assert FORMAT.check(OPTIONS, SCHEMA) == []
    assert "no column matches 'radar'" in FORMAT.check(TableOptions(index=["radar"]), SCHEMA)[0]
    assert "stores small values only" in FORMAT.check(TableOptions(index=["image"]), SCHEMA)[0]
    assert "there are lz4 and zstd" in FORMAT.check(TableOptions(compress="gzip"), SCHEMA)[0]
    assert FORMAT.check_log(OPTIONS, "../any", "x.bag") == []
    few = TableOptions(columns=["vector", "n.*"])
    assert set(few.plan(SCHEMA).schema.columns) == {
        "vector",
        *(n for n in SCHEMA.columns if n.startswith("n.")),
    }
    with pytest.raises(UsageError):
        TableOptions(columns=["nothing"]).plan(SCHEMA)
