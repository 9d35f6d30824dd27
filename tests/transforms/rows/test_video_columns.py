"""Columns of compressed video: right pictures, the same however a log is cut, and all accounted for."""

import dataclasses
import io
import itertools
import sys

import numpy as np
import pytest
from PIL import Image

from logloom.blocks import Block, concatenate
from logloom.errors import LogReadError, RecipeError, UsageError
from logloom.io.logs.opening import open_log
from logloom.io.video import frames as frames_module
from logloom.io.video.index import made_index
from logloom.recipe import Recipe
from logloom.transforms.rows.accounts import reconcile
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.rows.row_stream import build_blocks
from logloom.transforms.rows.spans import plan_spans
from tests.io.video.making import STEP, decoded, stream, times_of, write_video
from tests.tier import by_tier
from tests.transforms.ros2_logs import START

FORMS = ["foxglove", "protobuf", "ffmpeg", "compressed"]
CODECS = ["h264", "h265", "av1", "vp9"]


def recipe(keys="", clock="{rate: 20}", more=""):
    return Recipe.from_yaml(
        f"name: t\nlogs: x\nclock: {clock}\ncolumns:\n"
        f"  camera.front: {{topic: /video, as: image{keys}}}\n{more}"
    )


def planned(log, made, rows=1000):
    plan, _ = resolve(made, {"drive": log})
    return dataclasses.replace(plan, rows=rows)


def built(log, plan, max_bytes=1 << 30):
    """The columns of all rows, and the accounts of the column's topic."""
    blocks: list[Block] = []
    tallies = []
    for span in plan_spans(log.summary, plan):
        stream_of_rows = build_blocks(log, "drive", plan, span, max_bytes=max_bytes)
        blocks += list(stream_of_rows)
        tallies.append(stream_of_rows.tally)
    columns = {name: concatenate([b.columns[name] for b in blocks]) for name in blocks[0].columns}
    return columns, reconcile(plan, log.summary, tallies)["/video"], tallies


def expected_at(found, ticks, tolerance, refused=()):
    """The picture at each tick by the slow rule: the last right packet at or before it."""
    pixels, times = decoded(found), np.array(times_of(found))
    usable = [n for n in np.argsort(times, kind="stable").tolist() if n in pixels and n not in refused]
    rows = []
    for tick in ticks.tolist():
        before = [n for n in usable if times[n] <= tick]
        rows.append(pixels[before[-1]] if before and tick - times[before[-1]] <= tolerance else None)
    return rows


def assert_rows(columns, expected):
    available = columns["camera.front.available"]
    assert available.tolist() == [row is not None for row in expected]
    for found, pixels in zip(columns["camera.front"], expected, strict=True):
        if pixels is not None:
            np.testing.assert_array_equal(found, pixels)


@pytest.mark.parametrize(
    ("form", "codec"),
    by_tier([*zip(FORMS, CODECS, strict=True)], [*itertools.product(FORMS, CODECS)]),
)
def test_pictures_stand_at_the_times_of_their_messages(tmp_path, form, codec):
    found = stream(codec, count=30, kind="reordered")
    log = open_log([write_video(tmp_path / "a.mcap", form, found)])
    columns, account, _ = built(log, planned(log, recipe(clock="{rate: 13}")))
    assert_rows(columns, expected_at(found, columns["timestamp"], int(10**9 / 13)))
    assert account.messages == 30
    assert account.refused == 0


STREAMS = [("h264", "open"), ("av1", "low_delay"), ("vp9", "reordered")]
MORE_STREAMS = [("h264", "reordered"), ("h265", "open")]


@pytest.mark.parametrize("gop", by_tier([15], [1, 15, 250]))
@pytest.mark.parametrize(("codec", "kind"), by_tier(STREAMS, [*STREAMS, *MORE_STREAMS]))
def test_rows_are_the_same_to_the_bit_however_a_log_is_cut(tmp_path, codec, kind, gop):
    found = stream(codec, count=40, gop=gop, kind=kind)
    log = open_log([write_video(tmp_path / "a.mcap", "protobuf", found)])
    plan = planned(log, recipe(clock="{rate: 13}"))
    whole, account, _ = built(log, plan)
    assert_rows(whole, expected_at(found, whole["timestamp"], int(10**9 / 13)))
    for rows, max_bytes in ((3, 1 << 30), (7, 4000), (1000, 2000)):
        cut, same, _ = built(log, dataclasses.replace(plan, rows=rows), max_bytes)
        assert same == account
        for name in whole:
            assert [np.asarray(v).tobytes() for v in cut[name]] == [
                np.asarray(v).tobytes() for v in whole[name]
            ]


def test_rows_past_several_keyframes_250_packets_apart_are_those_of_the_whole_stream(tmp_path):
    count = by_tier(260, 510)
    found = stream("h264", count=count, gop=250)
    log = open_log([write_video(tmp_path / "a.mcap", "foxglove", found)])
    assert made_index(log, "/video").keys["packet"].tolist() == [*range(0, count, 250)]
    plan = planned(log, recipe())
    whole, account, _ = built(log, plan)
    assert_rows(whole, expected_at(found, whole["timestamp"], int(10**9 / 20)))
    assert (account.messages, account.refused) == (count, 0)
    cut, same, _ = built(log, dataclasses.replace(plan, rows=120))
    assert same == account
    for name in whole:
        assert [np.asarray(v).tobytes() for v in cut[name]] == [np.asarray(v).tobytes() for v in whole[name]]


def test_a_span_decodes_forward_once_from_the_keyframe_before_its_halo(tmp_path, monkeypatch):
    fed = []
    step = frames_module.Frames._step

    def counted(self, number):
        before = self.num_decoded
        step(self, number)
        fed.extend([self._next - 1] * (self.num_decoded - before))

    monkeypatch.setattr(frames_module.Frames, "_step", counted)
    found = stream("h264", count=60, gop=15)
    log = open_log([write_video(tmp_path / "a.mcap", "foxglove", found)])
    plan = planned(log, recipe(), rows=20)
    spans = plan_spans(log.summary, plan)
    for span in spans:
        fed.clear()
        for block in build_blocks(log, "drive", plan, span, max_bytes=3000):
            assert len(block.columns["timestamp"]) < 20
        assert fed == list(range(fed[0], fed[0] + len(fed)))  # each once, in order, whatever the pieces
        assert fed[0] % 15 == 0
        assert len(fed) <= 15 + 22


def test_encoded_and_resized_pictures(tmp_path):
    found = stream("h264", count=10)
    log = open_log([write_video(tmp_path / "a.mcap", "foxglove", found)])
    columns, _, _ = built(log, planned(log, recipe(", encode: jpg, resize: [32, 48]")))
    sizes = {Image.open(io.BytesIO(v.tobytes())).size for v in columns["camera.front"] if len(v)}
    assert sizes == {(48, 32)}
    fixed, _, _ = built(log, planned(log, recipe(", shape: [64, 96, 3]")))
    assert fixed["camera.front"].shape[1:] == (64, 96, 3)
    with pytest.raises(LogReadError, match=r"packet \d+ of /video: its .* \(64, 96, 3\), the column's"):
        built(log, planned(log, recipe(", shape: [64, 64, 3]")))


@pytest.mark.parametrize("codec", CODECS)
def test_pictures_are_packets_less_refused_ones(tmp_path, codec):
    whole = stream(codec, count=40, kind="low_delay")
    found = whole.without(0, 20)
    log = open_log([write_video(tmp_path / "a.mcap", "ffmpeg", found)])
    clock = "{topic: /video}"
    plan = planned(log, recipe(", resample: exact", clock))
    columns, account, tallies = built(log, plan)
    column = account.columns["camera.front"]
    assert column.used == int(columns["camera.front.available"].sum())
    assert column.used + column.refused == account.messages == 38
    assert column.refused == 14 + 9  # up to the keyframe 15, and from the loss of 20 up to 30
    reasons = {r.reason for t in tallies for r in t.refusals}
    assert all(reason.startswith("column camera.front: ") for reason in reasons)
    expected = decoded(whole)
    numbers = [n for n in range(40) if n not in (0, 20)]
    for n, (is_there, pixels) in zip(
        numbers, zip(columns["camera.front.available"], columns["camera.front"], strict=True), strict=True
    ):
        assert is_there == (15 <= n < 20 or n >= 30)
        if is_there:
            np.testing.assert_array_equal(pixels, expected[n])


@pytest.mark.parametrize("codec", CODECS)
def test_a_packet_that_can_not_be_decoded_makes_what_needs_it_unavailable(tmp_path, codec):
    whole = stream(codec, count=40)
    packets = list(whole.packets)
    packets[20] = packets[20][:24] + bytes(reversed(packets[20][24:-24])) + packets[20][-24:]
    damaged = type(whole)(codec, tuple(packets), whole.places)
    log = open_log([write_video(tmp_path / "a.mcap", "foxglove", damaged)])
    plan = planned(log, recipe(", resample: exact", "{topic: /video}"))
    columns, account, _ = built(log, plan)
    there = columns["camera.front.available"]
    column = account.columns["camera.front"]
    assert column.used + column.refused == 40
    expected = decoded(whole)
    for n in [*range(20), *range(30, 40)]:
        assert there[n]
        np.testing.assert_array_equal(columns["camera.front"][n], expected[n])
    if codec == "h264":  # other decoders make pictures of any bits
        assert not there[20:30].any()
    for rows in (4, 9):
        cut, same, _ = built(log, dataclasses.replace(plan, rows=rows))
        assert same == account
        assert cut["camera.front.available"].tolist() == there.tolist()


def test_rows_that_require_a_picture_are_dropped_where_it_can_not_be_decoded(tmp_path):
    whole = stream("h264", count=40)
    packets = list(whole.packets)
    packets[20] = packets[20][:24] + bytes(reversed(packets[20][24:-24])) + packets[20][-24:]
    log = open_log(
        [write_video(tmp_path / "a.mcap", "foxglove", type(whole)("h264", tuple(packets), whole.places))]
    )
    more = "rows: {require: [camera.front]}\n"
    plan = planned(log, recipe(", resample: exact", "{topic: /video}", more))
    columns, _, tallies = built(log, plan)
    assert len(columns["timestamp"]) == 30
    assert sum(t.dropped["require camera.front"] for t in tallies) == 10
    assert columns["camera.front.available"].all()


def test_what_video_can_not_be_taken_as_is_said_with_its_line(tmp_path):
    log = open_log([write_video(tmp_path / "a.mcap", "foxglove", stream("h264", count=5))])
    for keys, said in (
        (
            ", resample: window, window: [-1s, 0s]",
            "window isn't supported for compressed video: write one of previous",
        ),
        (", resample: static", "static isn't supported for compressed video"),
        (", dtype: uint16", "pictures of compressed video are uint8"),
    ):
        with pytest.raises(RecipeError, match=said):
            planned(log, recipe(keys))


def test_without_pyav_the_extra_is_named(tmp_path, monkeypatch):
    log = open_log([write_video(tmp_path / "a.mcap", "foxglove", stream("h264", count=5))])
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises((UsageError, RecipeError), match=r"pip install 'logloom\[video\]'"):
        planned(log, recipe())


def test_a_codec_without_decoder_is_named(tmp_path, monkeypatch):
    log = open_log([write_video(tmp_path / "a.mcap", "foxglove", stream("av1", count=5))])
    plan = planned(log, recipe())
    import av

    monkeypatch.setattr(av, "codecs_available", {"h264"})
    with pytest.raises(UsageError, match=r"no decoder of av1 \(libdav1d\)"):
        built(log, plan)


def test_video_before_its_first_keyframe_and_beyond_its_end_is_unavailable(tmp_path):
    found = stream("h264", count=20, gop=10).without(0, 1)
    log = open_log([write_video(tmp_path / "a.mcap", "compressed", found)])
    columns, _, _ = built(log, planned(log, recipe(", tolerance: 10ms")))
    first = int(np.flatnonzero(columns["camera.front.available"])[0])
    assert columns["timestamp"][first] >= START + 10 * STEP


@pytest.mark.parametrize("codec", ["h264", "av1"])
def test_packets_copied_from_any_keyframe_on_decode_to_the_same_pictures(tmp_path, codec):
    whole = stream(codec, count=40)
    packets = list(whole.packets)
    if codec == "h264":  # as encoders do that send their parameters once
        for key in (15, 30):
            packets[key] = packets[key][packets[key].index(b"\0\0\1\x65") :]
    found = type(whole)(codec, tuple(packets), whole.places)
    log = open_log([write_video(tmp_path / "a.mcap", "foxglove", found)])
    both = Recipe.from_yaml(
        "name: t\nlogs: x\nclock: {topic: /video}\ncolumns:\n"
        "  packet: {topic: /video, as: packets, resample: exact}\n"
        "  back: {topic: /video, as: keyframe, resample: exact}\n"
    )
    columns, _, _ = built(log, planned(log, both, rows=7))
    assert columns["back"].tolist() == [n % 15 for n in range(40)]
    copied = tuple(data.tobytes() for data in columns["packet"])
    for row in (0, 20, 37):
        start = row - int(columns["back"][row])
        cut = type(whole)(codec, copied[start : row + 1], tuple(range(row + 1 - start)))
        np.testing.assert_array_equal(decoded(cut)[row - start], decoded(whole)[row])


def test_packets_without_a_right_picture_are_kept_and_have_no_keyframe(tmp_path):
    found = stream("h264", count=20, gop=10).without(0)
    log = open_log([write_video(tmp_path / "a.mcap", "foxglove", found)])
    both = Recipe.from_yaml(
        "name: t\nlogs: x\nclock: {topic: /video}\ncolumns:\n"
        "  packet: {topic: /video, as: packets, resample: exact}\n"
        "  back: {topic: /video, as: keyframe, resample: exact}\n"
    )
    columns, account, _ = built(log, planned(log, both))
    assert columns["packet.available"].all()
    assert columns["back.available"].tolist() == [False] * 9 + [True] * 10
    assert account.columns["back"].refused == 9
