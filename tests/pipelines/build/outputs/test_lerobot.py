"""LeRobot datasets as outputs of builds and conversions."""

import json
import pathlib
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

import logloom.datasets
from logloom.errors import RecipeError, UsageError
from logloom.io.formats.lerobot import LeRobotReader
from logloom.io.formats.lerobot import format as form
from logloom.pipelines.convert.convert import convert
from logloom.pipelines.convert.plan import plan_convert
from logloom.pipelines.convert.sources import open_source
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.pipelines.conftest import build_at

OUTPUTS = """
outputs:
  lerobot:
    fps: 10
    task: follow the road
    features:
      observation.state: [ego.speed, ego.position]
      action: [ego.speed]
      observation.images.front: camera.front
  tar: {ext: {camera.front: jpg}}
partition: {rows: 7}
"""


def recipe_of(drive, outputs=OUTPUTS):
    return Recipe.from_yaml(drive.text[: drive.text.index("\noutputs:")] + outputs)


@pytest.fixture(scope="module")
def made(drive, tmp_path_factory):
    """A version with LeRobot's dataset beside tar shards."""
    root = tmp_path_factory.mktemp("lerobot") / "root"
    return root, build_at(recipe_of(drive), root)


def test_a_build_writes_a_dataset_whose_rows_are_those_of_its_other_outputs(made):
    root, built = made
    assert verify(str(root), against_logs=True, num_workers=1).findings == ()
    rows = logloom.datasets.open(str(root), output="lerobot")
    others = logloom.datasets.open(str(root), output="tar")
    assert len(rows) == len(others) == built.manifest.totals["rows"] > 20
    for number in (0, 1, 15, len(rows) - 1):
        row, other = rows[number], others[number]
        assert (row["log_id"], row["timestamp"]) == (other["log_id"], other["timestamp"])
        expected = np.concatenate([[other["ego.speed"]], other["ego.position"]])
        np.testing.assert_array_equal(row["observation.state"], expected)
        assert row["observation.images.front"] == other["camera.front"]
        assert row["task"] == "follow the road"
    folder = pathlib.Path(built.view) / "lerobot/all"
    info = json.loads((folder / "meta/info.json").read_text())
    assert info["total_frames"] == len(rows)
    plain = LeRobotReader(str(folder))
    assert plain.stamps.tolist() == [rows[number]["timestamp"] for number in range(len(rows))]


def test_partitions_make_no_difference_to_the_dataset(made, drive, tmp_path):
    _, built = made
    folder = pathlib.Path(built.view) / "lerobot/all"
    text = OUTPUTS.replace("rows: 7", "rows: 1000")
    other = build_at(recipe_of(drive, text), tmp_path / "root")
    again = pathlib.Path(other.view) / "lerobot/all"
    assert files_of(again, "meta") == files_of(folder, "meta")
    names = sorted(path.relative_to(folder) for path in folder.glob("data/*/*"))
    assert names == sorted(path.relative_to(again) for path in again.glob("data/*/*"))
    for name in names:
        assert pq.read_table(folder / name).equals(pq.read_table(again / name))


def files_of(folder, below):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted((folder / below).rglob("*"))
        if path.is_file()
    }


def test_a_clock_of_another_rate_than_fps_is_a_mistake_of_the_recipes_line(made, drive, tmp_path):
    text = drive.text[: drive.text.index("\noutputs:")] + OUTPUTS.replace("fps: 10", "fps: 20")
    recipe, line = Recipe.from_yaml(text), 1 + text.splitlines().index("    fps: 20")
    what = "outputs.lerobot.fps: 20 is a frame each 50 ms, the clock ticks each 100 ms; make fps"
    with pytest.raises(RecipeError, match=rf":{line}: {what}"):
        plan_build(recipe, str(tmp_path / "root"))
    assert not (tmp_path / "root").exists()
    options = {"fps": 5, "features": {"action": "ego.speed"}}
    source = open_source(str(made[0]))
    with pytest.raises(UsageError, match=r"lerobot can't store these rows.*\n  fps: 5 is a frame each"):
        plan_convert(source, str(tmp_path / "other"), "lerobot", options=options)


def test_a_dataset_is_converted_to_other_formats_and_comes_back(made, tmp_path):
    root, built = made
    folder = pathlib.Path(built.view) / "lerobot/all"
    shutil.copytree(folder, tmp_path / "plain")
    source = open_source(str(tmp_path / "plain"))
    done = convert(plan_convert(source, str(tmp_path / "zarr"), "zarr"))
    rows = logloom.datasets.open(str(tmp_path / "zarr"))
    expected = logloom.datasets.open(str(root), output="lerobot")
    assert len(rows) == len(expected) == done.manifest.totals["rows"]
    for number in (0, 15, len(rows) - 1):
        for name, value in expected[number].items():
            np.testing.assert_array_equal(rows[number][name], value)
    options = {
        "fps": 10,
        "task": {"column": "task"},
        "features": {k: k for k in expected.schema.columns if k != "task"},
    }
    back = convert(
        plan_convert(open_source(str(tmp_path / "zarr")), str(tmp_path / "back"), "lerobot", options=options)
    )
    again = pathlib.Path(back.view) / "lerobot/all"
    assert files_of(again, "meta/episodes") == files_of(folder, "meta/episodes")
    assert files_of(again, "meta/tasks.parquet") == files_of(folder, "meta/tasks.parquet")
    assert pq.read_table(again / "data").equals(pq.read_table(folder / "data"))


VIDEO = OUTPUTS.replace("    task:", "    video: {codec: h264, gop: 3}\n    task:").replace(
    "rows: 7", "rows: 20"
)


def test_video_is_built_by_any_number_of_workers_and_verifies(drive, tmp_path):
    pytest.importorskip("av")
    one = build_at(recipe_of(drive, VIDEO), tmp_path / "one", limit=1)
    two = build_at(recipe_of(drive, VIDEO), tmp_path / "two", num_workers=2, limit=1)
    assert one.manifest.totals["units"] > 2
    folders = [pathlib.Path(built.view) / "lerobot/all" for built in (one, two)]
    assert files_of(folders[0], "") == files_of(folders[1], "")
    assert verify(str(tmp_path / "one"), against_logs=True, num_workers=1).findings == ()
    rows = logloom.datasets.open(str(tmp_path / "one"), output="lerobot")
    picture = rows[len(rows) - 1]["observation.images.front"]
    assert (picture.dtype, picture.shape) == (np.uint8, (240, 320, 3))
    plain = logloom.datasets.open(str(folders[1]))
    np.testing.assert_array_equal(plain[len(rows) - 1]["observation.images.front"], picture)
    path = next((tmp_path / "one/v00000001/lerobot/all/videos").rglob("*.mp4")).resolve()
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert any("mp4" in str(one) for one in verify(str(tmp_path / "one"), num_workers=1).findings)


def test_what_encodes_is_part_of_the_identity_of_units(drive, tmp_path, monkeypatch):
    pytest.importorskip("av")
    plan = plan_build(recipe_of(drive, VIDEO), str(tmp_path / "root"))
    monkeypatch.setattr(form, "encoder_digest", lambda codec: f"another {codec}")
    other = plan_build(recipe_of(drive, VIDEO), str(tmp_path / "root"))
    assert plan.job.output_identity("lerobot") != other.job.output_identity("lerobot")
    assert plan.job.output_identity("tar") == other.job.output_identity("tar")


SPLIT = "split: {train: 0.5, val: 0.3, test: 0.2, by: time, cell: 1s, gap: 100ms}\n"


def test_rows_that_are_split_stand_in_episodes_of_one_split_each(drive, tmp_path):
    text = OUTPUTS.replace("  tar:", "    episodes: {gap: 5s}\n  tar:") + SPLIT
    plan = plan_build(recipe_of(drive, text), str(tmp_path / "one"))
    assert [note for note in plan.notes if "lerobot" in note] == []
    built = build_at(recipe_of(drive, text), tmp_path / "one")
    assert verify(str(tmp_path / "one"), against_logs=True, num_workers=1).findings == ()
    folder = pathlib.Path(built.view) / "lerobot/all"
    ours = told(logloom.datasets.open(str(tmp_path / "one"), output="lerobot"))
    assert ours == told(logloom.datasets.open(str(tmp_path / "one"), output="tar"))
    ranges = json.loads((folder / "meta/info.json").read_text())["splits"]
    assert len(ranges) > 1
    files = sorted(folder.glob("data/*/*"))
    frames = pq.read_table(files).to_pandas()
    copy = shutil.copytree(folder, tmp_path / "copy")
    for name, episodes in ranges.items():
        start, stop = map(int, episodes.split(":"))
        own = frames[frames["episode_index"].between(start, stop - 1)]
        expected = sorted(stamp for _, stamp, split in ours if split == name)
        assert sorted(own["timestamp_ns"]) == expected
        part = logloom.datasets.open(str(copy), split=name)
        assert told(part) == [one for one in ours if one[2] == name]
        assert told(logloom.datasets.open(str(tmp_path / "one"), output="lerobot", split=name)) == told(part)
    convert(plan_convert(open_source(str(copy)), str(tmp_path / "zarr"), "zarr"))
    assert told(logloom.datasets.open(str(tmp_path / "zarr"))) == ours


def told(rows):
    return [(row["log_id"], int(row["timestamp"]), row["split"]) for row in rows]


def test_a_log_that_arrives_leaves_the_rows_of_others_in_their_splits(drive, tmp_path):
    text = drive.text[: drive.text.index("\noutputs:")] + OUTPUTS + SPLIT
    build_at(Recipe.from_yaml(text.replace("*.mcap", drive.logs[0].name)), tmp_path / "root")
    before = told(logloom.datasets.open(str(tmp_path / "root"), output="lerobot"))
    build_at(Recipe.from_yaml(text), tmp_path / "root")
    rows = told(logloom.datasets.open(str(tmp_path / "root"), output="lerobot"))
    assert [one for one in rows if one in before] == before
    assert len(rows) > len(before)
    assert verify(str(tmp_path / "root"), num_workers=1).findings == ()
