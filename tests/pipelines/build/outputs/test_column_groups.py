"""Column groups of a table that pipelines build: what a later version with other columns keeps."""

import dataclasses
import pathlib
import shutil

import numpy as np
import pytest

import logloom.io.formats.table as tt
from logloom.io.catalog.manifest import entries_of, open_root
from logloom.io.storage.store import Store
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.transforms.build.unit_checks import entry_problems
from tests.pipelines.conftest import build_at, digests

PEAK = "  ego.peak: {topic: /odom, field: twist.twist.linear.x, resample: max, window: [-500ms, 0ms]}\n"


COLUMNS = """\
  ego.position: {topic: /odom, field: pose.pose.position, resample: linear}
  ego.speed: {topic: /odom, field: twist.twist.linear.x, resample: mean, window: [-500ms, 0ms]}
  camera.front: {topic: /cam/front/compressed, field: data, resample: nearest, tolerance: 50ms}
  lidar.points: {topic: /lidar/top, as: "points[x,y,z,intensity]", resample: nearest, tolerance: 60ms}
"""
ROWS = "{require: [ego.position, camera.front, lidar.points]}"


def recipe_of(drive, table: str, columns: str = "", rows: str = ROWS) -> Recipe:
    head = drive.text[: drive.text.index("columns:")]
    text = f"{head}columns:\n{columns}{COLUMNS}rows: {rows}\n"
    return Recipe.from_yaml(f"{text}outputs:\n  table: {table}\npartition: {{rows: 20}}\n")


def blobs(root: pathlib.Path) -> dict[pathlib.Path, tuple[int, int]]:
    """Every blob in the root, and what changes when one is written again: inode and time of writing."""
    found = root.glob("parts/table/*/*/*.blob")
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def groups_of(paths) -> set[str]:
    return {path.name.rpartition("!")[2].removesuffix(".blob") for path in paths}


def rows_of(root: pathlib.Path, version: int):
    view = root / f"v{version:08d}" / "table" / "all"
    return tt.row_loader(tt.read_index(str(view)), check=True)


@pytest.fixture(scope="module")
def first(drive, root_of) -> pathlib.Path:
    """A version with one table; tests build on a copy."""
    return root_of(recipe_of(drive, "{index: [ego.speed]}"))


@pytest.fixture
def root(first, tmp_path) -> pathlib.Path:
    shutil.copytree(first, tmp_path / "root")
    return tmp_path / "root"


def test_a_column_in_a_new_group_leaves_the_blobs_of_all_others_untouched(drive, root):
    before = blobs(root)
    build_at(recipe_of(drive, "{index: [ego.speed], groups: {peak: [ego.peak]}}", columns=PEAK), root)
    after = blobs(root)
    assert {path: after[path] for path in before} == before
    assert groups_of(after.keys() - before.keys()) == {"peak", "meta"}  # ages of all columns lie together
    assert verify(str(root), against_logs=True, num_workers=1).findings == ()
    for row, old in zip(rows_of(root, 2), rows_of(root, 1), strict=True):
        assert row["ego.peak"] >= row["ego.speed"]
        assert row["camera.front"] == old["camera.front"]
        np.testing.assert_array_equal(row["lidar.points"], old["lidar.points"])


def test_entries_of_groups_that_a_damaged_record_describes_differ_from_the_stored_ones(first):
    store, manifest = open_root(Store.at(str(first)))
    entry = next(entry for _, entry in entries_of(store, manifest.logs) if entry.rows)
    assert list(entry_problems(store, entry)) == []
    (group, own), *_ = entry.unit["portions"].items()
    for portions in (None, 7, [], {"a": None}, {group: {}}, {group: own | {"identity": []}}):
        damaged = dataclasses.replace(entry, unit=entry.unit | {"portions": portions})
        assert any("another unit" in problem for problem in entry_problems(store, damaged))


def test_the_version_says_in_which_folders_its_blobs_lie(drive, root):
    build_at(recipe_of(drive, "{groups: {peak: [ego.peak]}}", columns=PEAK), root)
    store, manifest = open_root(Store.at(str(root)))
    for _, entry in entries_of(store, manifest.logs):
        paths = [store.path_of(entry.path_of(file)) for file in entry.files]
        assert all(path.is_file() for path in paths)
        # the latter has its entry, at least
        holding = {path.parent for path in paths} | {store.path_of(entry.folder)}
        assert holding == {store.path_of(folder) for folder in entry.folders}


def test_another_index_and_fewer_columns_write_no_blob(drive, root):
    before = blobs(root)
    built = build_at(
        recipe_of(drive, "{index: [ego.position], columns: ['*', '*.age', '*.available']}"), root
    )
    assert blobs(root) == before
    assert "ego.position.0" in tt.read_index(f"{built.view}/table/all").columns
    build_at(recipe_of(drive, "{columns: [camera.front, lidar.points]}"), root)
    assert blobs(root).items() >= before.items()
    assert groups_of(blobs(root).keys() - before.keys()) <= {"meta"}
    assert set(rows_of(root, 3).schema.columns) == {"camera.front", "lidar.points"}
    assert verify(str(root), num_workers=1).findings == ()


def test_what_chooses_rows_or_changes_a_column_makes_new_blobs(drive, root):
    before = blobs(root)
    usual = np.median([row["ego.speed"] for row in rows_of(root, 1)])
    chosen = f"{{require: [camera.front, lidar.points], where: 'ego.speed > {usual}'}}"
    build_at(recipe_of(drive, "{}", rows=chosen), root)
    made = groups_of(blobs(root).keys() - before.keys())
    assert made == groups_of(before)
    assert len(rows_of(root, 2)) < len(rows_of(root, 1))


def test_a_version_with_kept_groups_holds_the_bytes_of_one_built_at_once(drive, root, tmp_path):
    recipe = recipe_of(drive, "{index: [ego.speed], groups: {peak: [ego.peak]}}", columns=PEAK)
    build_at(recipe, root)
    build_at(recipe, tmp_path / "once")
    view, other = root / "v00000002", tmp_path / "once" / "v00000001"
    assert digests(view) == digests(other)


def test_a_build_that_was_cut_off_between_groups_keeps_the_finished_ones(drive, root):
    store, manifest = open_root(Store.at(str(root)))
    entry = next(entry for _, entry in entries_of(store, manifest.logs) if entry.rows)
    before = digests(root)
    lost = next(file for file in entry.files if file.name.endswith("lidar.points.blob"))
    shutil.rmtree(store.path_of(entry.folder))
    shutil.rmtree(store.path_of(entry.path_of(lost)).parent)
    shutil.rmtree(root / "versions")
    shutil.rmtree(root / "v00000001")
    kept = blobs(root)
    build_at(recipe_of(drive, "{index: [ego.speed]}"), root)
    assert {path: blobs(root)[path] for path in kept} == kept
    assert digests(root) == before
