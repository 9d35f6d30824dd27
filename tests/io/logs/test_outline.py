"""An outline answers as its log does; what logs share is held once, and their indices not at all."""

import gc
import weakref

import numpy as np

from logloom.demo import make_drives
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, FieldSpec, TopicRequest
from logloom.io.logs.opening import open_log
from logloom.io.logs.outline import outlines

SPEC = FieldSpec(("angular_velocity",))


def test_an_outline_answers_as_its_log_does(tmp_path):
    path = str(make_drives(tmp_path, seconds=1)[0])
    log, outline = open_log([path]), outlines()(open_log([path]))
    assert repr(outline.summary) == repr(log.summary)
    assert outline.column_type("/imu", SPEC) == log.column_type("/imu", SPEC)
    assert outline.time_source("/imu", ("header", "log")) == "header"
    whole = TopicRequest(MIN_TIME, MAX_TIME)
    read, expected = (each.read({"/imu": whole})["/imu"] for each in (outline, log))
    rows = np.arange(len(expected))
    np.testing.assert_array_equal(read.take(SPEC, rows), expected.take(SPEC, rows))
    assert outline.last_message("/imu").position[0] == expected.position[-1]


def test_outlines_share_definitions_and_let_the_index_go(tmp_path):
    outline = outlines()
    kept = []
    indices = []
    for path in make_drives(tmp_path, seconds=1):
        log = open_log([str(path)])
        kept.append(outline(log))
        indices.append(weakref.ref(log))
    del log
    gc.collect()
    first, second = (each.summary.topics["/imu"] for each in kept)
    assert first.definition is second.definition
    assert [index() for index in indices] == [None, None]
