"""Progress: what is there is counted, and looking never takes much of the time."""

import pytest

from logloom.io.manifest import ENTRY, unit_folder
from logloom.pipelines import progress
from logloom.pipelines.build import build
from logloom.pipelines.plan import plan_build
from logloom.pipelines.progress import Watch, rest_after


@pytest.fixture
def plan(drive, tmp_path):
    return plan_build(drive.recipe(), str(tmp_path / "root"))


def test_looking_takes_a_tenth_of_the_time_at_most():
    assert rest_after(0.001, 5.0) == 5.0
    assert rest_after(200.0, 5.0) == 1800.0


def test_the_last_line_counts_every_unit(plan, monkeypatch, capfd):
    monkeypatch.setattr(progress, "_PLAIN_EVERY", 0.01)
    total = len(plan.unit_identities())
    with Watch(plan):
        while not (first := capfd.readouterr().err):
            pass
        assert first.startswith(f"0 of {total} units, 0 rows")
        monkeypatch.setattr(progress, "_PLAIN_EVERY", 1000.0)  # the next line would come long after the end
        rows = build(plan).manifest.totals["rows"]
    *_, last = capfd.readouterr().err.splitlines()
    assert last.startswith(f"{total} of {total} units, {rows:,} rows, ")


def test_units_whose_entries_were_not_read_yet_are_counted_and_their_rows_estimated(plan, monkeypatch):
    done = build(plan)
    watch = Watch(plan)
    monkeypatch.setattr(progress, "_READING", 0.0)
    watch._look()
    assert watch._done == len(plan.unit_identities())
    assert watch._words() == "about 0 rows, 0 B"
    watch._read(float("inf"))
    assert watch._words().startswith(f"{done.manifest.totals['rows']:,} rows, ")


def test_rows_are_estimated_from_those_that_were_read(plan, monkeypatch):
    build(plan)
    watch = Watch(plan)
    monkeypatch.setattr(progress, "_READING", 0.0)
    watch._look()
    half = len(watch._unread) // 2
    watch._unread, rest = watch._unread[:half], watch._unread[half:]
    watch._read(float("inf"))
    watch._unread = rest
    assert watch._rows > 0
    assert watch._words().startswith(f"about {watch._rows * (half + len(rest)) / half:,.0f} rows, ")


def test_a_unit_without_an_entry_waits_on(plan):
    (output, identity), *others = plan.unit_identities()
    plan.job.store.create(f"{unit_folder(output, identity)}/shard.tar", b"on its way")
    watch = Watch(plan)
    watch._look()
    assert (watch._done, watch._num_waiting) == (0, 1 + len(others))
    plan.job.store.create(f"{unit_folder(output, identity)}/{ENTRY}", b"{")  # damaged: the build will tell
    watch._look()
    assert watch._done == 0
