"""Columns of poses in whole builds; what `doctor`, `info --tree`, `log` and `head --why` say of frames."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import logloom.datasets
from logloom.pipelines.doctor import examine_all
from logloom.pipelines.head import head
from logloom.pipelines.info_tree import draw_trees
from logloom.pipelines.verify import verify
from logloom.recipe import Recipe
from tests.pipelines.conftest import build_at
from tests.transforms import test_deskew as deskew
from tests.transforms.ros2_logs import START, TF, transform, write_log
from tests.transforms.test_calibrations import INFO, camera
from tests.transforms.test_lookups import COLUMNS, drive_topics

HOSTILE = "fr\x1b[2Jame"


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    return pathlib.Path(write_log(tmp_path_factory.mktemp("logs") / "drive.mcap", drive_topics()))


def recipe(log, rows, outputs="{table: {}}", columns=COLUMNS):
    head = f"name: t\nlogs: {log}\nclock: {{rate: 40}}\npartition: {{rows: {rows}}}\noutputs: {outputs}\n"
    return Recipe.from_yaml(
        f"{head}columns:\n" + "".join(f"  {line}\n" for line in columns.strip().splitlines())
    )


def logloom_says(*arguments):
    command = [sys.executable, "-m", "logloom", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_build_of_many_partitions_has_the_rows_of_one_and_is_proven_against_its_logs(drive, tmp_path):
    roots = {}
    for rows in (1000, 9):
        root = tmp_path / str(rows)
        build_at(recipe(drive, rows), root)
        assert verify(str(root), against_logs=True, num_workers=1).findings == ()
        roots[rows] = logloom.datasets.open(str(root))
    assert len(roots[9]) == len(roots[1000]) == 240
    for one, many in zip(roots[1000], roots[9], strict=True):
        for name, value in one.items():
            assert np.asarray(value).tobytes() == np.asarray(many[name]).tobytes(), name


def test_what_is_unavailable_and_what_is_strange_stand_in_the_manifest(drive, tmp_path):
    built = build_at(recipe(drive, 50), tmp_path / "root")
    (record,) = built.manifest.logs
    assert record.status == "whole"
    told = dict(line.split(": ", 1) for line in record.reasons if ": " in line)
    assert "without a pose of lidar in map: future" in told["lidar"]
    assert any("the name '/map' begins with a slash" in line for line in record.reasons)
    said = logloom_says("log", tmp_path / "root", "drive").stdout
    assert "without a pose of lidar in map" in " ".join(said.split())
    why = json.loads(logloom_says("head", tmp_path / "root", "--why", "--json", "--rows", "1").stdout)
    assert '"from": "lidar"' in json.dumps(why)


def test_the_tree_of_a_log_is_drawn_with_rates(drive):
    done = logloom_says("info", drive, "--tree")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "drive: 5 frames",
        "map",
        "└─ odom          2.00 Hz, /tf",
        "   └─ base       50.00 Hz, /tf",
        "      ├─ camera  static, /tf_static",
        "      └─ lidar   static, /tf_static",
        "note: the name '/lidar' begins with a slash, which is taken off (1 transform)",
        "note: the name '/map' begins with a slash, which is taken off (12 transforms)",
    ]
    (told,) = json.loads(logloom_says("info", drive, "--tree", "--json").stdout)["logs"]
    base = next(frame for frame in told["frames"] if frame["frame"] == "base")
    assert base == {
        "frame": "base",
        "parent": "odom",
        "is_static": False,
        "parents": 1,
        "topics": ["/tf"],
        "transforms": 300,
        "hz": 50.0,
    }


def test_doctor_notes_strange_frames_and_calls_the_log_healthy(drive):
    (diagnosis,) = examine_all([str(drive)], {})
    notes = [finding for finding in diagnosis.findings if finding.kind == "frames"]
    assert [(note.severity, note.count, note.topic) for note in notes] == [
        ("note", 1, "/tf, /tf_static"),
        ("note", 12, "/tf, /tf_static"),
    ]
    assert all("info --tree" in note.remedy for note in notes)


def test_loops_and_deep_chains_are_drawn_and_names_do_not_steer_the_terminal(tmp_path):
    chain = [transform(START, f"f{i}", f"f{i + 1}") for i in range(3000)]
    odd = [transform(START, "a", "b"), transform(START, "b", "a"), transform(START, "b", HOSTILE)]
    log = write_log(tmp_path / "odd.mcap", {"/tf": (TF, [(START, {"transforms": [*chain, *odd]})])})
    (tree,) = draw_trees([log], {})
    lines = list(tree.lines())
    assert lines[0] == "odd: 3,004 frames"
    assert len(lines) < 1100
    assert max(map(len, lines)) < 300
    small = write_log(tmp_path / "small.mcap", {"/tf": (TF, [(START, {"transforms": odd})])})
    said = logloom_says("info", small, "--tree").stdout
    assert "\x1b" not in said
    assert "fr\\x1b[2Jame" in said
    assert said.count("the frames a, b are in a loop") == 1


def test_calibrations_and_deskewed_clouds_are_built_alike_in_any_partitioning(tmp_path):
    topics = deskew.topics(deskew.sweeps(4)) | {"/camera": (INFO, camera(change=4))}
    columns = deskew.column() + "\nfront: {calibration: {camera: /camera, frame: base}}"
    mounted = [transform(0, "base", "lidar", *deskew.MOUNT), transform(0, "base", "cam_front")]
    topics["/tf_static"] = (TF, [(START, {"transforms": mounted})])
    log = write_log(tmp_path / "drive.mcap", topics)
    roots = {}
    for rows in (1000, 7):
        root = tmp_path / str(rows)
        built = build_at(recipe(log, rows, columns=columns), root)
        assert verify(str(root), against_logs=True, num_workers=1).findings == ()
        (record,) = built.manifest.logs
        assert any("the calibration on /camera changes" in line for line in record.reasons)
        roots[rows] = logloom.datasets.open(str(root)), record.reasons
    (one, told), (many, also_told) = roots.values()
    assert told == also_told
    assert len(one) == len(many) > 70
    assert sum(len(row["points"]) > 0 for row in one) > 10
    for row, same in zip(one, many, strict=True):
        for name, value in row.items():
            assert np.asarray(value).tobytes() == np.asarray(same[name]).tobytes(), name
    why = json.loads(logloom_says("head", tmp_path / "7", "--why", "--json", "--rows", "1").stdout)
    assert '"from": "the frame of /camera"' in json.dumps(why)


def test_the_lineage_of_a_cloud_wants_no_poses_of_its_log(tmp_path):
    topics = deskew.topics(deskew.sweeps(4))
    (tmp_path / "logs").mkdir()
    write_log(tmp_path / "logs" / "a.mcap", topics)
    write_log(tmp_path / "logs" / "b.mcap", {name: said for name, said in topics.items() if name != "/tf"})
    build_at(recipe(f"{tmp_path}/logs/*.mcap", 1000, columns=deskew.column()), tmp_path / "root")
    tick = START + 300 * deskew.MS  # of the second sweep
    rows = head(str(tmp_path / "root"), count=1000, columns=["points"], why=True)
    told = {row.record.log_id: row.to_json()["why"] for row in rows if int(row.values["timestamp"]) == tick}
    assert [len(told[log_id]["columns"]["points"]["messages"]) for log_id in "ab"] == [1, 1]
