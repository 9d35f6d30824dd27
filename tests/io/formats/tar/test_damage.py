"""Archives that are cut, flipped or hostile: an error that names file and place, never a wrong value."""

import contextlib
import io
import tarfile
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logloom.datasets
from logloom.errors import DatasetError, LogloomError
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.tar import TarReader, TarWriter
from logloom.io.formats.tar.npy import npy_header, read_npy
from logloom.io.formats.tar.samples import parse_key
from logloom.io.formats.tar.stream import stream_samples
from logloom.schema import ColumnType, Schema
from tests.io.formats.rows import TYPES, digests, random_block, schema_of

SCHEMA = schema_of([TYPES[0], TYPES[11], TYPES[-1], TYPES[-2], TYPES[-4]])


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    path = tmp_path_factory.mktemp("shard") / "shard.tar"
    block = random_block(SCHEMA, 4, 0)
    writer = TarWriter(path, SCHEMA)
    writer.append(block)
    return path, block, writer.close(), path.read_bytes()


def read_all(path, **more):
    return list(TarReader(path, SCHEMA, **more).blocks())


def headers_of(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(member.name, member.offset, member.offset_data, member.size) for member in tar]


def flip(data, at, mask):
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


@given(st.data())
def test_a_changed_byte_in_a_header_is_always_found(shard, data):
    path, _, _, good = shard
    _, start, _, _ = data.draw(st.sampled_from(headers_of(good)))
    at = start + data.draw(
        st.integers(0, 511).filter(lambda k: k not in (154, 155))
    )  # these end the checksum
    target = path.with_name("flipped.tar")
    target.write_bytes(flip(good, at, data.draw(st.integers(1, 255))))
    with pytest.raises(LogloomError, match=r"flipped.tar"):
        read_all(target)


@given(st.data())
def test_a_changed_byte_in_a_payload_is_found_or_changes_that_member_only(shard, data):
    path, block, _, good = shard
    name, _, start, size = data.draw(st.sampled_from([h for h in headers_of(good) if h[3]]))
    target = path.with_name("flipped.tar")
    target.write_bytes(
        flip(good, start + data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, 255)))
    )
    with contextlib.suppress(DatasetError):
        blocks = read_all(target)
        expected, found = digests([block], SCHEMA), digests(blocks, SCHEMA)
        wrong = [column for column in found if found[column] != expected[column]]
        assert len(wrong) <= 1
        assert all("meta.json" in name or f".{column}." in name for column in wrong)


@given(st.data())
def test_a_shard_cut_anywhere_is_an_error(shard, data):
    path, _, entry, good = shard
    target = path.with_name("cut.tar")
    target.write_bytes(good[: data.draw(st.integers(0, len(good) - 1))])
    with pytest.raises(DatasetError, match=r"cut\.tar"):
        read_all(target)
    with pytest.raises(DatasetError, match="were written"):
        read_all(target, entries=[entry])


def test_a_shard_cut_at_a_sample_with_a_new_end_is_found_through_its_entry(shard, tmp_path):
    _, _, entry, good = shard
    starts = [start for name, start, _, _ in headers_of(good)]
    third = starts[len(starts) // 2]
    (tmp_path / "short.tar").write_bytes(good[:third] + bytes(1024))
    assert sum(map(len, read_all(tmp_path / "short.tar"))) == 2
    with pytest.raises(DatasetError, match=f"{third + 1024} bytes, {len(good)} were written"):
        read_all(tmp_path / "short.tar", entries=[entry])


def test_a_cut_shard_gives_its_whole_samples_when_told_to(shard, tmp_path):
    _, block, _, good = shard
    per_row = len(headers_of(good)) // 4
    for cut_at, rows in (
        (headers_of(good)[3 * per_row + 1][1] + 700, 3),
        (headers_of(good)[2 * per_row][1], 2),
    ):
        (tmp_path / "cut.tar").write_bytes(good[:cut_at])
        (found,) = read_all(tmp_path / "cut.tar", allow_truncated=True)
        assert found.timestamp.tolist() == block.timestamp[:rows].tolist()


def make(path, members, **more):
    with tarfile.open(path, "w", **more) as tar:
        for member in members:
            name, kind, link = member if isinstance(member, tuple) else (member, tarfile.REGTYPE, "")
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            tar.addfile(info)
    return path


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize(
    ("members", "words"),
    [
        (["../up.txt"], "outside"),
        (["a/../../up.txt"], "outside"),
        (["/etc/passwd.txt"], "outside"),
        ([("link.txt", tarfile.SYMTYPE, "/etc/passwd")], "a symbolic link"),
        ([("link.txt", tarfile.LNKTYPE, "other")], "a link"),
        ([("null.txt", tarfile.CHRTYPE, "")], "a device"),
        ([("sda.txt", tarfile.BLKTYPE, "")], "a device"),
        ([("pipe.txt", tarfile.FIFOTYPE, "")], "a pipe"),
        ([("hole.txt", tarfile.GNUTYPE_SPARSE, "")], "sparse"),
        (["a" * 4097 + ".txt"], "a name of 4101 characters"),
        (["a" * (1 << 20) + ".txt"], "a name or PAX header of"),
        (["a.txt", "a.txt"], "twice"),
        (["a.txt", "a.TXT"], "twice"),
        (["a.txt", "b.txt", "a.jpg"], "two places"),
    ],
)
def test_members_that_no_dataset_holds_are_refused_with_their_offset(tmp_path, members, words, form):
    path = make(tmp_path / "bad.tar", members, format=form)
    with pytest.raises(DatasetError, match=rf"bad.tar: at byte \d+: .*{words}"):
        len(TarReader(path))
    with pytest.raises(DatasetError, match=rf"bad.tar: at byte \d+: .*{words}"):
        list(stream_samples(path.open("rb"), str(path)))


def test_joined_archives_are_an_error_since_the_second_would_be_lost(tmp_path):
    one = make(tmp_path / "one.tar", ["a.txt"]).read_bytes()
    (tmp_path / "two.tar").write_bytes(one + one)
    with pytest.raises(DatasetError, match="more after the end"):
        len(TarReader(tmp_path / "two.tar"))


def pax(file, **headers):
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("a.txt")
        info.pax_headers = headers
        tar.addfile(info)
    return file


@pytest.mark.parametrize("size", ["-1", "1e3", "99999999999999999", "²", ""])
def test_a_pax_size_that_lies_is_an_error(tmp_path, size):
    with pytest.raises(DatasetError):
        len(TarReader(pax(tmp_path / "a.tar", size=size)))


def test_pax_sparse_files_and_unsafe_pax_names_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="sparse"):
        len(TarReader(pax(tmp_path / "a.tar", **{"GNU.sparse.major": "1"})))
    with pytest.raises(DatasetError, match="outside"):
        len(TarReader(pax(tmp_path / "a.tar", path="../../up.txt")))


@pytest.mark.parametrize(
    "record",
    [
        b"9 a=b\n",
        b"1000 path=b\n",
        b"0 path=x\n",
        b"path=x\n",
        b"-5 a=b\n",
        b"7 path\n",
        b"6 a=b",
        b"\xff" * 30,
    ],
)
def test_a_malformed_pax_record_is_an_error(tmp_path, record):
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        info = tarfile.TarInfo("PaxHeaders/a")
        info.type, info.size = tarfile.XHDTYPE, len(record)
        tar.addfile(info, io.BytesIO(record))
        tar.addfile(tarfile.TarInfo("a.txt"))
    with pytest.raises(DatasetError, match="PAX"):
        len(TarReader(tmp_path / "a.tar"))


def test_a_header_of_huge_size_allocates_nothing(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        info = tarfile.TarInfo("a.txt")
        tar.addfile(info)
    huge = tarfile.TarInfo("b.txt")
    huge.size = 1 << 60
    data = huge.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
    (tmp_path / "a.tar").write_bytes(data)
    began = time.process_time()
    with pytest.raises(DatasetError, match="cut short"):
        len(TarReader(tmp_path / "a.tar"))
    assert time.process_time() - began < 5


def replaced(shard, tmp_path, old, new):
    good = shard[3]
    assert len(old) == len(new)
    assert old in good
    (tmp_path / "changed.tar").write_bytes(good.replace(old, new, 1))
    return tmp_path / "changed.tar"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b'"log_id": "car/drive"', b'"log_id": "bus/drive"', "another sample"),
        (b'"timestamp": 17', b'"timestamp": 18', "another sample"),
        (b'"c0.part": ', b'"c9.part": ', "no c0.part"),
        (b'{"log_id"', b'["log_id"', "JSON"),
        (b'"c0.part": true', b'"c0.part": 1111', "c0.part is no bool"),
        (b"'fortran_order': False", b"'fortran_order': Fals_", "not an .npy array"),
        (b"'shape': (3,)", b"'shape': (4,)", "its npy header has"),
        (b"'shape': (3,), ", b"'shape': (-3,),", "not an .npy array"),
    ],
)
def test_a_member_that_says_something_else_is_an_error(shard, tmp_path, old, new, words):
    with pytest.raises(DatasetError, match=rf"changed.tar: car/drive/\d+\..* at byte \d+: .*{words}"):
        read_all(replaced(shard, tmp_path, old, new))


@pytest.mark.parametrize(
    ("dtype", "value", "more", "words"),
    [
        ("f8", "1e999", "", "v is no float64"),
        ("f4", "1e39", "", "v is no float32"),
        ("f4", "0.1", "", "v is no float32"),
        ("i8", "NaN", "", "v is no int64"),
        ("u8", str(2**64), "", "v is no uint64"),
        ("f8", "1.0", ', "meta": {"nan": {"v": "7ff8000000000001"}}', "with the bits of a NaN"),
        ("f8", "Infinity", ', "meta": {"nan": {"v": "7ff8000000000001"}}', "with the bits of a NaN"),
        ("f8", "NaN", ', "meta": {"nan": {"v": "3ff0000000000000"}}', "bits of no NaN"),
        ("f8", "NaN", ', "meta": {"nan": {"v": "7ff0000000000000"}}', "bits of no NaN"),
        ("f4", "NaN", ', "meta": {"nan": {"v": "7ff8000000000001"}}', "is no float"),
        ("f8", "NaN", ', "meta": {"nan": {"v": "ζff8000000000001"}}', "v is no float64"),
        ("f8", "NaN", ', "meta": {"nan": {"v": 1}}', "is no float"),
        ("f8", "NaN", ', "meta": {"nan": ["v"]}', "no object of objects"),
        ("f8", "NaN", ', "meta": "nan"', "no object of objects"),
        ("f8", "1.0", ', "meta": {"dtypes": {"v": "float32"}}', "it has float32"),
        ("u8", "1", ', "meta": {"dtypes": {"v": [[1]]}}', "it has"),
        ("f8", '{"f8": "7ff8000000000001"}', "", "v is no float64"),
    ],
)
def test_a_number_that_is_none_of_the_type_is_an_error(tmp_path, dtype, value, more, words):
    text = f'{{"log_id": "d", "timestamp": 0, "v": {value}{more}}}\n'.encode()
    with tarfile.open(tmp_path / "bad.tar", "w") as tar:
        info = tarfile.TarInfo("d/0.meta.json")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    schema = Schema({"v": ColumnType(np.dtype(dtype))})
    with pytest.raises(DatasetError, match=rf"bad.tar: d/0.meta.json at byte \d+: .*{words}"):
        list(TarReader(tmp_path / "bad.tar", schema).blocks())
    with contextlib.suppress(LogloomError, KeyError):  # or the samples are others', of one member
        assert np.isinf(logloom.datasets.open(tmp_path)[0]["v"]) == (value == "Infinity")
    with contextlib.suppress(LogloomError):
        open_foreign(str(tmp_path))


@given(st.binary(max_size=200), st.booleans())
def test_npy_parsing_survives_any_bytes(data, with_magic):
    data = (b"\x93NUMPY\x01\x00" if with_magic else b"") + data
    with pytest.raises(ValueError, match="npy"):
        read_npy(np.frombuffer(data, np.uint8))


@pytest.mark.parametrize("point", [0x110000, 0xFFFFFFFF, 0xD800])
@pytest.mark.parametrize("dtype", [np.dtype("<U3"), np.dtype([("a", "<i2"), ("b", [("c", "<U3", (2,))])])])
def test_text_that_is_no_unicode_is_an_error(dtype, point):
    data = npy_header(dtype, (2,)) + np.zeros(2, dtype).tobytes()[:-4] + point.to_bytes(4, "little")
    with pytest.raises(ValueError, match="Unicode"):
        read_npy(np.frombuffer(data, np.uint8))


def test_pickled_objects_are_never_loaded(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickle"):
        read_npy(np.frombuffer(buffer.getvalue(), np.uint8))


@given(data=st.binary(max_size=3000))
def test_any_bytes_are_an_error_or_an_archive_without_samples(data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.tar"
    path.write_bytes(data)
    with contextlib.suppress(LogloomError):
        assert len(TarReader(path, Schema({}))) == 0


def test_keys_have_times_of_64_bits_or_are_refused():
    for time_ns in (-(2**63), -1, 0, 2**63 - 1):
        assert parse_key(f"a/b/{time_ns}", "x.tar") == ("a/b", time_ns)
    for key in (f"a/{2**63}", f"a/{-(2**63) - 1}", "a/", "a/1.5", "5"):
        with pytest.raises(DatasetError, match="is not called <log_id>/<timestamp>"):
            parse_key(key, "x.tar")
