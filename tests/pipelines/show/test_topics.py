"""Topics of a log beside its rows in Rerun: `logloom show --with-log`, read back by Rerun's own reader."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mcap.reader import make_reader
from mcap.writer import Writer
from mcap_ros2.decoder import DecoderFactory
from PIL import Image

from logloom.errors import UsageError
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.opening import open_log
from logloom.pipelines.show import topics as show_topics
from logloom.pipelines.show.log import log_of, messages_of
from logloom.pipelines.show.rerun import last_words, save_rrd
from logloom.pipelines.show.topics import LogTopics
from logloom.schema import MAX_TIME, MIN_TIME
from tests.forking import command
from tests.io.video.making import sent_of, stream, write_video
from tests.pipelines.show.test_show import entities, logged, opened, shown
from tests.transforms.ros2_logs import (
    COMPRESSED,
    HEADER,
    IMAGE,
    START,
    TF,
    header,
    transform,
    write_log,
)

pytest.importorskip("rerun")

CLOUD = (
    "sensor_msgs/msg/PointCloud2",
    "std_msgs/Header header\nuint32 height\nuint32 width\nsensor_msgs/PointField[] fields\n"
    "bool is_bigendian\nuint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense\n"
    + HEADER
    + "================\nMSG: sensor_msgs/PointField\nstring name\nuint32 offset\nuint8 datatype\n"
    "uint32 count\n",
)
STATE = (
    "car_msgs/msg/State",
    "std_msgs/Header header\nstring mode\nfloat64[] gains\nint32[80] many\ncar_msgs/Wheel[] wheels\n"
    "car_msgs/Path[] paths\nuint8[] blob\nbuiltin_interfaces/Time since\n"
    + HEADER
    + "================\nMSG: car_msgs/Wheel\nstring name\nfloat32 speed\n"
    + "================\nMSG: car_msgs/Path\nfloat64[] x\n",
)


def drawn(path, tmp_path, built, **choices):
    """What a recording holds of a log, by the entity below /log; what was left out; what was damaged."""
    problems = []
    choices = {"first": MIN_TIME, "last": MAX_TIME} | choices
    topics = LogTopics(open_log([str(path)]), **choices, on_problem=problems.append)
    save_rrd(shown(built, "drive-00", "0:2"), tmp_path / "out.rrd", topics)
    found = logged(tmp_path / "out.rrd")
    below = {name.removeprefix("/log"): rows for name, rows in found.items() if name.startswith("/log/")}
    return below, topics.left_out, problems


def only(rows, component):
    return [(tick, value) for tick, name, value in rows if name == component]


def messages_in(path):
    """By topic (log time, message) as the mcap library decodes them."""
    found = {}
    with path.open("rb") as file:
        for _, channel, one, message in make_reader(
            file, decoder_factories=[DecoderFactory()]
        ).iter_decoded_messages(log_time_order=False):
            found.setdefault(channel.topic, []).append((one.log_time, message))
    return found


def test_a_recording_has_as_many_messages_as_the_log_with_the_same_stamps_and_values(built, drive, tmp_path):
    rows, problems = shown(built, "drive-00"), []
    topics = LogTopics(log_of(*opened(built), rows.record), *rows.span, problems.append)
    save_rrd(rows, tmp_path / "drive.rrd", topics)
    assert (problems, topics.left_out) == ([], {})
    found, log = logged(tmp_path / "drive.rrd"), messages_in(drive.logs[0])
    assert len(log) > 5
    for topic, messages in log.items():
        times = sorted(time for time, _ in messages)
        own = [name for name in found if name == f"/log{topic}" or name.rpartition("/")[0] == f"/log{topic}"]
        assert own, topic
        for name in own:
            component = found[name][0][1]
            assert sorted(tick for tick, _ in only(found[name], component)) == times, name
    cameras = [(time, message.data) for time, message in log["/cam/front/compressed"]]
    blobs = only(found["/log/cam/front/compressed"], "EncodedImage:blob")
    assert sorted((tick, bytes(value[0])) for tick, value in blobs) == sorted(cameras)
    turns = [(time, [getattr(m.angular_velocity, axis) for axis in "xyz"]) for time, m in log["/imu"]]
    assert sorted(only(found["/log/imu/angular_velocity"], "Scalars:scalars")) == sorted(turns)
    sizes = sorted((time, message.height * message.width) for time, message in log["/lidar/top"])
    clouds = only(found["/log/lidar/top"], "Points3D:positions")
    assert sorted((tick, len(value)) for tick, value in clouds) == sizes
    steps = only(found["/log/odom/base_link"], "Transform3D:translation")
    places = [(time, message.pose.pose.position) for time, message in log["/odom"]]
    places = [(time, np.float32([p.x, p.y, p.z]).tolist()) for time, p in places]
    assert sorted((tick, np.float32(value[0]).tolist()) for tick, value in steps) == sorted(places)


def test_the_rows_are_the_same_with_the_log_and_without(built, tmp_path):
    rows = shown(built, "drive-01", "2:6")
    topics = LogTopics(log_of(*opened(built), rows.record), *rows.span, print)
    save_rrd(rows, tmp_path / "with.rrd", topics)
    save_rrd(rows, tmp_path / "without.rrd")
    with_log, without = entities(tmp_path / "with.rrd"), entities(tmp_path / "without.rrd")
    first, last = rows.span
    beside = {name: with_log.pop(name) for name in list(with_log) if name.startswith("/log/")}
    assert with_log == without
    assert all(first <= tick <= last for values in beside.values() for tick in values)
    assert len(beside["/log/imu/angular_velocity"]) > 10


def test_a_log_is_read_in_parts_and_each_message_shown_once(built, drive, tmp_path, monkeypatch):
    whole, *_ = drawn(drive.logs[0], tmp_path, built)
    (tmp_path / "out.rrd").unlink()
    monkeypatch.setattr(show_topics, "WINDOW_BYTES", 1 << 16)
    parts, *_ = drawn(drive.logs[0], tmp_path, built)
    for name, rows in whole.items():  # by parts those that came late are earlier
        is_equal = sorted(parts[name], key=repr) == sorted(rows, key=repr)
        assert is_equal, name
    assert parts.keys() == whole.keys()


def raw_image(time, encoding, pixels):
    height, width = pixels.shape[:2]
    step = pixels.nbytes // height
    size = {"height": height, "width": width, "step": step, "is_bigendian": 0}
    return time, {"header": header(time), "encoding": encoding, **size, "data": pixels.tobytes()}


def test_raw_images_of_any_depth_are_shown_and_odd_ones_are_counted(built, tmp_path):
    rgb = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    depth = np.arange(24, dtype="<u2").reshape(4, 6)
    ranges = np.arange(24, dtype="<f4").reshape(4, 6)
    images = [
        ("rgb8", rgb),
        ("16UC1", depth),
        ("32FC1", ranges),
        ("16SC1", depth.view("<i2")),
        ("8UC2", rgb[..., :2]),
        ("yuv9", rgb),
    ]
    messages = [raw_image(START + n, *image) for n, image in enumerate(images)]
    write_log(tmp_path / "log.mcap", {"/cam": (IMAGE, messages)})
    found, left_out, _ = drawn(tmp_path / "log.mcap", tmp_path, built)
    buffers = only(found["/cam"], "Image:buffer")
    assert [(tick, bytes(value[0])) for tick, value in buffers] == [
        (START + n, pixels.tobytes()) for n, (_, pixels) in enumerate(images[:4])
    ]
    (count, why) = left_out["topic /cam"]
    assert count == 2
    assert "yuv9" in why or "draws" in why


def test_what_is_no_image_among_compressed_ones_is_counted(built, tmp_path):
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG")
    data = [file.getvalue(), b"\0\0", file.getvalue()]
    messages = [
        (START + n, {"header": header(START + n), "format": "jpeg", "data": one})
        for n, one in enumerate(data)
    ]
    write_log(tmp_path / "log.mcap", {"/cam": (COMPRESSED, messages)})
    found, left_out, _ = drawn(tmp_path / "log.mcap", tmp_path, built)
    assert [tick for tick, _ in only(found["/cam"], "EncodedImage:blob")] == [START, START + 2]
    assert left_out == {"topic /cam": (1, "it isn't what Rerun draws")}


def cloud(time, names, points):
    fields = [{"name": name, "offset": 4 * n, "datatype": 7, "count": 1} for n, name in enumerate(names)]
    step = points.shape[1] * 4
    sizes = {"height": 1, "width": len(points), "point_step": step, "row_step": step * len(points)}
    return time, {
        "header": header(time),
        "fields": fields,
        "is_bigendian": False,
        "is_dense": True,
        **sizes,
        "data": points.astype("<f4").tobytes(),
    }


def test_clouds_have_their_other_fields_beside_them_and_those_without_places_are_counted(built, tmp_path):
    points = np.arange(20, dtype="<f4").reshape(5, 4)
    messages = [
        cloud(START, "xyza", points + 100),
        cloud(START + 1, "abcd", points),
        cloud(START + 2, "xyzi", points),
    ]
    write_log(tmp_path / "log.mcap", {"/lidar": (CLOUD, messages)})
    found, left_out, _ = drawn(tmp_path / "log.mcap", tmp_path, built)
    positions = only(found["/lidar"], "Points3D:positions")
    assert [tick for tick, _ in positions] == [START, START + 2]
    np.testing.assert_array_equal(positions[1][1], points[:, :3])
    assert only(found["/lidar"], "i") == [(START + 2, points[:, 3].tolist())]
    ((title, (count, why)),) = left_out.items()
    assert (title, count) == ("topic /lidar", 1)
    assert "x" in why


def test_transforms_stand_below_their_topic_by_child_with_both_frames(built, tmp_path):
    far, lost = (
        transform(START, "map", "base link/1", (1, 2, 3)),
        transform(START, "map", "lost", rotation=[0] * 4),
    )
    messages = [
        (START, {"transforms": [far, transform(START, "base", "lidar", (0, 0, 2))]}),
        (START + 1, {"transforms": [far, lost]}),
        (START + 2, {"transforms": []}),
    ]
    write_log(tmp_path / "log.mcap", {"/tf": (TF, messages)})
    found, left_out, _ = drawn(tmp_path / "log.mcap", tmp_path, built)
    assert sorted(found) == [r"/tf/base\ link\/1", "/tf/lidar"]
    assert only(found["/tf/lidar"], "Transform3D:parent_frame") == [(START, ["base"])]
    assert only(found["/tf/lidar"], "Transform3D:child_frame") == [(START, ["lidar"])]
    assert only(found["/tf/lidar"], "Transform3D:translation") == [(START, [[0, 0, 2]])]
    assert left_out == {"topic /tf": (1, "it isn't what Rerun draws")}


def test_packets_of_video_are_a_stream_of_their_codec(built, tmp_path):
    packets = stream("h264")
    write_video(tmp_path / "log.mcap", "foxglove", packets)
    found, left_out, _ = drawn(tmp_path / "log.mcap", tmp_path, built)
    samples = only(found["/video"], "VideoStream:sample")
    assert [(tick, bytes(value[0])) for tick, value in samples] == [
        *zip(sent_of(packets), packets.packets, strict=True)
    ]
    (codec,) = {value[0] for _, value in only(found["/video"], "VideoStream:codec")}
    assert codec.to_bytes(4, "big") == b"avc1"
    assert left_out == {}


def state(time, gains, mode="drive"):
    wheels = [{"name": "left", "speed": 1.5}]
    odd = {"paths": [{"x": [1.0]}], "blob": b"abc", "since": {"sec": 1, "nanosec": 2}}
    return time, {
        "header": header(time),
        "mode": mode,
        "gains": gains,
        "many": list(range(80)),
        "wheels": wheels,
        **odd,
    }


def test_fields_are_text_lines_tensors_or_json_and_what_is_none_is_counted(built, tmp_path):
    messages = [state(START, [1.0, 2.0]), state(START + 1, [], "stop"), state(START + 2, [0.5] * 100)]
    write_log(tmp_path / "log.mcap", {"/state": (STATE, messages)})
    found, left_out, _ = drawn(tmp_path / "log.mcap", tmp_path, built)
    assert only(found["/state/mode"], "TextDocument:text")[:2] == [(START, ["drive"]), (START + 1, ["stop"])]
    assert only(found["/state/gains"], "Scalars:scalars") == [(START, [1.0, 2.0]), (START + 1, [])]
    ((time, tensor),) = only(found["/state/gains"], "Tensor:data")
    assert (time, tensor[0]["shape"]) == (START + 2, [100])
    assert [value[0]["shape"] for _, value in only(found["/state/many"], "Tensor:data")] == [[80]] * 3
    wheels = [json.loads(value[0]) for _, value in only(found["/state/wheels"], "TextDocument:text")]
    assert wheels == [[{"name": "left", "speed": 1.5}]] * 3
    assert only(found["/state/since"], "Scalars:scalars") == [(START + n, [1e9 + 2]) for n in range(3)]
    paths = only(found[r"/state/paths\[\].x"], "TextDocument:text")
    assert [json.loads(value[0]) for _, value in paths] == [[[1.0]]] * 3
    assert {title: count for title, (count, _) in left_out.items()} == {"topic /state, blob": 3}


def odd_log(path, topics):
    """A log of {topic: (encoding, schema or None, payloads)}."""
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        for topic, (encoding, schema, payloads) in topics.items():
            number = writer.register_schema(*schema) if schema else 0
            channel = writer.register_channel(topic, encoding, number)
            for time, data in enumerate(payloads):
                writer.add_message(channel, START + time, data, START + time)
        writer.finish()
    return path


SCALAR = ("S", "ros2msg", b"float64 data\n")
PAYLOAD = b"\0\1\0\0" + np.float64(2.5).tobytes()


def test_what_nothing_decodes_is_counted_and_the_rest_is_shown(built, tmp_path):
    odd = odd_log(
        tmp_path / "log.mcap",
        {
            "/odd": ("morse", None, [b"...---..."] * 3),
            "/free": ("json", None, [b'{"a": 1}'] * 2),
            "/plain": ("cdr", SCALAR, [PAYLOAD, PAYLOAD[:7], PAYLOAD]),
        },
    )
    problems = []
    topics = LogTopics(open_log([str(odd)], OpenOptions("salvage")), MIN_TIME, MAX_TIME, problems.append)
    save_rrd(shown(built, "drive-00", "0:1"), tmp_path / "out.rrd", topics)
    counts = {title: count for title, (count, _) in topics.left_out.items()}
    assert counts == {"topic /odd": 3, "topic /free": 2}
    assert "morse" in topics.left_out["topic /odd"][1]
    values = only(logged(tmp_path / "out.rrd")["/log/plain/data"], "Scalars:scalars")
    assert values == [(START, [2.5]), (START + 2, [2.5])]
    (problem,) = problems
    assert "(1 message of /plain)" in problem
    assert str(odd) in problem


def test_topics_and_fields_whose_names_meet_keep_apart(built, tmp_path):
    hostile = "/\x1b]0;<script>\n/../ü"
    names = ["/a", "a", "/a/data", "", "/", hostile]
    log = odd_log(tmp_path / "log.mcap", {name: ("cdr", SCALAR, [PAYLOAD]) for name in names})
    found, left_out, _ = drawn(log, tmp_path, built)
    assert left_out == {}
    assert len(found) == len(names)
    assert all(only(rows, "Scalars:scalars") == [(START, [2.5])] for rows in found.values())


def test_rows_of_tables_are_shown_but_not_copied(built, tmp_path):
    stamps, speeds = START + np.arange(5) * 10**8, np.arange(5) / 2
    pq.write_table(pa.table({"timestamp": stamps, "speed": speeds}), tmp_path / "wheel.parquet")
    found, left_out, _ = drawn(tmp_path / "wheel.parquet", tmp_path, built)
    assert only(found["/wheel/speed"], "Scalars:scalars") == [
        (stamp, [speed]) for stamp, speed in zip(stamps.tolist(), speeds.tolist(), strict=True)
    ]
    assert left_out == {}
    with pytest.raises(UsageError, match="made of tables"):
        messages_of(open_log([str(tmp_path / "wheel.parquet")]), MIN_TIME, MAX_TIME, print)


def test_the_command_shows_the_log_in_a_recording(built, tmp_path):
    out = tmp_path / "drive.rrd"
    done = command("show", str(built), "drive-00", "--with-log", "--save", str(out))
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(out), "")
    assert "/log/imu/angular_velocity" in entities(out)


@pytest.mark.parametrize(
    ("option", "name", "way_out"),
    [
        ("--save", "y.txt", "name it y.rrd"),
        ("--save", "y", "name it y.rrd"),
        ("--save", "y.mcap", "write --mcap y.mcap"),
        ("--mcap", "y.rrd", "write --save y.rrd"),
        ("--mcap", "a.b/y.bag", "name it a.b/y.mcap"),
        ("--mcap", "", "name it .mcap"),
    ],
)
def test_a_file_that_no_viewer_would_open_is_refused_with_the_way_out(option, name, way_out, built):
    done = command("show", str(built), option, name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"logloom: {option} {name}: ")
    assert done.stderr.endswith(f"; {way_out}\n")


def test_where_no_viewer_opens_the_message_names_no_source_of_rerun(built, monkeypatch):
    said = "INFO\nError: winit: os error at /cargo/winit-0.30.13/src/mod.rs:765: no DISPLAY is set.\n"
    assert last_words(said) == "no DISPLAY is set"
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    done = command("show", str(built), "drive-00", "--rows", "0:1")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert line.startswith("logloom: Rerun's viewer doesn't open here (")
    assert ".rs" not in line
    assert line.endswith("write a file: --save FILE.rrd")
