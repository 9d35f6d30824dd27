"""Lance tables as outputs of builds: versions share data files, and each is one table."""

import pathlib

import lance
import numpy as np
import pytest

import logloom.datasets
from logloom.errors import PurgedError
from logloom.io.formats.lance.manifest import MANIFEST
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.pipelines.conftest import build_at, digests

OUTPUTS = """
outputs: {lance: {images: {camera.front: jpg}}}
partition: {rows: 20}
"""


def recipe_of(drive, logs=None):
    text = drive.text[: drive.text.index("\noutputs:")] + OUTPUTS
    return Recipe.from_yaml(text.replace("*.mcap", logs or "*.mcap"))


@pytest.fixture(scope="module")
def made(drive, tmp_path_factory):
    """A version of one log, and one of both."""
    root = tmp_path_factory.mktemp("lance") / "root"
    first = build_at(recipe_of(drive, drive.logs[0].name), root)
    return root, first, build_at(recipe_of(drive), root)


def table_of(built):
    return pathlib.Path(built.view) / "lance" / "all"


def test_a_version_takes_over_the_data_files_of_the_one_before(made):
    _, first, second = made
    old, new = (
        {path.name: path.stat().st_ino for path in (table_of(one) / "data").iterdir()} for one in made[1:]
    )
    assert old.items() < new.items()
    rows = [lance.dataset(str(table_of(one))).count_rows() for one in (first, second)]
    assert rows == [one.manifest.totals["rows"] for one in (first, second)]
    assert rows[0] < rows[1]


def test_the_table_of_a_view_holds_the_rows_that_the_root_gives(made):
    root, _, built = made
    rows = logloom.datasets.open(str(root))
    found = lance.dataset(str(table_of(built)))
    speeds = found.to_table(columns=["ego__speed"])["ego__speed"].to_numpy()
    np.testing.assert_array_equal(speeds, [rows[number]["ego.speed"] for number in range(len(rows))])
    position = len(rows) - 1
    (row,) = found.take([position]).to_pylist()
    own = rows[position]
    assert (row["log_id"], row["timestamp"]) == (own["log_id"], own["timestamp"])
    assert row["camera__front"]["bytes"] == own["camera.front"]
    fast = logloom.datasets.open(str(root), where="`ego.speed` > 1", columns=["ego.speed"])
    assert len(fast) == found.count_rows("ego__speed > 1") > 0


def test_a_second_root_has_the_same_bytes(made, drive, tmp_path):
    root, _, _ = made
    build_at(recipe_of(drive, drive.logs[0].name), tmp_path / "root")
    build_at(recipe_of(drive), tmp_path / "root")
    assert digests(tmp_path / "root") == digests(root)


def test_a_manifest_that_was_lost_or_changed_is_told_and_made_again(made, drive, tmp_path):
    root = tmp_path / "root"
    build_at(recipe_of(drive, drive.logs[0].name), root)
    assert verify(str(root), against_logs=True, num_workers=1).findings == ()
    (path,) = root.glob(f"parts/lance/**/{MANIFEST}")
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole.replace(b".lance", b".Lance", 1))
    assert any(path.name in finding.message for finding in verify(str(root), num_workers=1).findings)
    repair(str(root))
    assert path.read_bytes() == whole
    assert verify(str(root), num_workers=1).findings == ()


def test_a_purged_log_leaves_no_table_that_holds_it_and_the_data_files_of_others(drive, tmp_path):
    root = tmp_path / "root"
    built = build_at(recipe_of(drive), root)
    gone, *others = [record.log_id for record in built.manifest.logs]
    done = purge(str(root), [gone])
    assert done.is_proven, done.left
    assert not (root / "v00000001").exists()
    assert not list(root.rglob(MANIFEST.rpartition("/")[2]))
    with pytest.raises(PurgedError):
        logloom.datasets.open(root, version=1)[0]
    again = build_at(recipe_of(drive), root)
    table = lance.dataset(str(table_of(again)))
    assert (again.built, set(table.to_table(columns=["log_id"])["log_id"].to_pylist())) == (0, {*others})
    assert table.count_rows() == again.manifest.totals["rows"]
    assert verify(str(root), num_workers=1).is_proven
