"""Loose rows to blocks, and blocks to rows."""

import dataclasses
import math
import typing

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.portability.api import schema_pb2
from apache_beam.testing import test_stream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.typehints.schemas import schema_from_element_type

from logloom.blocks import Block, Ragged
from logloom.errors import DatasetError, UsageError
from logloom.io.beam import GroupRows, field_of, to_rows
from logloom.io.beam.rows import _by_span, _known
from logloom.schema import BYTES, STRING, ColumnType, Schema
from logloom.testing.rows import SCHEMA, TYPES, assert_equal_values, cut, random_block, rows_in
from tests.cases import case

SPEED = Schema({"speed": ColumnType("<f4")})
SECOND = 10**9


def test_rows_become_a_block_for_each_span_of_a_log_in_the_order_of_time():
    rows = [{"log_id": "drive", "timestamp": t * SECOND, "speed": t / 2} for t in (61, 5, 60, 3)]
    expected = [
        ("drive", "0-60000000000", [3 * SECOND, 5 * SECOND], [1.5, 2.5]),
        ("drive", "60000000000-120000000000", [60 * SECOND, 61 * SECOND], [30, 30.5]),
        ("other", "0-60000000000", [4 * SECOND], [9]),
    ]
    with beam.Pipeline("FnApiRunner") as pipeline:
        loose = pipeline | beam.Create([*rows, {"log_id": "other", "timestamp": 4 * SECOND, "speed": 9}])
        blocks = loose | GroupRows(SPEED)
        shown = blocks | beam.Map(
            lambda b: (b.log_id, b.partition, b.timestamp.tolist(), b.columns["speed"].tolist())
        )
        assert_that(shown, equal_to(expected))
        assert_that(loose | "Wide" >> GroupRows(SPEED, span="2min") | beam.Map(len), equal_to([4, 1]), "wide")


def test_blocks_become_rows_with_fields_named_as_columns():
    schema = Schema({"ego.position": ColumnType("<f4", (2,)), "class": STRING, "image": BYTES})
    columns = {
        "timestamp": np.array([7]),
        "ego.position": np.array([[1, 2]], "<f4"),
        "class": Ragged.from_bytes([b"car"]),
        "image": Ragged.from_bytes([b"jpg\0"]),
    }
    with beam.Pipeline("FnApiRunner") as pipeline:
        blocks = pipeline | beam.Create([Block("drive", "", 0, columns)])
        expected = {"log_id": "drive", "timestamp": 7, "ego__position": [1, 2], "class_": "car"}
        assert_that(blocks | to_rows(schema), equal_to([beam.Row(**expected, image=b"jpg\0")]))
        few = blocks | "Few" >> to_rows(schema.part(["image"])) | beam.Map(lambda row: list(row._asdict()))
        assert_that(few, equal_to([["log_id", "timestamp", "image"]]), label="few")


def test_names_of_fields_are_identifiers_and_their_own_fields():
    names = ["ego.speed", "class", "_x", "3d", "observation.state", "Speed (km/h)", "größe", "", "class_"]
    fields = [field_of(name) for name in names]
    assert fields[:5] == ["ego__speed", "class_", "c_x", "c3d", "observation__state"]
    assert all(field.isidentifier() and field[0] != "_" for field in fields)
    assert [field_of(field) for field in fields] == fields


def schema_of(types):
    """A column of each type, named by it."""
    return Schema({f"{number}.{ctype}": ctype for number, ctype in enumerate(types)})


def row(stamp=10, /, **columns):
    return {"log_id": "drive", "timestamp": stamp, **columns}


def collect(blocks, check):
    """Checks all blocks of a pipeline, in order."""
    assert blocks.element_type is Block

    def ordered(found):
        check(sorted(found, key=lambda block: (block.log_id, int(block.timestamp[0]))))

    assert_that(blocks, ordered)


def assert_equal_columns(found, expected):
    """Equal types, shapes and values; NaN is equal to NaN."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        other = found[name]
        assert type(other) is type(values), name
        if isinstance(values, Ragged):
            np.testing.assert_array_equal(other.shapes, values.shapes, name)
            other, values = other.values, values.values
        assert (other.dtype, other.shape) == (values.dtype, values.shape), name
        assert repr(other.tolist()) == repr(values.tolist()), name


def test_dicts_of_each_type_become_blocks_of_the_same_bits():
    schema = schema_of([*TYPES, ColumnType("<M8[ns]"), ColumnType("<m8[us]", (2,))])
    times = {
        name: np.arange(9 * math.prod(t.shape)) for name, t in schema.columns.items() if t.dtype.kind in "mM"
    }
    block = random_block(Schema({n: t for n, t in schema.columns.items() if n not in times}), 9, 3)
    for name, values in times.items():
        ctype = schema.columns[name]
        block.columns[name] = values.astype(ctype.dtype).reshape(9, *ctype.shape)
    expected = rows_in([block], schema)

    def check(blocks):
        found = rows_in(blocks, schema)
        for one, other in zip(found, expected, strict=True):
            for name in schema.columns:
                assert_equal_values(one[name], other[name])

    with beam.Pipeline("FnApiRunner") as pipeline:
        collect(pipeline | beam.Create(expected[::-1]) | GroupRows(schema), check)


def test_beam_rows_of_each_type_that_beam_has_become_equal_blocks():
    def is_beams(dtype):
        inner = [dtype[name].base for name in dtype.names or ()]
        return dtype.kind != "c" and dtype != np.dtype("<u8") and all(map(is_beams, inner))

    schema = schema_of([ctype for ctype in TYPES if is_beams(ctype.dtype)])
    assert len(schema.columns) >= len(TYPES) - 15
    block = random_block(schema, 9, 5)
    for values in block.columns.values():
        if isinstance(values, Ragged) and values.shapes.shape[1] > 1:
            values.shapes[values.lengths == 0] = 0  # an empty list doesn't show the axes within it

    def check(blocks):
        (found,) = blocks
        assert_equal_columns(found.columns, block.columns)

    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | beam.Create([block]) | to_rows(schema)
        collect(rows | beam.Reshuffle() | GroupRows(schema), check)  # by Beam's coder of rows


def test_rows_of_blocks_become_blocks_again_with_ages_and_availabilities():
    block = random_block(SCHEMA, 40, 1)
    parts = [dataclasses.replace(part, log_id=log) for log in ("b", "a") for part in cut(block, [7, 30])]

    def check(blocks):
        assert [found.log_id for found in blocks] == ["a", "b"]
        for found in blocks:
            assert_equal_columns(found.columns, block.columns)

    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | beam.Create(parts) | to_rows(SCHEMA)
        collect(rows | GroupRows(SCHEMA), check)
        changed = rows | beam.Map(lambda row: {**row._asdict(), "speed": np.float32(1)})
        speeds = changed | "Again" >> GroupRows(SCHEMA) | beam.Map(lambda b: set(b.columns["speed"].tolist()))
        assert_that(speeds, equal_to([{1.0}, {1.0}]), label="changed")


def test_rows_have_a_schema_of_beam_and_values_of_python():
    schema = Schema({"ego.position": ColumnType("<f4", (2,)), "class": STRING, "image": BYTES}, ("class",))
    rows = beam.Pipeline("FnApiRunner") | beam.Create([Block("drive", "", 0, {})]) | to_rows(schema)
    types = dict(rows.element_type._fields)
    assert list(types) == [
        *("log_id", "timestamp", "ego__position", "class_", "image", "class__age", "class__available")
    ]
    assert typing.get_args(types["ego__position"]) == (np.float32,)
    proto = {field.name: field.type for field in schema_from_element_type(rows.element_type).fields}
    assert (proto["image"].atomic_type, proto["image"].nullable) == (schema_pb2.BYTES, True)
    assert proto["ego__position"].array_type.element_type.atomic_type == schema_pb2.FLOAT
    assert {
        name: one.atomic_type for name, one in proto.items() if name in ("timestamp", "class__available")
    } == {
        "timestamp": schema_pb2.INT64,
        "class__available": schema_pb2.BOOLEAN,
    }
    assert [types[name] for name in ("log_id", "timestamp", "class_", "class__available")] == [
        *(str, np.int64, str, bool)
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": ColumnType("<u8")}, "column a: Beam has no type for uint64; leave it out with schema.part"),
        ({"a": ColumnType("<c8", (2,))}, "column a: Beam has no type for complex64"),
        ({"a": ColumnType("<M8[ns]")}, r"column a: Beam has no type for datetime64\[ns\]"),
        ({"a": ColumnType([("x", "<u8")])}, "column a.x: Beam has no type for uint64"),
        ({"a.b": STRING, "a__b": STRING}, "columns 'a.b' and 'a__b' are both 'a__b' in rows of Beam"),
        ({"log.id": STRING, "log-id": STRING, "log_id ": STRING}, "columns 'log_id' and 'log-id' are both"),
        ({"a": ColumnType([("x y", "<f4"), ("x_y", "<f4")])}, "to_rows: a: columns 'x y' and 'x_y' are both"),
    ],
)
def test_columns_that_rows_of_beam_cannot_have_are_refused_by_name(columns, message):
    with pytest.raises(UsageError, match=message):
        to_rows(Schema(columns))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "block of log drive: no column speed; leave it out"),
        ({"speed": np.array([1e300])}, "block of log drive, column speed: float64, the schema has float32"),
    ],
)
def test_a_block_that_is_not_of_the_schema_is_refused_by_name(columns, message):
    block = Block("drive", "", 0, {"timestamp": np.array([1]), **columns})
    with pytest.raises(UsageError, match=message), beam.Pipeline("FnApiRunner") as pipeline:
        pipeline | beam.Create([block]) | to_rows(SPEED)


WIDE = Schema(
    {
        "small": ColumnType("i1"),
        "speed": ColumnType("<f4"),
        "moving": ColumnType("?"),
        "note": STRING,
        "image": BYTES,
        "pose": ColumnType("<f8", (3,)),
        "points": ColumnType("<f4", (None, 2)),
        "box": ColumnType([("x", "<f4"), ("ids", "<i2", (2,))], (None,)),
        "word": ColumnType("<U3"),
    },
    ("speed",),
)
FITS = {
    **row(small=1, speed=1.0, moving=False, note="n", image=b"i", pose=[0, 1, 2.5]),
    "points": [],
    "box": [],
    "word": "",
    "speed.age": 0,
    "speed.available": True,
}
Box = typing.NamedTuple("Box", [("x", float), ("ids", list)])  # noqa: UP014
AT = r"row of log drive at 10"


def read(given):
    return _by_span(given, WIDE, _known(WIDE), SECOND)


@pytest.mark.parametrize(
    "given",
    [
        {"small": -128},
        {"small": np.int8(3)},
        {"small": True},
        {"speed": None},
        {"speed": 2**24},
        {"speed": np.float16(1)},
        {"speed": np.int16(3)},
        {"speed": math.inf},
        {"moving": np.True_},
        {"note": np.str_("é")},
        {"image": bytearray(b"x")},
        {"image": memoryview(b"x")},
        {"pose": np.arange(3)},
        {"pose": (True, 1, 2)},
        {"points": [[1, 2]]},
        {"points": np.empty((0, 2), "<f4")},
        {"box": [{"x": 1, "ids": [1, 2]}, beam.Row(x=2.5, ids=(3, 4)), Box(1.0, [5, 6])]},
        {"word": ""},
    ],
    ids=lambda given: f"{given}".partition(" at 0x")[0],
)
def test_values_that_the_types_hold_are_taken(given):
    (name,) = given
    (_, stamp), (at, values) = read(FITS | given)
    assert (stamp, at, len(values)) == (0, 10, len(WIDE.all))
    number = list(WIDE.all).index(name)
    assert isinstance(values[number], tuple) == (name in ("points", "box"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"small": 128}, r"{at}, column small: 128 \(int\), the schema has int8; convert the value"),
        ({"small": 1.0}, r"{at}, column small: 1.0 \(float\), the schema has int8"),
        ({"small": np.int16(1)}, "{at}, column small: int16, the schema has int8"),
        ({"small": None}, r"{at}, column small: None \(NoneType\), the schema has int8"),
        ({"small": 2**70}, "{at}, column small: 1180591620717411303424"),
        ({"speed": np.float64(1)}, "{at}, column speed: float64, the schema has float32"),
        ({"speed": 1e300}, r"{at}, column speed: 1e\+300 \(float\), the schema has float32"),
        ({"speed": 2**24 + 1}, r"{at}, column speed: 16777217 \(int\), the schema has float32"),
        ({"speed": np.int64(2**60 + 1)}, "{at}, column speed: int64, the schema has float32"),
        ({"speed": "fast"}, r"{at}, column speed: 'fast' \(str\), the schema has float32"),
        ({"speed": [1.0]}, r"{at}, column speed: \[1.0\] \(list\), the schema has float32"),
        ({"speed.age": 1.5}, "{at}, column speed.age: 1.5"),
        ({"moving": 1}, r"{at}, column moving: 1 \(int\), the schema has bool"),
        ({"note": b"n"}, r"{at}, column note: b'n' \(bytes\), the schema has string"),
        ({"image": "i"}, r"{at}, column image: 'i' \(str\), the schema has bytes"),
        ({"pose": [1, 2]}, r"{at}, column pose: \[1, 2\] \(list\), the schema has float64\[3\]"),
        ({"pose": [1, 2, None]}, r"{at}, column pose: \[1, 2, None\]"),
        ({"pose": np.ones((1, 3))}, r"{at}, column pose: float64\[1, 3\], the schema has float64\[3\]"),
        ({"pose": [2**53 + 1, 0, 0]}, r"{at}, column pose: \[9007199254740993, 0, 0\]"),
        ({"points": [[1, 2], [3]]}, r"{at}, column points: \[\[1, 2\], \[3\]\] \(list\)"),
        ({"points": [1, 2]}, r"{at}, column points: .* the schema has float32\[\?, 2\]"),
        (
            {"box": [{"x": 1}]},
            r"{at}, column box: \[\{{'x': 1\}}\] \(list\), the schema has struct\[\?\] of",
        ),
        ({"box": {"x": 1, "ids": [1, 2]}}, "{at}, column box: "),
        ({"box": [{"x": "no", "ids": [1, 2]}]}, r"{at}, column box: 'no' \(str\), the schema has float32"),
        ({"box": np.zeros(2, [("x", "<f8")])}, r"{at}, column box: struct\[2\] of \[\('x', '<f8'\)\]"),
        ({"word": "four"}, r"{at}, column word: 'four' \(str\), the schema has <U3"),
        ({"sped": 1}, "{at}: the schema has no column 'sped'; did you mean speed"),
        ({"speed__age": 1}, "{at}: column speed.age is there twice, also as speed__age; leave one out"),
        ({"log_id": 3}, "row of log 3 at 10: log_id is a int; it must be a str"),
        ({"timestamp": 1.5}, "at 1.5: timestamp is a float; it must be an int"),
        ({"timestamp": 2**63}, "timestamp: doesn't fit int64"),
        ({"timestamp": True}, "timestamp is a bool"),
    ],
    ids=case,
)
def test_rows_that_do_not_fit_are_refused_with_log_time_column_and_types(given, message):
    with pytest.raises(UsageError, match=message.format(at=AT)):
        read(FITS | given)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        *(
            ({key: FITS[key] for key in FITS if key != name}, f"no column {name}; add it|{name} is a None")
            for name in ("small", "speed.age", "speed.available", "log_id", "timestamp")
        ),
        (("drive", 10), r"GroupRows: \('drive', 10\): a tuple; give dicts or beam.Rows"),
    ],
)
def test_what_is_no_row_or_lacks_a_column_is_refused(row, words):
    with pytest.raises(UsageError, match=words):
        read(row)


def test_equal_rows_count_once_and_are_counted():
    rows = [row(10, speed=np.float32("nan")), row(20, speed=2.0), row(10, speed=math.nan)] * 2
    pipeline = beam.Pipeline("FnApiRunner")
    lengths = pipeline | beam.Create(rows) | GroupRows(SPEED) | beam.Map(lambda b: b.timestamp.tolist())
    assert_that(lengths, equal_to([[10, 20]]))
    counters = pipeline.run().metrics().query()["counters"]
    found = {c.key.metric.name: c.result for c in counters if c.key.metric.namespace == "logloom"}
    assert found == {"rows_grouped": 2, "rows_equal": 4}


@pytest.mark.parametrize("other", [2.0, -0.0])
def test_rows_of_one_time_and_other_values_are_an_error(other):
    rows = [row(10, speed=0.0), row(20, speed=1.0), row(10, speed=other)]
    message = "log drive, timestamp 10: two rows have different values of speed; leave one out before"
    with pytest.raises(DatasetError, match=message), beam.Pipeline("FnApiRunner") as pipeline:
        pipeline | beam.Create(rows) | GroupRows(SPEED)


def test_windows_of_the_input_cut_no_blocks():
    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | beam.Create([row(stamp, speed=1.0) for stamp in (10, 20)])
        stamped = rows | beam.Map(lambda row: TimestampedValue(row, row["timestamp"]))
        windows = stamped | beam.WindowInto(FixedWindows(15))
        assert_that(windows | GroupRows(SPEED) | beam.Map(len), equal_to([2]))


def test_unbounded_input_and_spans_of_nothing_are_refused():
    with pytest.raises(UsageError, match=r"GroupRows: .*unbounded"):
        beam.Pipeline("FnApiRunner") | test_stream.TestStream() | GroupRows(SPEED)
    for span, message in ((0, "span: not positive"), ("fast", "GroupRows: span='fast'")):
        with pytest.raises(UsageError, match=message):
            GroupRows(SPEED, span=span)
