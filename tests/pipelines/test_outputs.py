"""One recipe, all formats: they hold the same rows, and open as plain datasets of their kind."""

import pathlib

import numpy as np
import pytest

import logloom.io.bags as bags
import logloom.io.tables as tt
from logloom.io.manifest import entries_of, read_manifest
from logloom.io.storage import Store
from logloom.io.tar import TarReader
from logloom.pipelines.verify import reading_of, verify
from logloom.recipe import Recipe
from tests.pipelines.conftest import build_at
from tests.pipelines.test_real_logs import example

OUTPUTS = "\n  bags: {types: {camera.front: jpg}}\n  table: {index: [ego.speed]}\n  zarr: {}\n"


@pytest.fixture(scope="module")
def every(drive, tmp_path_factory):
    """A version of the demo in every format that keeps columns as they are."""
    root = tmp_path_factory.mktemp("every") / "root"
    text = drive.text.replace("\npartition:", f"{OUTPUTS}\npartition:")
    built = build_at(Recipe.from_yaml(text), root)
    return root, pathlib.Path(built.view)


def test_all_formats_agree_in_the_digest_of_every_column(every):
    root, _ = every
    store = Store.at(str(root))
    manifest = read_manifest(store)
    reading = reading_of(store, manifest)
    of_partition = {}
    for _, entry in entries_of(store, manifest.logs):
        if entry.output != "l5kit" and entry.rows:
            digests = {c: entry.columns[c] for c in reading.schema.all}
            of_partition.setdefault((entry.log_id, entry.partition), {})[entry.output] = digests
    for found in of_partition.values():
        assert set(found) == {"bags", "table", "tar", "zarr"}
        assert found["bags"] == found["table"] == found["tar"] == found["zarr"]


def test_every_format_verifies_against_the_logs(every):
    report = verify(str(every[0]), against_logs=True, num_workers=1)
    assert report.findings == ()


def test_the_view_opens_as_a_table_a_bag_dataset_and_tar_shards_with_equal_rows(every):
    root, view = every
    schema = reading_of(Store.at(str(root)), read_manifest(Store.at(str(root)))).schema
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
    blobs = sum(path.stat().st_size for path in (tmp_path / "root").glob("parts/table/*/*.blob"))
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
