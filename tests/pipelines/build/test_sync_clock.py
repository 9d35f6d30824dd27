"""Builds whose rows are matched sets: each holds what belongs together, however logs are cut."""

import numpy as np
import pytest

import logloom.datasets
from logloom.io.logs.opening import open_log
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.transforms.rows.lineage import trace
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.rows.row_stream import build_blocks
from logloom.transforms.rows.spans import plan_spans
from tests.pipelines.conftest import build_at
from tests.resample.matching_reference import tightest_first
from tests.transforms.ros2_logs import SECOND, SPEED, START, header, speeds, write_log

TOPICS = ("/front", "/left", "/lidar")
RECIPE = """
name: synced
logs: {folder}/*.mcap
clock: {{sync: [/front, /left, /lidar], within: 60ms, stamp: /lidar}}
columns:
  front: {{topic: /front, field: speed}}
  left: {{topic: /left, field: speed}}
  lidar: {{topic: /lidar, field: speed}}
  steps: {{topic: /front, field: speed, resample: count, window: [-1s, 0s]}}
partition: {{rows: {rows}, bytes: {size}}}
outputs: {{tar: {{}}}}
"""


def recorded(rng, period, count):
    """Messages of a sensor whose stamps jitter, a tenth of which are missing; each holds its stamp."""
    stamps = START + np.arange(count) * period + rng.integers(-12_000_000, 12_000_000, count)
    kept = stamps[rng.random(count) < 0.9].tolist()
    return [(t + 3_000_000, {"header": header(t), "speed": t - START, "gear": 0, "note": ""}) for t in kept]


@pytest.fixture(scope="module")
def messages():
    rng = np.random.default_rng(0)
    periods = dict(zip(TOPICS, (33_000_000, 50_000_000, 100_000_000), strict=True))
    return {topic: recorded(rng, period, 20_000_000_000 // period) for topic, period in periods.items()}


@pytest.fixture(scope="module")
def folder(messages, tmp_path_factory):
    made = tmp_path_factory.mktemp("synced")
    write_log(made / "drive.mcap", {topic: (SPEED, found) for topic, found in messages.items()})
    return made


@pytest.fixture(scope="module")
def sets(messages):
    """The matched sets, by the stamps of their messages."""
    return tightest_first([[m["speed"] for _, m in messages[topic]] for topic in TOPICS], 2, 60_000_000)


@pytest.mark.parametrize(("rows", "size"), [(1000, "512MiB"), (17, "512MiB"), (50, "6KB")])
def test_rows_are_the_matched_sets_however_a_log_is_partitioned(folder, sets, tmp_path, rows, size):
    recipe = Recipe.from_yaml(RECIPE.format(folder=folder, rows=rows, size=size))
    root = tmp_path / "root"
    build_at(recipe, root)
    found = logloom.datasets.open(str(root))
    assert len(found) == len(sets) > 100
    assert [tuple(int(row[name]) for name in ("front", "left", "lidar")) for row in found] == sets
    assert [int(row["timestamp"]) - START for row in found] == [lidar for *_, lidar in sets]
    assert not verify(str(root), against_logs=True, num_workers=1).findings


def test_the_lineage_of_a_row_is_its_matched_set(folder, sets):
    recipe = Recipe.from_yaml(RECIPE.format(folder=folder, rows=1000, size="512MiB"))
    log = open_log([str(folder / "drive.mcap")])
    plan, _ = resolve(recipe, {"drive": log})
    for front, left, lidar in sets[::40]:
        found = trace(log, plan, START + lidar)
        times = [source.time - START for name in ("front", "left") for source in found[name].used]
        assert times == [front, left]
        assert [source.age for source in found["front"].used] == [lidar - front]
    unmatched = trace(log, plan, START + sets[3][2] + 1)["front"]
    assert (unmatched.used, unmatched.reason) == ((), "the clock matched no set at this time")


def test_sensors_half_a_period_apart_are_matched_from_end_to_end_once(tmp_path, monkeypatch):
    """All of their sets are equally tight, so that which are matched only the ends of the log tell."""
    step = SECOND // 10
    late = speeds(600, start=START + step // 2, step=step)
    said = {"/a": (SPEED, speeds(600, step=step)), "/b": (SPEED, late)}
    text = (
        "name: tied\nlogs: x\nclock: {sync: [/a, /b], within: 60ms}\npartition: {rows: %d}\n"
        "columns:\n  a: {topic: /a, field: speed}\n  b: {topic: /b, field: speed}\n"
    )
    found, read = {}, []
    for rows in (9999, 50, 60):
        log = open_log([write_log(tmp_path / f"{rows}.mcap", said)])
        plan, _ = resolve(Recipe.from_yaml(text % rows), {"drive": log})
        spans = plan_spans(log.summary, plan)
        plain = log.read
        monkeypatch.setattr(log, "read", lambda wanted, plain=plain: read.append(wanted) or plain(wanted))
        parts = [build_blocks(log, "drive", plan, span, max_bytes=1 << 20) for span in spans]
        blocks = [block for part in parts for block in part]
        found[rows] = np.concatenate([np.stack([b.columns["a"], b.columns["b"]]) for b in blocks], axis=1)
        np.testing.assert_array_equal(found[rows], found[9999])
        assert len(read) <= len(spans) + 30
        read.clear()
    assert found[50].shape == (2, 600)


def test_stamps_far_from_their_log_times_give_the_same_sets_however_a_log_is_partitioned(tmp_path):
    """As of a log that was replayed a hundred times faster than it was recorded."""
    step, found = SECOND // 10, {}
    said = {
        topic: (SPEED, [(START + i * 1_000_000, message) for i, (_, message) in enumerate(recorded)])
        for topic, recorded in (
            ("/a", speeds(200, start=START - 10 * SECOND, step=step)),
            ("/b", speeds(200, start=START - 10 * SECOND + step // 2, step=step)),
        )
    }
    path = write_log(tmp_path / "drive.mcap", said)
    for rows in (9999, 40):
        text = f"""
            name: replayed
            logs: x
            time: {{by: [header], max_delay: none}}
            clock: {{sync: [/a, /b], within: 60ms}}
            partition: {{rows: {rows}}}
            columns: {{a: {{topic: /a, field: speed}}, b: {{topic: /b, field: speed}}}}
        """
        log = open_log([path])
        plan, _ = resolve(Recipe.from_yaml(text), {"drive": log})
        spans = plan_spans(log.summary, plan)
        assert (len(spans) > 1) == (rows == 40)
        parts = [build_blocks(log, "drive", plan, span, max_bytes=1 << 20) for span in spans]
        blocks = [block for part in parts for block in part]
        found[rows] = np.concatenate([np.stack([b.columns["a"], b.columns["b"]]) for b in blocks], axis=1)
    assert found[9999].shape == (2, 200)
    np.testing.assert_array_equal(found[40], found[9999])
