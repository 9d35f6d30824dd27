"""One recipe, all formats: they hold the same rows, and open as plain datasets of their kind."""

import dataclasses
import pathlib
import pickle
import shutil

import numpy as np
import pytest

import logloom.io.formats.bags as bags
import logloom.io.formats.table as tt
from logloom.digests import RowsDigest
from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.manifest import entries_of, open_root
from logloom.io.formats.tar import TarReader
from logloom.io.storage.store import Store
from logloom.pipelines.verify.verify import reading_of, verify
from logloom.recipe import Recipe
from tests.absent import outputs_present, present
from tests.pipelines.conftest import build_at, with_outputs
from tests.pipelines.nights.test_real_logs import example

LOG = "drive-01"
OUTPUTS = outputs_present("""
  bags: {types: {camera.front: jpg}}
  table: {index: [ego.speed]}
  zarr: {}
  parquet: {images: {camera.front: jpg}}
  lance: {images: {camera.front: jpg}}
""")


@pytest.fixture(scope="module")
def every(drive, root_of):
    """A version of the demo in every format that keeps columns as they are."""
    root = root_of(Recipe.from_yaml(with_outputs(drive.text, OUTPUTS)))
    return root, root / "v00000001"


def test_all_formats_agree_in_the_digest_of_every_column(every):
    root, _ = every
    store, manifest = open_root(Store.at(str(root)))
    reading = reading_of(store, manifest)
    of_partition = {}
    for _, entry in entries_of(store, manifest.logs):
        if entry.output != "l5kit" and entry.rows:
            digests = RowsDigest(reading.schema)
            for block in reading.open(entry).blocks():
                digests.update(block)
            found = of_partition.setdefault((entry.log_id, entry.partition), {})
            found[entry.output] = digests.hexdigests()
    assert len(of_partition) > 2
    for found in of_partition.values():
        assert set(found) == set(present("bags", "lance", "parquet", "table", "tar", "zarr"))
        first, *others = found.values()
        assert all(columns == first for columns in others)


def test_a_unit_with_other_rows_than_its_entry_is_refused_when_it_is_opened(every):
    store, manifest = open_root(Store.at(str(every[0])))
    reading = reading_of(store, manifest)
    entries = {entry.output: entry for _, entry in entries_of(store, manifest.logs) if entry.rows}
    assert {*entries} == {*present("bags", "lance", "parquet", "table", "tar", "zarr", "l5kit")}
    for entry in entries.values():
        message = f"{entry.identity}: {entry.rows} rows, its entry has {entry.rows + 1}; "
        message += f"`logloom repair {every[0]}` builds it again"
        with pytest.raises(DatasetError, match=message):
            reading.open(dataclasses.replace(entry, rows=entry.rows + 1))


def test_every_format_verifies_against_the_logs(every):
    report = verify(str(every[0]), against_logs=True, num_workers=1)
    assert report.findings == ()


def test_the_view_opens_as_a_table_a_bag_dataset_and_tar_shards_with_equal_rows(every):
    root, view = every
    schema = reading_of(*open_root(Store.at(str(root)))).schema
    tar = TarReader(sorted(map(str, view.glob("tar/all/*.tar"))), schema)
    index = tt.read_index(f"{view}/table/all")
    loader = tt.row_loader(index)
    assert len(tar) == len(loader) == len(index)
    with bags.ShardedDatasetReader(f"{view}/bags/all", bags.decoders) as bag:
        assert len(bag) == len(tar)
        for number in (0, 7, len(tar) - 1):
            row, other, third = tar[number], loader.get_row(number), bag[number]
            assert row["timestamp"] == other["timestamp"] == third["timestamp"]
            for column in ("ego.position", "lidar.points", "imu"):
                np.testing.assert_array_equal(row[column], other[column])
                np.testing.assert_array_equal(row[column], third[column])
            assert row["camera.front"] == other["camera.front"]
    moving = index[index["ego.speed"] > float(index["ego.speed"].median())]
    assert tt.row_loader(moving).get_row(0)["ego.speed"] == moving["ego.speed"].iloc[0]


def test_windows_of_a_built_table_cross_partitions_but_not_logs(every):
    _, view = every
    index = tt.read_index(f"{view}/table/all")
    loader = tt.row_loader(index)
    window = loader.get_rows(12, columns=["ego.speed"], offsets=range(-3, 1), on_edge="drop")
    assert [row["log_id"] for row in window] == [window[0]["log_id"]] * len(window)
    stamps = [int(row["timestamp"]) for row in window]
    assert stamps == sorted(stamps)


def test_a_table_that_refers_to_an_earlier_one_stores_only_what_changed(every, drive, tmp_path):
    _, view = every
    reference = f"{view}/table/all"
    table = f"table: {{index: [ego.speed], reference: '{reference}'}}"
    text = drive.text[: drive.text.index("\noutputs:")] + f"\noutputs:\n  {table}\npartition: {{rows: 10}}\n"
    built = build_at(Recipe.from_yaml(text), tmp_path / "root")
    blobs = sum(path.stat().st_size for path in (tmp_path / "root").glob("parts/table/*/*/*.blob"))
    stored = sum(path.stat().st_size for path in pathlib.Path(reference).rglob("*.blob"))
    assert stored > 100_000
    assert blobs < stored // 50
    assert verify(str(tmp_path / "root"), num_workers=1).findings == ()
    rows = tt.row_loader(tt.read_index(f"{built.view}/table/all"))
    np.testing.assert_array_equal(
        rows.get_row(3)["lidar.points"], tt.row_loader(tt.read_index(reference)).get_row(3)["lidar.points"]
    )


def test_a_real_log_builds_to_a_table_and_bags_that_verify(shared_data, tmp_path):
    recipe = example(
        "tilt_laser",
        shared_data / "logs" / "tilt_laser.bag",
        outputs={"table": {"index": ["position", "velocity"]}, "bags": {}},
        partition={"rows": 50},
    )
    built = build_at(recipe, tmp_path / "root")
    assert verify(str(tmp_path / "root"), against_logs=True, num_workers=1).findings == ()
    index = tt.read_index(f"{built.view}/table/all")
    assert len(index) == built.manifest.totals["rows"]
    assert "position.0" in index.columns


def without_view(root, tmp_path):
    """A copy of a version as an object store has it: its files lie where they were built."""
    shutil.copytree(root, tmp_path / "root", ignore=shutil.ignore_patterns("v0*"))
    return tmp_path / "root"


@pytest.fixture(scope="module")
def bare(every, tmp_path_factory):
    return without_view(every[0], tmp_path_factory.mktemp("bare"))


@pytest.mark.parametrize(
    "place", ["", "@1", "@latest", "/v00000001", "/v00000001/table", "/v00000001/table/all"]
)
def test_a_built_table_opens_by_its_root_with_or_without_a_view(every, bare, place):
    root, view = every
    index = tt.read_index(f"{view}/table/all")
    assert tt.read_index(f"{root}{place}").equals(index)
    found = tt.read_index(f"{bare}{place}", where="`ego.speed` >= 0", logs=[LOG])
    seen = index[(index["ego.speed"] >= 0) & (index.log_id == LOG)]
    loader = pickle.loads(pickle.dumps(tt.row_loader(found, check=True)))
    expected = tt.row_loader(seen)
    assert len(loader) == len(seen) > 10
    for position in (0, 7, len(seen) - 1):
        for one, row in zip(
            loader.get_rows(position, ".*", range(-15, 5), on_edge="drop"),
            expected.get_rows(position, ".*", range(-15, 5), on_edge="drop"),
            strict=True,
        ):
            assert list(one) == list(row)
            assert all(np.array_equal(one[name], row[name]) for name in row)


def test_a_table_without_a_view_is_verified_and_its_parts_are_named(every, tmp_path):
    root = without_view(every[0], tmp_path)
    assert tt.verify(str(root)) == []
    blob = min(root.glob("parts/table/*/*/*!lidar.points.blob"))
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes()[:-10])
    part = blob.name.partition("!")[0]
    (line,) = tt.verify(f"{root}@1")
    assert line.startswith(
        f"{root}/v00000001/table/all: part {part}, group lidar.points (lidar.points), row "
    )
    index = tt.read_index(str(root))
    last = int(np.flatnonzero(index["__0.lidar.points.blob"] == str(blob))[-1])
    with pytest.raises(DatasetError, match=rf"part {part}, group lidar\.points.*cut short"):
        tt.row_loader(index).get_row(last)


def test_a_table_without_a_view_serves_as_reference(every, drive, tmp_path):
    root = without_view(every[0], tmp_path)
    table = f"table: {{index: [ego.speed], reference: '{root}@1'}}"
    text = drive.text[: drive.text.index("\noutputs:")] + f"\noutputs:\n  {table}\npartition: {{rows: 10}}\n"
    built = build_at(Recipe.from_yaml(text), tmp_path / "new")
    assert sum(path.stat().st_size for path in (tmp_path / "new").glob("parts/table/*/*/*.blob")) < 10_000
    assert tt.verify(built.view + "/table/all") == []
    assert list((root / "referenced-by").iterdir())
    build_at(drive.recipe(), root)  # the note doesn't make it a folder of somebody else's


def test_what_a_version_has_no_table_of_is_said(every, built, drive, tmp_path):
    with pytest.raises(
        UsageError, match=r"@1: this version has no table \(it has \w.*logloom convert .*table"
    ):
        tt.read_index(str(built))
    with pytest.raises(UsageError, match="no version '7'; there is only 1"):
        tt.read_index(f"{every[0]}@7")
    with pytest.raises(UsageError, match="no split 'train' of its table; there is only all"):
        tt.read_index(f"{every[0]}/v00000001/table/train")
    with pytest.raises(
        DatasetError, match=r"no table here .*Give the folder that write_table wrote; .*ROOT@VERSION"
    ):
        tt.read_index(str(tmp_path))
    text = drive.text[: drive.text.index("\noutputs:")]
    text += "\noutputs: {table: {}}\nsplit: {train: 0.2, val: 0.8, by: log_id}\n"
    build_at(Recipe.from_yaml(text), tmp_path / "root")
    splits = sorted(path.name for path in (tmp_path / "root/v00000001/table").iterdir())
    assert splits == ["train", "val"]
    with pytest.raises(UsageError, match=r"a table for each split; read one of .*/table/train, .*/table/val"):
        tt.read_index(str(tmp_path / "root"))
    shutil.rmtree(tmp_path / "root/v00000001")
    for split in splits:
        assert len(tt.read_index(str(tmp_path / "root/v00000001/table" / split))) > 10
