"""Columns of poses in whole builds; what `doctor`, `info --tree`, `versions` and `head` show of frames."""

import json
import pathlib

import numpy as np
import pytest
from mcap.reader import make_reader

import logloom.datasets
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage.store import Store
from logloom.pipelines.doctor.doctor import examine_all
from logloom.pipelines.head.head import head
from logloom.pipelines.info.tree import draw_trees
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.forking import command
from tests.pipelines.conftest import build_at
from tests.tier import by_tier
from tests.transforms.ros2_logs import START, TF, transform, write_log
from tests.transforms.rows import test_deskew as deskew
from tests.transforms.rows.test_calibrations import INFO, camera
from tests.transforms.rows.test_pose_lookups import COLUMNS, drive_topics

HOSTILE = "fr\x1b[2Jame"


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    return pathlib.Path(write_log(tmp_path_factory.mktemp("logs") / "drive.mcap", drive_topics()))


@pytest.fixture(scope="module")
def root(drive, root_of):
    """The drive in one partition."""
    return root_of(recipe(drive, 1000))


def recipe(log, rows, outputs="{table: {}}", columns=COLUMNS):
    head = f"name: t\nlogs: {log}\nclock: {{rate: 40}}\npartition: {{rows: {rows}}}\noutputs: {outputs}\n"
    return Recipe.from_yaml(
        f"{head}columns:\n" + "".join(f"  {line}\n" for line in columns.strip().splitlines())
    )


def test_a_build_of_many_partitions_has_the_rows_of_one_and_is_proven_against_its_logs(drive, root, tmp_path):
    build_at(recipe(drive, by_tier(57, 27)), tmp_path / "many")
    assert verify(str(tmp_path / "many"), against_logs=True, num_workers=1).findings == ()
    whole, parts = logloom.datasets.open(str(root)), logloom.datasets.open(str(tmp_path / "many"))
    assert len(parts) == len(whole) == 240
    for one, many in zip(whole, parts, strict=True):
        for name, value in one.items():
            assert np.asarray(value).tobytes() == np.asarray(many[name]).tobytes(), name


def test_what_is_unavailable_and_what_is_strange_stand_in_the_manifest(root):
    (record,) = read_manifest(Store.at(str(root))).logs
    assert record.status == "whole"
    told = dict(line.split(": ", 1) for line in record.reasons if ": " in line)
    assert "without a pose of lidar in map: future" in told["lidar"]
    assert any("the name '/map' begins with a slash" in line for line in record.reasons)
    said = command("versions", root, "--log", "drive").stdout
    assert "without a pose of lidar in map" in " ".join(said.split())
    why = json.loads(command("head", root, "--why", "--json", "--rows", "1").stdout)
    assert '"from": "lidar"' in json.dumps(why)


def test_what_a_file_lost_is_reported_before_ticks_without_a_pose(tmp_path):
    log = pathlib.Path(write_log(tmp_path / "drive.mcap", drive_topics(), chunk_size=2000))
    with log.open("rb") as file:
        chunks = make_reader(file).get_summary().chunk_indexes
    data, chunk = bytearray(log.read_bytes()), chunks[len(chunks) // 2]
    data[chunk.chunk_start_offset + chunk.chunk_length // 2] ^= 0xFF
    log.write_bytes(data)
    text = recipe(log, 50).to_yaml()
    (tmp_path / "recipe.yaml").write_text(text)
    done = command("build", tmp_path / "recipe.yaml", "--to", tmp_path / "root", "--on-error", "salvage")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("salvaged: drive: ")]
    assert line.startswith(f"salvaged: drive: {log}, byte {chunk.chunk_start_offset}: ")
    assert "without a pose" not in line
    assert "more reason" in line
    said = command("versions", tmp_path / "root", "--logs", "100").stdout
    assert f"byte {chunk.chunk_start_offset}: " in " ".join(said.split())


def test_the_tree_of_a_log_is_drawn_with_rates(drive):
    done = command("info", drive, "--tree")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "drive: 5 frames",
        "map",
        "└─ odom          2.00 Hz, /tf",
        "   └─ base       50.00 Hz, /tf",
        "      ├─ camera  static, /tf_static",
        "      └─ lidar   static, /tf_static",
        "note: the name '/lidar' begins with a slash, which is removed (1 transform)",
        "note: the name '/map' begins with a slash, which is removed (12 transforms)",
    ]
    (told,) = json.loads(command("info", drive, "--tree", "--json").stdout)["logs"]
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
    said = command("info", small, "--tree").stdout
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
    for rows in (1000, 20):
        root = tmp_path / str(rows)
        built = build_at(recipe(log, rows, columns=columns), root)
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
    assert verify(str(root), against_logs=True, num_workers=1).findings == ()
    why = json.loads(command("head", root, "--why", "--json", "--rows", "1").stdout)
    assert '"from": "the frame of /camera"' in json.dumps(why)


def test_the_lineage_of_a_cloud_wants_no_poses_of_its_log(tmp_path):
    topics = deskew.topics(deskew.sweeps(4))
    (tmp_path / "logs").mkdir()
    write_log(tmp_path / "logs" / "a.mcap", topics)
    write_log(tmp_path / "logs" / "b.mcap", {name: said for name, said in topics.items() if name != "/tf"})
    build_at(recipe(f"{tmp_path}/logs/*.mcap", 1000, columns=deskew.column()), tmp_path / "root")
    tick = START + 300 * deskew.MS  # of the second sweep
    rows = head(str(tmp_path / "root"), count=1000, columns=["points"], why=True)
    told = {
        row.origin.record.log_id: row.to_json()["why"] for row in rows if int(row.values["timestamp"]) == tick
    }
    assert [len(told[log_id]["columns"]["points"]["messages"]) for log_id in "ab"] == [1, 1]


def told_of(root, name, rows=1000, start=0):
    """By tick, what `--why` says of a column in JSON."""
    shown = head(str(root), start=start, count=rows, columns=[name], why=True)
    return {int(row.values["timestamp"]): row.to_json()["why"]["columns"][name] for row in shown}


def stamps_of(topics):
    """By frame, the stamps of its transforms on /tf, with their log times, in order."""
    found = {}
    for log_time, message in topics["/tf"][1]:
        for one in message["transforms"]:
            stamp = one["header"]["stamp"]
            time = stamp["sec"] * 10**9 + stamp["nanosec"]
            found.setdefault(one["child_frame_id"].lstrip("/"), []).append((time, log_time))
    return {frame: sorted(times) for frame, times in found.items()}


def neighbours(times, at):
    """Those of (stamp, log time) that a lookup takes: one at the very time, or one on either side."""
    exact = [pair for pair in times if pair[0] == at]
    return exact or [max(p for p in times if p[0] < at), min(p for p in times if p[0] > at)]


def test_each_message_behind_a_pose_is_named_hop_by_hop_with_its_time_and_place(drive, root):
    stamps = stamps_of(drive_topics())
    told = {}
    for start, rows in by_tier([(0, 40), (200, 40)], [(0, 1000)]):
        told |= told_of(root, "lidar", rows, start)
    found = {tick: one for tick, one in told.items() if "reason" not in one}
    assert len(found) > by_tier(50, 100)
    for tick, one in found.items():
        assert one["times"] == [tick]
        names = [(hop["child"], hop["parent"], hop["topic"], hop["static"]) for hop in one["hops"]]
        assert names == [
            ("lidar", "base", "/tf_static", True),
            ("base", "odom", "/tf", False),
            ("odom", "map", "/tf", False),
        ]
        assert [message["message_time"] for message in one["hops"][0]["messages"]] == [START]
        for hop in one["hops"][1:]:
            used = [(message["message_time"], message["log_time"]) for message in hop["messages"]]
            assert used == neighbours(stamps[hop["child"]], tick)
            assert all(message["age"] == tick - message["message_time"] for message in hop["messages"])
            assert all(message["uri"] == str(drive) and message["offset"] > 0 for message in hop["messages"])
    lost = [one for one in told.values() if "reason" in one]
    assert {one["reason"] for one in lost} == {"past", "future"}
    assert all(hop["messages"] for one in lost for hop in one["hops"])
    assert any(hop["parent"] is None for one in lost for hop in one["hops"])
    at = told_of(root, "at", 40)
    speeds = {tick: one["messages"] for tick, one in told_of(root, "speed", 40).items()}
    seen = [one["times"] == [speeds[tick][0]["message_time"]] for tick, one in at.items() if "times" in one]
    assert seen
    assert all(seen)
    said = command("head", root, "--why", "--skip", 100, "-n", 1, "-c", "lidar").stdout
    assert "lidar in base, static #" in said
    assert said.count("odom in map, /tf #") == 2


def test_a_deskewed_cloud_names_the_motion_from_its_first_point_to_its_last(tmp_path):
    topics = deskew.topics(deskew.sweeps(4))
    log = write_log(tmp_path / "drive.mcap", topics)
    build_at(recipe(log, 1000, columns=deskew.column(to="start")), tmp_path / "root")
    stamps = [stamp for stamp, _ in stamps_of(topics)["base"]]
    seen = 0
    for one in told_of(tmp_path / "root", "points").values():
        if not one["messages"]:
            continue
        start = one["messages"][0]["message_time"]
        first, last = one["motion"]["times"]
        assert start <= first < last < start + deskew.SWEEP
        (mount, motion) = one["motion"]["hops"]
        assert (mount["child"], mount["static"]) == ("lidar", True)
        used = [message["message_time"] for message in motion["messages"]]
        assert (
            used
            == [s for s in stamps if stamps[np.searchsorted(stamps, first, "right") - 1] <= s][: len(used)]
        )
        assert used[-2] < last <= used[-1]
        seen += 1
    assert seen > 10
