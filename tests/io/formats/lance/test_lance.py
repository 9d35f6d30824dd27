"""The output `lance`: names, images, what has no place, and tables that Lance itself changed."""

import os
import subprocess
import sys

import apache_beam as beam
import lance
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to

from logloom.blocks import Ragged
from logloom.digests import digests_of_rows
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.interface import StagedUnit, UnitContext
from logloom.io.formats.lance import ReadFromLance, pylance
from logloom.io.formats.lance.format import FORMAT
from logloom.io.formats.lance.manifest import MANIFEST, manifest_name, newest
from logloom.io.rows.chain import UnitsSource
from logloom.io.rows.inference.source import SurveyedSource
from logloom.io.storage.store import Store
from logloom.schema import BYTES, STRING, ColumnType, Schema
from logloom.testing.rows import SCHEMA, STRUCT, random_block

IMAGES = {"camera.front": "jpg"}
FLOAT = ColumnType(np.dtype("<f8"))


def write(folder, blocks, schema=SCHEMA, **options):
    """Writes blocks as a table of a data file each."""
    chosen, units = FORMAT.Options(**options), []
    (folder / "data").mkdir(parents=True)
    for number, block in enumerate(blocks):
        context = UnitContext(block.log_id, "a.mcap", f"p{number}", "all")
        writer = FORMAT.writer(folder / "data", schema, chosen, context)
        writer.append(block)
        unit = writer.close()
        place = block.log_id, "a.mcap", "all", f"p{number}", "data"
        units.append(StagedUnit(*place, len(block), unit, {}))
    store = Store.at(str(folder))
    plan = FORMAT.plan_assembly(store, units, schema, chosen, None)
    for task in plan.tasks:
        store.create(*FORMAT.make_chunk(store, task))
    return plan


@pytest.fixture
def table(tmp_path):
    """A table of two data files, and its blocks."""
    blocks = [random_block(SCHEMA, 5, 0), random_block(SCHEMA, 4, 1)]
    write(tmp_path / "table", blocks, images=IMAGES)
    return tmp_path / "table", blocks


def test_a_pipeline_reads_the_rows_of_a_table(table):
    folder, blocks = table
    reading = ReadFromLance(folder, columns=["speed", "note"])
    assert list(reading.schema.columns) == ["speed", "note"]
    expected = [(block.log_id, block.timestamp.tolist()) for block in blocks]
    with beam.Pipeline("FnApiRunner") as pipeline:
        read = pipeline | reading | beam.Map(lambda block: (block.log_id, block.timestamp.tolist()))
        assert_that(read, equal_to(expected))


def test_dots_are_written_as_two_underscores_and_come_back(table):
    folder, blocks = table
    found = lance.dataset(str(folder))
    assert found.schema.names[:5] == [
        "log_id",
        "timestamp",
        "camera__front",
        "lidar__points",
        "ego__position",
    ]
    assert "camera__front__available" in found.schema.names
    assert found.schema.field("speed").metadata == {b"unit": b"m s-1", b"description": b"of the rear axle"}
    features = b'{"info": {"features": {"camera__front": {"_type": "Image"}}}}'
    assert found.schema.metadata[b"huggingface"] == features
    assert found.count_rows("speed__available = true") == sum(
        b.columns["speed.available"].sum() for b in blocks
    )
    rows = open_foreign(str(folder))
    assert isinstance(rows, UnitsSource)
    assert rows.schema == SCHEMA
    assert digests_of_rows(rows.blocks(), SCHEMA) == digests_of_rows(blocks, SCHEMA)


def test_a_manifest_holds_no_time_and_names_the_data_files_in_row_order(table):
    folder, blocks = table
    found = lance.dataset(str(folder))
    assert (found.version, found.data_storage_version) == (1, "2.1")
    (version,) = found.versions()
    assert version["timestamp"].timestamp() == 0
    fragments = found.get_fragments()
    assert [fragment.count_rows() for fragment in fragments] == [len(block) for block in blocks]
    named = {fragment.metadata.files[0].path for fragment in fragments}
    assert named == {path.name for path in (folder / "data").iterdir()}
    stamps = np.concatenate([block.timestamp for block in blocks])
    assert found.to_table(columns=["timestamp"])["timestamp"].to_pylist() == stamps.tolist()


def test_a_table_that_lance_appended_to_and_deleted_from_opens_with_what_is_left(table):
    folder, blocks = table
    changed = lance.dataset(str(folder))
    extra = changed.to_table(limit=3)
    lance.write_dataset(extra, str(folder), mode="append")
    rows = open_foreign(str(folder))
    assert isinstance(rows, UnitsSource)
    assert len(rows) == 12
    expected = [*(stamp for block in blocks for stamp in block.timestamp), *blocks[0].timestamp[:3]]
    found = np.concatenate([block.timestamp for block in rows.blocks()])
    assert found.tolist() == [int(stamp) for stamp in expected]
    lance.dataset(str(folder)).delete(f"timestamp = {int(blocks[1].timestamp[0])}")
    left = open_foreign(str(folder), columns=["speed", "ego__position"])  # as anybody's: it is read once
    assert isinstance(left, SurveyedSource)
    assert len(left) == 11
    speeds = lance.dataset(str(folder)).to_table(columns=["speed"])["speed"].to_numpy()
    for positions in [[10, 0, 3, 9, 3], [4], [5], [6], range(11)]:
        assert np.array_equal(left.take(np.array(positions), ["speed"])["speed"], speeds[positions])


def test_a_table_has_the_same_rows_where_damage_is_skipped_and_damaged_files_are_left_out(tmp_path):
    folder, blocks = tmp_path / "table", [random_block(SCHEMA, 5, n, log) for n, log in enumerate("ab")]
    write(folder, blocks, images=IMAGES)
    source = open_foreign(str(folder), on_error="skip")
    assert (source.schema, source.has_stamps) == (SCHEMA, True)
    assert digests_of_rows(source.blocks(), SCHEMA) == digests_of_rows(blocks, SCHEMA)
    first, _ = lance.dataset(str(folder)).get_fragments()
    (file,) = first.metadata.files
    path = folder / "data" / file.path
    path.write_bytes(path.read_bytes()[:100])
    for _ in ("damaged", "gone"):
        left = open_foreign(str(folder), on_error="skip")
        assert digests_of_rows(left.blocks(), SCHEMA) == digests_of_rows(blocks[1:], SCHEMA)
        (lost,) = [log.record for log in left.logs() if log.record.status == "skipped"]
        assert file.path in lost.reasons[0]
        path.unlink(missing_ok=True)


def swapped(folder):
    """Gives column x of a table the name y, and y the name x."""
    for name, other in (("x", "t"), ("y", "x"), ("t", "y")):
        lance.dataset(str(folder)).alter_columns({"path": name, "name": other})


def column(rows, name):
    return np.concatenate([block.columns[name] for block in rows.blocks()])


def test_columns_that_lance_renamed_are_read_by_the_names_that_it_gives_them(tmp_path):
    folder, schema = tmp_path / "table", Schema({"x": FLOAT, "y": FLOAT})
    block = random_block(schema, 3, 0)
    write(folder, [block], schema)
    swapped(folder)
    rows = open_foreign(str(folder))
    assert isinstance(rows, SurveyedSource)
    np.testing.assert_array_equal(column(rows, "x"), block.columns["y"])
    swapped(folder)
    np.testing.assert_array_equal(column(open_foreign(str(folder)), "x"), block.columns["x"])


def test_files_of_other_columns_than_their_table_has_now_give_no_wrong_rows(tmp_path):
    folder, schema = tmp_path / "table", Schema({"x": FLOAT, "y": FLOAT})
    write(folder, [random_block(schema, 3, 0)], schema)
    swapped(folder)
    table = lance.dataset(str(folder)).to_table()
    lance.write_dataset(table.select(["log_id", "timestamp", "y", "x"]), str(folder), mode="append")
    swapped(folder)  # the second file still has y before x
    with pytest.raises(DatasetError, match=r"\.lance: its columns were renamed"):
        list(open_foreign(str(folder)).blocks())


def test_columns_of_an_appended_file_may_stand_in_another_order(tmp_path):
    folder, schema = tmp_path / "table", Schema({"x": FLOAT, "y": FLOAT})
    block = random_block(schema, 3, 0)
    write(folder, [block], schema)
    table = lance.dataset(str(folder)).to_table()
    lance.write_dataset(table.select(["y", "log_id", "x", "timestamp"]), str(folder), mode="append")
    rows = open_foreign(str(folder))
    assert isinstance(rows, UnitsSource)
    np.testing.assert_array_equal(column(rows, "x"), np.tile(block.columns["x"], 2))


def test_an_image_that_is_not_there_is_null(tmp_path):
    block = random_block(Schema({"camera.front": BYTES}), 2, 0)
    block.columns["camera.front"] = Ragged.from_bytes([b"", b"\xff\xd8jpg"])
    write(tmp_path / "table", [block], Schema({"camera.front": BYTES}), images=IMAGES)
    column = lance.dataset(str(tmp_path / "table")).to_table()["camera__front"]
    assert column.to_pylist() == [None, {"bytes": b"\xff\xd8jpg", "path": None}]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a.b": FLOAT, "a__b": FLOAT}, "columns a.b and a__b: both would be a__b"),
        ({"_rowid": FLOAT}, "column _rowid: Lance keeps names that begin with _"),
        ({"poses": ColumnType(STRUCT, (2,))}, "column poses: Lance has no place for lists of fixed length"),
        ({"z": ColumnType(np.dtype("<c8"), (3,))}, "column z: Lance has no place for lists of fixed length"),
        ({"odd": ColumnType(np.dtype([("x.y", "<f4")]))}, "the field 'x.y', which has a dot"),
    ],
)
def test_what_lance_has_no_place_for_is_one_line(columns, words):
    (problem,) = FORMAT.check(FORMAT.Options(), Schema(columns))
    assert words in problem


def test_pixels_of_any_shape_are_images_and_no_lists(tmp_path):
    schema = Schema({"depth": ColumnType(np.dtype("<u2"), (2, 3, 1))})
    block = random_block(schema, 4, 0)
    write(tmp_path / "table", [block], schema, images={"depth": "png"})
    rows = open_foreign(str(tmp_path / "table"))
    assert digests_of_rows(rows.blocks(), schema) == digests_of_rows([block], schema)


def test_the_newest_manifest_is_found_in_either_way_of_naming_them():
    assert (
        newest([manifest_name(1).partition("/")[2], manifest_name(12).partition("/")[2]])
        == (manifest_name(12).partition("/")[2])
    )
    assert newest(["9.manifest", "10.manifest", "latest_version_hint.json"]) == "10.manifest"
    assert newest(["latest_version_hint.json"]) is None


def test_a_damaged_or_missing_manifest_is_an_error_that_names_it(table):
    folder, _ = table
    path = folder / MANIFEST
    whole = path.read_bytes()
    for damaged in (b"", whole[:100], whole[:-1] + b"X", bytes(len(whole))):
        path.write_bytes(damaged)
        with pytest.raises(DatasetError, match=str(path)):
            open_foreign(str(folder))
    path.unlink()
    with pytest.raises(UsageError, match="neither a version of logloom nor"):
        open_foreign(str(folder))


def test_a_panic_of_the_library_is_an_error_and_other_exits_are_not():
    panic = type("PanicException", (BaseException,), {})
    with (
        pytest.raises(DatasetError, match=r"here: no Lance data, or damaged \(odd\)"),
        pylance.damage("here"),
    ):
        raise panic("odd")
    with pytest.raises(KeyboardInterrupt), pylance.damage("here"):
        raise KeyboardInterrupt


def test_a_text_that_is_no_utf_8_is_an_error_that_names_log_and_column(tmp_path):
    schema = Schema({"note": STRING})
    block = random_block(schema, 1, 0)
    block.columns["note"] = Ragged.from_bytes([b"\xff"])
    with pytest.raises(UsageError, match=r"column note, rows .*UTF-?8"):
        write(tmp_path / "table", [block], schema)


def test_the_library_is_imported_on_use_and_its_absence_names_the_extra():
    program = (
        "import sys; sys.modules['lance'] = None\n"
        "import logloom.datasets, logloom.io.formats.lance\n"
        "from logloom.io.formats.foreign import kinds; kinds()\n"
        "from logloom.io.formats.lance.pylance import lance\n"
        "lance()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ)
    assert done.stderr.splitlines()[-1].endswith("pip install 'logloom[lance]'")
