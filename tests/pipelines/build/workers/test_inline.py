"""One worker's steps without Beam give what Beam's local runner gives."""

import subprocess
import sys

import pytest

from logloom.errors import LogloomError, UsageError
from logloom.io.storage.remote import retries
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.runners import RunnerOptions
from logloom.runners.inline import INLINE, Elements, InlineJob
from tests.pipelines.conftest import digests

BEAMS = {"direct_running_mode": "in_memory"}  # an option of Beam's has Beam run the steps


def test_bytes_and_counters_are_those_of_beams_runner(quick_drive, tmp_path):
    built, recipe = {}, quick_drive.recipe(**{"{tar: {}}": "{tar: {}, zarr: {}}"})
    retries.take()  # those of tests before, in this process
    for name, workers, settings in ("beam", 1, BEAMS), ("inline", 1, {}), ("workers", 3, {}):
        plan = plan_build(recipe, str(tmp_path / name))
        built[name] = build(plan, runner=RunnerOptions("direct", workers=workers, settings=settings))
    counted = {name: count for name, count in built["beam"].counters.items() if count}
    assert counted["rows"] > 0
    for name in "inline", "workers":
        assert digests(tmp_path / name) == digests(tmp_path / "beam")
        assert {name: count for name, count in built[name].counters.items() if count} == counted
        assert built[name].spreads["partition_bytes"] == built["beam"].spreads["partition_bytes"]


def test_beams_options_and_workers_exclude_each_other(drive, tmp_path):
    plan = plan_build(drive.recipe(), str(tmp_path / "root"))
    with pytest.raises(UsageError, match="leave out --workers, or use --runner flink"):
        build(plan, runner=RunnerOptions("direct", workers=2, settings=BEAMS))


def test_an_element_goes_through_all_steps_up_to_the_next_group():
    seen = []

    def note(element, name):
        seen.append((name, element))
        return element % 2, element

    def construct(start, beam):
        return (
            start
            | "Create" >> beam.Create([1, 2, 3])
            | "First" >> beam.Map(lambda one: note(one, "first")[1])
            | "Spread" >> beam.Reshuffle()
            | "Second" >> beam.Map(note, "second")
            | "Group" >> beam.GroupByKey()
            | "Third" >> beam.Map(lambda group: seen.append(("third", group)))
        )

    InlineJob(construct, "job").wait(print)
    assert seen == [
        ("first", 1), ("second", 1), ("first", 2), ("second", 2), ("first", 3), ("second", 3),
        ("third", (1, [1, 3])), ("third", (0, [2])),
    ]  # fmt: skip


def test_side_inputs_are_made_once_and_only_where_they_are_asked_for():
    made = []
    start = Elements([])
    held = INLINE.pvalue.AsList(
        start | INLINE.Create([1, 2]) | INLINE.Map(lambda one: made.append(one) or one)
    )
    unused = INLINE.pvalue.AsSingleton(start | INLINE.Create([5]) | INLINE.Map(made.append))
    given = start | INLINE.Create("ab") | INLINE.Map(lambda one, others: (one, others), held)
    assert made == []
    assert list(given) == [("a", [1, 2]), ("b", [1, 2])]
    assert made == [1, 2]
    assert unused is not None


def test_an_error_of_a_step_is_raised_as_it_is():
    def fail(element):
        raise LogloomError(f"of {element}")

    def construct(start, beam):
        return start | beam.Create([3]) | beam.Map(fail)

    with pytest.raises(LogloomError, match=r"^of 3$"):
        InlineJob(construct, "job").wait(print)


def test_the_pipelines_import_no_beam():
    code = (
        "import sys, logloom.pipelines.build.build, logloom.pipelines.convert.convert; "
        "print('apache_beam' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
