"""`logloom.build` and the other commands as functions; their examples run in tests/test_doctests.py."""

import inspect
import pathlib

import pytest

import logloom as ll
from logloom.demo import demo_recipe, make_drives
from logloom.pipelines import commands as facade
from logloom.pipelines.build.build import build as run_build
from logloom.pipelines.plan.plan import plan_build
from tests.absent import present
from tests.parsing import command

IN_PYTHON_ONLY = {"runner", "on_message", "storage_options"}  # the options of engines are values of `runner`


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    place = tmp_path_factory.mktemp("facade")
    make_drives(place / "logs", seconds=2)
    recipe = ll.Recipe.from_yaml(demo_recipe(str(place / "logs")))
    ll.build(recipe, place / "root", workers=1)
    return place / "root"


def test_a_build_is_planned_made_verified_and_opened(root):
    recipe = ll.Recipe.from_yaml(demo_recipe(str(root.parent / "logs")))
    assert ll.plan(recipe, root).up_to_date  # the fixture has built it
    built = ll.build(recipe, root)
    assert (built.manifest.version, built.built, built.reused) == (1, 0, 0)
    assert ll.verify(root, workers=1).findings == ()
    rows = ll.open(root)
    assert len(rows) == built.manifest.totals["rows"]
    if present("tar"):  # rows of L5Kit alone are frames
        assert rows[0]["ego.position"].shape == (3,)


@pytest.mark.parametrize(("output", "copied"), [("tar", True), ("bags", False)])
def test_a_plain_folder_is_copied_from_the_version_or_converted(output, copied, root, tmp_path):
    made = ll.convert(root, tmp_path / output, output, plain=True, workers=1)
    assert (made.copied, pathlib.Path(made.view)) == (copied, tmp_path / output)
    assert len(ll.open(tmp_path / output)) == made.manifest.totals["rows"]


@pytest.mark.parametrize("name", ["plan", "build", "verify", "convert"])
def test_keywords_are_the_options_of_the_command(name):
    options = {
        opt.lstrip("-").replace("-", "_")
        for one in command().commands[name].params
        for opt in [*one.opts, one.name]
    }
    positional = {"recipe"} if name in ("plan", "build") else set()
    keywords = set(inspect.signature(getattr(ll, name)).parameters) - IN_PYTHON_ONLY - positional
    assert keywords <= options


def test_logs_are_built_without_a_recipe_and_a_detached_engine_is_refused(root, tmp_path):
    (log, *_) = sorted((root.parent / "logs").iterdir())
    assert ll.plan(log, tmp_path / "trial").num_logs == 1
    from logloom.runners import RunnerOptions

    detached = RunnerOptions(
        "flink",
        flink_master="flink:8081",
        environment="external",
        environment_config="pool:50000",
        detach=True,
    )
    with pytest.raises(ll.UsageError, match="detach=True"):
        ll.build(log, tmp_path / "trial", runner=detached)


@pytest.mark.parametrize("wrong", [{"on_error": "ignore"}, {"hash": "md5"}, {"view": "links"}, {"limit": 0}])
def test_a_value_that_the_command_would_refuse_is_refused(wrong, root, tmp_path):
    (log, *_) = sorted((root.parent / "logs").iterdir())
    with pytest.raises(ll.UsageError, match=f"^{next(iter(wrong))}=.*; pass "):
        ll.build(log, tmp_path / "trial", **wrong)
    assert not (tmp_path / "trial").exists()


def test_a_build_that_another_one_overtakes_plans_again_and_is_up_to_date(root, tmp_path, monkeypatch):
    (log, *_) = sorted((root.parent / "logs").iterdir())
    plans = []

    def overtaken(*given, **options):
        plans.append(plan_build(*given, **options))
        if len(plans) == 1:  # another program is quicker
            run_build(plan_build(*given, **options), view="none")
        return plans[-1]

    monkeypatch.setattr(facade, "plan_build", overtaken)
    built = ll.build(log, tmp_path / "root", workers=1, view="none")
    assert [one.up_to_date for one in plans] == [False, True]
    assert (built.manifest.version, built.built, built.reused) == (1, 0, 0)
