"""What a build is said to be bound by."""

import dataclasses
import time

import numpy as np
import pytest

from logloom.errors import LogReadError
from logloom.pipelines.plan import bottleneck
from logloom.pipelines.plan.bottleneck import SPEEDS, Bottleneck, estimated
from logloom.pipelines.plan.plan import plan_build


@pytest.fixture
def planned(drive, tmp_path):
    return plan_build(drive.recipe(), str(tmp_path / "root"))


def test_bytes_of_logs_and_rows_are_what_the_disk_moves(planned):
    found = estimated(planned)
    assert found is not None
    assert found.seconds["network"] == 0
    assert 0 < found.seconds["disk"] < 10 * planned.message_bytes / SPEEDS["disk"]
    assert found.seconds["decoding"] > 0
    assert not (planned.job.store.local / "parts").exists()


def test_twice_as_many_ticks_take_twice_as_long_to_decode(planned):
    log = planned.logs[0]
    one, many = (
        estimated(dataclasses.replace(planned, logs=(dataclasses.replace(log, num_ticks=ticks),)))
        for ticks in (log.num_ticks, 1000 * log.num_ticks)
    )
    assert one is not None
    assert many is not None
    assert many.seconds["decoding"] > 10 * one.seconds["decoding"]


def test_an_output_that_takes_long_to_encode_is_what_limits(planned, monkeypatch):
    real = bottleneck.format_named

    class Slow:
        def __init__(self, form):
            self.form = form

        def writer(self, *arguments):
            made = self.form.writer(*arguments)
            append = made.append
            made.append = lambda block: (burn(0.2), append(block))
            return made

    def burn(seconds):
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass

    before = estimated(planned)
    monkeypatch.setattr(bottleneck, "format_named", lambda name: Slow(real(name)))
    after = estimated(planned)
    assert after.name == "encoding"
    assert after.seconds["encoding"] > 2 * before.seconds["encoding"] > 0
    assert not (planned.job.store.local / "parts").exists()


def test_nothing_is_said_where_nothing_tells(planned):
    assert estimated(dataclasses.replace(planned, up_to_date=True)) is None
    assert estimated(dataclasses.replace(planned, logs=())) is None
    log = planned.logs[0]
    empty = np.array([[log.bounds[0, 0], log.bounds[0, 0] + 1, 0, 0]])
    silent = dataclasses.replace(log, bounds=empty, reads=np.zeros((1, 2), np.int64))
    assert estimated(dataclasses.replace(planned, logs=(silent,))) is None


def test_a_large_log_without_ticks_is_passed_over(planned):
    silent = dataclasses.replace(
        planned.logs[0],
        message_bytes=1 << 50,
        num_ticks=0,
        bounds=np.empty((0, 2), np.int64),
        reads=np.empty((0, 2), np.int64),
    )
    assert estimated(dataclasses.replace(planned, logs=(silent, *planned.logs))) is not None
    assert estimated(dataclasses.replace(planned, logs=(silent,))) is None


@pytest.mark.parametrize("error", [ImportError("no module named torch"), LogReadError("torn")])
def test_nothing_is_said_where_a_sample_can_not_be_built_here(planned, monkeypatch, error):
    """A function that columns are derived by may need what only workers have."""

    def refused(*_, **__):
        raise error

    monkeypatch.setattr(bottleneck, "build_blocks", refused)
    assert estimated(planned) is None


def test_one_log_is_opened_once(planned, monkeypatch):
    opened = []
    real = bottleneck.opened
    monkeypatch.setattr(bottleneck, "opened", lambda *which: opened.append(which) or real(*which))
    assert estimated(planned) is not None
    assert len(opened) == 1


def test_what_takes_longest_is_named_with_what_was_assumed():
    found = Bottleneck({"decoding": 1.0, "encoding": 0.5, "disk": 2.0, "network": 0.0}, 2)
    assert found.name == "disk"
    assert str(found) == (
        "disk, by an estimate: decoding 1.0 s, encoding 0.5 s (2 at a time, as a sample), "
        "disk 2.0 s (at 500 MB/s, assumed)"
    )
