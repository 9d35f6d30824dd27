"""Annotation files as they come: three formats, any storage, damaged ones, hostile ones."""

import collections
import contextlib
import io
import json
import pickle
import pickletools
import tracemalloc

import fsspec
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from logloom.errors import DatasetError
from logloom.io.formats.annotations import AnnotationReader, pickles
from logloom.io.formats.annotations.files import (
    AnnotationError,
    is_absolute,
    joined,
    load,
    load_annotations,
    read_names,
)

VALUE = {"metainfo": {"classes": ["cat"]}, "data_list": [{"img_path": "a.jpg", "box": [1, 2.5]}, {"x": None}]}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.json", json.dumps(VALUE).encode()),
        ("a.b.JSON", json.dumps(VALUE).encode()),
        ("a.yaml", yaml.safe_dump(VALUE).encode()),
        ("a.yml", yaml.safe_dump(VALUE).encode()),
        ("a.pkl", pickle.dumps(VALUE)),
        ("a.pickle", pickle.dumps(VALUE, 0)),
    ],
)
def test_each_format_reads_from_a_disk_and_from_any_store(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    fsspec.filesystem("memory").pipe_file(f"/annotations/{name}", data)
    for uri in (f"{tmp_path}/{name}", f"file://{tmp_path}/{name}", f"memory://annotations/{name}"):
        assert load_annotations(uri) == VALUE


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.json"):
        load(f"{tmp_path}/gone.json")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"metainfo": [], "data_list": []}, "metainfo is a list, should be a dict"),
        ({"metainfo": {}, "data_list": {"a": 1}}, "data_list is a dict, should be a list"),
        ({"metainfo": {}, "data_list": "ab"}, "data_list is a str, should be a list"),
    ],
)
def test_metainfo_and_data_list_of_other_kinds_are_refused(tmp_path, value, words):
    (tmp_path / "a.json").write_text(json.dumps(value))
    with pytest.raises(AnnotationError, match=words):
        load_annotations(f"{tmp_path}/a.json")


@pytest.mark.parametrize("name", ["", "a", "a.txt", "a.json/x"])
def test_a_suffix_of_no_known_format_is_refused(name):
    with pytest.raises(TypeError, match=r"annotation files end in \.json"):
        load(name)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([1], TypeError, "contains a dict, found <class 'list'>"),
        ({"data_list": []}, ValueError, "lacks metainfo"),
        ({"metainfo": {}}, DatasetError, "lacks data_list"),
        ({}, AnnotationError, "lacks metainfo and data_list"),
    ],
)
def test_a_file_without_what_the_format_demands_is_refused(tmp_path, value, error, message):
    (tmp_path / "a.json").write_text(json.dumps(value))
    with pytest.raises(error, match=message) as caught:
        load_annotations(f"{tmp_path}/a.json")
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.json", b'{"metainfo": '),
        ("a.json", b"[" * 100_000),
        ("a.json", b"\xff\xfe\x00"),
        ("a.yaml", b"a: [1,"),
        ("a.yaml", b"!!python/object/apply:os.system ['true']"),
        ("a.pkl", b""),
        ("a.pkl", pickle.dumps(VALUE)[:-5]),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(AnnotationError, match=rf"{name}: damaged, or no") as caught:
        load(f"{tmp_path}/{name}")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_names_are_the_lines_of_a_file_where_there_is_one(tmp_path):
    (tmp_path / "classes.txt").write_bytes("cat\r\ndög\n".encode())
    fsspec.filesystem("memory").pipe_file("/meta/classes.txt", b"a\nb\n")
    assert read_names(f"{tmp_path}/classes.txt") == ["cat", "dög"]
    assert read_names("memory://meta/classes.txt") == ["a", "b"]
    for nothing in ("a name", "", "\0", str(tmp_path), "memory://meta/none.txt", "nothing://x"):
        assert read_names(nothing) is None


@pytest.mark.parametrize(
    ("base", "path", "expected"),
    [
        ("data/", "train/a.jpg", "data/train/a.jpg"),
        ("data", "", "data/"),
        ("", "a.jpg", "a.jpg"),
        ("data", "/abs/a.jpg", "/abs/a.jpg"),
        ("data", "s3://b/a.jpg", "s3://b/a.jpg"),
        ("gs://bucket/data/", "train/a.jpg", "gs://bucket/data/train/a.jpg"),
        ("https://host/x", "a.jpg", "https://host/x/a.jpg"),
    ],
)
def test_paths_join_unless_they_stand_on_their_own(base, path, expected):
    assert joined(base, path) == expected
    assert is_absolute(path) == (joined("x", path) == path and path != "")


# --- pickles --------------------------------------------------------------------------------------------


class Hostile:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


STRUCT = np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("c", "U3")])
PLAIN = [
    {"a": [1, 2.5, None, True, "x", b"y", (1, 2), {1, 2}, frozenset("a")], "b": collections.OrderedDict(x=1)},
    np.arange(6, dtype=">i2").reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.zeros((0, 4), np.float32),
    np.array(["a", "bcd"]),
    np.array([b"ab", b""]),
    np.array([(1, [2, 3], "xyz")], STRUCT),
    np.array([{"a": np.ones(2)}, None, 3], object),
    np.array("2020-01-02", "M8[D]"),
    np.timedelta64(5, "ns"),
    np.float32(1.5),
    np.bool_(True),
    np.str_("text"),
    np.array([(1, [2, 3], "xyz")], STRUCT)[0],
    [np.dtype("<f4"), np.dtype(">U7"), STRUCT, np.dtype(("i4", (2, 3))), np.dtype("M8[10us]")],
    {"nested": ({"deep": [np.arange(3)]},)},
]


def equal(a, b):
    if isinstance(a, np.ndarray | np.generic):
        same = type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
        return same and (
            all(map(equal, a.ravel(), b.ravel())) if a.dtype == object else a.tobytes() == b.tobytes()
        )
    if isinstance(a, dict):
        return type(a) is type(b) and a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and a == b


def test_plain_values_and_those_of_numpy_come_back():
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for value in PLAIN:
            found = pickles.loads(pickle.dumps(value, protocol))
            assert equal(found, value), (protocol, value)
            if isinstance(found, np.ndarray):
                assert found.flags.writeable


@given(
    hnp.arrays(hnp.scalar_dtypes() | hnp.array_dtypes(max_size=3), hnp.array_shapes(min_dims=0, max_side=4)),
    st.integers(0, 5),
)
def test_any_array_comes_back_bit_for_bit(array, protocol):
    found = pickles.loads(pickle.dumps(array, protocol))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert pickle.dumps(found) == pickle.dumps(array.copy(order="K")) or found.tobytes() == array.tobytes()


def test_values_that_hold_themselves_come_back():
    value = {"a": [np.arange(2)]}
    value["self"] = value["a"].append(value) or value["a"]
    found = pickles.loads(pickle.dumps(value))
    assert found["a"][1] is found
    assert found["self"] is found["a"]
    assert isinstance(found["a"][0], np.ndarray)


@pytest.mark.parametrize(
    "hostile",
    [
        Hostile(__import__("os").system, "true"),
        Hostile(eval, "1"),
        Hostile(getattr, "a", "join"),
        Hostile(np.ndarray, (1 << 40,)),
        Hostile(np.dtype, [("a", "O")]),
        Hostile(bytearray, 1 << 40),
        Hostile(np.load, "x.npy"),
        Hostile(np.zeros(1).__reduce__()[0], np.ma.MaskedArray, (0,), b"b"),
        Hostile(__import__("codecs").encode, "x", "rot13"),
        io.BytesIO(b"x"),
        collections.Counter("ab"),
        range(3),
    ],
)
def test_a_pickle_that_would_run_code_is_refused(tmp_path, hostile):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"metainfo": {}, "data_list": [hostile]}))
    with pytest.raises(AnnotationError, match=r"a\.pkl: the pickle .* save it as JSON"):
        load_annotations(f"{tmp_path}/a.pkl")


RECONSTRUCT = "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"


def array_pickle(shape, dtype, state, data):
    """A pickle, protocol 0, of an array whose parts needn't fit each other."""
    made = f"cnumpy\ndtype\n(S'{dtype}'\nI00\nI01\ntR{state}b"
    return f"{RECONSTRUCT}(I1\n{shape}{made}I00\n{data}tb.".encode("latin1")


SIMPLE = "(I3\nS'<'\nNNNI-1\nI-1\nI0\nt"


def test_array_pickles_written_by_hand_read_as_meant():
    found = pickles.loads(
        array_pickle(
            "(I1\nt", "i4", SIMPLE, "c_codecs\nencode\n(V\\u0001\\u0000\\u0000\\u0000\nS'latin1'\ntR"
        )
    )
    assert equal(found, np.array([1], "<i4"))


@pytest.mark.parametrize(
    ("shape", "dtype", "state"),
    [
        ("(I4000000000000\nt", "i4", SIMPLE),  # terabytes
        ("(I-1\nt", "i4", SIMPLE),
        ("(I2\nt", "i4", SIMPLE),  # more than there is
        ("(I1\nt", "O8", SIMPLE),  # bytes as pointers
        ("(I1\nt", "i4,O", SIMPLE),
        (
            "(I1\nt",
            "V4",
            "(I3\nS'|'\nN(S'a'\nt(dS'a'\n(cnumpy\ndtype\n(S'f8'\nI00\nI01\ntRI4000\ntsI4\nI1\nI16\nt",
        ),
        (
            "(I1\nt",
            "V4",
            "(I3\nS'|'\nN(S'a'\nt(dS'a'\n(cnumpy\ndtype\n(S'O'\nI00\nI01\ntRI0\ntsI4\nI1\nI0\nt",
        ),
        ("(I1\nt", "V4", "(I3\nS'|'\nN(S'a'\nt(dI4\nI1\nI0\nt"),
        ("(I1\nt", "i4", "(I9\nt"),
    ],
)
def test_arrays_whose_parts_do_not_fit_are_refused(shape, dtype, state):
    with pytest.raises(ValueError, match=r".+"):
        pickles.loads(array_pickle(shape, dtype, state, "S'abcd'\n"))


def taken_by(data):
    """Bytes of memory that reading a pickle took at most, whether it was one or not."""
    tracemalloc.start()
    try:
        with contextlib.suppress(ValueError):
            pickles.loads(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@given(st.data())
def test_damaged_pickles_are_an_error_or_a_value_and_nothing_else(data):
    whole = bytearray(pickle.dumps(data.draw(st.sampled_from(PLAIN)), data.draw(st.integers(0, 5))))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place] = data.draw(st.integers(0, 255) | st.sampled_from(b"pr\x95\x8e\x96B9"))
    assert taken_by(bytes(whole)) < 1 << 20


OPCODES = [op.code.encode("latin1") for op in pickletools.opcodes]
ARGUMENTS = [
    *(b"", b"a", b"%d\n" % 300, b"%d\n" % (1 << 24), b"x\ny\n"),
    *((1 << bits).to_bytes(width, "little") for bits in (0, 24) for width in (4, 8)),
]


@given(st.lists(st.tuples(st.sampled_from(OPCODES), st.sampled_from(ARGUMENTS)), max_size=8))
def test_opcodes_in_any_order_take_no_memory_on_their_word(parts):
    assert taken_by(b"]" + b"".join(opcode + argument for opcode, argument in parts) + b".") < 1 << 20


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"]r\xff\xff\xff\x07.", "memo index 134217727 at byte 1"),
        (b"]]ap134217727\n.", "memo index 134217727 at byte 3"),
        (b"]p 1_34217727\n.", "opcode at byte 1 .* no fitting argument"),
        (b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"abc.", "byte 2 goes on to byte 1099511627787"),
        (b"\x80\x04\x8d" + b"\xff" * 8 + b".", "the pickle ends at 12"),
        (b"J\x01\x02", "opcode at byte 0 is cut short"),
        (b"]\xff.", "unknown opcode 0xff at byte 1"),
        (b"]\x95\x03\0\0\0\0\0\0\0X\x01\0\0\0a.", "its frame ends at 13"),
        (b"]\x95\x0a\0\0\0\0\0\0\0\x95\0\0\0\0\0\0\0\0N.", "frame begins at byte 10"),
    ],
)
def test_a_pickle_that_claims_more_than_it_can_hold_is_refused_with_the_byte(tmp_path, data, words):
    (tmp_path / "a.pkl").write_bytes(data)
    with pytest.raises(AnnotationError, match=rf"a\.pkl: damaged.* {words}"):
        load(f"{tmp_path}/a.pkl")
    assert taken_by(data) < 1 << 20


def test_what_a_frame_cuts_is_refused_since_the_unpickler_goes_on_elsewhere():
    # Read straight on, these are the texts abc and r\xff\xff\xff\x07. The unpickler drops ab, takes cU\x05
    # for the text, and then sees a memo index.
    data = b"\x80\x04\x95" + (7).to_bytes(8, "little") + b"X\x03\0\0\0abcU\x05r\xff\xff\xff\x07."
    with pytest.raises(ValueError, match="its frame ends at 18"):
        pickles.loads(data)
    assert taken_by(data) < 1 << 20


def test_tuples_of_shared_tuples_are_gone_through_once():
    value = (np.float32(1), np.zeros(1))
    for _ in range(60):
        value = (value, value)
    found = pickles.loads(pickle.dumps([value]))[0]
    for _ in range(60):
        assert found[0] is found[1]
        found = found[0]
    assert equal(found, (np.float32(1), np.zeros(1)))


def test_every_opcode_of_a_large_pickle_is_known(tmp_path):
    rows = [
        {"name": f"{n}.jpg", "box": [n / 7, -n, n << 40, None, True], "raw": b"x" * n} for n in range(300)
    ]
    value = [rows, "y" * 70_000, b"z" * 300_000, bytearray(b"w" * 300_000), tuple(range(5)), frozenset("abc")]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        if protocol < 5:
            value[3] = 2**3000
        assert pickles.loads(pickletools.optimize(pickle.dumps(value, protocol))) == value
        assert pickles.loads(pickle.dumps(value, protocol)) == value
        assert pickles.loads(pickle._dumps(value, protocol)) == value


# --- rows -----------------------------------------------------------------------------------------------


def test_a_foreign_file_reads_as_rows_of_its_name(tmp_path):
    (tmp_path / "val.json").write_text(json.dumps(VALUE))
    reader = pickle.loads(pickle.dumps(AnnotationReader(tmp_path / "val.json")))
    assert len(reader) == 2
    assert reader[1] == {"log_id": "val", "timestamp": 1, "data_info": '{"x":null}'}
    assert reader.metainfo == VALUE["metainfo"]
    with pytest.raises(IndexError):
        reader[2]


def test_rows_carry_the_logs_and_times_that_infos_say(tmp_path):
    infos = [{"log_id": log, "timestamp": stamp} for log, stamp in (("a", 5), ("a", 9), ("b", 2))]
    (tmp_path / "a.json").write_text(json.dumps({"metainfo": {}, "data_list": infos}))
    blocks = list(AnnotationReader(tmp_path / "a.json").blocks(max_bytes=1))
    assert [(b.log_id, b.first_row, b.timestamp.tolist()) for b in blocks] == [
        ("a", 0, [5]),
        ("a", 1, [9]),
        ("b", 0, [2]),
    ]
