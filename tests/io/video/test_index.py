"""Which packets of a stream have a right picture, from where; by all codecs and with all kinds of loss."""

import dataclasses

import numpy as np
import pytest

from logloom.errors import StorageError
from logloom.io.catalog.tombstones import digest_of_log
from logloom.io.logs.files.sidecars import Sidecars
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.opening import open_log
from logloom.io.logs.redaction import RedactedLog
from logloom.io.video import frames as frames_module
from logloom.io.video import index as index_module
from logloom.io.video import preview as glimpse_module
from logloom.io.video.frames import MAX_DELAY, Frames
from logloom.io.video.index import NO_PICTURE, SILENCE, TWO_STREAMS, UNREAD, made_index, video_index
from tests.io.video.making import decoded, sent_of, stream, write_video
from tests.tier import by_tier

CODECS = ["h264", "h265", "av1", "vp9"]
FORMS = ["foxglove", "protobuf", "ffmpeg", "compressed"]
KINDS = [
    *((codec, kind) for codec in CODECS for kind in ("low_delay", "reordered")),
    ("h264", "open"),
    ("h265", "open"),
]


def opened(tmp_path, found, form="foxglove", **more):
    log = open_log([write_video(tmp_path / "video.mcap", form, found, **more)])
    return log, made_index(log, "/video")


def given(log, index, numbers=None):
    """The pixels of packets, by number; those without a right picture are left out."""
    usable = [int(n) for n in np.flatnonzero(index.packets["start"] >= 0)]
    wanted = usable if numbers is None else [n for n in numbers if n in usable]
    frames = Frames(log, "/video", index).each(wanted)
    return {n: frame.to_ndarray(format="rgb24") for n, frame in frames if frame is not None}


def assert_same(found, expected):
    assert sorted(found) == sorted(expected)
    for number, pixels in expected.items():
        np.testing.assert_array_equal(found[number], pixels, err_msg=f"packet {number}")


@pytest.mark.parametrize(("codec", "kind"), KINDS)
def test_all_pictures_are_those_of_pyav_decoding_the_whole_stream(tmp_path, codec, kind):
    found = stream(codec, kind=kind)
    log, index = opened(tmp_path, found)
    assert index.codec == codec
    assert [index.reason(n) for n in range(len(found.packets)) if index.reason(n)] == []
    expected = decoded(found)
    assert len(expected) == len(found.packets) == 40
    assert_same(given(log, index), expected)
    assert {(c.width, c.height) for c in index.configs} == {(96, 64)}


@pytest.mark.parametrize(("codec", "kind"), KINDS)
def test_each_picture_alone_is_the_same_to_the_bit(tmp_path, codec, kind):
    found = stream(codec, kind=kind)
    log, index = opened(tmp_path, found)
    expected = decoded(found)
    for number in range(0, 40, 3):
        assert_same(given(log, index, [number]), {number: expected[number]})


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("gop", [1, 15, 250])
def test_gops_of_any_length(tmp_path, codec, gop):
    found = stream(codec, count=40, gop=gop)
    log, index = opened(tmp_path, found, "protobuf")
    assert index.keys["packet"].tolist() == list(range(0, 40, gop))
    assert index.gop_lengths().max() == min(gop, 40)
    assert_same(given(log, index, [7, 8, 31]), {n: p for n, p in decoded(found).items() if n in (7, 8, 31)})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("codec", CODECS)
def test_every_type_of_message(tmp_path, form, codec):
    found = stream(codec, count=20)
    log, index = opened(tmp_path, found, form)
    assert_same(given(log, index), decoded(found))


@pytest.mark.parametrize(("codec", "kind"), KINDS)
def test_a_lost_first_keyframe_makes_pictures_unavailable_up_to_the_next(tmp_path, codec, kind):
    whole = stream(codec, kind=kind)
    keys = opened(tmp_path, whole)[1].keys["packet"].tolist()
    found = whole.without(0)
    log, index = opened(tmp_path, found)
    right = given(log, index)
    expected = decoded(whole)
    assert min(right) == keys[1] - 1
    assert_same(right, {n: expected[n + 1] for n in right})
    leading = sum(index.packets["reason"][keys[1] :] > 0)
    assert leading <= (3 if kind == "open" else 0)
    assert len(right) == len(found.packets) - int((index.packets["reason"] > 0).sum())


@pytest.mark.parametrize(("codec", "kind"), KINDS)
def test_whichever_packet_is_lost_pictures_are_right_or_unavailable(tmp_path, codec, kind):
    whole = stream(codec, kind=kind)
    expected = decoded(whole)
    for lost in range(1, 34, by_tier(11, 4)):
        found = whole.without(lost)
        log, index = opened(tmp_path, found)
        right = given(log, index)
        behind = {n: expected[n + (n >= lost)] for n in right}
        assert_same(right, behind)
        assert len(right) == len(found.packets) - int((index.packets["reason"] > 0).sum())
        assert len(right) >= 20


def test_parameters_in_a_message_of_their_own_serve_the_keyframes_after_it(tmp_path):
    whole = stream("h264", gop=10)
    keys = [0, 10, 20, 30]
    cut = [data[data.index(b"\0\0\1\x65") :] if n in keys else data for n, data in enumerate(whole.packets)]
    first = whole.packets[0]
    sets = first[: first.index(b"\0\0\1\x65")]
    found = type(whole)(whole.codec, (sets, *cut), (0, *whole.places))
    log, index = opened(tmp_path, found)
    assert index.reason(0) == NO_PICTURE
    right = given(log, index)
    assert_same(right, {n + 1: pixels for n, pixels in decoded(whole).items()})
    assert_same(given(log, index, [35]), {35: right[35]})


def test_pictures_of_another_size_after_a_change_of_resolution(tmp_path):
    small, large = stream("h264", count=20), stream("h264", count=20, size=(96, 128))
    places = (*small.places, *(20 + p for p in large.places))
    found = type(small)("h264", (*small.packets, *large.packets), places)
    log, index = opened(tmp_path, found)
    assert [(c.width, c.height) for c in index.configs] == [(96, 64), (128, 96)]
    expected = decoded(small) | {20 + n: pixels for n, pixels in decoded(large).items()}
    assert_same(given(log, index), expected)


@pytest.mark.parametrize("codec", CODECS)
def test_packets_of_two_streams_on_one_topic_give_no_wrong_picture(tmp_path, codec):
    one, two = stream(codec), stream(codec, seed=7)
    packets = tuple(data for pair in zip(one.packets, two.packets, strict=True) for data in pair)
    places = tuple(range(len(packets)))
    log, index = opened(tmp_path, type(one)(codec, packets, places))
    expected = {2 * n: p for n, p in decoded(one).items()} | {2 * n + 1: p for n, p in decoded(two).items()}
    right = given(log, index)
    if codec != "vp9":  # which numbers nothing
        assert_same(right, {n: expected[n] for n in right})
        assert TWO_STREAMS in index.reasons


def test_other_codecs_on_one_topic_are_refused(tmp_path):
    log, index = opened(tmp_path, stream("h264"), words="theora")
    assert index.codec == ""
    assert set(index.reasons[1:]) == {
        "it is damaged",
        "its format 'theora' is not a video format that can be decoded",
    }
    assert given(log, index) == {}


def test_a_silence_longer_than_numbers_tell_counts_as_loss(tmp_path):
    whole = stream("h264", count=60, gop=60)
    lost = range(20, 36)  # as many as frame_num counts
    found = whole.without(*lost)
    times = [t for n, t in enumerate(range(60)) if n not in lost]
    sent = [1_700_000_000_000_000_000 + t * 50_000_000 for t in times]
    log, index = opened(tmp_path, found, times=sent, sent=sent)
    assert index.reason(19) == ""
    assert index.reason(20) in (SILENCE, "a packet before it, which it needs, is lost")
    assert_same(given(log, index), {n: p for n, p in decoded(whole).items() if n < 20})


def test_an_index_is_kept_as_a_sidecar_and_one_of_another_version_is_made_anew(tmp_path):
    path = write_video(tmp_path / "video.mcap", "foxglove", stream("h264"))
    options = OpenOptions(sidecars=str(tmp_path / "index"))
    first = video_index(open_log([path], options), "/video")
    (kept,) = (tmp_path / "index").iterdir()
    assert kept.name.endswith(".video")
    assert kept.stat().st_size < 40 * 40 + 1000
    data = Sidecars(options.sidecars, {}).load(kept.name)
    again = type(first).from_data(data)
    assert again is not None
    np.testing.assert_array_equal(again.packets, first.packets)
    assert again.configs == first.configs
    assert type(first).from_data(data | {"version": 0}) is None
    assert type(first).from_data({"version": 1}) is None


def test_erased_time_counts_as_lost_packets(tmp_path):
    found = stream("vp9", count=40, gop=20)
    path = write_video(tmp_path / "video.mcap", "foxglove", found)
    sent = sent_of(found)
    whole = open_log([path])
    log = RedactedLog(whole, "drive", {digest_of_log("drive"): ((sent[5], sent[5] + 1),)})
    index = made_index(log, "/video")
    assert {index.reason(n) for n in range(5, 19)} == {UNREAD}
    expected = decoded(found)
    assert_same(given(log, index), {n - (n > 5): expected[n] for n in [*range(5), *range(20, 40)]})


@pytest.mark.parametrize("kind", ["low_delay", "reordered"])
def test_a_picture_that_the_decoder_drops_is_not_looked_for_in_all_the_rest(tmp_path, monkeypatch, kind):
    found = stream("h264", count=120, gop=250, kind=kind)
    log, index = opened(tmp_path, found)
    take = Frames._take
    monkeypatch.setattr(Frames, "_take", lambda self, shown: take(self, [f for f in shown if f.pts != 5]))
    frames = Frames(log, "/video", index)
    assert [frame is None for _, frame in frames.each([4, 5, 6])] == [False, True, False]
    assert frames.num_decoded <= 5 + MAX_DELAY + 2 < 120


@pytest.mark.parametrize(("codec", "kind"), KINDS)
def test_pictures_on_the_way_to_the_one_that_is_asked_for_are_not_kept(tmp_path, monkeypatch, codec, kind):
    log, index = opened(tmp_path, stream(codec, count=60, gop=60, kind=kind))
    held = []
    take = Frames._take

    def counted(self, shown):
        take(self, shown)
        held.append(len(self._ready))

    monkeypatch.setattr(Frames, "_take", counted)
    number = int(np.flatnonzero(index.packets["start"] == 0)[-3])
    assert given(log, index, [number]).keys() == {number}
    assert max(held) <= 17 < number


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_a_damaged_picture_that_leads_a_keyframe_costs_no_other_wherever_decoding_begins(tmp_path, codec):
    whole = stream(codec, kind="open")
    index = opened(tmp_path, whole)[1]
    key = int(index.keys["packet"][1])
    leading = [n for n in range(key, len(whole.packets)) if index.packets["start"][n] < key]
    assert leading
    packets = list(whole.packets)
    packets[leading[0]] = packets[leading[0]][:16] + bytes(reversed(packets[leading[0]][16:]))
    log, index = opened(tmp_path, dataclasses.replace(whole, packets=tuple(packets)))
    together = given(log, index)
    for number in range(40):
        alone = given(log, index, [number])
        assert_same(alone, {n: together[n] for n in alone})
        assert (number in alone) == (number in together)
    expected = decoded(whole)
    behind = [n for n in range(leading[-1] + 1, 40) if n not in leading]
    assert_same({n: together[n] for n in behind}, {n: expected[n] for n in behind})


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_pictures_that_lead_a_keyframe_behind_two_streams_are_refused(tmp_path, codec):
    whole = stream(codec, kind="open")
    places = np.array(whole.places)
    later = next(n for n in range(6, 15) if places[n] == places[: n + 1].max())  # others refer to it
    packets = (*whole.packets[: later + 1], *whole.packets[later:])
    found = type(whole)(codec, packets, tuple(range(len(packets))))
    log, index = opened(tmp_path, found)
    assert TWO_STREAMS in index.reasons
    expected = decoded(whole)
    right = given(log, index)
    assert_same(right, {n: expected[n - (n > later)] for n in right})
    key = int(index.keys["packet"][1])
    leading = [n for n in range(41) if n > key and places[n - 1] < places[key - 1]][:3]
    assert [index.reason(n) for n in leading] == [TWO_STREAMS] * len(leading)


def test_parameters_that_change_all_the_time_take_no_memory_without_end(tmp_path, monkeypatch):
    small, large = stream("h264", count=20), stream("h264", count=20, size=(96, 128))
    found = type(small)("h264", (*small.packets, *large.packets), (*small.places, *small.places))
    first = sum(len(unit) for unit in opened(tmp_path, small)[1].configs[0].units)
    monkeypatch.setattr(index_module, "MAX_CONFIG_BYTES", first)
    _, index = opened(tmp_path, found)
    assert index.keys["packet"].tolist() == [0, 15]
    assert index.reason(20) == "the parameters of its keyframes change too often"
    assert (index.packets["start"][20:] < 0).all()


def test_the_decoder_gets_no_memory_for_pictures_larger_than_the_index_takes(tmp_path, monkeypatch):
    log, index = opened(tmp_path, stream("vp9"))
    monkeypatch.setattr(frames_module, "MAX_PIXELS", 64 * 96 - 1)
    assert given(log, index) == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["packets"]["start"].__setitem__(3, 9),
        lambda data: data["packets"]["start"].__setitem__(3, 1),
        lambda data: data["packets"]["start"].__setitem__(3, -1),
        lambda data: data["packets"]["reason"].__setitem__(3, 77),
        lambda data: data["packets"]["key"].__setitem__(3, 1),
        lambda data: data["packets"]["log_time"].__setitem__(3, 0),
        lambda data: data["keys"]["packet"].__setitem__(0, 1),
        lambda data: data["keys"]["config"].__setitem__(0, 9),
        lambda data: data.update(codec=""),
    ],
)
def test_a_kept_index_that_refers_to_what_is_not_there_is_made_anew(tmp_path, change):
    data = opened(tmp_path, stream("h264"))[1].to_data()
    arrays = {
        "packets": np.frombuffer(data["packets"], index_module.PACKET).copy(),
        "keys": np.frombuffer(data["keys"], index_module.KEY).copy(),
    }
    assert index_module.VideoIndex.from_data(data) is not None
    told = {**data, **arrays}
    change(told)
    told |= {name: told[name].tobytes() for name in arrays}
    assert index_module.VideoIndex.from_data(told) is None


def test_a_store_that_refuses_is_no_topic_without_video(tmp_path, monkeypatch):
    log, _ = opened(tmp_path, stream("h264"))

    def refused(*arguments, **options):
        raise StorageError("the store is gone")

    monkeypatch.setattr(index_module, "made_index", refused)
    with pytest.raises(StorageError, match="gone"):
        glimpse_module.glimpse(log, "/video")
