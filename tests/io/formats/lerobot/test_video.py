"""LeRobot datasets with video: encoding by unit, joining, and frames at random."""

import io
import json
import pathlib
from fractions import Fraction

import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest

from logloom.blocks import Block, Ragged
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.lerobot import LeRobotOptions, LeRobotReader
from logloom.io.formats.lerobot.format import FORMAT
from logloom.io.formats.lerobot.options import VideoOptions
from logloom.io.formats.lerobot.video_encoder import RunEncoder, encoder_digest
from logloom.io.formats.lerobot.video_reader import VideoFile
from logloom.io.storage.files import File
from logloom.io.storage.store import Store
from logloom.io.video.encoders import open_encoder
from logloom.schema import BYTES, ColumnType, Schema
from tests.io.formats.lerobot.making import START, STEP, assemble, stage

av = pytest.importorskip("av")
HEIGHT, WIDTH = 64, 80
SCHEMA = Schema(
    {
        "front": BYTES,
        "wide": ColumnType(np.dtype("u1"), (HEIGHT, WIDTH, 3)),
        "speed": ColumnType(np.dtype("<f4")),
    }
)
FRONT, WIDE = "observation.images.front", "observation.images.wide"


def options(codec="h264", gop=3, **more):
    features = {FRONT: "front", WIDE: "wide", "action": "speed"}
    video = {"codec": codec, "gop": gop, "crf": 20}
    return LeRobotOptions.model_validate({"fps": 10, "features": features, "video": video, **more})


def pixels(row, seed=0):
    """A picture of which each differs from the others."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    noise = np.random.default_rng([row, seed]).integers(0, 30, (HEIGHT, WIDTH, 3))
    wave = np.stack([(x * 3 + row * 11) % 200, (y * 3 + row * 7) % 200, (x + y + row * 13) % 200], axis=2)
    return (wave + noise).astype(np.uint8)


def png(picture):
    file = io.BytesIO()
    PIL.Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def make_block(rows, seed=0, log_id="car", frames=None):
    frames = range(rows) if frames is None else frames
    pictures = [pixels(row, seed) for row in range(rows)]
    columns = {
        "timestamp": START + np.asarray(frames, np.int64) * STEP,
        "front": Ragged.from_bytes([png(picture) for picture in pictures]),
        "wide": np.stack(pictures)[:, ::-1],
        "speed": np.arange(rows, dtype="<f4"),
    }
    return Block(log_id, "p", 0, columns)


def decoded(path):
    """All frames of a video, by a decoder that goes from its beginning to its end."""
    with av.open(str(path)) as file:
        return [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]


def staged_frames(root, number):
    """What the encoders' own files decode to, in row order."""
    found = []
    for folder in sorted((root / "parts/lerobot").iterdir()):
        runs = sorted(folder.glob(f"video.{number}.*"), key=lambda path: int(path.suffix[1:]))
        found += [frame for run in runs for frame in decoded(run)]
    return found


@pytest.mark.parametrize(("codec", "gop"), [("h264", 1), ("h264", 5), ("av1", 2), ("av1", 7)])
def test_each_frame_at_its_time_is_what_the_encoders_own_file_decodes_to(codec, gop, tmp_path):
    blocks = [make_block(7, 0), make_block(6, 1, frames=[7, 8, 10, 11, 12, 30]), make_block(5, 2, "van")]
    folder, _ = assemble(tmp_path, blocks, options(codec, gop), SCHEMA)
    episodes = pq.read_table(folder / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    assert [one["length"] for one in episodes] == [9, 3, 1, 5]
    reader = LeRobotReader(str(folder))
    assert reader.schema.columns[FRONT] == ColumnType(np.dtype("u1"), (HEIGHT, WIDTH, 3))
    order = np.random.default_rng(0).permutation(18)
    batch = reader.take(order, (FRONT, WIDE))
    for number, key in enumerate((FRONT, WIDE)):
        expected = staged_frames(tmp_path / "root", number)
        assert len(expected) == 18
        np.testing.assert_array_equal(batch[key], np.stack(expected)[order])
        whole = np.concatenate([block.columns[key] for block in reader.blocks([key], 1 << 15)])
        np.testing.assert_array_equal(whole, np.stack(expected))
        path = folder / f"videos/{key}/chunk-000/file-000.mp4"
        times = [float(frame.pts * frame.time_base) for frame in av.open(str(path)).decode(video=0)]
        starts = [one[f"videos/{key}/from_timestamp"] for one in episodes]
        told = [
            start + frame / 10
            for start, one in zip(starts, episodes, strict=True)
            for frame in range(one["length"])
        ]
        np.testing.assert_allclose(times, told, atol=1e-6)


def test_frames_look_like_the_pictures_that_were_encoded(tmp_path):
    folder, _ = assemble(tmp_path, [make_block(6)], options("av1", 2), SCHEMA)
    reader = LeRobotReader(str(folder))
    for row in range(6):
        found = reader[row][FRONT].astype(np.int64)
        errors = [np.abs(found - pixels(other).astype(np.int64)).mean() for other in range(6)]
        assert np.argmin(errors) == row
    info = json.loads((folder / "meta/info.json").read_text())
    assert info["features"][FRONT]["info"]["video.codec"] == "av1"
    assert info["video_path"] == "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    stats = json.loads((folder / "meta/stats.json").read_text())[FRONT]
    expected = np.stack([pixels(row) for row in range(6)]).reshape(-1, 3).mean(axis=0) / 255
    np.testing.assert_allclose(np.ravel(stats["mean"]), expected, rtol=1e-12)


@pytest.mark.parametrize("codec", ["h264", "av1"])
def test_equal_pictures_give_equal_bytes(codec, tmp_path):
    block = make_block(9)
    one, _ = assemble(tmp_path / "one", [block], options(codec), SCHEMA)
    two, _ = assemble(tmp_path / "two", [block], options(codec), SCHEMA)
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert any(name.suffix == ".mp4" for name in names)
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes()


def test_packets_are_joined_without_encoding_them_again(tmp_path):
    blocks = [make_block(6, 0), make_block(5, 1, frames=range(6, 11))]
    folder, _ = assemble(tmp_path, blocks, options(), SCHEMA)

    def packets(path):
        with av.open(str(path)) as file:
            return [bytes(packet) for packet in file.demux(video=0) if packet.size]

    runs = sorted((tmp_path / "root/parts/lerobot").glob("*/video.0.0"))
    expected = [packet for run in runs for packet in packets(run)]
    assert packets(folder / f"videos/{FRONT}/chunk-000/file-000.mp4") == expected


def test_files_of_video_begin_with_keyframes_and_are_no_larger_than_asked(tmp_path):
    chosen = options(gop=4, file_bytes=1 << 16)
    blocks = [make_block(60, 0), make_block(50, 1, frames=range(60, 110)), make_block(40, 2, "van")]
    folder, plan = assemble(tmp_path, blocks, chosen, SCHEMA)
    files = sorted((folder / f"videos/{FRONT}").rglob("*.mp4"))
    assert len(files) > 2
    assert {portion.path.split("/")[0] for portion in plan.portions} == {"videos"}
    for file in files:
        assert file.stat().st_size <= 1 << 16
        with av.open(str(file)) as opened:
            assert next(opened.demux(video=0)).is_keyframe
    reader = LeRobotReader(str(folder))
    expected = np.stack(staged_frames(tmp_path / "root", 0))
    np.testing.assert_array_equal(reader.take(np.arange(150), (FRONT,))[FRONT], expected)
    assert list(FORMAT.assembled_differences(str(folder), plan.unit, {})) == []


def test_a_video_of_another_frame_is_told(tmp_path):
    folder, plan = assemble(tmp_path / "one", [make_block(6, 0)], options(), SCHEMA)
    other, _ = assemble(tmp_path / "two", [make_block(6, 1)], options(), SCHEMA)
    path = f"videos/{FRONT}/chunk-000/file-000.mp4"
    (folder / path).write_bytes((other / path).read_bytes())
    (found,) = FORMAT.assembled_differences(str(folder), plan.unit, {})
    assert "the data read back differs" in found


def test_cut_and_missing_videos_are_errors_that_name_them(tmp_path):
    folder, _ = assemble(tmp_path, [make_block(6)], options(), SCHEMA)
    path = folder / f"videos/{FRONT}/chunk-000/file-000.mp4"
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], b"no video", b""):
        path.write_bytes(damaged)
        with pytest.raises(DatasetError, match=r"file-000\.mp4"):
            LeRobotReader(str(folder)).take(np.arange(6), (FRONT,))
    path.unlink()
    with pytest.raises(DatasetError, match=r"file-000\.mp4"):
        LeRobotReader(str(folder))[0]


def test_a_damaged_video_of_a_unit_stops_assembly(tmp_path):
    root = tmp_path / "root"
    units = stage(root, [make_block(3)], options(), SCHEMA)
    store = Store.at(str(root))
    plan = FORMAT.plan_assembly(store, units, SCHEMA, options(), STEP)
    (task,) = [task for task in plan.tasks if getattr(task, "name", "").startswith(f"videos/{FRONT}")]
    path = root / units[0].folder / "video.0.0"
    path.write_bytes(b"no video" + path.read_bytes()[8:])
    with pytest.raises(DatasetError, match=r"video\.0\.0: damaged"):
        FORMAT.make_chunk(store, task)


def test_pictures_that_an_encoder_refuses_are_an_error_that_says_what_to_do(tmp_path):
    block = make_block(2)
    odd = pixels(0)[:33, :33]
    block.columns["front"] = Ragged.from_bytes([png(odd), png(odd)])
    with pytest.raises(UsageError, match=r"h264 can't encode pictures of 33 x 33.*resize"):
        stage(tmp_path, [block], options(), SCHEMA)


def test_logs_that_were_encoded_in_two_ways_are_not_joined(tmp_path):
    import dataclasses

    units = stage(tmp_path / "root", [make_block(3, 0), make_block(3, 1, "van")], options(), SCHEMA)
    other = dataclasses.replace(units[1], unit={**units[1].unit, "heads": ["other", "other"]})
    with pytest.raises(UsageError, match="logs car, van were encoded in different ways"):
        FORMAT.plan_assembly(Store.at(str(tmp_path)), [units[0], other], SCHEMA, options(), STEP)


def test_the_encoder_is_part_of_the_identity_only_where_there_is_video():
    assert FORMAT.references_digest(options("h264"), {}) == encoder_digest("h264") != encoder_digest("av1")
    plain = LeRobotOptions.model_validate({"fps": 10, "features": {"action": "speed"}})
    assert FORMAT.references_digest(plain, {}) == ""


def test_videos_of_others_with_frames_out_of_order_are_read_at_random(tmp_path):
    path = tmp_path / "others.mp4"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=30, options={"g": "12", "bf": "3"})
        stream.height, stream.width, stream.pix_fmt = HEIGHT, WIDTH, "yuv420p"
        for row in range(40):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels(row), format="rgb24")))
        file.mux(stream.encode())
    expected = decoded(path)
    video = VideoFile(File(str(path)), 30, (HEIGHT, WIDTH, 3))
    for number in np.random.default_rng(0).integers(0, 40, 60).tolist():
        np.testing.assert_array_equal(video.pictures([number])[0], expected[number])
    np.testing.assert_array_equal(video.pictures([3, 4, 39]), np.stack(expected)[[3, 4, 39]])
    with pytest.raises(DatasetError, match="frame 40"):
        video.pictures([40])
    with pytest.raises(DatasetError, match=r"frames of 64 x 80, the dataset has \(64, 81, 3\)"):
        VideoFile(File(str(path)), 30, (HEIGHT, WIDTH + 1, 3)).pictures([0])


def test_an_encoder_gives_a_packet_for_each_frame(tmp_path):
    path = tmp_path / "run.mp4"
    encoder = RunEncoder(pathlib.Path(path), VideoOptions(codec="av1", gop=4), 10, (HEIGHT, WIDTH))
    for row in range(10):
        encoder.add(PIL.Image.fromarray(pixels(row)))
    packets = encoder.close()
    assert packets.keys.tolist() == [row % 4 == 0 for row in range(10)]
    assert packets.offset + int(packets.sizes.sum()) <= path.stat().st_size


# --- packets of logs --------------------------------------------------------------------------------------


def recorded(codec, rows, gop, **more):
    """Packets as a camera sends them: each a frame, parameters before keyframes."""
    name, options = {
        "h264": ("libx264", {"tune": "zerolatency", "preset": "veryfast", "sc_threshold": "0"}),
        "av1": ("libsvtav1", {"preset": "12", "svtav1-params": "pred-struct=1:lp=1"}),
    }[codec]
    encoder = av.CodecContext.create(name, "w")
    encoder.height, encoder.width, encoder.pix_fmt = HEIGHT, WIDTH, "yuv420p"
    encoder.time_base, encoder.framerate, encoder.gop_size = Fraction(1, 10), Fraction(10), gop
    encoder.options = {**options, "g": str(gop), **more}
    open_encoder(encoder)
    packets = []
    for row in range(rows):
        frame = av.VideoFrame.from_ndarray(pixels(row), format="rgb24").reformat(format="yuv420p")
        frame.pts = row
        packets += encoder.encode(frame)
    return [bytes(packet) for packet in [*packets, *encoder.encode(None)]]


def block_of(packets, log_id="car", frames=None):
    block = make_block(len(packets), 0, log_id, frames)
    block.columns["front"] = Ragged.from_bytes(packets)
    return block


def shown_by(codec, packets):
    """What a decoder makes of packets that come one by one."""
    decoder = av.CodecContext.create({"h264": "h264", "av1": "libdav1d"}[codec], "r")
    decoder.thread_count = 1
    frames = [frame for data in packets for frame in decoder.decode(av.Packet(data))] + decoder.decode(None)
    return np.stack([frame.to_ndarray(format="rgb24") for frame in frames])


@pytest.mark.parametrize("codec", ["h264", "av1"])
def test_packets_of_logs_are_copied_and_decode_to_the_same_pictures(codec, tmp_path):
    packets = recorded(codec, 20, 5)
    blocks = [
        block_of(packets[:10]),
        block_of(packets[10:], frames=range(10, 20)),
        block_of(packets[:5], "van"),
    ]
    folder, plan = assemble(tmp_path, blocks, options(codec, 5), SCHEMA)
    expected = shown_by(codec, packets)
    reader = LeRobotReader(str(folder))
    order = np.random.default_rng(0).permutation(25)
    found = reader.take(order, (FRONT, WIDE))
    np.testing.assert_array_equal(found[FRONT], expected[order % 20])
    assert found[WIDE].shape == (25, HEIGHT, WIDTH, 3)  # which is encoded
    stats = json.loads((folder / "meta/stats.json").read_text())[FRONT]
    seen = np.concatenate([expected, expected[:5]]).reshape(-1, 3) / 255
    np.testing.assert_allclose(np.ravel(stats["mean"]), seen.mean(axis=0), rtol=1e-12)
    own = sum(map(len, packets)) + sum(map(len, packets[:5]))
    assert (folder / f"videos/{FRONT}/chunk-000/file-000.mp4").stat().st_size < own + 4096
    assert list(FORMAT.assembled_differences(str(folder), plan.unit, {})) == []


@pytest.mark.parametrize(
    ("chosen", "gop", "what"),
    [
        (slice(1, None), 5, "it is no keyframe, and nothing before it is here|SPS"),
        (slice(0, None, 2), 5, "a packet before it"),
        (slice(None), 4, "the keyframe before it is 4 frames away, gop: 4"),
    ],
)
def test_packets_that_can_not_be_copied_are_an_error_that_says_why(chosen, gop, what, tmp_path):
    packets = recorded("h264", 10, 5)[chosen]
    with pytest.raises(UsageError, match=rf"front: this packet can.t be copied as h264: .*({what})"):
        stage(tmp_path, [block_of(packets)], options("h264", gop), SCHEMA)


def test_packets_that_are_shown_in_another_order_are_refused(tmp_path):
    packets = recorded("h264", 12, 12, tune="psnr", bf="2", b_adapt="0", sc_threshold="0")
    with pytest.raises(UsageError, match="shown in another order"):
        stage(tmp_path, [block_of(packets)], options("h264", 12), SCHEMA)


def test_packets_of_another_codec_are_no_image(tmp_path):
    with pytest.raises(UsageError, match="an image that doesn't decode"):
        stage(tmp_path, [block_of(recorded("av1", 4, 2))], options("h264", 2), SCHEMA)
