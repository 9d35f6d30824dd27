"""Compressed pictures: broken ones are refused as messages, by their structure alone."""

import functools
import io
import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcap.writer import Writer
from PIL import Image
from rosbags.rosbag1 import Writer as BagWriter

from logloom.errors import LogReadError
from logloom.io.logs.interface import FieldSpec, OpenOptions, TopicRequest
from logloom.io.logs.messages.picture_structure import structure_problem
from logloom.io.logs.opening import open_log
from tests.io.logs.making import SECOND, START, everything
from tests.io.logs.messages.test_standard_messages import (
    PROTOBUF_DEFINITION,
    as_json,
    as_protobuf,
    json,
    json_schema,
)
from tests.transforms.ros2_logs import COMPRESSED, header, write_log

DATA = FieldSpec(("data",))


def picture(form="jpeg", seed=0, size=(48, 32), **options):
    """The bytes of a noisy picture; `options` go to Pillow."""
    rng = np.random.default_rng(seed)
    file = io.BytesIO()
    pixels = Image.fromarray(rng.integers(0, 256, (*size[::-1], 3), np.uint8))
    pixels.save(file, form, **options)
    return file.getvalue()


def with_thumbnail():
    """A JPEG whose EXIF contains another one, with an end of its own."""
    small = picture(size=(16, 16))
    exif = b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0" + small
    jpeg = picture()
    return jpeg[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2) + exif + jpeg[2:]


def with_restarts():
    return picture(restart_marker_blocks=2)


def several():
    file = io.BytesIO()
    first, second = (Image.fromarray(np.full((20, 30, 3), value, np.uint8)) for value in (9, 99))
    first.save(file, "MPO", save_all=True, append_images=[second])
    return file.getvalue()


@functools.cache
def sound(name):
    return {
        "jpeg": picture,
        "progressive": lambda: picture(progressive=True),
        "restarts": with_restarts,
        "thumbnail": with_thumbnail,
        "grey": lambda: picture(optimize=True, comment=b"\xff\xd8\xff\xd9"),
        "png": lambda: picture("png"),
        "palette": lambda: picture("png", compress_level=0),
    }[name]()


SINGLE = ("jpeg", "progressive", "restarts", "thumbnail", "grey", "png", "palette")


@pytest.mark.parametrize("name", SINGLE)
def test_a_whole_picture_is_sound_with_and_without_padding(name):
    data = sound(name)
    with Image.open(io.BytesIO(data)) as image:
        image.load()
    assert [structure_problem(data + bytes(padding)) for padding in (0, 1, 5000)] == [""] * 3


def test_several_pictures_in_one_file_are_sound():
    assert structure_problem(several()) == ""
    assert structure_problem(several() + bytes(100)) == ""


@given(name=st.sampled_from(SINGLE), share=st.floats(0, 1, exclude_max=True), padding=st.integers(0, 2000))
def test_a_picture_that_is_cut_anywhere_is_refused(name, share, padding):
    data = sound(name)
    kept = int(share * len(data))
    assert structure_problem(data[:kept])
    # Where zeros fill the place of what was cut; so short a beginning tells no format.
    assert structure_problem(data[:kept] + bytes(padding)) or kept < 8


@given(data=st.data(), name=st.sampled_from(SINGLE))
def test_whatever_is_changed_in_a_picture_no_exception_comes_of_it(data, name):
    changed = bytearray(sound(name))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at : at + 2] = data.draw(st.binary(min_size=2, max_size=2))
    assert isinstance(structure_problem(bytes(changed)), str)


@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), name=st.sampled_from(["png", "palette"]))
def test_a_png_in_which_any_bit_is_flipped_is_refused(at, bit, name):
    changed = bytearray(sound(name))
    place = 8 + int(at * (len(changed) - 8))
    changed[place] ^= 1 << bit
    assert structure_problem(changed)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "a picture without data"),
        (b"\xff\xd8\xff\xd9", "a JPEG without a scan: it ends at byte 2 of 4"),
        (b"\xff\xd8\xff\xe0\x00\x00" + bytes(9), "a JPEG whose segment at byte 2 has a length of 0"),
        (b"\xff\xd8\xff\xe0\x00\x02\x00\x00", "a JPEG with no segment at byte 6 of 8"),
        (b"\xff\xd8\xff\xe0\xff\xff\x00", "a JPEG of 7 bytes that is cut before its first scan"),
        (picture()[:-2], "that is cut in its picture data"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\0IEND\xae\x42\x60\x82", "a PNG that begins with b'IEND', not with IHDR"),
        (picture("png")[:-12], "that is cut before its end"),
    ],
)
def test_what_is_wrong_is_said(data, said):
    assert said in structure_problem(data)


@pytest.mark.parametrize("data", [b"RIFF\x04\0\0\0WEBP", b"GIF89a", b"\x00\x00\x00\x01\x67", b"junk"])
def test_other_formats_pass_as_they_are(data):
    assert structure_problem(data) == ""


def test_the_png_behind_the_parameters_of_a_compressed_depth_is_checked():
    depth = bytes(range(12)) + picture("png")
    assert structure_problem(depth) == ""
    assert "cut" in structure_problem(depth[:-1])


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xd8" + b"\xff\xe0\x00\x02" * 5_000_000,
        b"\xff\xd8" + b"\xff" * 20_000_000,
        picture("png")[:33] + b"\0\0\0\0IDAT\x35\xaf\x06\x1e" * 1_000_000,
    ],
    ids=["segments", "fills", "chunks"],
)
def test_a_hostile_picture_of_many_parts_takes_no_time(data):
    started = time.process_time()
    assert "more than" in structure_problem(data)
    assert time.process_time() - started < 2


# --- in logs --------------------------------------------------------------------------------------------

BROKEN = {2: picture()[:700], 5: b"", 7: picture("png")[:-3]}
PICTURES = [BROKEN.get(i, picture("png" if i % 2 else "jpeg", seed=i)) for i in range(9)]
TIMES = [START + i * SECOND // 10 for i in range(9)]
REASONS = ["cut in its picture data", "without data", "cut before its end"]


def ros2(path, kind=COMPRESSED):
    messages = [
        (t, {"header": header(t), "format": "jpeg", "data": data})
        for t, data in zip(TIMES, PICTURES, strict=True)
    ]
    return write_log(path.with_suffix(".mcap"), {"/cam": (kind, messages)})


def ros1(path):
    definition = COMPRESSED[1].replace("builtin_interfaces/Time stamp", "uint32 seq\ntime stamp")
    definition = definition[: definition.index("================\nMSG: builtin_interfaces/Time")]
    with BagWriter(path.with_suffix(".bag")) as writer:
        made = writer.add_connection(
            "/cam", "sensor_msgs/msg/CompressedImage", msgdef=definition, md5sum="0" * 32
        )
        for t, data in zip(TIMES, PICTURES, strict=True):
            stamp = (0).to_bytes(4, "little") + b"".join(
                part.to_bytes(4, "little") for part in (t // SECOND, t % SECOND, 0)
            )
            body = b"".join(len(part).to_bytes(4, "little") + part for part in (b"jpeg", data))
            writer.write(made, t, stamp + body)
    return str(path.with_suffix(".bag"))


def foxglove(path, encoding):
    with path.with_suffix(".mcap").open("wb") as file:
        writer = Writer(file)
        writer.start()
        if encoding == "json":
            known = ("foxglove.CompressedImage", "jsonschema")
            schema = writer.register_schema(*known, json.dumps(json_schema("CompressedImage")).encode())
        else:
            schema = writer.register_schema("toy.CompressedImage", "protobuf", PROTOBUF_DEFINITION)
        channel = writer.register_channel("/cam", encoding, schema)
        for t, data in zip(TIMES, PICTURES, strict=True):
            values = {"format": "jpeg", "data": data}
            if encoding == "json":
                payload = json.dumps(as_json("CompressedImage", values)).encode()
            else:
                payload = as_protobuf("CompressedImage", values).SerializeToString()
            writer.add_message(channel, t, payload, t)
        writer.finish()
    return str(path.with_suffix(".mcap"))


WAYS = {
    "ros2": ros2,
    "ros1": ros1,
    "protobuf": lambda path: foxglove(path, "protobuf"),
    "json": lambda path: foxglove(path, "json"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["salvage", "skip"])
def test_broken_pictures_are_refused_as_messages_in_every_encoding(tmp_path, way, mode):
    log = open_log([WAYS[way](tmp_path / "drive")], OpenOptions(mode))
    found = log.read({"/cam": everything("log")})["/cam"]
    assert [values.tobytes() for values in found.take(DATA, np.arange(len(found)))] == [
        data for i, data in enumerate(PICTURES) if i not in BROKEN
    ]
    assert [refusal.log_time for refusal in found.refused] == [TIMES[i] for i in BROKEN]
    for refusal, reason in zip(found.refused, REASONS, strict=True):
        assert reason in refusal.reason


@pytest.mark.parametrize("way", WAYS)
def test_a_broken_picture_is_an_error_with_its_place_where_none_may_be_refused(tmp_path, way):
    uri = WAYS[way](tmp_path / "drive")
    with pytest.raises(LogReadError, match=r"/cam: a JPEG of 700 bytes that is cut .*, at byte \d+") as error:
        open_log([uri]).read({"/cam": everything("log")})
    assert uri in str(error.value)
    assert "on_error: salvage" in str(error.value)


def test_requests_share_out_refused_pictures_by_log_time(tmp_path):
    log = open_log([ros2(tmp_path / "drive")], OpenOptions("salvage"))
    edges = [START - SECOND, *TIMES[::2], START + SECOND]
    for max_delay in (SECOND, None):
        refused = [
            refusal.log_time
            for start, stop in itertools.pairwise(edges)
            for refusal in log.read({"/cam": TopicRequest(start, stop, max_delay=max_delay)})["/cam"].refused
        ]
        assert refused == [TIMES[i] for i in BROKEN]


def test_the_last_picture_of_a_topic_is_the_last_sound_one(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "PICTURES", [*PICTURES[:8], b""])
    last = open_log([ros2(tmp_path / "drive")], OpenOptions("skip")).last_message("/cam")
    assert last.log_time.tolist() == [TIMES[6]]
    assert [refusal.log_time for refusal in last.refused] == [TIMES[7], TIMES[8]]
    with pytest.raises(LogReadError, match="without data"):
        open_log([str(tmp_path / "drive.mcap")]).last_message("/cam")


def test_bytes_of_other_types_are_not_looked_into(tmp_path):
    uri = ros2(tmp_path / "drive", ("my_msgs/msg/Blob", COMPRESSED[1]))
    found = open_log([uri]).read({"/cam": everything("log")})["/cam"]
    assert [values.tobytes() for values in found.take(DATA, np.arange(len(found)))] == PICTURES
