"""Drives of a whole car, built by the recipe of examples/, against the world that they were made from."""

import io
import re
import shutil

import numpy as np
import PIL.Image
import pytest

import logloom.datasets
from logloom.demo import car_recipe, make_car_drives
from logloom.demo.car import CAMERAS, LIDARS, NUM_HOUSES, SIZE
from logloom.demo.recorder import drives
from logloom.demo.sensors import COLOURS, WIDTH, picture
from logloom.io.catalog.manifest import open_root, read_manifest
from logloom.io.logs import listings
from logloom.io.logs.opening import open_log
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.doctor.doctor import examine_all
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.report.report import report_of
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.absent import outputs_present
from tests.conftest import REPOSITORY

SECONDS = 5.0
RAW = """
name: raw
logs: {logs}
clock: {{rate: 10}}
columns:
  points: {{topic: /lidar/left, as: "points[x,y,z,intensity]", resample: nearest, tolerance: 60ms}}
  pose: {{tf: {{from: lidar_left, to: map}}, as: matrix}}
rows: {{require: [points, pose]}}
outputs: {{table: {{}}}}
"""
BOXES = """
name: boxes
logs: {folder}/logs/*.mcap
clock: {{rate: 10}}
columns:
  ego.position: {{tf: {{from: base_link, to: map}}, as: position}}
  cloud: {{topic: /lidar/left, field: width, resample: nearest, tolerance: 60ms}}
  objects: {{table: {folder}/labels/*.parquet, field: [class, center, size, yaw], strings: 16{frame}}}
rows: {{require: [ego.position, cloud]}}
outputs: {{table: {{}}}}
"""


def car_logs(folder):
    make_car_drives(folder, seconds=SECONDS)
    return folder


@pytest.fixture(scope="module")
def folder(once):
    return once(car_logs)


@pytest.fixture(scope="module")
def worlds():
    return {drive.log_id: drive for drive in drives(SECONDS, 2, 0, NUM_HOUSES)}


@pytest.fixture(scope="module")
def built(folder, root_of):
    root = root_of(Recipe.from_yaml(car_recipe(folder) + "\npartition: {rows: 20}\n"))
    return str(root), read_manifest(Store.at(str(root)))


@pytest.fixture(scope="module")
def rows(built):
    columns = ["*", "*.age", "*.available"]
    return [dict(row) for row in logloom.datasets.open(built[0], output="table", columns=columns)]


def test_equal_seeds_give_equal_logs_and_labels(tmp_path):
    for name in ("a", "b"):
        make_car_drives(tmp_path / name, seconds=0.5, logs=1)
    files = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*")]
    assert len(files) == 2
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_the_example_is_the_recipe_of_the_demo():
    example = (REPOSITORY / "examples" / "car.yaml").read_text(encoding="utf-8")
    assert outputs_present(example) == car_recipe("demo-car")


def test_most_ticks_are_rows_and_all_are_proven_against_the_logs(built, rows):
    root, manifest = built
    assert len(rows) > 0.5 * 2 * 10 * SECONDS
    assert sorted({row["log_id"] for row in rows}) == ["drive-00", "drive-01"]
    assert verify(root, against_logs=True, num_workers=1).findings == ()
    assert len(logloom.datasets.open(root, output="tar")) == len(rows)
    assert sum(log.planned for log in manifest.logs) > len(rows)


def test_doctor_calls_the_logs_whole(folder):
    for diagnosis in examine_all([str(folder / "logs" / "*.mcap")], {}):
        assert [finding for finding in diagnosis.findings if finding.severity == "damage"] == []


def test_the_car_is_where_it_is_in_the_world(rows, worlds):
    for row in rows:
        drive = worlds[row["log_id"]]
        pose = drive.world.ego((int(row["timestamp"]) - drive.start) / 1e9)
        np.testing.assert_allclose(row["ego.position"][:2], pose.position, atol=2e-3)
        heading = np.arctan2(row["ego.rotation"][1, 0], row["ego.rotation"][0, 0])
        assert abs(np.exp(1j * heading) - np.exp(1j * pose.yaw)) < 1e-4
        assert abs(row["ego.speed"] - pose.speed) < 3


@pytest.mark.parametrize("side", CAMERAS)
def test_pictures_are_those_of_their_time(rows, worlds, side):
    compared = 0
    for row in rows[::7]:
        if not row[f"camera.{side}.available"]:
            continue
        drive = worlds[row["log_id"]]
        time = int(row["timestamp"]) - int(row[f"camera.{side}.age"]) - drive.start
        expected = picture(drive.world, time / 1e9, CAMERAS[side]).astype(float)
        assert expected.shape[:2] == SIZE
        assert np.abs(decoded(row[f"camera.{side}"]) - expected).mean() < 12
        compared += 1
    assert compared > 3


@pytest.mark.parametrize("side", LIDARS)
def test_walls_of_houses_are_where_they_are_although_the_car_drives(rows, worlds, side):
    assert np.quantile(off_walls(rows, worlds, f"lidar.{side}.points", f"lidar.{side}.pose"), 0.99) < 0.05


def test_without_deskewing_walls_are_smeared(folder, worlds, tmp_path):
    recipe = Recipe.from_yaml(RAW.format(logs=folder / "logs" / "*.mcap"))
    build(plan_build(recipe, str(tmp_path / "root")))
    raw = [dict(row) for row in logloom.datasets.open(str(tmp_path / "root"))]
    assert np.quantile(off_walls(raw, worlds, "points", "pose"), 0.9) > 0.15  # many go along their walls


def off_walls(rows, worlds, points, pose):
    """How far points on houses lie from their walls, seen from above, on the map."""
    found = []
    for row in rows:
        cloud = row[points][np.isclose(row[points][:, 3], 0.5)].astype(float)
        x, y, _ = row[pose][:3, :3] @ cloud[:, :3].T + row[pose][:3, 3:]
        apart = []
        for house in worlds[row["log_id"]].world.houses:
            cos, sin = np.cos(house.yaw), np.sin(house.yaw)
            dx, dy = x - house.centroid[0], y - house.centroid[1]
            along, across = np.abs(cos * dx + sin * dy), np.abs(cos * dy - sin * dx)
            apart.append(np.abs(np.maximum(along - house.extent[0] / 2, across - house.extent[1] / 2)))
        found.append(np.min(apart, axis=0))
    assert sum(map(len, found)) > 1000
    return np.concatenate(found)


@pytest.mark.parametrize("side", CAMERAS)
def test_labelled_cars_are_seen_where_calibration_says(rows, side):
    seen = right = 0
    for row in rows:
        if not row["objects.available"] or not row[f"camera.{side}.available"]:
            continue
        to_map = np.eye(4)
        to_map[:3, :3], to_map[:3, 3] = row["ego.rotation"], row["ego.position"]
        to_map = to_map @ row[f"calibration.{side}.extrinsics"]
        image = decoded(row[f"camera.{side}"])
        for box in row["objects"]:
            x, y, z = (np.linalg.inv(to_map) @ [*box["center"], 1])[:3]
            column, line, _ = row[f"calibration.{side}.k"] @ [x / z, y / z, 1]
            if str(box["class"]) == "car" and 6 < z < 20 and 20 < column < SIZE[1] - 20:
                seen += 1
                right += np.abs(image[int(line), int(column)] - COLOURS["car"]).max() < 60
    assert row[f"calibration.{side}.size"].tolist() == list(SIZE)
    assert right >= 0.7 * seen
    if side == "front":
        assert seen > 5


def decoded(data):
    return np.asarray(PIL.Image.open(io.BytesIO(bytes(data))).convert("RGB"), float)


def test_lost_packets_are_refused_up_to_the_next_keyframe_and_counted(folder, built, rows):
    _, manifest = built
    for log in manifest.logs:
        topics = open_log([str(folder / "logs" / f"{log.log_id}.mcap")]).summary.topics
        lost = int(15 * SECONDS) - topics["/cam/front/video"].num_messages
        assert lost >= 7  # half a second without packets
        assert log.refused > 0  # pictures after it are built on what was lost
    missing = [row for row in rows if not row["camera.left.available"]]
    assert 0 < len(missing) < len(rows) / 2


@pytest.fixture
def _settled(monkeypatch):
    """Files that were written just now are known by their listing."""
    monkeypatch.setattr(listings, "SETTLED_NS", -(10**12))


@pytest.mark.usefixtures("_settled")
def test_labels_that_come_later_build_only_the_logs_that_they_are_of(folder, tmp_path):
    work = tmp_path / "work"
    shutil.copytree(folder, work)
    second = work / "labels" / "drive-01.parquet"
    second.rename(tmp_path / "later.parquet")
    recipe = Recipe.from_yaml(BOXES.format(folder=work, frame=", frame: map"))
    root = str(tmp_path / "root")
    plan = plan_build(recipe, root)
    assert any("objects: 1 log has no label" in note and "drive-01" in note for note in plan.notes)
    first = build(plan)
    (tmp_path / "later.parquet").rename(second)
    plan = plan_build(recipe, root)
    assert [log.task.log_id for log in plan.logs] == ["drive-01"]
    again = build(plan)
    assert first.manifest.version + 1 == again.manifest.version
    labelled = [row for row in logloom.datasets.open(root, output="table") if len(row["objects"])]
    assert {row["log_id"] for row in labelled} == {"drive-00", "drive-01"}
    unmatched = "\n".join(line for log in again.manifest.logs for line in log.reasons)
    assert "label" in unmatched  # of ticks that are no rows


def test_a_report_draws_boxes_where_the_cameras_see_what_was_labelled(built, rows):
    found = report_of(*open_root(Store.at(built[0]))).samples
    looked_at = 0
    for one in found.rows:
        assert bool(one.boxes) <= bool(len(rows[one.row]["objects"]))
        seen = np.asarray(PIL.Image.open(io.BytesIO(one.images["camera.front"].data)), int)
        for label, path in one.boxes["camera.front"].boxes if "camera.front" in one.boxes else ():
            x, y = np.array(re.findall(r"[\d.]+", path), float).reshape(-1, 2).T
            if label.startswith("car ") and x.min() > 0 and x.max() < WIDTH and np.ptp(y) > 5:
                middle = seen[round((y.min() + y.max()) / 2), round((x.min() + x.max()) / 2)]
                assert np.abs(middle - COLOURS["car"]).max() < 40, (one.row, label)
                looked_at += 1
    assert looked_at > 2


@pytest.mark.usefixtures("_settled")
def test_saying_in_which_frame_boxes_lie_makes_no_row_again(folder, tmp_path):
    said, silent = (BOXES.format(folder=folder, frame=frame) for frame in (", frame: map", ""))
    build(plan_build(Recipe.from_yaml(silent), str(tmp_path / "root")))
    plan = plan_build(Recipe.from_yaml(said), str(tmp_path / "root"))
    assert not plan.logs
    assert build(plan).manifest.recipe["columns"]["objects"]["frame"] == "map"
