"""doctor and build agree: damage is what a build of the suggested recipe refuses, and nothing else."""

import dataclasses
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from logloom.errors import LogloomError
from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.match import group_logs
from logloom.io.logs.opening import open_log
from logloom.pipelines.doctor.doctor import examine
from logloom.recipe import Recipe
from logloom.transforms.suggest.recipe import suggest
from tests.files import flip
from tests.io.logs.making import MS, ROS1, SECOND, START, Message, ros1_payload, write_bag, write_mcap
from tests.io.logs.rosbag2.test_rosbag2 import write_bag as write_bag2
from tests.pipelines.conftest import build_at
from tests.transforms.ros2_logs import COMMAND, COMPRESSED, SPEED, TF, header, speeds, transform, write_log

HOUR = 3600 * SECOND
TICKS = [START + i * 20 * MS for i in range(300)]


def commands(times):
    return COMMAND, [(t, {"throttle": 0.5, "gains": []}) for t in times]


def take(**topics):
    """A writer of a log with a sound topic and others: {name: (type, messages)}."""

    def write(folder):
        named = {f"/{name}": messages for name, messages in topics.items()}
        return write_log(folder / "take.mcap", {"/fine": commands(TICKS), **named})

    return write


def stamped(stamp, times=TICKS):
    """Messages with the stamps that `stamp(number, log time)` gives."""
    messages = speeds(len(times), step=20 * MS)
    return SPEED, [
        (t, {**m, "header": header(stamp(i, t))})
        for i, (t, (_, m)) in enumerate(zip(times, messages, strict=True))
    ]


def static(count, age, lag=0):
    transforms = [transform(START - age, "base", f"camera{i}") for i in range(count)]
    return TF, [(START + i * lag, {"transforms": [one]}) for i, one in enumerate(transforms)]


def pictures(kind, cut=()):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(file, kind)
    data = file.getvalue()
    return COMPRESSED, [
        (t, {"header": header(t), "format": kind, "data": data[: len(data) // 2] if i in cut else data})
        for i, t in enumerate(TICKS[:60])
    ]


def messages(count=300):
    return [Message("/a", t, t, t, ros1_payload(t, b"x" * 40)) for t in TICKS[:count]]


def in_mcap(change=lambda messages: messages, spoil=lambda path: None, **options):
    """A writer of a log whose messages, and then whose file, are changed."""

    def write(folder):
        schema = (ROS1[0], "ros1msg", ROS1[1].encode())
        path = folder / "take.mcap"
        write_mcap(path, change(messages()), **{"encoding": "ros1", "schema": schema, **options})
        spoil(path)
        return path

    return write


def cut(share):
    return lambda path: path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def flipped(beyond):
    def spoil(path):
        row = open_log([str(path)]).parts[0].index.stretches[2]
        flip(path, int(row["offset"]) + beyond)
        CHUNKS.clear()

    return spoil


def torn(messages):
    return [dataclasses.replace(m, data=b"abc") if i == 7 else m for i, m in enumerate(messages)]


def shuffled(messages):
    return [m for i in range(0, len(messages), 10) for m in (*messages[i + 5 : i + 10], *messages[i : i + 5])]


def bag(folder):
    return write_bag(folder / "take.bag", messages())


def split_bag(folder):
    path = write_bag2(folder / "take", 60)
    text = (path / "metadata.yaml").read_text()
    (path / "metadata.yaml").write_text(text.replace("- take.db3", "- take.db3\n  - take_1.db3"))
    return path


def table(**columns):
    def write(folder):
        (folder / "take").mkdir()
        pq.write_table(pa.table({"timestamp_ns": TICKS, **columns}), folder / "take" / "imu.parquet")
        return folder / "take"

    return write


UNDAMAGED = {
    "sound": take(),
    "dead": take(arm=commands(TICKS[:150])),
    "begins-half-way": take(arm=commands(TICKS[150:])),
    "stalls": take(arm=commands(TICKS[:100] + TICKS[150:])),
    "events": take(event=commands([START, START + SECOND, START + 4 * SECOND])),
    "stamps-of-zero": take(trajectory=stamped(lambda i, t: 0)),
    "some-stamps-of-zero": take(command=stamped(lambda i, t: 0 if i % 50 == 3 else t)),
    "late": take(speed=stamped(lambda i, t: t - 1150 * MS)),
    "one-late": take(speed=stamped(lambda i, t: t - (40 * SECOND if i == 9 else 0))),
    "one-far": take(
        speed=stamped(lambda i, t: t - (9 * HOUR if i == 9 else 0)), gear=stamped(lambda i, t: t)
    ),
    "replayed": take(speed=stamped(lambda i, t: t - 900 * HOUR)),
    "latched": take(tf_static=static(1, HOUR)),
    "latched-twice": take(tf_static=static(2, HOUR, lag=SECOND)),
    "latched-at-zero": take(map=stamped(lambda i, t: 0, TICKS[:1])),
    "equal-stamps": take(speed=stamped(lambda i, t: TICKS[i // 2 * 2])),
    "decreasing-stamps": take(speed=stamped(lambda i, t: t - i % 3 * 50 * MS)),
    "jpegs": take(cam=pictures("jpeg")),
    "pngs": take(cam=pictures("png")),
    "whole-bag": bag,
    "no-index": in_mcap(index_types=[]),
    "no-chunks": in_mcap(use_chunking=False),
    "log-times-decrease": in_mcap(shuffled),
    "null-floats": table(speed=pa.array([None, *np.arange(299.0)])),
    "nan": table(speed=np.where(np.arange(300) % 7 == 0, np.nan, 1.0)),
    "stray-latch": take(map=commands([0, START])),
    "leap": take(x=commands([*TICKS, *(t + 720 * HOUR for t in TICKS)])),
}
DAMAGED = {
    "stray-event": take(event=commands([0])),
    "strays-of-1970": take(x=commands([*range(0, SECOND, 20 * MS), *TICKS])),
    "a-stray-years-ahead": take(x=commands([*TICKS, TICKS[-1] + 40 * 8766 * HOUR])),
    "without-messages": in_mcap(lambda messages: []),
    "empty-file": in_mcap(spoil=cut(0)),
    "cut": in_mcap(spoil=cut(0.6)),
    "cut-in-the-index": in_mcap(spoil=cut(0.98)),
    "flipped": in_mcap(spoil=flipped(120)),
    "a-message-too-short": in_mcap(torn),
    "half-a-jpeg": take(cam=pictures("jpeg", cut=[20])),
    "half-a-png": take(cam=pictures("png", cut=[20, 21])),
    "a-split-is-missing": split_bag,
    "nothing-decodes-it": in_mcap(encoding="klingon"),
}


def suggested(path):
    """The recipe of `info --recipe` for a log that may be damaged, which refuses damage."""
    (files,) = group_logs([str(path)])
    logs = {files.log_id: open_log(files.uris, OpenOptions("salvage"))}
    data = yaml.safe_load(suggest(logs, on_error="salvage"))
    del data["on_error"]
    return data


def refused(data, root):
    """Why a build of a recipe fails or lacks something; "" where it takes all."""
    CHUNKS.clear()
    try:
        built = build_at(Recipe.model_validate(data), root)
    except LogloomError as error:
        return str(error)
    return "" if built.is_whole else "it isn't whole"


def examined(path):
    """The verdict of doctor on a log."""
    CHUNKS.clear()
    (files,) = group_logs([str(path)])
    return examine(files, OpenOptions("salvage"))


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_what_a_build_of_the_suggested_recipe_refuses(tmp_path, name):
    path = DAMAGED[name](tmp_path)
    found = examined(path)
    try:
        why = refused(suggested(path), tmp_path / "root")
    except LogloomError as error:
        why = str(error)
    assert (found.is_damaged, bool(why)) == (True, True), (found.findings, why)


@pytest.mark.parametrize("name", UNDAMAGED)
def test_what_is_no_damage_is_built_as_suggested_and_by_the_lines_of_the_findings_alone(tmp_path, name):
    path = UNDAMAGED[name](tmp_path)
    found, data = examined(path), suggested(path)
    why = refused(data, tmp_path / "root")
    assert (found.is_damaged, why) == (False, ""), (found.findings, why)
    by_lines = data | {"time": {}}
    for line in (finding.recipe for finding in found.findings):
        own = yaml.load(line, yaml.BaseLoader).get("time", {}) if line else {}
        by_lines["time"]["topics"] = by_lines["time"].get("topics", {}) | own.pop("topics", {})
        by_lines["time"] |= own
    if Recipe.model_validate(by_lines).identity_json() != Recipe.model_validate(data).identity_json():
        assert refused(by_lines, tmp_path / "by lines") == ""


def test_a_clock_set_back_is_damage_until_the_recipe_decides(tmp_path):
    times = [*TICKS, *(t + 3 * SECOND for t in TICKS)]
    path = in_mcap(lambda _: [Message("/a", t, t, t, ros1_payload(t, b"x")) for t in times])(tmp_path)
    CHUNKS.clear()
    (files,) = group_logs([str(path)])
    (finding,) = examine(files, OpenOptions("salvage")).findings
    assert (finding.kind, finding.severity) == ("set_back", "damage")
    data = suggested(path) | {"time": {}}
    why = refused(data, tmp_path / "root")
    assert "the clock was set back by 3 s at 6 s" in finding.message
    assert "the clock was set back by 3 s at 6 s" in why
    decided = data | yaml.load(finding.recipe, yaml.BaseLoader)
    assert refused(decided, tmp_path / "decided") == ""


@pytest.mark.parametrize("name", ["stamps-of-zero", "some-stamps-of-zero", "late", "one-late", "replayed"])
def test_what_a_recipe_without_time_refuses_is_a_finding(tmp_path, name):
    path = UNDAMAGED[name](tmp_path)
    CHUNKS.clear()
    (files,) = group_logs([str(path)])
    (finding,) = examine(files, OpenOptions("salvage")).findings
    why = refused({**suggested(path), "time": {}}, tmp_path / "root")
    assert "is not a time" in why or "further than max_delay allows" in why
    assert finding.topic in why
    assert finding.recipe.startswith("time: ")
