"""Rows of logs of which some time was erased: those of a log in which nothing was recorded then."""

import dataclasses

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from logloom.blocks import take
from logloom.io.catalog.tombstones import digest_of_log, merged_ranges
from logloom.io.logs.redaction import RedactedLog, lie_in
from logloom.transforms.rows.accounts import reconcile
from logloom.transforms.rows.spans import plan_spans
from tests.transforms.memory_log import MemoryLog
from tests.transforms.rows.test_rows import SEEDS, a_random_log, a_random_plan, built


def redacted(log, *ranges) -> RedactedLog:
    return RedactedLog(log, "x", {digest_of_log("x"): merged_ranges(ranges)})


def bits(values):
    """Each row's bytes; NaNs, too, are to be the same."""
    return [
        [one.tobytes() for one in row] if isinstance(row, list) else np.asarray(row).tobytes()
        for row in values
    ]


class CutLog(MemoryLog):
    """A log that lacks messages which its index counts."""

    summary = None


def cut(log: MemoryLog, ranges) -> MemoryLog:
    """The log without all that was recorded, or is said to be, in these times."""

    def kept(topic):
        rows = np.flatnonzero(~(lie_in(topic.stamps, ranges) | lie_in(topic.log_times, ranges)))
        return dataclasses.replace(
            topic,
            stamps=topic.stamps[rows],
            log_times=topic.log_times[rows],
            positions=topic.positions[rows],
            fields={path: (ctype, take(values, rows)) for path, (ctype, values) in topic.fields.items()},
        )

    without = CutLog({name: kept(topic) for name, topic in log.topics.items()}, log.chunk, log.on_error)
    without.summary, without.recorded = log.summary, log.recorded
    return without


@given(SEEDS, st.lists(st.tuples(st.integers(-5, 100), st.integers(1, 40)), min_size=1, max_size=3))
def test_rows_are_those_of_a_log_in_which_nothing_was_recorded_then(seed, erased):
    rng = np.random.default_rng(seed)
    log, plan = a_random_log(rng), a_random_plan(rng)
    assume(all(column.sampling.policy != "static" for column in plan.columns))
    spans = plan_spans(log.summary, plan)
    assume(spans)
    base = log.summary.first
    ranges = merged_ranges((base + start, base + start + length) for start, length in erased)
    columns, tallies = built(redacted(log, *ranges), plan, spans, 2000)
    expected, _ = built(cut(log, ranges), plan, spans, 2000)
    if expected["timestamp"] is not None:
        rows = np.flatnonzero(~lie_in(expected["timestamp"], ranges))
        expected = {name: take(values, rows) for name, values in expected.items()}
        assert (columns["timestamp"] is None) == (len(rows) == 0)
    for name, values in expected.items() if columns["timestamp"] is not None else ():
        assert bits(columns[name]) == bits(values), name
    accounts = reconcile(plan, log.summary, tallies)  # all that isn't there any more is counted
    for topic, account in accounts.items():
        if any(topic in tally.owned for tally in tallies):
            at = lie_in(log.topics[topic].log_times, ranges)
            said = lie_in(log.topics[topic].stamps, ranges)
            assert at.sum() <= account.purged <= (at | said).sum()  # some of these are refused anyway
