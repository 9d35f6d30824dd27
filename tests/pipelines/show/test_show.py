"""Rows in viewers: `logloom show`, read back by the viewers' own readers."""

import base64
import dataclasses
import itertools
import json
import shutil

import jsonschema
import numpy as np
import pytest
from mcap.reader import make_reader

import logloom.datasets
from logloom.errors import LogReadError, PurgedError, UsageError
from logloom.io.catalog.manifest import open_root
from logloom.io.logs.interface import FieldSpec, TopicRequest
from logloom.io.logs.messages.adapters import rotation_matrix
from logloom.io.logs.opening import open_log
from logloom.io.storage.store import Store
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.purge.rows import ErasedTime
from logloom.pipelines.show.foxglove import SCHEMAS, json_value, message_of, schema_of, to_json
from logloom.pipelines.show.log import log_of, messages_of
from logloom.pipelines.show.mcap import write_mcap
from logloom.pipelines.show.rerun import TIMELINE, archetypes, save_rrd
from logloom.pipelines.show.show import ShownColumn, column_of, pose_of, quaternion_of, rows_of
from logloom.schema import BYTES, MAX_TIME, MIN_TIME, NO_AGE, STRING, ColumnType
from tests.forking import command
from tests.pipelines.conftest import build_at
from tests.test_extras import logloom_without

# As https://github.com/foxglove/foxglove-sdk/tree/main/schemas/jsonschema has them.
FIELDS = {
    "foxglove.CompressedImage": {"timestamp", "frame_id", "data", "format"},
    "foxglove.RawImage": {"timestamp", "frame_id", "width", "height", "encoding", "step", "data"},
    "foxglove.PointCloud": {"timestamp", "frame_id", "pose", "point_stride", "fields", "data"},
    "foxglove.PoseInFrame": {"timestamp", "frame_id", "pose"},
    "foxglove.FrameTransform": {
        *("timestamp", "parent_frame_id", "child_frame_id"),
        *("translation", "rotation"),
    },
}
UNTURNED = [0.0, 0.0, 0.0, 1.0]


def opened(root):
    return open_root(Store.at(str(root)), "latest")


def shown(root, log_id=None, rows=None, version="latest"):
    return rows_of(*open_root(Store.at(str(root)), version), log_id, rows)


def read(path):
    """The messages of a file by topic, as (log time, schema's name, its JSON), each valid by its schema."""
    found = {}
    with path.open("rb") as file:
        for schema, channel, message in make_reader(file, validate_crcs=True).iter_messages():
            if channel.message_encoding != "json":
                continue
            value = json.loads(message.data)
            jsonschema.validate(value, json.loads(schema.data))
            assert message.log_time == message.publish_time
            found.setdefault(channel.topic, []).append((message.log_time, schema.name, value))
    return found


def as_array(data, dtype):
    return np.frombuffer(base64.b64decode(data), dtype)


def stamp(tick):
    return {"sec": tick // 10**9, "nsec": tick % 10**9}


@pytest.fixture
def gappy(drive, tmp_path):
    """A version in which columns that aren't required are unavailable in some rows."""
    require = "rows: {require: [ego.position, ego.rotation, camera.front, lidar.points]}"
    build_at(drive.recipe(**{require: ""}), tmp_path / "root")
    return tmp_path / "root"


def test_messages_of_an_mcap_equal_the_rows(gappy, tmp_path):
    out = tmp_path / "drive.mcap"
    assert write_mcap(shown(gappy, "drive-01"), out) == {}
    rows = list(logloom.datasets.open(str(gappy), columns=[".*", "*.age", "*.available"]))
    rows = [row for row in rows if row["log_id"] == "drive-01"]
    found = read(out)
    ticks = [row["timestamp"] for row in rows]
    assert [value["value"] for _, _, value in found["/meta"]] == [
        {"row": number, "timestamp": tick} for number, tick in enumerate(ticks)
    ]
    columns = logloom.datasets.open(str(gappy)).schema.columns
    missing = 0
    for name in columns:
        usable = [row for row in rows if row.get(f"{name}.available", True)]
        missing += len(rows) - len(usable)
        messages = found.pop(f"/{name}", [])
        assert [time for time, _, _ in messages] == [row["timestamp"] for row in usable]
        for row, (_, schema, message) in zip(usable, messages, strict=True):
            check(name, schema, message, row)
        ages = [
            (row["timestamp"], row[f"{name}.age"]) for row in rows if row.get(f"{name}.age", NO_AGE) != NO_AGE
        ]
        assert [(time, value["value"]) for time, _, value in found.pop(f"/{name}.age", [])] == ages
    assert missing > 0
    assert list(found) == ["/meta"]


def check(name, schema, message, row):
    """A message against the row's value, column by column of the demo."""
    value, time = row[name], stamp(row["timestamp"])
    if name == "camera.front":
        assert schema == "foxglove.CompressedImage"
        expected = {"timestamp": time, "frame_id": "camera", "format": "jpeg"}
        assert {key: message[key] for key in expected} == expected
        assert base64.b64decode(message["data"]) == value
    elif name == "lidar.points":
        assert (schema, message["timestamp"], message["frame_id"]) == ("foxglove.PointCloud", time, "lidar")
        assert [one["name"] for one in message["fields"]] == ["x", "y", "z", "intensity"]
        assert [one["offset"] for one in message["fields"]] == [0, 4, 8, 12]
        assert {one["type"] for one in message["fields"]} == {7}
        assert message["point_stride"] == 16
        np.testing.assert_array_equal(as_array(message["data"], "<f4").reshape(-1, 4), value)
    elif name == "ego.position":
        assert (schema, message["timestamp"], message["frame_id"]) == ("foxglove.PoseInFrame", time, "map")
        assert list(message["pose"]["position"].values()) == value.tolist()
        turn = np.array(list(message["pose"]["orientation"].values()))
        if row["ego.rotation.available"]:
            np.testing.assert_allclose(rotation_matrix(turn[None])[0], row["ego.rotation"], atol=1e-12)
        else:
            assert turn.tolist() == UNTURNED
    else:
        assert schema == f"logloom.{name}"
        np.testing.assert_array_equal(message["value"], json_value(value))


def test_the_same_rows_give_the_same_bytes(built, tmp_path):
    shutil.copytree(built, tmp_path / "copy", ignore=shutil.ignore_patterns("v????????"))
    write_mcap(shown(built), tmp_path / "a.mcap")
    write_mcap(shown(tmp_path / "copy"), tmp_path / "b.mcap")
    data = (tmp_path / "a.mcap").read_bytes()
    assert data == (tmp_path / "b.mcap").read_bytes()
    assert str(tmp_path).encode() not in data
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mcap", "b.mcap", "copy"]


def test_rows_are_those_of_the_range(built, tmp_path):
    whole = [row["timestamp"] for row in shown(built, "drive-01")]
    write_mcap(shown(built, "drive-01", "3:7"), tmp_path / "a.mcap")
    found = read(tmp_path / "a.mcap")["/meta"]
    assert [value["value"]["row"] for _, _, value in found] == [3, 4, 5, 6]
    assert [time for time, _, _ in found] == whole[3:7]
    assert [row["timestamp"] for row in shown(built, "drive-01", "5:")] == whole[5:]
    assert [row["timestamp"] for row in shown(built, "drive-01", ":5")] == whole[:5]
    assert len(shown(built, "drive-01", f"0:{10**9}")) == len(whole)
    assert shown(built).record.log_id == "drive-00"


@pytest.mark.parametrize("rows", ["5", "a:b", "-3:", "7:7", "9:3", "100000:", "1:2:3", ""])
def test_a_range_that_means_no_rows_is_an_error(built, rows):
    with pytest.raises(UsageError, match=r"--rows .*|has \d+ rows, so --rows"):
        shown(built, None, rows)


def test_a_log_that_is_not_there_is_an_error_with_the_nearest_name(built):
    with pytest.raises(
        UsageError,
        match=r"no log 'drive-10'; did you mean drive-0\d\? `logloom versions .*` lists",
    ):
        shown(built, "drive-10")


def test_purged_logs_are_not_shown(built, tmp_path):
    shutil.copytree(built, tmp_path / "root", ignore=shutil.ignore_patterns("v????????"))
    purge(str(tmp_path / "root"), ["drive-00"])
    with pytest.raises(PurgedError, match="was purged"):
        shown(tmp_path / "root", "drive-00", version=1)


def test_a_file_that_is_there_stays_as_it_is(built, tmp_path):
    out = tmp_path / "drive.mcap"
    out.write_bytes(b"mine")
    with pytest.raises(UsageError, match="exists already"):
        write_mcap(shown(built), out)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("drive.mcap", b"mine")]
    with pytest.raises(UsageError, match="its folder doesn't exist"):
        write_mcap(shown(built), tmp_path / "no" / "drive.mcap")


def test_messages_of_the_log_stand_beside_the_rows_as_recorded(built, drive, tmp_path):
    out = tmp_path / "drive.mcap"
    rows = shown(built, "drive-00")
    problems = []
    raw = messages_of(log_of(*opened(built), rows.record), *rows.span, problems.append)
    write_mcap(rows, out, raw)
    assert problems == []
    with out.open("rb") as file, drive.logs[0].open("rb") as log:
        mine = list(make_reader(file, validate_crcs=True).iter_messages())
        theirs = list(make_reader(log).iter_messages())
    copied = [recorded(*one) for one in mine if one[1].message_encoding != "json"]
    apart = {"/imu": "/log/imu", "/lights": "/log/lights"}  # columns have these names
    expected = [(apart.get(topic, topic), *rest) for topic, *rest in (recorded(*one) for one in theirs)]
    is_equal = sorted(copied) == sorted(expected)
    assert is_equal  # what differs would be megabytes
    write_mcap(rows, tmp_path / "alone.mcap")
    is_equal = read(out) == read(tmp_path / "alone.mcap")
    assert is_equal


def recorded(schema, channel, message):
    kind = channel.topic, channel.message_encoding, schema.name, schema.encoding, schema.data
    return (*kind, message.log_time, message.publish_time, message.data)


def test_of_some_rows_only_the_messages_between_them_are_copied(built, drive, tmp_path):
    rows = shown(built, "drive-00", "3:7")
    first, last = rows.span
    raw = list(messages_of(log_of(*opened(built), rows.record), first, last, print))
    with drive.logs[0].open("rb") as log:
        theirs = [one for _, _, one in make_reader(log).iter_messages() if first <= one.log_time <= last]
    assert sorted(one.data for one in raw) == sorted(one.data for one in theirs)
    assert len(raw) > 10


def test_a_topic_of_the_log_with_the_name_of_a_column_keeps_apart(built, tmp_path):
    rows = shown(built, "drive-00", "0:3")
    raw = list(messages_of(log_of(*opened(built), rows.record), *rows.span, print))[:1]
    for topic in ("/camera.front", "/ego.speed.age", "/meta"):
        own = dataclasses.replace(raw[0], channel=dataclasses.replace(raw[0].channel, topic=topic))
        write_mcap(rows, tmp_path / f"{topic[1:]}.mcap", [own])
        with (tmp_path / f"{topic[1:]}.mcap").open("rb") as file:
            found = [channel for _, channel, _ in make_reader(file).iter_messages()]
        assert [one.topic for one in found if one.message_encoding != "json"] == [f"/log{topic}"]


def test_a_log_that_changed_is_not_shown_beside_its_old_rows(built, tmp_path):
    shutil.copytree(built, tmp_path / "root", ignore=shutil.ignore_patterns("v????????"))
    rows = shown(tmp_path / "root")
    other = dataclasses.replace(rows.record, content_id="0" * 64)
    with pytest.raises(LogReadError, match="has changed since the build"):
        log_of(*opened(tmp_path / "root"), other)
    start = int(next(iter(rows))["timestamp"])
    store, manifest = opened(tmp_path / "root")
    purge(str(tmp_path / "root"), [], [ErasedTime("drive-00", start, start + 10**9)])
    with pytest.raises(UsageError, match="some of its time was erased"):
        log_of(store, manifest, rows.record)


def test_a_log_that_is_known_by_all_its_bytes_is_shown_beside_its_rows(drive, tmp_path):
    build_at(drive.recipe().model_copy(update={"hash": "full"}), tmp_path / "root")
    rows = shown(tmp_path / "root", "drive-00", "0:3")
    assert list(messages_of(log_of(*opened(tmp_path / "root"), rows.record), *rows.span, print))


def test_logloom_reads_what_it_wrote(built, tmp_path):
    """The adapter that reads Foxglove's clouds of others reads ours."""
    write_mcap(shown(built, "drive-00"), tmp_path / "drive.mcap")
    log = open_log([str(tmp_path / "drive.mcap")])
    rows = list(shown(built, "drive-00"))
    messages = log.read({"/lidar.points": TopicRequest(MIN_TIME, MAX_TIME)})["/lidar.points"]
    assert messages.time.tolist() == [row["timestamp"] for row in rows]
    found = messages.take(FieldSpec(adapter="points[x,y,z,intensity]"), np.arange(len(rows)))
    for value, row in zip(found, rows, strict=True):
        np.testing.assert_array_equal(value, row["lidar.points"])


def logged(path):
    """What a recording holds, read by Rerun's own reader: by entity, (tick, component, value) by tick.

    Rerun batches what it is given, by component and time; a file has its batches in any order.
    """
    found = {}
    for chunk in pytest.importorskip("rerun.chunk").RrdReader(str(path)).stream():
        batch = chunk.to_record_batch()
        if TIMELINE not in batch.schema.names:
            continue
        ticks = batch[TIMELINE].cast("int64").to_pylist()
        for name in set(batch.schema.names) - {TIMELINE, "log_time", "log_tick", "rerun.controls.RowId"}:
            for tick, value in zip(ticks, batch[name].to_pylist(), strict=True):
                if value is not None:
                    found.setdefault(chunk.entity_path, []).append((tick, name, value))
    return {entity: sorted(values, key=lambda one: one[:2]) for entity, values in found.items()}


def entities(path):
    """What a recording says of each entity: tick to components."""
    found = {}
    for entity, values in logged(path).items():
        for tick, name, value in values:
            found.setdefault(entity, {}).setdefault(tick, {})[name] = value
    return found


def test_a_recording_of_rerun_holds_the_rows(gappy, tmp_path):
    pytest.importorskip("rerun")
    out = tmp_path / "drive.rrd"
    rows = list(shown(gappy, "drive-01"))
    assert save_rrd(shown(gappy, "drive-01"), out) == {}
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["drive.rrd"]
    found = entities(out)
    assert {tick: value["row"] for tick, value in found["/meta"].items()} == {
        row["timestamp"]: [number] for number, row in enumerate(rows)
    }
    missing = 0
    for name in logloom.datasets.open(str(gappy)).schema.columns:
        entity = "/" + name.replace(".", "/")
        usable = {row["timestamp"]: row for row in rows if row.get(f"{name}.available", True)}
        drawn = {tick: one for tick, one in found[entity].items() if "Clear:is_recursive" not in one}
        assert sorted(drawn) == list(usable)
        cleared = found[entity].keys() - drawn.keys()
        gaps = [row["timestamp"] for row in rows if row["timestamp"] not in usable]
        assert cleared <= set(gaps)
        ended = [b["timestamp"] for a, b in itertools.pairwise(rows) if a["timestamp"] in usable]
        assert cleared == set(ended) & set(gaps)
        missing += len(cleared)
        for tick, row in usable.items():
            check_drawn(name, drawn[tick], row[name])
        ages = {tick: [row[f"{name}.age"]] for tick, row in usable.items() if f"{name}.age" in row}
        ages = {tick: age for tick, age in ages.items() if age != [NO_AGE]}
        told = {
            tick: one["Scalars:scalars"]
            for tick, one in found.get(f"{entity}/age", {}).items()
            if "Scalars:scalars" in one
        }
        assert told == ages
    assert missing > 0


def check_drawn(name, one, value):
    """What an entity says at a tick against the row's value, column by column of the demo."""
    if name == "camera.front":
        assert bytes(one["EncodedImage:blob"][0]) == value
        assert one["EncodedImage:media_type"] == ["image/jpeg"]
    elif name == "lidar.points":
        np.testing.assert_array_equal(np.float32(one["Points3D:positions"]), value[:, :3])
        np.testing.assert_array_equal(np.float32(one["intensity"]), value[:, 3])
    elif name == "ego.position":
        np.testing.assert_array_equal(np.float32(one["Transform3D:translation"][0]), np.float32(value))
        assert one["Scalars:scalars"] == value.tolist()
    elif name in ("objects", "lights"):
        assert json.loads(one["TextDocument:text"][0]) == json_value(value)
    elif value.size <= 64:
        np.testing.assert_array_equal(one["Scalars:scalars"], np.ravel(value))
    else:
        assert one["Tensor:data"][0]["shape"] == list(value.shape)
        np.testing.assert_array_equal(one["Tensor:data"][0]["buffer"], np.ravel(value))


def test_without_rerun_the_command_names_its_extra(built, tmp_path):
    for more in ([], ["--save", tmp_path / "drive.rrd"]):
        done = logloom_without("rerun", "show", built, *more)
        (line,) = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2, "")
        assert line.endswith("pip install 'logloom[view]'")
    assert list(tmp_path.iterdir()) == []


def test_pixels_and_text_in_a_recording(tmp_path):
    pytest.importorskip("rerun")
    pixels = np.arange(6 * 10 * 3, dtype=np.uint8).reshape(6, 10, 3)
    image = column("cam", ColumnType(np.dtype("u1"), (6, 10, 3)), pixels)
    (drawn,) = archetypes(image, {"cam": pixels})
    assert drawn.buffer.as_arrow_array().to_pylist() == [pixels.ravel().tolist()]
    (text,) = archetypes(column("note", STRING, "a"), {"note": "<b>"})
    assert text.text.as_arrow_array().to_pylist() == ["<b>"]
    assert list(archetypes(column("cam", BYTES, b"\xff\xd8\xff"), {"cam": b"<svg>"})) == []


def column(name, ctype, value=None, recipe=None, columns=None):
    return column_of(name, ctype, value, recipe or {}, columns or {name: ctype})


def message(one, value, **values):
    row = {"timestamp": 1_500_000_000_000_000_001, one.name: value, **values}
    found = message_of(one, row)
    if found is not None:
        name, schema = schema_of(one)
        jsonschema.validate(json.loads(to_json(found)), schema)
        assert schema["title"] == name
    return found


def test_schemas_have_the_fields_that_foxglove_knows():
    assert {name: set(schema["properties"]) for name, schema in SCHEMAS.items()} == FIELDS
    assert all(set(schema["required"]) == FIELDS[name] for name, schema in SCHEMAS.items())


@pytest.mark.parametrize(
    ("shape", "encoding", "step"),
    [((6, 10, 3), "rgb8", 30), ((6, 10, 4), "rgba8", 40), ((16, 10), "mono8", 10)],
)
def test_arrays_of_pixels_are_raw_images(shape, encoding, step):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    one = column("cam.raw", ColumnType(np.dtype("u1"), shape), pixels)
    found = message(one, pixels)
    assert schema_of(one)[0] == "foxglove.RawImage"
    assert (found["encoding"], found["step"], found["height"]) == (encoding, step, shape[0])
    np.testing.assert_array_equal(as_array(found["data"], "u1").reshape(shape), pixels)


def test_bytes_that_are_no_image_among_images_are_left_out():
    one = column("cam", BYTES, b"\xff\xd8\xff\xe0")
    assert message(one, b"\x89PNG\r\n\x1a\n")["format"] == "png"
    assert message(one, b"<svg>") is None


def test_points_of_any_type_are_packed_as_they_lie():
    dtype = np.dtype([("x", "<f4"), ("y", "<f4"), ("ring", "<u2"), ("t", "<i8"), ("z", "<f8")])
    points = np.zeros(5, dtype)
    points["z"] = np.arange(5)
    one = column("radar", ColumnType(dtype, (None,)), points)
    found = message(one, points)
    assert [(f["name"], f["offset"], f["type"]) for f in found["fields"]] == [
        *(("x", 0, 7), ("y", 4, 7), ("ring", 8, 3)),
        ("z", 18, 8),
    ]
    np.testing.assert_array_equal(as_array(found["data"], dtype), points)
    half = np.ones((3, 5), np.float16) * np.float16(0.1)
    one = column("lidar.points", ColumnType(np.dtype("<f2"), (None, 5)), half)
    found = message(one, half)
    assert [f["name"] for f in found["fields"]] == ["x", "y", "z", "value_3", "value_4"]
    np.testing.assert_array_equal(as_array(found["data"], "<f4").reshape(3, 5), half)


def test_poses_are_transforms_between_the_frames_of_the_recipe_and_clouds_lie_in_them():
    recipe = {
        "columns": {
            "lidar.points": {"topic": "/lidar", "as": "points[x,y,z]"},
            "lidar.pose": {"tf": {"from": "lidar_top", "to": "odom"}, "at": "lidar.points", "as": "matrix"},
        }
    }
    cloud = column("lidar.points", ColumnType(np.dtype("<f4"), (None, 3)), np.ones((1, 3), "<f4"), recipe)
    assert cloud.frame == "lidar_top"
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = [[0, -1, 0], [1, 0, 0], [0, 0, 1]], [1, 2, 3]
    one = column("lidar.pose", ColumnType(np.dtype("<f8"), (4, 4)), matrix, recipe)
    found = message(one, matrix)
    assert (found["parent_frame_id"], found["child_frame_id"]) == ("odom", "lidar_top")
    assert found["translation"] == {"x": 1.0, "y": 2.0, "z": 3.0}
    assert list(found["rotation"].values()) == pytest.approx([0, 0, 0.5**0.5, 0.5**0.5])
    assert message(one, np.full((4, 4), np.nan)) is None


def test_a_place_is_turned_by_the_rotation_beside_it():
    columns = {
        "ego.position": ColumnType(np.dtype("<f8"), (2,)),
        "ego.rotation": ColumnType(np.dtype("<f4"), (4,)),
    }
    one = column("ego.position", columns["ego.position"], np.ones(2), columns=columns)
    place = np.array([4.5, -1.0])
    turned = message(one, place, **{"ego.rotation": np.array([0, 0, 1, 0], "<f4")})
    assert turned["pose"]["position"] == {"x": 4.5, "y": -1.0, "z": 0.0}
    assert turned["pose"]["orientation"] == {"x": 0.0, "y": 0.0, "z": 1.0, "w": 0.0}
    lost = {"ego.rotation": np.full(4, np.nan, "<f4"), "ego.rotation.available": False}
    assert list(message(one, place, **lost)["pose"]["orientation"].values()) == UNTURNED
    assert pose_of(one, {"ego.position": np.array([np.nan, 1])}) is None


@pytest.mark.parametrize("seed", range(20))
def test_quaternions_of_matrices_turn_as_these_do(seed):
    quaternion = np.random.default_rng(seed).normal(size=4) * 10.0 ** (seed % 3 - 1)
    if seed < 4:  # half turns, where a formula by the trace alone divides by zero
        quaternion = np.eye(4)[seed]
    matrix = rotation_matrix(quaternion[None])[0]
    found = quaternion_of(matrix)
    assert (found[3] >= 0, np.linalg.norm(found)) == (True, pytest.approx(1, abs=1e-15))
    np.testing.assert_allclose(rotation_matrix(found[None])[0], matrix, atol=1e-14)
    assert np.isnan(quaternion_of(np.full((3, 3), np.nan))).all()


STRUCT = np.dtype([("label", "<U4"), ("size", "<f4", (2,)), ("seen", "?")])


@pytest.mark.parametrize(
    ("ctype", "value", "expected"),
    [
        (ColumnType(np.dtype("<f4")), np.float32(0.1), float(np.float32(0.1))),
        (ColumnType(np.dtype("<i8")), np.int64(2**62 + 1), 2**62 + 1),
        (ColumnType(np.dtype("?")), np.bool_(True), True),
        (ColumnType(np.dtype("<f8"), (3,)), np.array([1, np.nan, -np.inf]), [1.0, None, None]),
        (ColumnType(np.dtype("<f8"), (None, 2)), np.zeros((0, 2)), []),
        (STRING, "a\n\u202e<script>", "a\n\u202e<script>"),
        (BYTES, b"\x00\xff", "AP8="),
        (
            ColumnType(STRUCT, (None,)),
            np.array([("car", [1, np.nan], True)], STRUCT),
            [{"label": "car", "size": [1.0, None], "seen": True}],
        ),
    ],
)
def test_other_values_are_json_with_a_schema_of_their_type(ctype, value, expected):
    one = column("some.name", ctype, value)
    assert one.kind == "plain"
    assert message(one, value) == {"value": expected}
    assert json.loads(to_json(message(one, value))) == {"value": expected}


def test_units_stand_in_the_schema():
    one = ShownColumn("v", ColumnType(np.dtype("<f8"), unit="m s-1", description="of the wheels"))
    assert schema_of(one)[1]["properties"]["value"]["description"] == "of the wheels; m s-1"


def test_rows_before_1970_are_an_error_in_an_mcap(built, tmp_path):
    rows = shown(built, None, "0:1")
    rows.__class__ = type("Early", (type(rows),), {"__iter__": lambda self: iter([{"timestamp": -5}])})
    with pytest.raises(UsageError, match="no time before 1970"):
        write_mcap(rows, tmp_path / "a.mcap")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_a_file_and_says_which_log(built, tmp_path):
    out = tmp_path / "drive.mcap"
    done = command("show", str(built), "--rows", "0:5", "--with-log", "--mcap", str(out))
    assert (done.returncode, done.stdout.strip()) == (0, str(out))
    assert "shows log drive-00; the version has 2 logs" in done.stderr
    assert len(read(out)["/meta"]) == 5
    again = command("show", str(built), "--mcap", str(out))
    assert (again.returncode, again.stdout) == (2, "")
    assert "exists already" in again.stderr
