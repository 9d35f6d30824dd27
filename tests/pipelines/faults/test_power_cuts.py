"""The power fails at any call: afterwards a root shows the old state or the new, and the command runs again.

The tier check tries a sample of the calls of each command, others each call, exhaust with more outcomes.
"""

import contextlib
import random
import shutil

import pytest

from tests.pipelines.roots import age
from tests.pipelines.verbs import VERBS, fresh, of_long_ago, state, store_at
from tests.power import Disk, PowerCutError
from tests.tier import TIER, by_tier

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("one_at_a_time")]
OUTCOMES = 8 if TIER == "exhaust" else 2


# Of the others the second one says that there is nothing to do, or, of gc, that the first one goes on.
@pytest.mark.parametrize("verb", ["build", "tag", "view", "purge", "repair"])
def test_what_a_killed_command_left_and_the_next_one_took_over_outlasts_a_power_cut(
    two_versions, tmp_path, verb
):
    prepare, run = VERBS[verb]
    template = fresh(two_versions, prepare, tmp_path / "template")
    rng = random.Random(verb)

    def killed_at(last):
        place = tmp_path / f"killed-{last}"
        shutil.copytree(template, place / "root")
        power = Disk(place / "root", place)
        with contextlib.suppress(PowerCutError), power.cut_after(last):
            run(two_versions, store_at(place / "root"))
        return power, place

    calls = killed_at(None)[0].calls
    for last in by_tier([rng.randrange(calls)], range(calls)):
        power, place = killed_at(last)
        with power.cut_after():
            run(two_versions, store_at(place / "root"))
        new = state(place / "root")
        for number in range(OUTCOMES):
            left = power.remains(place / f"left-{number}", rng)
            assert state(left) == new, f"{verb}: killed before call {last} of {calls}"
        shutil.rmtree(place)


@pytest.mark.parametrize("verb", VERBS)
def test_after_a_power_cut_a_root_shows_the_old_state_or_the_new(two_versions, tmp_path, verb):
    prepare, run = VERBS[verb]
    template = fresh(two_versions, prepare, tmp_path / "template")
    old, rng = state(template), random.Random(verb)

    def cut(last):
        place = tmp_path / f"cut-{last}"
        shutil.copytree(template, place / "root")
        if prepare is of_long_ago:
            age(place / "root", 30)
        power = Disk(place / "root", place)
        with contextlib.suppress(PowerCutError), power.cut_after(last):
            run(two_versions, store_at(place / "root"))
        return power, place

    power, place = cut(None)
    calls, new = power.calls, state(place / "root")
    assert calls > 3
    assert not new[3]
    assert not old[3] or verb == "repair"
    for last in by_tier([rng.randrange(calls), calls], range(calls + 1)):
        power, place = cut(last)
        for number in range(OUTCOMES):
            left = power.remains(place / f"left-{number}", rng)
            found, what = state(left), f"{verb}: cut before call {last} of {calls}"
            assert found[:2] in (old[:2], new[:2]), what
            assert found[3] <= old[3], what
            if last == calls:
                assert found == new, what
        run(two_versions, store_at(left))
        assert state(left) == new, what
        shutil.rmtree(place)
