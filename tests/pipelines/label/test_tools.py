"""Frames that go out to a labelling tool, and come back as a column of a new version."""

import json
import pathlib
import shutil

import pyarrow.parquet as pq
import pytest

import logloom.datasets
from logloom.errors import UsageError
from logloom.pipelines.label.export_frames import export_frames
from tests.forking import command
from tests.pipelines.conftest import build_at


@pytest.fixture
def root(built, tmp_path) -> pathlib.Path:
    shutil.copytree(built, tmp_path / "root")
    return tmp_path / "root"


def test_frames_go_out_by_the_command_and_come_back_as_a_column(drive, root, tmp_path):
    frames = tmp_path / "frames"
    said = command("label", "export", str(root), "-c", "camera.front", "--to", str(frames), "--json")
    assert said.returncode == 0, said.stderr
    done = json.loads(said.stdout)
    rows = list(logloom.datasets.open(str(root), columns=["camera.front"]))
    by_key = {(row["log_id"], int(row["timestamp"])): bytes(row["camera.front"]) for row in rows}
    keys = pq.read_table(frames / "keys.parquet").to_pylist()
    images = {path.name: path.read_bytes() for path in (frames / "images").iterdir()}
    assert {key["file"] for key in keys} == images.keys()
    assert done["frames"] == len(images)
    assert done["frames"] + done["without"] == len(rows)
    for key in keys:
        assert images[key["file"]] == by_key[key["log_id"], key["timestamp"]]
    labelled = keys[::7]
    coco = {
        "images": [{"id": i, "file_name": key["file"]} for i, key in enumerate(keys)],
        "categories": [{"id": 1, "name": "car"}],
        "annotations": [
            {"image_id": keys.index(key), "category_id": 1, "bbox": [i, 0, 5, 6]}
            for i, key in enumerate(labelled)
        ],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    table = str(tmp_path / "labels.parquet")
    said = command("label", "import", str(tmp_path / "coco.json"), "--tool", "coco", "--to", table)
    assert said.returncode == 0, said.stderr
    column = f"columns:\n  boxes: {{table: {table}}}\n"
    build_at(drive.recipe(**{"columns:\n": column}), root)
    found = {
        (row["log_id"], int(row["timestamp"])): row["boxes"]
        for row in logloom.datasets.open(str(root), columns=["boxes"])
    }
    for i, key in enumerate(labelled):
        (box,) = found[key["log_id"], key["timestamp"]]
        assert (box["class"], box["bbox"].tolist()) == ("car", [i, 0, i + 5, 6])
    assert sum(map(len, found.values())) == len(labelled)


def test_an_export_takes_some_rows_of_some_logs_and_refuses_what_it_can_not_write(root, tmp_path):
    rows = list(logloom.datasets.open(str(root), columns=["camera.front"]))
    log = rows[0]["log_id"]
    own = [row for row in rows if row["log_id"] == log]
    export_frames(str(root), "latest", "camera.front", str(tmp_path / "few"), logs=[log], every=7)
    keys = pq.read_table(tmp_path / "few" / "keys.parquet")
    wanted = [int(row["timestamp"]) for row in own[::7] if len(row["camera.front"])]
    assert keys["timestamp"].to_pylist() == wanted
    assert set(keys["log_id"].to_pylist()) == {log}
    for column, folder, more, said in [
        ("ego.speed", "a", {}, "not an image"),
        ("camera.front", "few", {}, "not an empty or new folder"),
        ("camera.front", "b", {"logs": ["nobody"]}, "has no log 'nobody'"),
        ("camera.front", "c", {"output": "none"}, "no output 'none'"),
        ("camera.back", "d", {}, "no column matches"),
    ]:
        with pytest.raises(UsageError, match=said):
            export_frames(str(root), "latest", column, str(tmp_path / folder), **more)
