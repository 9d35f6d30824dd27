"""`nan: unavailable`: rows are those of the log without the messages that have NaN, in every language."""

import json
import math
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2
from mcap.writer import Writer

from logloom.errors import RecipeError
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.opening import open_log
from logloom.recipe import Recipe
from logloom.resample.policies import POLICIES
from logloom.transforms.rows.accounts import nan_lines, reconcile
from logloom.transforms.rows.plan.resolve import resolve
from tests.tier import by_tier
from tests.transforms.ros2_logs import COMMAND, HEADER, QUATERNION, START, VECTOR, header, write_log
from tests.transforms.rows.test_pose_lookups import built

MS = 1_000_000
KIND = (
    "arm_msgs/msg/Sample",
    "std_msgs/Header header\nfloat64 x\nfloat32[3] v\nfloat64[] list\nint32 n\nstring[] name\n"
    "float64[] position\ngeometry_msgs/Quaternion q\ngeometry_msgs/Vector3[] points\n"
    + HEADER
    + QUATERNION
    + VECTOR,
)
OF_NUMBERS = ("x", "v", "list")
COLUMNS = {
    "x": {"field": "x"},
    "v": {"field": "v"},
    "list": {"field": "list", "shape": [2]},
    "q": {"field": "q"},
    "arm": {"as": "joints", "names": ["b", "a"], "field": "position"},
    "points": {"field": "points"},
    "ragged": {"field": "list"},
}


def sample(rng, time):
    """A message; each of its numbers may be NaN or infinite."""

    def number():
        return float(rng.choice([rng.normal(), math.nan, math.inf], p=[0.96, 0.03, 0.01]))

    q = rng.normal(size=4)
    rotation = (q / np.linalg.norm(q)).tolist()
    if rng.random() < 0.1:
        rotation[2] = math.nan
    return {
        "header": header(time),
        "x": number(),
        "v": [number() for _ in range(3)],
        "list": [number(), number()],
        "n": int(rng.integers(9)),
        "name": ["a", "b", "c"],
        "position": [number() for _ in range(3)],
        "q": dict(zip("xyzw", rotation, strict=True)),
        "points": [dict(zip("xyz", (number() for _ in range(3)), strict=True)) for _ in range(2)],
    }


def samples(seed, count=80):
    rng = np.random.default_rng(seed)
    times = START + np.arange(count) * 10 * MS + rng.integers(0, 9, count) * MS
    return [(time, sample(rng, time)) for time in times.tolist()]


def numbers_of(name, message):
    """The numbers of a column's value."""
    if name == "arm":
        return message["position"][1::-1]
    if name == "q":
        return [*message["q"].values()]
    if name == "points":
        return [number for point in message["points"] for number in point.values()]
    value = message["list" if name == "ragged" else name]
    return value if isinstance(value, list) else [value]


def has_nan(name, message):
    return any(map(math.isnan, numbers_of(name, message)))


# --- logs: /ticks at the first and last time keeps the extent of a log that lacks messages -----------------


def ros2(path, messages):
    ends = [(START, {"throttle": 0.0, "gains": []}), (START + 800 * MS, {"throttle": 0.0, "gains": []})]
    return write_log(path, {"/s": (KIND, messages), "/ticks": (COMMAND, ends)})


def mcap_of(path, encoding, schema, payload, messages):
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        kind = writer.register_schema("arm.Sample", *schema)
        for topic, some in (("/s", messages), ("/ticks", [(START, None), (START + 800 * MS, None)])):
            channel = writer.register_channel(topic, encoding, kind)
            for time, message in some:
                writer.add_message(channel, time, payload(message or messages[0][1]), time)
        writer.finish()
    return str(path)


def in_json(path, messages):
    of = {
        "x": {"type": "number"},
        **{name: {"type": "array", "items": {"type": "number"}} for name in ("v", "list")},
    }
    of["v"] = {**of["v"], "minItems": 3, "maxItems": 3}
    schema = ("jsonschema", json.dumps({"type": "object", "properties": of}).encode())
    return mcap_of(
        path, "json", schema, lambda m: json.dumps({name: m[name] for name in OF_NUMBERS}).encode(), messages
    )


def protobuf(path, messages):
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="arm", syntax="proto3")
    kind = file.message_type.add(name="Sample")
    for number, name in enumerate(OF_NUMBERS, 1):
        kind.field.add(name=name, number=number, type=1, label=1 if name == "x" else 3)
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()

    def payload(message):
        parts = [b"\x09" + struct.pack("<d", message["x"])]
        for number, name in ((2, "v"), (3, "list")):
            packed = struct.pack(f"<{len(message[name])}d", *message[name])
            parts.append(bytes([number << 3 | 2, len(packed)]) + packed)
        return b"".join(parts)

    return mcap_of(path, "protobuf", ("protobuf", files), payload, messages)


def ros1(path, messages):
    def payload(message):
        numbers = message["list"]
        return struct.pack(f"<d3fI{len(numbers)}d", message["x"], *message["v"], len(numbers), *numbers)

    return mcap_of(path, "ros1", ("ros1msg", b"float64 x\nfloat32[3] v\nfloat64[] list\n"), payload, messages)


def table(path, messages):
    path.mkdir()
    kinds = {"x": pa.float64(), "v": pa.list_(pa.float64(), 3), "list": pa.list_(pa.float64())}
    for name, some in (("s", messages), ("ticks", [(START, None), (START + 800 * MS, None)])):
        columns = {"timestamp": pa.array([time for time, _ in some], pa.int64())}
        for field, kind in kinds.items():
            values = [(message or messages[0][1])[field] for _, message in some]
            columns[field] = pa.array(values, kind, from_pandas=False)
        pq.write_table(pa.table(columns), path / f"{name}.parquet")
    return [str(path / f"{name}.parquet") for name in ("s", "ticks")]


def opened(uris):
    return open_log([uris] if isinstance(uris, str) else uris, OpenOptions())


# --- rows -------------------------------------------------------------------------------------------------


def policies_of(name):
    """The policies that a column's values can have."""
    for policy, rules in POLICIES.items():
        numbers = name not in ("points", "ragged")
        if rules.by_clock or (rules.takes == "quaternions" and name != "q"):
            continue
        if numbers or rules.takes in ("any", "nothing"):
            yield policy


UNAVAILABLE = {"nan": "unavailable"}


def plan_of(log, columns, rows=30):
    data = {
        "name": "robot",
        "logs": ["*"],
        "clock": {"rate": 50},
        "time": {"by": "log"},
        "columns": columns,
        "partition": {"rows": rows},
        "outputs": {"tar": {}},
    }
    return resolve(Recipe.model_validate(data), {"drive": log})[0]


def column(topic, name, policy):
    found = {"topic": topic, "resample": policy, "nan": "unavailable", **COLUMNS[name]}
    rules = POLICIES[policy]
    return (
        found
        | ({"window": ["-40ms", "0ms"]} if rules.uses == "window" else {})
        | ({"tolerance": "15ms"} if rules.tolerates else {})
    )


def check(tmp_path, write, names, seed, topic):
    messages = samples(seed)
    whole = opened(write(tmp_path / "whole", messages))
    for name in names:
        lacking = [message for _, message in messages if has_nan(name, message)]
        assert lacking
        sound = [one for one in messages if not has_nan(name, one[1])]
        part = opened(write(tmp_path / f"without-{name}", sound))
        columns = {policy: column(topic, name, policy) for policy in policies_of(name)}
        rows, tallies = built(whole, plan_of(whole, columns))
        wanted, others = built(part, plan_of(part, columns, rows=1000))
        assert len(tallies) > len(others) == 1
        for key, values in wanted.items():
            assert (
                rows[key].tobytes() == values.tobytes()
                if isinstance(values, np.ndarray)
                else ([row.tolist() for row in rows[key]] == [row.tolist() for row in values])
            ), (name, key)
        accounts = reconcile(plan_of(whole, columns), whole.summary, tallies)[topic].columns
        expected = reconcile(plan_of(part, columns), part.summary, others)[topic].columns
        for policy, account in accounts.items():
            assert account.used == expected[policy].used
            if policy != "static":
                assert account.with_nan == account.without_value == len(lacking), policy
                assert account.not_chosen == expected[policy].not_chosen + len(lacking)


@pytest.mark.parametrize("seed", range(by_tier(1, 10)))
def test_rows_are_those_of_the_log_without_messages_with_nan(tmp_path, seed):
    check(
        tmp_path, lambda path, messages: ros2(path.with_suffix(".mcap"), messages), list(COLUMNS), seed, "/s"
    )


@pytest.mark.parametrize("write", [in_json, protobuf, ros1], ids=lambda write: write.__name__)
def test_messages_of_each_language_are_left_out_alike(tmp_path, write):
    check(tmp_path, lambda path, messages: write(path.with_suffix(".mcap"), messages), ["x", "list"], 3, "/s")


def test_rows_of_tables_are_left_out_alike(tmp_path):
    check(tmp_path, table, ["x", "list", "v"], 3, "/s")


def test_joints_that_are_resampled_alone_lack_nan_alone(tmp_path):
    messages = samples(5)
    log = opened(ros2(tmp_path / "drive.mcap", messages))
    joints = column("/s", "arm", "previous")
    together = {"all": {**joints, "partial": True}}
    alone = {name: {**joints, "names": [name]} for name in ("b", "a")}
    rows, tallies = built(log, plan_of(log, together | alone))
    available = rows["b.available"] & rows["a.available"]
    assert (rows["all.available"] == available).all()
    assert available.sum() > 0
    values = np.concatenate([rows["b"], rows["a"]], axis=1)[available]
    np.testing.assert_array_equal(rows["all"][available], values)
    assert not np.isnan(values).any()
    account = reconcile(plan_of(log, together | alone), log.summary, tallies)["/s"].columns["all"]
    assert account.with_nan == sum(has_nan("arm", message) for _, message in messages)


def test_infinity_is_a_value(tmp_path):
    messages = [(START + i * 10 * MS, sample(np.random.default_rng(0), START)) for i in range(4)]
    for (_, message), x in zip(messages, (1.0, math.inf, math.nan, -math.inf), strict=True):
        message["x"] = x
    log = opened(ros2(tmp_path / "drive.mcap", messages))
    exact = column("/s", "x", "exact")
    data = {
        "name": "r",
        "logs": ["*"],
        "clock": {"topic": "/s"},
        "time": {"by": "log"},
        "columns": {"x": exact},
    }
    plan = resolve(Recipe.model_validate({**data, "outputs": {"tar": {}}}), {"drive": log})[0]
    rows, tallies = built(log, plan)
    np.testing.assert_array_equal(rows["x"], [1, math.inf, math.nan, -math.inf])
    assert rows["x.available"].tolist() == [True, True, False, True]
    (line,) = nan_lines(reconcile(plan, log.summary, tallies))
    assert line == "column x: 1 of 4 messages of /s have NaN, and so no value for it (`nan: unavailable`)"


@pytest.mark.parametrize(("field", "value"), [("x", 2), ("n", 7)])
def test_floats_that_a_dtype_casts_may_have_nan(tmp_path, field, value):
    messages = [(START + i * 20 * MS, sample(np.random.default_rng(0), START)) for i in range(3)]
    for (_, message), x in zip(messages, (math.nan, 1.6, math.nan), strict=True):
        message |= {"x": x, "n": 7}
    log = opened(ros2(tmp_path / "drive.mcap", messages))
    rows, _ = built(log, plan_of(log, {"c": {"topic": "/s", "field": field, "dtype": "int32"} | UNAVAILABLE}))
    assert rows["c"].dtype == np.int32
    assert set(rows["c"][rows["c.available"]].tolist()) == {value}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"field": "n"}, r"columns.c.nan: `nan: unavailable` has no meaning for int32, which has no NaN"),
        ({"field": "name"}, "has no meaning for"),
        ({"as": "points"}, "would leave out a whole cloud, scan or picture for one NaN"),
        ({"as": "points[x,y]"}, "would leave out a whole cloud"),
        ({"as": "image"}, "would leave out a whole cloud"),
        ({"as": "scan"}, "would leave out a whole cloud"),
        (
            {"field": "x", "nan": "none"},
            "columns.c.nan: no such choice as 'none'; there are keep, unavailable",
        ),
    ],
)
def test_what_has_no_nan_or_very_many_numbers_is_refused(tmp_path, keys, said):
    log = opened(ros2(tmp_path / "drive.mcap", samples(0, 3)))
    with pytest.raises(RecipeError, match=said):
        plan_of(log, {"c": {"topic": "/s", "nan": "unavailable", **keys}})
