"""Builds of one version that are announced at once: one goes on, whatever the order of their steps."""

import contextlib
import dataclasses
import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.cli.options.jobs import EngineOptions, JobOptions, View, run_job
from logloom.errors import BesideError, OvertakenError
from logloom.io.storage.store import Store
from logloom.pipelines.build import concurrent_builds
from logloom.pipelines.build.build import build
from logloom.pipelines.build.concurrent_builds import take_turn
from logloom.pipelines.plan.next_version import new_run
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.status import BuildState, builds
from logloom.runners import RunnerOptions
from logloom.transforms.build import run_note
from logloom.transforms.build.run_note import Announced


@pytest.fixture(scope="session")
def drive(quick_drive):
    return quick_drive


@pytest.fixture(scope="module")
def job(drive, tmp_path_factory):
    return plan_build(drive.recipe(), str(tmp_path_factory.mktemp("beside") / "root")).job


class Schedule:
    """Lets threads do their steps in a given order, one at a time; once that is done, in any order."""

    def __init__(self, order):
        self._order, self._at, self._over = list(order), threading.Condition(), set()

    @contextlib.contextmanager
    def step(self, who):
        with self._at:
            self._at.wait_for(lambda: self._skipped() or self._order[0] == who, 30)
            yield
            if self._order:
                self._order.pop(0)
            self._at.notify_all()

    def end(self, who):
        with self._at:
            self._over.add(who)
            self._at.notify_all()

    def _skipped(self):
        while self._order and self._order[0] in self._over:
            self._order.pop(0)
        return not self._order


def go_on_of(job, count, schedule, starts, monkeypatch):
    """Announces some builds in threads, each of whose steps waits for its turn; gives those that go on."""
    who, on = threading.local(), []
    update, others = Announced.update, run_note.notes_of_others
    jobs = [dataclasses.replace(job, run=f"run{number}") for number in range(count)]
    done = threading.Barrier(count)

    def stepped_update(self, **changes):
        with contextlib.nullcontext() if "ended" in changes else schedule.step(who.number):
            update(self, **changes)

    def stepped_others(one):
        with schedule.step(who.number):
            return others(one)

    def work(number):
        who.number = number
        announced = Announced(jobs[number], "direct", takes_turn=True)
        announced._note = dataclasses.replace(announced.note, started=announced.note.started - starts[number])
        try:
            with announced:
                try:
                    take_turn(jobs[number], announced)
                    on.append(number)
                finally:
                    schedule.end(number)
                done.wait(60)  # a build that goes on runs until all have decided
        except BesideError:
            done.wait(60)

    with monkeypatch.context() as patch:
        patch.setattr(Announced, "update", stepped_update)
        patch.setattr(concurrent_builds, "notes_of_others", stepped_others)
        patch.setattr(concurrent_builds, "_CHOOSE_EVERY", 0)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
    assert not any(thread.is_alive() for thread in threads)
    for name in job.store.names("runs/00000001"):
        job.store.remove(f"runs/00000001/{name}")
    return on


@pytest.mark.parametrize("starts", [(0, 0), (0, 9), (9, 0)])
def test_of_two_builds_one_goes_on_whatever_the_order_of_their_steps(job, starts, monkeypatch):
    """Each announces itself, looks, writes its turn and looks: all 70 orders, and clocks that differ."""
    for ours in itertools.combinations(range(8), 4):
        order = [0 if place in ours else 1 for place in range(8)]
        assert len(go_on_of(job, 2, Schedule(order), starts, monkeypatch)) == 1, order


@given(
    order=st.lists(st.integers(0, 2), min_size=12, max_size=24), starts=st.tuples(*[st.integers(0, 2)] * 3)
)
def test_of_three_builds_one_goes_on_whatever_the_order_of_their_steps(job, order, starts):
    with pytest.MonkeyPatch.context() as patch:
        assert len(go_on_of(job, 3, Schedule(order), starts, patch)) == 1


def test_of_two_announced_before_either_looks_the_one_that_started_first_goes_on(job, monkeypatch):
    order = [0, 1, 0, 1, 0, 1, 0, 1]
    assert go_on_of(job, 2, Schedule(order), (0, 9), monkeypatch) == [1]
    assert go_on_of(job, 2, Schedule(order), (9, 0), monkeypatch) == [0]
    assert go_on_of(job, 2, Schedule(order), (0, 0), monkeypatch) == [0]


def test_two_builds_that_did_not_see_each_other_make_one_version(drive, tmp_path, monkeypatch):
    both, enter = threading.Barrier(2), Announced.__enter__

    def announce_after_both_looked(self):
        both.wait(60)
        return enter(self)

    monkeypatch.setattr(Announced, "__enter__", announce_after_both_looked)
    plans = [plan_build(drive.recipe(), str(tmp_path / "root")) for _ in range(2)]
    assert [plan.job.number for plan in plans] == [1, 1]
    ended, errors = [], []

    def run(plan):
        try:
            ended.append(build(plan).manifest.version)
        except BesideError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=run, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert ended == [1]
    assert ["another build of version 1 runs" in text for text in errors] == [True]
    assert Store.at(str(tmp_path / "root")).exists("versions/00000001.json")


def test_a_build_that_was_killed_before_it_chose_its_turn_blocks_nobody(job):
    dead = dataclasses.replace(job, run=new_run())
    announced = Announced(dead, "direct", takes_turn=True)
    announced._note = dataclasses.replace(announced.note, pid=2**22 + 1, process="other")
    announced.update()
    with Announced(job, "direct", takes_turn=True) as own:
        take_turn(job, own)


def test_a_command_overtaken_after_it_planned_plans_again_and_is_up_to_date(drive, tmp_path):
    plans = []

    def make_plan():
        plans.append(plan_build(drive.recipe(), str(tmp_path / "root"), limit=1))
        if len(plans) == 1:  # another command is quicker
            build(plan_build(drive.recipe(), str(tmp_path / "root"), limit=1), view="none")
        return plans[-1]

    runner = RunnerOptions("direct", workers=1)
    options = JobOptions(quiet=True, view=View.none)
    plan, built = run_job(make_plan, options, EngineOptions(), runner, View.none)
    assert [one.up_to_date for one in plans] == [False, True]
    assert plan is plans[-1]
    assert (built.manifest.version, built.built, built.reused) == (1, 0, 0)
    assert [one.state for one in builds(plan.job.store)] == [BuildState.committed]  # none that failed
    with pytest.raises(OvertakenError, match="another build committed version 1 of"):
        build(plans[0], looked=True, view="none")
