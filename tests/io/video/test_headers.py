"""Headers of packets: read as encoders write them; whatever else comes is an error or a refusal."""

import math
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.io.video.av1 import units_of
from logloom.io.video.bits import CLOSED, LOST, MAX_UNITS, NO_KEYFRAME, OPEN, Bits, nal_units, unescaped
from logloom.io.video.codecs import CODECS, codec_named
from logloom.io.video.h264 import sequence_parameters as h264_parameters
from logloom.io.video.h265 import sequence_parameters as h265_parameters
from logloom.io.video.vp9 import frames_of
from tests.io.video.making import stream

NAMES = list(CODECS)


def looks(found):
    reader = CODECS[found.codec].reader()
    return [reader.look(data) for data in found.packets]


def ue(value):
    digits = f"{value + 1:b}"
    return "0" * (len(digits) - 1) + digits


@given(st.lists(st.integers(0, (1 << 20) - 1), max_size=20), st.lists(st.integers(-5000, 5000), max_size=20))
def test_numbers_read_as_they_were_written(unsigned, signed):
    text = "".join(map(ue, [*unsigned, *((2 * v - 1) if v > 0 else -2 * v for v in signed)]))
    size = math.ceil(len(text) / 8)
    bits = Bits(int(text.ljust(8 * size, "0") or "0", 2).to_bytes(size, "big"))
    assert [bits.ue() for _ in unsigned] == unsigned
    assert [bits.se() for _ in signed] == signed


def test_numbers_that_end_early_or_are_too_long_are_errors():
    with pytest.raises(ValueError, match="ends early"):
        Bits(b"\x00").ue()
    with pytest.raises(ValueError, match="more than 32 bits"):
        Bits(b"\x00" * 9).ue()
    with pytest.raises(ValueError, match="maximum 3"):
        Bits(b"\x28").ue(3)


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=6), st.integers(0, 3))
def test_nal_units_are_those_between_start_codes(units, zeros):
    def escaped(data):
        out = bytearray()
        for byte in data:
            if out[-2:] == b"\0\0" and byte <= 3:
                out.append(3)
            out.append(byte)
        return bytes(out) + b"\x80"

    written = [escaped(unit) for unit in units]
    data = b"".join(bytes(zeros) + b"\0\0\1" + unit for unit in written)
    found = [data[start:stop] for start, stop in nal_units(data)]
    assert found == written
    assert [unescaped(unit)[:-1] for unit in found] == units


def test_data_without_start_codes_or_with_too_many_is_refused():
    for data in (b"", b"\x65\x88\x84", b"\0\0\0\x17" + b"x" * 23):
        with pytest.raises(ValueError, match="start code"):
            list(nal_units(data))
    with pytest.raises(ValueError, match="more than"):
        list(nal_units(b"\0\0\1\x06" * (MAX_UNITS + 1)))


@pytest.mark.parametrize("name", NAMES)
def test_keyframes_and_sizes_are_those_that_the_encoder_was_told(name):
    found = looks(stream(name, gop=15))
    assert [n for n, look in enumerate(found) if look.key] == [0, 15, 30]
    assert {look.key for look in found if look.key} <= {CLOSED, OPEN}
    assert {look.size for look in found} == {(96, 64)}
    assert {look.pictures for look in found} == {1}
    assert not any(look.repeats or look.reason for look in found)


@pytest.mark.parametrize("name", ["h264", "h265"])
def test_pictures_that_lead_an_open_keyframe_are_told(name):
    found = looks(stream(name, kind="open"))
    places = stream(name, kind="open").places
    keys = [n for n, look in enumerate(found) if look.key]
    assert {found[n].key for n in keys[1:]} == {OPEN}
    for n, look in enumerate(found):
        key = max(k for k in keys if k <= n)
        assert look.leading == (places[n] < places[key])


@pytest.mark.parametrize("name", NAMES)
def test_two_packets_in_one_message_are_refused(name):
    found = stream(name)
    reader = CODECS[name].reader()
    reader.look(found.packets[0])
    if name == "vp9":
        return  # frames laid end to end read as one: nothing tells where the first ends
    with pytest.raises(ValueError, match="2 pictures"):
        reader.look(found.packets[1] + found.packets[2])


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_right_before_a_keyframe(name):
    reader = CODECS[name].reader()
    reasons = set()
    for data in stream(name).packets[1:15]:
        try:
            reasons.add(reader.look(data).reason)
        except ValueError as error:
            reasons.add(str(error))
    assert all(NO_KEYFRAME in reason or "no packet before it has" in reason for reason in reasons)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "vp9"])  # whose packets have no numbers
@pytest.mark.parametrize("lost", [1, 5])
def test_every_packet_behind_a_lost_one_is_refused_up_to_the_next_keyframe(name, lost):
    packets = stream(name, gop=15).packets
    reader = CODECS[name].reader()
    found = [reader.look(data).reason for data in (*packets[:lost], *packets[lost + 1 : 16])]
    assert found == [""] * lost + [LOST] * (14 - lost) + [""]


@pytest.mark.parametrize(
    ("name", "parse", "kind", "head"),
    [
        ("h264", h264_parameters, 7, 1),
        ("h265", h265_parameters, 33, 2),
    ],
)
def test_a_truncated_sps_is_an_error_wherever_it_ends(name, parse, kind, head):
    data = stream(name).packets[0]
    mask = (lambda byte: byte & 31) if name == "h264" else (lambda byte: byte >> 1 & 63)
    ((start, stop),) = [(a, b) for a, b in nal_units(data) if mask(data[a]) == kind]
    whole = parse(data[start + head : stop])
    assert (whole.width, whole.height) == (96, 64)
    cut = [parse_or_error(parse, data[start + head : end]) for end in range(start + head, stop)]
    assert isinstance(cut[0], str)
    assert all(isinstance(found, str) or found == whole for found in cut)
    reader = CODECS[name].reader()
    short = max(n for n, found in enumerate(cut) if isinstance(found, str))
    with pytest.raises(ValueError, match=r"ends early|claims pictures"):
        reader.look(data[: start + head + short])


def parse_or_error(parse, data):
    try:
        return parse(data)
    except ValueError as error:
        return str(error)


def h265_unit(kind, text):
    size = len(text) // 8 + 1
    payload = int((text + "1").ljust(8 * size, "0"), 2).to_bytes(size, "big")
    return b"\0\0\1" + bytes([kind << 1, 1]) + re.sub(rb"\0\0(?=[\0-\3])", b"\0\0\3", payload)


def h265_key(width=96):
    """A keyframe of orders of four bits, whose parameters list the orders 0 and 3 as long-term references."""
    profile = "0000" + "000" + "1" + "1" * 96
    size = ue(0) + ue(1) + ue(width) + ue(64) + "0" + ue(0) * 2
    orders = ue(0) + "0" + ue(0) * 3 + ue(0) * 6 + "0" + "00" + "0"
    long_term = ue(0) + "1" + ue(2) + "0000" + "1" + "0011" + "1"
    parameters = h265_unit(33, profile + size + orders + long_term) + h265_unit(34, ue(0) * 2 + "00" + "000")
    return parameters + h265_unit(19, "1" + "0" + ue(0) + "1")


def h265_picture(order, listed=(), stated=()):
    """A picture that refers to the one before it, and to long-term ones.

    These are pairs: an index into the parameters, or lower bits; and cycles or None.
    """
    text = "1" + ue(0) + ue(1) + f"{order % 16:04b}"
    text += "0" + ue(1) + ue(0) + ue(0) + "1"  # a set of its own: the picture before
    text += ue(len(listed)) + ue(len(stated))
    for places, form in ((listed, "{:01b}"), (stated, "{:04b}1")):
        for place, cycles in places:
            text += form.format(place) + ("0" if cycles is None else "1" + ue(cycles))
    return h265_unit(1, text)


def test_long_term_references_of_h265_are_found_by_their_lower_bits_or_whole_cycles():
    reader = CODECS["h265"].reader()
    reader.look(h265_key())
    found = [reader.look(h265_picture(order, [(0, None)])).reason for order in range(1, 4)]
    found += [reader.look(h265_picture(order, [(0, None), (1, None)])).reason for order in range(4, 16)]
    found.append(reader.look(h265_picture(16, [(0, 1), (1, 0)])).reason)  # cycles add up
    found.append(reader.look(h265_picture(17, [], [(0, 1), (3, None)])).reason)
    found.append(reader.look(h265_picture(18, [(1, 1)], [(0, 1)])).reason)
    assert found == [""] * 18
    assert reader.look(h265_picture(19, [(0, 2)])).reason == LOST  # 32 before 16
    reader.look(h265_key())
    found = [reader.look(h265_picture(order)).reason for order in (1, 2)]
    assert found == ["", ""]
    assert reader.look(h265_picture(3, [(0, None)])).reason == LOST  # which no picture kept


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 1 << 32))
def test_damaged_packets_are_errors_or_looks_and_never_another_exception(name, seed):
    rng = random.Random(seed)
    reader = CODECS[name].reader()
    kind = rng.choice(["low_delay", "reordered"])
    for data in stream(name, kind=kind).packets[:20]:
        damaged = bytearray(data)
        for _ in range(rng.choice([0, 1, 3])):
            at = min(int(rng.expovariate(1 / 30)), len(damaged) - 1)
            damaged[at] = rng.randrange(256)
        if rng.random() < 0.2:
            damaged = damaged[: rng.randrange(len(damaged))]
        try:
            look = reader.look(bytes(damaged))
        except ValueError as error:
            reader.lose(str(error))
        else:
            assert look.pictures in (0, 1)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_an_error_or_a_look(name, data):
    reader = CODECS[name].reader()
    for lead in (b"", b"\0\0\1\x67", b"\0\0\1\x42\x01", b"\x0a\x0b", b"\x82\x49\x83\x42"):
        parse_or_error(reader.look, lead + data)


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=8))
def test_frames_of_a_superframe_are_those_laid_into_it(frames):
    marker = 0xC0 | 3 << 3 | (len(frames) - 1)
    index = bytes([marker]) + b"".join(len(f).to_bytes(4, "little") for f in frames) + bytes([marker])
    data = b"".join(frames) + index
    assert [data[a:b] for a, b in frames_of(data)] == frames


def test_codecs_go_by_the_names_of_their_encoders():
    named = {
        "h264": ["h264", "H.264", "libx264", "h264_nvenc", "avc1", "h264;yuv420p;bgr8;bgr8", "h264_nvmpi"],
        "h265": ["h265", "hevc", "libx265", "hevc_nvenc", "HEVC"],
        "av1": ["av1", "libsvtav1", "libaom-av1", "av1_nvenc"],
        "vp9": ["vp9", "libvpx-vp9", "vp9_vaapi"],
    }
    for name, words in named.items():
        for word in words:
            codec = codec_named(word)
            assert codec is not None
            assert codec.name == name
    for word in (
        "jpeg",
        "png",
        "rgb8; jpeg compressed bgr8",
        "16UC1; compressedDepth png",
        "theora",
        "vp8",
        "",
    ):
        assert codec_named(word) is None


def test_sizes_that_no_decoder_should_get_memory_for_are_refused():
    huge = bytearray(stream("vp9").packets[0])
    huge[5:9] = b"\xff" * 4
    with pytest.raises(ValueError, match="declares pictures of"):
        CODECS["vp9"].reader().look(bytes(huge))
    with pytest.raises(ValueError, match="declares pictures of 16777216 x 64 pixels"):
        CODECS["h265"].reader().look(h265_key(width=1 << 24))
    text = f"{66:08b}{30:016b}" + ue(0) * 2 + ue(2) + ue(0) + "0" + ue((1 << 20) - 1) + ue(3) + "1100"
    with pytest.raises(ValueError, match="declares pictures of 16777216 x 64 pixels"):
        h264_parameters(h265_unit(0, text)[5:])


def test_parameters_of_any_size_are_not_kept():
    data = stream("h264").packets[0]
    sps = next(data[a:b] for a, b in nal_units(data) if data[a] & 31 == 7)
    with pytest.raises(ValueError, match="a sequence parameter set of it has"):
        CODECS["h264"].reader().look(b"\0\0\1" + sps + b"\xff" * 5000)
    data = stream("av1").packets[0]
    _, _, body, stop = next(unit for unit in units_of(data) if unit[0] == 1)
    long = data[body:stop] + bytes(5000)
    size = bytes([len(long) & 127 | 128, len(long) >> 7])
    with pytest.raises(ValueError, match="a sequence header of it has"):
        CODECS["av1"].reader().look(b"\x0a" + size + long)


def test_a_gap_of_h264_that_may_be_on_purpose_counts_as_loss():
    first, *others = stream("h264", gop=15).packets
    (start, stop) = next((a, b) for a, b in nal_units(first) if first[a] & 31 == 7)
    bits = Bits(first[start + 1 : stop])
    assert bits.read(8) == 66  # Baseline, whose set begins as it is read here
    bits.read(16), bits.ue(), bits.ue()
    assert bits.ue() == 2
    bits.ue()
    at = 8 * (stop - start - 1) - bits._left
    changed = bytearray(first)
    changed[start + 1 + at // 8] |= 128 >> at % 8
    assert changed != first
    reader = CODECS["h264"].reader()
    found = [reader.look(data) for data in (bytes(changed), *others[:4], *others[5:])]
    assert not any(look.reason for look in found[:5])
    assert {look.reason for look in found[5:14]} == {LOST}
