"""Suggested recipes build as they stand."""

import sys

import pytest

import logloom.datasets
from logloom.errors import UsageError
from logloom.io.logs.interface import StatedTime
from logloom.io.logs.match import group_logs
from logloom.io.logs.opening import open_log
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.recipe.logs import expand_logs
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.suggest.recipe import nice, suggest
from tests.io.video.making import decoded, stream, write_video
from tests.tier import by_tier
from tests.transforms.ros2_logs import (
    COMMAND,
    COMPRESSED,
    HEADER,
    IMAGE,
    POSE,
    SECOND,
    SPEED,
    START,
    TF,
    VIDEO,
    header,
    speeds,
    transform,
    write_log,
)


def suggested(*paths: str) -> tuple[Recipe, str]:
    logs = {files.log_id: open_log(files.uris) for files in group_logs(paths)}
    text = suggest(logs)
    recipe = Recipe.from_yaml(text)
    assert [files.log_id for files in expand_logs(recipe)] == sorted(logs)
    resolve(recipe, logs)
    return recipe, text


def image(time: int, encoding: str, size: int) -> dict:
    return {
        "header": header(time),
        "height": 2,
        "width": 2,
        "encoding": encoding,
        "is_bigendian": 0,
        "step": 2 * size,
        "data": bytes(4 * size),
    }


def test_a_suggestion_builds_as_it_stands(tmp_path):
    times = [START + i * SECOND // 10 for i in range(20)]
    pose = {"position": {"x": 1.0}, "orientation": {"w": 1.0}}
    path = write_log(
        tmp_path / "drive.mcap",
        {
            "/can": (SPEED, speeds(delay=3 * SECOND // 2)),
            "/2d/Pose": (POSE, [(t, {"header": header(t), "pose": pose}) for t in times]),
            "/unset": (
                POSE,
                [(t, {"header": header(t), "pose": {**pose, "orientation": {}}}) for t in times],
            ),
            "/cmd": (COMMAND, [(START + 5, {"throttle": 1.0, "gains": [1.0]})]),
            "/stampless": (SPEED, [(t, m | {"header": header(0)}) for t, m in speeds()]),
            "/depth": (IMAGE, [(t, image(t, "16UC1", 2)) for t in times]),
            "/color": (IMAGE, [(t, image(t, "rgb8", 3)) for t in times]),
            "/yuv": (IMAGE, [(t, image(t, "yuv422", 2)) for t in times]),
            "/odd": (IMAGE, [(t, image(t, "nv42", 2)) for t in times]),
            "/h264": (
                COMPRESSED,
                [(t, {"header": header(t), "format": "h264", "data": b"x"}) for t in times],
            ),
            "/video": (VIDEO, [(START, {"timestamp": {"sec": 1}, "data": b"", "format": "h264"})]),
        },
    )
    recipe, text = suggested(path)
    columns = recipe.columns
    assert recipe.clock.rate == 10
    assert recipe.time.max_delay == 2 * SECOND  # stamps lie 1.5 s from their log times
    assert recipe.time.topics == {"/stampless": ("log",)}
    assert columns["can.speed"].resample == "linear"
    assert columns["can.gear"].resample == "nearest"
    assert "can.note" not in columns
    assert columns["_2d.pose.rotation"].resample == "slerp"
    assert columns["unset.rotation"].resample == "nearest"  # a zero quaternion can't be turned
    assert columns["cmd.throttle"].resample == "static"
    assert columns["depth"].dtype == "uint16"
    assert columns["depth"].shape == (2, 2, 1)
    assert columns["color"].dtype == "uint8"
    assert columns["color"].shape == (2, 2, 3)
    assert columns["yuv"].shape == (2, 2, 3)
    for topic, why in (("odd", "nv42"), ("h264", "compressed video"), ("video", "compressed video")):
        assert topic not in columns
        assert why in text
    root = str(tmp_path / "root")
    build(plan_build(recipe, root), num_workers=1)
    assert verify(root, against_logs=True, num_workers=1).is_proven


@pytest.mark.parametrize(
    ("form", "codec"),
    [("foxglove", "h264"), ("protobuf", "h265"), ("ffmpeg", "av1"), ("compressed", "vp9")],
)
def test_a_topic_of_video_is_suggested_as_pictures_which_build(form, codec, tmp_path):
    found = stream(codec)
    path = write_video(tmp_path / "drive.mcap", form, found)
    recipe, text = suggested(path)
    column = recipe.columns["video"]
    assert (column.adapter, column.field, column.resample) == ("image", (), "nearest")
    assert "left out" not in text
    root = str(tmp_path / "root")
    build(plan_build(recipe, root), num_workers=1)
    rows = logloom.datasets.open(root)
    whole = [picture.tobytes() for picture in decoded(found).values()]
    shown = [rows[row]["video"] for row in range(len(rows))]
    assert len(shown) == 19  # at 10 Hz, of 1.95 s
    assert all(picture.tobytes() in whole for picture in shown)
    assert verify(root, against_logs=True, num_workers=1).findings == ()


def test_without_pyav_a_topic_of_video_is_left_out_with_the_way_to_get_it(tmp_path, monkeypatch):
    write_log(tmp_path / "can.mcap", {"/can": (SPEED, speeds())})
    path = write_video(tmp_path / "drive.mcap", "compressed", stream("h264"))
    monkeypatch.setitem(sys.modules, "av", None)
    recipe, text = suggested(path, str(tmp_path / "can.mcap"))
    assert list(recipe.columns) == ["can.speed", "can.gear"]
    (line,) = [line for line in text.splitlines() if "left out" in line and "video" in line]
    assert "compressed video (sensor_msgs/msg/CompressedImage): PyAV, which decodes video, is not " in line
    assert "pip install 'logloom[video]'; with it a column of `as: image` can be built" in line


def test_a_topic_of_images_in_one_log_and_video_in_another_is_left_out(tmp_path):
    found = stream("h264", count=10)
    a, b = tmp_path / "a.mcap", tmp_path / "b.mcap"
    write_log(tmp_path / "can.mcap", {"/can": (SPEED, speeds())})
    for first, second, named in (("jpeg", "h264", "h264"), ("h264", "jpeg", "jpeg")):
        paths = [write_video(p, "compressed", found, words=w) for p, w in ((a, first), (b, second))]
        recipe, text = suggested(*paths, str(tmp_path / "can.mcap"))
        assert "video" not in recipe.columns
        assert f"some of its messages are images, others compressed video ({named})" in text


def test_a_log_too_short_for_a_rate_gets_a_row_per_message(tmp_path):
    recipe, _ = suggested(write_log(tmp_path / "short.mcap", {"/can": (SPEED, speeds(3, step=1000))}))
    assert recipe.clock.topic == "/can"
    manifest = build(plan_build(recipe, str(tmp_path / "root")), num_workers=1).manifest
    assert manifest.totals["rows"] == 3


def test_stamps_from_another_day_get_its_offset(tmp_path):
    path = write_log(tmp_path / "replayed.mcap", {"/can": (SPEED, speeds(delay=86_400 * SECOND))})
    recipe, _ = suggested(path)
    assert recipe.time.max_delay == SECOND
    assert recipe.time.sources("/can")[0] == StatedTime("header", offset=86_400 * SECOND)


@pytest.mark.parametrize("count", [1, 3])
def test_latched_transforms_older_than_the_recording_widen_no_bound(tmp_path, count):
    latched = [
        (START + i * SECOND, {"transforms": [transform(START - 3600 * SECOND, "base", f"camera{i}")]})
        for i in range(count)
    ]
    path = write_log(tmp_path / "drive.mcap", {"/tf_static": (TF, latched), "/speed": (SPEED, speeds())})
    recipe, _ = suggested(path)
    assert recipe.time.max_delay == SECOND
    assert recipe.columns["tf_static"].resample == "static"
    build(plan_build(recipe, str(tmp_path / "root")), num_workers=1)


def test_one_topic_with_odd_stamps_doesn_t_make_the_log_a_replay(tmp_path):
    odd = [(t, m | {"header": header(START - i * 86_400 * SECOND)}) for i, (t, m) in enumerate(speeds(), 1)]
    topics = {"/can": (SPEED, speeds()), "/odd": (SPEED, odd)}
    recipe, _ = suggested(write_log(tmp_path / "odd.mcap", topics))
    assert recipe.time.max_delay == SECOND
    assert recipe.time.topics == {"/odd": ("log",)}


def test_a_bag_folder_keeps_its_name(tmp_path):
    for name in ("drive1", "drive2"):
        write_log(tmp_path / name / f"{name}_0.mcap", {"/can": (SPEED, speeds())})
        (tmp_path / name / "metadata.yaml").write_text("rosbag2_bagfile_information: {}\n")
    recipe, _ = suggested(str(tmp_path / "*"))
    assert recipe.log_id == "{stem}"


def test_several_logs_of_one_name_get_a_template_that_tells_them_apart(tmp_path):
    paths = [write_log(tmp_path / car / "drive.mcap", {"/can": (SPEED, speeds())}) for car in ("a", "b")]
    recipe, _ = suggested(*paths)
    assert recipe.log_id == "{parent}"


def test_texts_are_comments_that_only_need_uncommenting(tmp_path):
    path = write_log(tmp_path / "drive.mcap", {"/can": (SPEED, speeds()), "/can/note": (SPEED, speeds())})
    recipe, text = suggested(path)
    assert {column.field for column in recipe.columns.values()} == {("speed",), ("gear",)}
    lines = [line for line in text.splitlines() if "field: note" in line]
    assert [line.partition(":")[0] for line in lines] == ["  # can.note", "  # can.note_2"]
    whole = Recipe.from_yaml(text.replace("  # can.note", "  can.note"), source="uncommented")
    assert {name for name, column in whole.columns.items() if column.field == ("note",)} == {
        "can.note",
        "can.note_2",
    }
    build(plan_build(whole, str(tmp_path / "root")), num_workers=1)
    assert {row["can.note"] for row in logloom.datasets.open(tmp_path / "root")} == {"x"}


def test_times_are_no_data(tmp_path):
    stamp = {"sec": 1_700_000_000, "nanosec": 0}
    fields = {"stamp": ("builtin_interfaces/Time", stamp), "timestamp": ("uint64", 5), "time": ("int64", 7)}
    fields |= {"timestamp_ns": ("int64", 7), "value": ("float64", 1.5)}
    for number, (name, (kind, value)) in enumerate(fields.items()):
        path = write_log(
            tmp_path / f"{number}.mcap",
            {
                "/x": (
                    ("a_msgs/msg/X", f"{kind} {name}\nfloat64 other\n{HEADER}"),
                    [(START + i * SECOND // 10, {name: value, "other": i / 3}) for i in range(20)],
                )
            },
        )
        found = {column.field for column in suggested(path)[0].columns.values()}
        assert found == {("other",), *([("value",)] if name == "value" else [])}, name


def test_a_list_that_cant_be_one_column_is_suggested_by_its_elements(tmp_path):
    kind = (
        "a_msgs/msg/Found",
        "Thing[] things\n================\nMSG: a_msgs/Thing\nfloat64[] scores\nVector3 center\nstring name\n"
        "int32 id\n================\nMSG: a_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n",
    )
    things = [
        {"scores": [0.5] * j, "center": {"x": j, "y": 1.0, "z": 2.0}, "name": "n", "id": j} for j in range(3)
    ]
    messages = [(START + i * SECOND // 10, {"things": things[: i % 4]}) for i in range(20)]
    path = write_log(tmp_path / "drive.mcap", {"/found": (kind, messages)})
    recipe, text = suggested(path)
    assert {name: column.field for name, column in recipe.columns.items() if "scores" not in name} == {
        "found.things.center": tuple(f"things[].center.{axis}" for axis in "xyz"),
        "found.things.id": ("things[].id",),
    }
    assert "  # found.things.name: {topic: /found, field: 'things[].name', " in text
    assert "scores" in text
    build(plan_build(recipe, str(tmp_path / "root")), num_workers=1)
    row = logloom.datasets.open(tmp_path / "root")[3]
    assert row["found.things.id"].tolist() == [0, 1, 2]
    assert row["found.things.center"].tolist() == [[0, 1, 2], [1, 1, 2], [2, 1, 2]]


def test_a_topic_outside_the_recording_is_left_out_with_the_reason(tmp_path):
    """Its clock counts from its start, as all times of the topic do."""
    word = ("a_msgs/msg/Word", "float64 x\n")
    sent = {
        "/here": (word, [(START + i * SECOND // 10, {"x": i}) for i in range(30)]),
        "/boot": (word, [(i * SECOND // 10, {"x": i}) for i in range(12)]),
    }
    left_out = []
    text = suggest({"log": open_log([write_log(tmp_path / "log.mcap", sent)])}, on_left_out=left_out.append)
    assert list(Recipe.from_yaml(text).columns) == ["here.x"]
    comment = (
        "  # /boot: a_msgs/msg/Word, 12 messages\n  # left out: all its messages are outside the recording;"
    )
    assert comment in text
    assert [words.partition(";")[0] for words in left_out] == [
        "topic /boot: all its messages are outside the recording"
    ]


def test_a_log_with_nothing_to_hold_is_refused(tmp_path):
    empty = write_log(tmp_path / "empty.mcap", {})
    with pytest.raises(UsageError, match="no log has messages"):
        suggest({"empty": open_log([empty])})
    words = write_log(
        tmp_path / "words.mcap", {"/say": (("a_msgs/msg/Word", "string word\n"), [(START, {"word": "x"})])}
    )
    assert suggested(words)[0].columns["say.word"].field == ("word",)  # better than no column
    go = ("a_msgs/msg/Go", f"std_msgs/Header header\n{HEADER}")
    nothing = write_log(tmp_path / "nothing.mcap", {"/go": (go, [(START, {"header": header(START)})])})
    with pytest.raises(UsageError, match=r"no topic of these logs has a field .*\n  # /go"):
        suggest({"nothing": open_log([nothing])})


REAL = ["turtlesim.bag", "tilt_laser.bag", "l5kit_scene.mcap"]


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_logs_get_recipes_that_build_and_verify_against_the_logs(shared_data, tmp_path, name):
    recipe, _ = suggested(str(shared_data / "logs" / name))
    assert recipe.clock.rate == 10
    if name in by_tier(REAL[:1], REAL):
        build(plan_build(recipe, str(tmp_path / "root")), num_workers=1)
        assert verify(str(tmp_path / "root"), against_logs=True, num_workers=1).is_proven


def test_a_suggestion_begins_with_an_output_that_needs_no_options_where_others_are_not_installed(
    tmp_path, uninstall
):
    path = write_log(tmp_path / "drive.mcap", {"/can": (SPEED, speeds(count=30))})
    for absent in (["tar"], ["tar", "table", "zarr"], ["tar", "table", "zarr", "bags"]):
        uninstall(*absent)
        recipe, _ = suggested(path)
        (output,) = recipe.outputs
        assert output not in absent
        build(plan_build(recipe, str(tmp_path / output)), num_workers=1)
        assert len(logloom.datasets.open(tmp_path / output)) == 30


def test_tolerances_are_round_figures():
    assert [nice(n) for n in (0, 1_000_000, 1_500_000, 150_000_000, 3 * 10**9)] == [
        1_000_000,
        1_000_000,
        2_000_000,
        200_000_000,
        5 * 10**9,
    ]
