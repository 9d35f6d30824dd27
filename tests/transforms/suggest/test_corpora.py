"""A suggested recipe builds as it is, for logs of every kind that the tests and the fuzzers have."""

import json

import pytest
from mcap.writer import Writer

import logloom as ll
from logloom.pipelines.info.info import suggested_recipe
from logloom.recipe import Recipe
from tests.absent import present
from tests.fuzz.targets import Target, read_far_logs, read_logs, targets
from tests.tier import by_tier
from tests.transforms.ros2_logs import SECOND, START

LOGS = {
    name: target
    for name, target in targets()
    if isinstance(target, Target) and target.read in (read_logs, read_far_logs)
}
FEW = present("mcap", "mcap-protobuf", "mcap-json", "rosbag1-lz4", "rosbag2-db3", "tables-csv")


def built(log, folder):
    """The recipe that is suggested for a log, and the rows that it makes."""
    text = suggested_recipe([str(log)], {})
    (folder / "recipe.yaml").write_text(text)
    ll.build(folder / "recipe.yaml", folder / "root", strict=False)
    return text, ll.open(folder / "root")


@pytest.mark.parametrize("name", by_tier(FEW, list(LOGS)))
def test_a_suggestion_builds_as_it_is(tmp_path, name):
    logs = tmp_path / "logs"
    logs.mkdir()
    LOGS[name].make(logs)
    (log,) = logs.iterdir()
    text, rows = built(log, tmp_path)
    assert len(rows) > 0
    assert set(Recipe.from_yaml(text, source="suggested").columns) <= set(rows[0])


def write_json(path, messages):
    """A log of JSON messages without a schema."""
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel("/state", "json", 0)
        for i, message in enumerate(messages):
            time = START + i * SECOND // 10
            writer.add_message(channel, time, json.dumps(message).encode(), time, i)
        writer.finish()
    return path


def test_json_without_a_schema_gets_types_from_its_messages(tmp_path):
    messages = [
        {
            "timestamp": i,
            "v": i * 0.5,
            "count": i,
            "huge": 2**60 + i,
            "on": i % 2 == 0,
            "name": f"n{i}",
            "list": [1.5] * (i % 3),
            "nested": {"a": i, "deep": {"b": -i / 4}},
            "boxes": [{"id": j, "label": "car"} for j in range(i % 3)],
            "grid": [[1, 2], [3]],
            "odd": "x" if i else 1,
            "nothing": None,
            "a.b": 1,
        }
        | ({"sometimes": i / 3} if i % 5 else {})
        for i in range(30)
    ]
    text, rows = built(write_json(tmp_path / "drive.mcap", messages), tmp_path)
    columns = Recipe.from_yaml(text, source="suggested").columns
    assert {name: (column.dtype, column.resample) for name, column in columns.items()} == {
        "state.v": ("float64", "linear"),
        "state.count": ("int64", "nearest"),
        "state.huge": ("int64", "nearest"),
        "state.on": ("bool", "nearest"),
        "state.list": ("float64", "nearest"),
        "state.nested.a": ("int64", "nearest"),
        "state.nested.deep.b": ("float64", "linear"),
        "state.boxes.id": ("int64", "nearest"),
        "state.sometimes": ("float64", "linear"),
    }
    assert "  # state.name: {topic: /state, field: name, resample: nearest, dtype: string, " in text
    assert "  # state.boxes.label: {topic: /state, field: 'boxes[].label', " in text
    for reason in (
        "grid[]: arrays in arrays",
        "odd: values of several types",
        "nothing: no value",
        "a.b: a dot",
    ):
        assert f"# left out: {reason}" in text
    row, message = rows[7], messages[7]
    assert [row[f"state.{name}"] for name in ("v", "count", "huge", "on", "nested.a", "nested.deep.b")] == [
        3.5, 7, 2**60 + 7, False, 7, -1.75,
    ]  # fmt: skip
    assert row["state.list"].tolist() == message["list"]
    assert row["state.boxes.id"].tolist() == [0]
    assert abs(row["state.sometimes"] - 7 / 3) < 1e-12
    assert abs(rows[5]["state.sometimes"] - 5 / 3) < 1e-12  # between its neighbours
    whole = text.replace("  # state.name", "  state.name").replace("  # state.boxes", "  state.boxes")
    (tmp_path / "recipe.yaml").write_text(whole)
    ll.build(tmp_path / "recipe.yaml", tmp_path / "other")
    row = ll.open(tmp_path / "other")[8]
    assert (row["state.name"], row["state.boxes.label"].tolist()) == ("n8", ["car", "car"])
