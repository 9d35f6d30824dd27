"""Calibrations of cameras: columns of a recipe, from every kind of message; what is said of changes."""

import numpy as np
import pytest
from mcap.writer import Writer

from logloom.errors import LogReadError, RecipeError, UsageError
from logloom.io.logs.interface import FieldSpec
from logloom.io.logs.opening import open_log
from logloom.pipelines.doctor.doctor import examine_all
from logloom.pipelines.info.info import describe
from logloom.pipelines.info.tree import draw_trees
from logloom.recipe import Recipe
from logloom.schema import MAX_TIME, MIN_TIME
from logloom.transforms.build.commit import notes_on_frames
from logloom.transforms.build.job import plain
from logloom.transforms.rows import calibrations
from logloom.transforms.rows.calibrations import calibration_changes, calibration_note, camera_topics
from logloom.transforms.rows.frames import frame_named_by
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.rows.plan.row_plan import Span
from tests.io.logs.messages.test_protobuf import TIMESTAMP, definitions, message_type
from tests.resample.frames_reference import matrix_of
from tests.tier import by_tier
from tests.transforms.ros2_logs import (
    HEADER,
    SECOND,
    SPEED,
    START,
    TF,
    header,
    speeds,
    transform,
    write_log,
)
from tests.transforms.rows.test_pose_lookups import built, recipe


def resolved(recipe, logs):
    """The plan of a recipe, and the texts of its notes."""
    plan, notes = resolve(recipe, logs)
    return plan, tuple(note.text for note in notes)


INFO = (
    "sensor_msgs/msg/CameraInfo",
    "std_msgs/Header header\nuint32 height\nuint32 width\nstring distortion_model\nfloat64[] d\n"
    "float64[9] k\nfloat64[9] r\nfloat64[12] p\n" + HEADER,
)
OF_FOXGLOVE = (
    "foxglove_msgs/msg/CameraCalibration",
    "builtin_interfaces/Time timestamp\nstring frame_id\nuint32 width\nuint32 height\n"
    "string distortion_model\nfloat64[] d\nfloat64[9] k\nfloat64[9] r\nfloat64[12] p\n"
    + "================\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n",
)
MS = SECOND // 1000
K = [900.0, 0, 640, 0, 901, 360, 0, 0, 1]
D = [0.1, -0.2, 0.01, 0.02, 0.3]
MOUNT = (1.5, 0.2, 1.1), (-0.5, 0.5, -0.5, 0.5)


def info(t, k=K, d=D, model="plumb_bob", frame="/cam_front"):
    said = {"height": 720, "width": 1280, "distortion_model": model, "d": d, "k": k}
    return t, {"header": {**header(t), "frame_id": frame}, **said, "r": [0.0] * 9, "p": [0.0] * 12}


def camera(change=None):
    """A camera that says its calibration ten times a second for two; from `change` on another one."""
    other = [880.0, *K[1:]]
    return [info(START + i * 100 * MS, other if change is not None and i >= change else K) for i in range(20)]


def topics(change=None):
    mounted = transform(0, "base_link", "cam_front", *MOUNT)
    return {
        "/cam/front/camera_info": (INFO, camera(change)),
        "/tf_static": (TF, [(START, {"transforms": [mounted]})]),
        "/can": (SPEED, speeds(20)),
    }


FRONT = "front: {calibration: {camera: /cam/front/camera_info, frame: base_link}}"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return open_log([write_log(tmp_path_factory.mktemp("logs") / "drive.mcap", topics())])


@pytest.fixture(scope="module")
def changing(tmp_path_factory):
    return open_log([write_log(tmp_path_factory.mktemp("logs") / "drive.mcap", topics(change=12))])


def test_a_calibration_is_five_columns(log):
    plan, _ = resolved(recipe(FRONT), {"drive": log})
    assert list(plan.schema.columns) == [
        "front.k",
        "front.d",
        "front.model",
        "front.size",
        "front.extrinsics",
    ]
    rows, tallies = built(log, plan)
    num_rows = len(rows["timestamp"])
    assert num_rows > 70
    np.testing.assert_array_equal(rows["front.k"], np.broadcast_to(np.reshape(K, (3, 3)), (num_rows, 3, 3)))
    assert rows["front.k"].dtype == np.float64
    assert all(d.tolist() == D for d in rows["front.d"])
    assert {bytes(model) for model in rows["front.model"]} == {b"plumb_bob"}
    assert np.unique(rows["front.size"], axis=0).tolist() == [[720, 1280]]
    np.testing.assert_allclose(rows["front.extrinsics"][3], matrix_of(*MOUNT), atol=1e-15)
    assert rows["front.extrinsics.available"].all()
    assert list(notes_on_frames(plan, tallies)) == []


@pytest.mark.parametrize("rows", by_tier([7], [1, 7]))
def test_a_calibration_is_the_same_in_any_partitioning(changing, rows):
    columns = (
        FRONT
        + "\nof_time: {calibration: {camera: /cam/front/camera_info, resample: previous, tolerance: 200ms}}"
    )
    plan = resolved(recipe(columns), {"drive": changing})[0]
    whole, tallies = built(changing, plan)
    parts, some = built(changing, resolved(recipe(columns, rows), {"drive": changing})[0], 1 << 10)
    assert len(some) > len(tallies) == 1
    for name, values in whole.items():
        joined, other = (v if isinstance(v, np.ndarray) else v.values for v in (values, parts[name]))
        assert joined.tobytes() == other.tobytes(), name
    assert list(notes_on_frames(plan, some)) == list(notes_on_frames(plan, tallies))


def test_a_change_is_told_by_the_manifest_doctor_and_info(changing):
    plan = resolved(recipe(FRONT), {"drive": changing})[0]
    rows, tallies = built(changing, plan)
    assert set(rows["front.k"][:, 0, 0]) == {880.0}  # rows have the last
    text = "the calibration on /cam/front/camera_info changes within the log; these messages differ from"
    text += " its last"
    last = START + 1100 * MS
    assert list(notes_on_frames(plan, tallies)) == [f"{text} (12 messages, the last at {last} ns)"]
    path = changing.summary.uris[0]
    (diagnosis,) = examine_all([path], {})
    (found,) = (finding for finding in diagnosis.findings if finding.kind == "calibration")
    assert (found.kind, found.severity, found.topic, found.count) == (
        "calibration",
        "note",
        "/cam/front/camera_info",
        1,
    )
    assert found.message.startswith("the calibration changes 1 time: at 2023-11-14 22:13:21")
    (tree,) = draw_trees([path], {})
    changes = "changes 1 time: at 2023-11-14 22:13:21.200 UTC (log time)"
    assert f"note: the calibration on /cam/front/camera_info {changes}" in list(tree.lines())
    assert tree.to_json()["calibrations"] == {"/cam/front/camera_info": [START + 1200 * MS]}
    (shown,) = describe([path], {})
    assert "\n/cam/front/camera_info: its last calibration differs from the first" in shown.headline
    topics = {topic["topic"]: topic for topic in shown.to_json()["topics"]}
    assert [name for name, topic in topics.items() if "recalibrated" in topic] == ["/cam/front/camera_info"]
    assert list(calibration_changes(changing, "/cam/front/camera_info")) == [START + 1200 * MS]


def test_messages_that_differ_add_up_over_spans(changing):
    spans = [Span(MIN_TIME, START + 500 * MS), Span(START + 500 * MS, MAX_TIME)]
    notes = [calibration_note(changing, "/cam/front/camera_info", span) for span in spans]
    assert [list(note.values()) for note in notes] == [[(5, START + 400 * MS)], [(7, START + 1100 * MS)]]


def test_info_says_nothing_of_a_calibration_that_stays_and_reads_two_messages_of_each(log, monkeypatch):
    (shown,) = describe([log.summary.uris[0]], {})
    assert shown.recalibrated == []
    read = []
    monkeypatch.setattr(calibrations, "_recorded", lambda log, messages: read.append(len(messages)) or [b""])
    assert not calibrations.ends_otherwise(log, "/cam/front/camera_info")
    assert read == [1, 1]


def test_with_previous_rows_have_the_calibration_of_their_time(changing):
    columns = "c: {calibration: {camera: /cam/front/camera_info, resample: previous, tolerance: 200ms}}"
    rows, _ = built(changing, resolved(recipe(columns), {"drive": changing})[0])
    there = rows["c.k.available"]
    late = rows["timestamp"] >= START + 1200 * MS
    assert set(rows["c.k"][there & late][:, 0, 0]) == {880.0}
    assert set(rows["c.k"][there & ~late][:, 0, 0]) == {900.0}
    assert "c.extrinsics" not in rows


def test_a_model_keeps_its_own_number_of_parameters(tmp_path):
    eight = [float(i) for i in range(8)]
    said = [
        info(START, d=eight, model="rational_polynomial"),
        info(START + SECOND, d=eight[:4], model="fisheye"),
    ]
    log = open_log([write_log(tmp_path / "drive.mcap", {"/c": (INFO, said), "/can": (SPEED, speeds(3))})])
    rows, _ = built(log, resolved(recipe("c: {calibration: {camera: /c}}"), {"drive": log})[0])
    assert rows["c.d"][0].tolist() == eight[:4]
    columns = "c: {calibration: {camera: /c, resample: nearest, tolerance: 2s}}"
    rows, _ = built(log, resolved(recipe(columns), {"drive": log})[0])
    assert {len(d) for d in rows["c.d"]} == {4, 8}


def test_foxglove_calibrations_in_cdr_are_read(tmp_path):
    said = {"width": 1280, "height": 720, "distortion_model": "kannala_brandt", "d": D[:4], "k": K}
    message = {
        "timestamp": header(START)["stamp"],
        "frame_id": "cam_front",
        **said,
        "r": [0.0] * 9,
        "p": [0.0] * 12,
    }
    log = open_log([write_log(tmp_path / "d.mcap", {**topics(), "/c": (OF_FOXGLOVE, [(START, message)])})])
    _check_foxglove(log)
    assert list(camera_topics(log)) == ["/c", "/cam/front/camera_info"]


def test_foxglove_calibrations_in_protobuf_are_read(tmp_path):
    log = open_log([write_protobuf(tmp_path / "drive.mcap", K)])
    _check_foxglove(log)
    assert list(camera_topics(log)) == ["/c"]


def test_a_camera_matrix_of_another_length_is_refused(tmp_path):
    log = open_log([write_protobuf(tmp_path / "drive.mcap", K[:4])])
    with pytest.raises(LogReadError, match="a camera matrix of 4 numbers; it has 9"):
        log.last_message("/c").take(FieldSpec(adapter="camera_matrix"), np.arange(1))


def test_a_camera_that_is_calibrated_late_has_its_last_calibration(tmp_path):
    log = open_log([write_protobuf(tmp_path / "drive.mcap", [], K, K)])
    plan = resolved(recipe("c: {calibration: {camera: /c}}"), {"drive": log})[0]
    rows, tallies = built(log, plan)
    assert {tuple(k.reshape(-1)) for k in rows["c.k"]} == {tuple(K)}
    (told,) = notes_on_frames(plan, tallies)
    assert told.endswith(f"these messages differ from its last (1 message, the last at {START} ns)")
    assert list(calibration_changes(log, "/c")) == [START + SECOND]


def write_protobuf(path, *matrices):
    """A log of three foxglove.CameraCalibration, whose K are these in turn."""
    definition, classes = definitions(
        message_type(
            "CameraCalibration",
            ("timestamp", TIMESTAMP),
            ("frame_id", "string"),
            *(("width", "fixed32"), ("height", "fixed32"), ("distortion_model", "string")),
            *((name, "double", "repeated") for name in "DKRP"),
        )
    )
    said = {"frame_id": "cam_front", "width": 1280, "height": 720, "distortion_model": "kannala_brandt"}
    message = classes["CameraCalibration"](**said, D=D[:4])
    message.timestamp.seconds = START // SECOND
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("toy.CameraCalibration", "protobuf", definition)
        channel = writer.register_channel("/c", "protobuf", schema)
        for i in range(3):
            message.K[:] = matrices[i % len(matrices)]
            writer.add_message(channel, START + i * SECOND, message.SerializeToString(), START + i * SECOND)
        writer.finish()
    return str(path)


def _check_foxglove(log):
    rows, _ = built(log, resolved(recipe("c: {calibration: {camera: /c}}"), {"drive": log})[0])
    assert rows["c.k"][0].reshape(-1).tolist() == K
    assert rows["c.d"][0].tolist() == D[:4]
    assert bytes(rows["c.model"][0]) == b"kannala_brandt"
    assert rows["c.size"][0].tolist() == [720, 1280]
    assert frame_named_by(log, "/c") == "cam_front"


def test_a_log_without_the_camera_has_unavailable_columns(log, tmp_path):
    other = {name: topic for name, topic in topics().items() if name != "/cam/front/camera_info"}
    without = open_log([write_log(tmp_path / "other.mcap", other)])
    plan, notes = resolved(recipe(FRONT), {"drive": log, "other": without})
    assert any("front.k" in note for note in notes)
    rows, tallies = built(without, plan)
    assert not any(
        rows[f"front.{part}.available"].any() for part in ("k", "d", "model", "size", "extrinsics")
    )
    (told,) = notes_on_frames(plan, tallies)
    assert told.startswith("front.extrinsics: ")
    assert "without a pose of the frame of /cam/front/camera_info in base_link: no path" in told


@pytest.mark.parametrize(
    ("columns", "mistakes"),
    [
        (
            "front: {calibration: {camera: /cam/frnt, frame: base_link}}",
            [
                "recipe.yaml:6: columns.front.calibration.camera: the log has no topic '/cam/frnt'; "
                "did you mean /can?",
            ],
        ),
        (
            "front: {calibration: {camera: /cam/front/camera_info, frame: bas_link}}",
            [
                "recipe.yaml:6: columns.front.calibration.frame: no transform has the frame 'bas_link' in "
                "the log; did you mean base_link?",
            ],
        ),
        (
            "front: {calibration: {camera: /can}}",
            [
                "recipe.yaml:6: columns.front.calibration.as: topic /can (car_msgs/msg/Speed): "
                "as camera_matrix: the message has no k or K",
                "recipe.yaml:6: columns.front.calibration.as: topic /can (car_msgs/msg/Speed): "
                "as distortion: the message has no d or D",
            ],
        ),
    ],
)
def test_a_mistake_is_told_once_at_the_key_that_was_written(log, columns, mistakes):
    with pytest.raises(RecipeError) as caught:
        resolved(recipe(columns), {"drive": log})
    assert str(caught.value).splitlines()[: len(mistakes)] == mistakes
    assert len({line.partition(": ")[2] for line in str(caught.value).splitlines()}) <= 4


@pytest.mark.parametrize(
    ("columns", "mistake"),
    [
        ("a: {calibration: {camra: /c}}", "columns.a.calibration.camra: unknown key; did you mean camera?"),
        ("a: {calibration: /c}", "columns.a.calibration: "),
        ("a: {calibration: {camera: /c}, unit: m}", "columns.a.unit: has no meaning with `calibration`"),
        (
            "a: {calibration: {camera: /c}}\na.k: {topic: /c, field: k}",
            "columns.a.calibration: expands to a.k, which the recipe also defines",
        ),
        (
            "a: {calibration: {camera: /c, tolerance: 1s}}",
            "columns.a.calibration: `tolerance` has no meaning with resample: static",
        ),
        (
            "a: {calibration: {camera: /c, frame: b, static: []}}",
            "no topics of transforms; name some in `topics` or `static`",
        ),
        ("A: {calibration: {camera: /c}}", "names are parts of a-z, 0-9 and _"),
    ],
)
def test_a_mistake_of_the_recipe_is_told_with_its_place(columns, mistake):
    with pytest.raises(RecipeError) as caught:
        recipe(columns)
    assert mistake in str(caught.value)


def test_recipes_hold_the_columns_that_a_calibration_stands_for():
    made = recipe(FRONT)
    assert Recipe.from_yaml(made.to_yaml()) == made
    assert Recipe.model_validate(made.identity_json()) == made
    head = {"name": "t", "logs": "x", "clock": {"rate": 40}, "partition": {"rows": 1000}}
    said = {"front": {"calibration": {"camera": "/cam/front/camera_info", "frame": "base_link"}}}
    assert Recipe.model_validate({**head, "columns": said}) == made


def test_other_recipes_keep_their_identity(log):
    plan = resolved(recipe("a: {topic: /can, field: speed}"), {"drive": log})[0]
    assert "deskew" not in plain(plan.columns[0])[1]
    posed = resolved(recipe("p: {tf: {from: cam_front, to: base_link}}"), {"drive": log})[0]
    assert not {"source_topic", "target_topic", "around"} & plain(posed.transforms[0])[1].keys()


def test_a_topic_whose_messages_name_no_frame_is_a_mistake(log, tmp_path):
    command = ("car_msgs/msg/Command", "float64 throttle\n")
    said = {**topics(), "/command": (command, [(START, {"throttle": 1.0})])}
    other = open_log([write_log(tmp_path / "other.mcap", said)])
    with pytest.raises(UsageError, match=r"messages of /command \(car_msgs/msg/Command\) have no frame"):
        frame_named_by(other, "/command")
    with pytest.raises(RecipeError, match=r"columns.p.tf: messages of /command .* have no frame"):
        resolved(recipe("p: {tf: {from: {topic: /command}, to: base_link}}"), {"drive": other})
