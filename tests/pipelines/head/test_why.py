"""The lineage of rows, against a reading of the logs that shares nothing with logloom's."""

import datetime
import functools
import json
import shutil
import struct

import pytest
import zstandard

from logloom.demo import make_drives
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage.store import Store
from logloom.pipelines.head.head import head
from logloom.recipe import Recipe
from tests.absent import outputs_present, present
from tests.pipelines.conftest import build_at
from tests.pipelines.test_commands import logloom

MS = 1_000_000
DERIVED = """
import logloom

@logloom.derive
def twice(columns):
    return columns["mean"] * 2
"""
# By column: policy, tolerance, window, offset, topic.
COLUMNS = {
    "previous": ("previous", 300_000, None, 0, "/odom"),
    "next": ("next", 8 * MS, None, 0, "/odom"),
    "nearest": ("nearest", 300_000, None, 0, "/odom"),
    "shifted": ("nearest", 4 * MS, None, -7 * MS, "/odom"),
    "exact": ("exact", None, None, 0, "/odom"),
    "linear": ("linear", 12 * MS, None, 0, "/odom"),
    "angle": ("angle", 30 * MS, None, 0, "/odom"),
    "slerp": ("slerp", 30 * MS, None, 0, "/odom"),
    "far": ("previous", 1 * MS, None, -5_000 * MS, "/odom"),
    "only_after": ("previous", 1 * MS, None, 5_000 * MS, "/odom"),
    "only_before": ("next", 1 * MS, None, -5_000 * MS, "/odom"),
    **{
        policy: (policy, None, (-33 * MS, 15 * MS), 0, "/odom")
        for policy in ("mean", "min", "max", "sum", "count", "first", "last")
    },
    "window": ("window", None, (-33 * MS, 15 * MS), 0, "/odom"),
    "empty": ("mean", None, (0, 1 * MS), 3 * MS, "/odom"),
    "static": ("static", None, None, 0, "/odom"),
}
OUTPUTS = """
outputs:
  tar: {}
  table: {}
"""


@functools.cache
def raw_messages(path):
    """By topic, in file order: (stamp, log time, offset of chunk or record, place in the chunk, payload)."""
    data, channels, found = path.read_bytes(), {}, {}

    def records(data, at, stop):
        while at < stop:
            code, length = struct.unpack_from("<BQ", data, at)
            yield at, code, data[at + 9 : at + 9 + length]
            at += 9 + length

    def note(code, body, offset, within):
        if code == 4:  # channel
            (number, _, size) = struct.unpack_from("<HHI", body)
            channels[number] = body[8 : 8 + size].decode()
        if code == 5:  # message
            number, _, log_time = struct.unpack_from("<HIQ", body)
            seconds, rest = struct.unpack_from("<iI", body, 22 + 4)  # header.stamp, behind CDR's own header
            stamp = seconds * 10**9 + rest
            found.setdefault(channels[number], []).append((stamp, log_time, offset, within, body[22:]))

    for at, code, body in records(data, 8, len(data) - 8):
        if code != 6:
            note(code, body, at, None)
            continue
        (size,) = struct.unpack_from("<I", body, 28)
        inside = body[32 + size + 8 :]
        if body[32 : 32 + size] == b"zstd":
            inside = zstandard.ZstdDecompressor().decompress(inside, 1 << 28)
        for within, code, body in records(inside, 0, len(inside)):
            note(code, body, at, within)
    return found


def expected(messages, tick, policy, tolerance, window, offset):
    """(numbers of the messages used, numbers of the nearest) by the definition of each policy."""
    if policy == "static":
        return [len(messages) - 1], []
    ordered = sorted((m[0] + offset, n) for n, m in enumerate(messages))
    if window:
        used = [n for time, n in ordered if tick + window[0] < time <= tick + window[1]]
        nearest = min(ordered, key=lambda item: (abs(item[0] - tick), item[0] > tick))
        return used, [] if used or policy == "count" else [nearest[1]]
    last = dict(ordered)  # of equal times the last
    before = max((time for time in last if time <= tick), default=None)
    after = min((time for time in last if time >= tick), default=None)
    sides = [] if before is None else [before]
    sides += [] if after is None or after == before else [after]
    if policy in ("linear", "slerp", "angle"):
        good = before is not None and after is not None and max(tick - before, after - tick) <= tolerance
        wanted, near = (sides, []) if good else ([], sides)
    else:
        side = {"previous": before, "next": after}.get(policy)
        if policy in ("nearest", "exact"):
            side = min(sides, key=lambda time: (abs(time - tick), time > tick))
        good = side is not None and abs(side - tick) <= (tolerance or 0)
        wanted, near = ([side], []) if good else ([], sides if side is None else [side])
    return [last[time] for time in wanted], [last[time] for time in near]


def recipe_text(folder):
    lines = []
    for name, (policy, tolerance, window, offset, topic) in COLUMNS.items():
        field = "pose.pose.orientation" if policy == "slerp" else "twist.twist.linear.x"
        more = f", tolerance: {tolerance}ns" if tolerance else ""
        more += f", window: [{window[0]}ns, {window[1]}ns]" if window else ""
        more += f", offset: {offset}ns" if offset else ""
        lines.append(f"  {name}: {{topic: {topic}, field: {field}, resample: {policy}{more}}}")
    lines.append("  camera: {topic: /cam/front/compressed, field: data, resample: nearest, tolerance: 20ms}")
    lines.append("  doubled: {derive: 'doubling:twice', from: mean, dtype: float64}")
    return f"name: why\nlogs: [{folder}/*.mcap]\nclock: {{rate: 25}}\ncolumns:\n" + "\n".join(lines)


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """A root, its log, and rows with their lineage in JSON, from the start, the middle and the end."""
    folder = tmp_path_factory.mktemp("why")
    (log, *_) = make_drives(folder / "made", seconds=3)
    (folder / "logs").mkdir()
    shutil.copy(log, folder / "logs")
    (folder / "doubling.py").write_text(DERIVED)
    recipe = Recipe.from_yaml(recipe_text(folder / "logs") + outputs_present(OUTPUTS))
    built = build_at(recipe, folder / "root", py_files=[str(folder / "doubling.py")])
    count = built.manifest.totals["rows"]
    assert count > 50
    starts = (0, 30, count - 4)
    rows = [row for start in starts for row in head(str(folder / "root"), start=start, count=4, why=True)]
    some = [row.to_json() for row in rows]
    return folder / "root", folder / "logs" / log.name, some


@pytest.mark.parametrize("name", COLUMNS)
def test_every_message_behind_a_value_is_named_with_its_place(traced, name):
    _, path, rows = traced
    policy, tolerance, window, offset, topic = COLUMNS[name]
    messages = raw_messages(path)[topic]
    for row in rows:
        told, tick = row["why"]["columns"][name], row["timestamp"]
        field = "pose.pose.orientation" if policy == "slerp" else "twist.twist.linear.x"
        start = f"{{{name}: {{topic: {topic}, field: {field}, resample: {policy}"
        assert told["recipe"].startswith((f"{start}, ", f"{start}}}"))
        assert row["why"]["software"].keys() >= {"logloom", "numpy"}
        used, near = expected(messages, tick, policy, tolerance, window, offset)
        assert [m["number"] for m in told["messages"]] == used
        assert [m["number"] for m in told.get("nearest", [])] == near
        assert told["available"] == (bool(used) or policy == "count")
        assert bool(told.get("reason")) == (not told["available"])
        assert (told["topic"], told["policy"]) == (topic, policy)
        for message in [*told["messages"], *told.get("nearest", [])]:
            stamp, log_time, at, within, _ = messages[message["number"]]
            time = log_time if policy == "static" else stamp
            assert (message["message_time"], message["log_time"]) == (time, log_time)
            assert (message["unit"], message["offset"], message["within"]) == ("byte", at, within)
            assert message["age"] == tick - time - offset
            assert message["uri"] == str(path)
            seconds, rest = divmod(time, 10**9)
            moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
            assert message["message_time_iso"] == f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09}Z"
    if name in ("previous", "nearest", "linear", "exact", "empty", "far", "only_after", "only_before"):
        assert any(row["why"]["columns"][name].get("nearest") for row in rows)


def test_the_values_are_those_of_the_messages_that_are_named(traced):
    _, path, rows = traced
    messages = raw_messages(path)["/odom"]
    speeds = {}
    for row in rows:
        (used,) = row["why"]["columns"]["last"]["messages"][-1:]
        speeds.setdefault(row["last"], set()).add(messages[used["number"]][4])
        assert row["count"] == len(row["why"]["columns"]["count"]["messages"])
        assert len(row["window"]) == len(row["why"]["columns"]["window"]["messages"])
    assert all(struct.pack("<d", speed) in payload for speed, found in speeds.items() for payload in found)


def test_derived_columns_name_what_they_are_made_of(traced):
    told = traced[2][0]["why"]["columns"]["doubled"]
    assert told["derived_from"] == ["mean"]
    assert told["function"] == "doubling:twice"
    assert told["topic"] is None
    base = traced[2][0]["why"]["columns"]["mean"]
    assert told["columns"]["mean"]["messages"] == base["messages"] != []


def test_a_derived_column_alone_shows_the_messages_of_what_it_is_made_of(traced):
    root, _, rows = traced
    said = logloom("head", root, "-n", 1, "--why", "-c", "doubled").stdout
    used = rows[0]["why"]["columns"]["mean"]["messages"]
    assert used
    assert all(f"/odom #{message['number']}" in said for message in used)


def test_the_table_has_a_line_for_each_message(traced):
    root, _, rows = traced
    chosen = [word for name in ("linear", "window", "doubled", "far") for word in ("-c", name)]
    said = logloom("head", root, "-n", 1, "--why", *chosen)
    assert said.returncode == 0, said.stderr
    columns = rows[0]["why"]["columns"]
    for name in ("linear", "window"):
        for message in columns[name]["messages"]:
            assert str(message["message_time"]) in said.stdout
            assert message["message_time_iso"] in said.stdout
            assert f"#{message['number']}" in said.stdout
    assert "derived from mean by doubling:twice" in said.stdout
    assert "no usable message" in said.stdout
    assert "nearest #" in said.stdout


def test_a_log_that_is_gone_or_changed_is_a_reason_and_no_failure(traced, tmp_path):
    root, log, _ = traced
    kept = tmp_path / "kept.mcap"
    shutil.move(log, kept)
    try:
        (gone,) = head(str(root), count=1, columns=["linear"], why=True)
        told = gone.to_json()["why"]["columns"]["linear"]
        assert told["messages"] is None
        assert log.name in told["reason"]
        assert told["available"] is not None
        log.write_bytes(kept.read_bytes()[:-1] + b"?")
        (changed,) = head(str(root), count=1, columns=["linear"], why=True)
        reason = changed.to_json()["why"]["columns"]["linear"]["reason"]
        assert "has changed" in reason or "can't be read" in reason
        assert any("linear" in line for line in changed.lines()[0])
    finally:
        shutil.move(kept, log)


def test_columns_that_an_output_made_of_others_say_so(built):
    (row,) = head(str(built), count=1, output="l5kit", why=True)
    told = row.to_json()["why"]["columns"]["ego_translation"]
    assert (told["topic"], told["messages"]) == (None, None)
    assert "made by the output" in told["reason"]


def test_a_topic_that_the_log_lacks_is_a_reason(traced, tmp_path):
    root = traced[0]
    manifest = read_manifest(Store.at(str(root)))
    (row,) = head(str(root), count=1, columns=["camera"], why=True)
    assert row.origin.record == manifest.logs[0]
    from logloom.pipelines.head.why import Explainer

    recipe = json.loads(json.dumps(manifest.recipe))
    recipe["columns"]["camera"]["topic"] = "/nowhere"
    explainer = Explainer(Store.at(str(root)), type(manifest)(**{**vars(manifest), "recipe": recipe}))
    told = explainer.why(row.origin.record, int(row.values["timestamp"])).to_json("camera")
    assert told == {
        "topic": "/nowhere",
        "messages": [],
        "reason": "the log has no message of this topic",
    }


def test_head_and_open_choose_the_same_output(traced, built):
    import logloom.datasets

    for root in (traced[0], built):
        (row,) = head(str(root), count=1)
        rows = logloom.datasets.open(str(root))
        assert repr(rows) == repr(logloom.datasets.open(str(root), output=row.origin.entry.output))
        assert row.origin.entry.output in repr(rows)
        assert rows[0]["timestamp"] == row.values["timestamp"]
    assert head(str(traced[0]), count=1)[0].origin.entry.output == present("table", "tar")[0]
