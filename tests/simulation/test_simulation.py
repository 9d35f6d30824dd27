"""The real code under schedules of all kinds: all commands on versions at once, over one store.

LOGLOOM_SCHEDULES=5000 runs more of them (`make simulate`), LOGLOOM_SEED=2500-4999 those of some seeds, so
that several processes share them. The one that failed runs again by the LOGLOOM_SEED, the LOGLOOM_ROOT and
the PYTHONHASHSEED that it names: names of roots and the order of sets are part of a schedule.
Elsewhere: who acts, and what must hold (tests/simulation/world.py); that mistakes are found
(tests/simulation/test_mistakes.py).
"""

import os

import pytest

from tests.tier import by_tier

pytestmark = pytest.mark.faults

SCHEDULES = int(os.environ.get("LOGLOOM_SCHEDULES") or by_tier(15, 200))
FIRST, _, LAST = os.environ.get("LOGLOOM_SEED", f"0-{SCHEDULES - 1}").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)


def test_whatever_the_schedule_versions_are_whole_and_those_of_a_clean_build(run):
    worlds = [run(seed) for seed in SEEDS]
    if len(worlds) > 10:
        assert any(actor.is_dead for world in worlds for actor in world.scheduler.actors)
        assert max(len(world.manifests) for world in worlds) > 3


@pytest.mark.parametrize("seed", [40008, 40011])
def test_schedules_of_purges_that_once_broke_a_promise_keep_it(run, seed):
    run(seed, theme="purges")


def test_a_seed_gives_the_same_schedule_again(run):
    first, second = (run(5) for _ in range(2))
    assert first.scheduler.requests == second.scheduler.requests > 100
    assert first.manifests == second.manifests
    assert first.manifests
