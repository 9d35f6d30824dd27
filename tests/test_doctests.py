"""Examples in docstrings do what they say.

Those of pure functions run as they stand; those of what a training script or a program calls run in a folder
with the demo, two tables and a dataset of bags.
"""

import doctest
import importlib
import inspect
import pathlib
import pkgutil

import numpy as np
import pytest

import logloom
import logloom.datasets
import logloom.io.formats.bags as bags
import logloom.io.formats.table as tt
from logloom.demo import demo_recipe, make_drives
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from tests.absent import needs, present

PURE = present(
    *[
        "logloom.io.storage.metadata",
        "logloom.blocks",
        "logloom.familiar_names",
        "logloom.io.logs.messages.images",
        "logloom.io.rows.flat_lists",
        "logloom.recipe.columns",
        "logloom.row_splits",
        "logloom.io.arrow.columns",
        "logloom.io.logs.messages.field_times",
        "logloom.io.logs.rates",
        "logloom.transforms.suggest.clocks",
        "logloom.io.logs.table_dialects",
        "logloom.io.logs.table_files.guesses",
        "logloom.io.beam.checks",
        "logloom.io.beam.pieces",
        "logloom.inference",
        "logloom.interpreter",
        "logloom.io.beam.rows",
        "logloom.io.catalog.tombstones",
        "logloom.io.catalog.commit_times",
        "logloom.io.formats.l5kit.field_values",
        "logloom.io.formats.lerobot.video_encoder",
        "logloom.io.video.codecs",
        "logloom.io.formats.zarr.layout",
        "logloom.markup",
        "logloom.pipelines.versions.log_counts",
        "logloom.pipelines.report.samples",
        "logloom.pipelines.show.foxglove",
        "logloom.pipelines.show.rerun",
        "logloom.datasets.splits.distances",
        "logloom.io.logs.messages.point_clouds",
        "logloom.io.logs.passes",
        "logloom.io.logs.recording_times",
        "logloom.io.logs.rosbag1.splits",
        "logloom.io.logs.table_files.name_times",
        "logloom.io.logs.tables.sweeps",
        "logloom.resample.kernels",
        "logloom.resample.sync",
        "logloom.resample.policies",
        "logloom.resample.angles",
        "logloom.pipelines.doctor.missing_splits",
        "logloom.pipelines.plan.column_warnings",
        "logloom.pipelines.plan.duplicates",
        "logloom.statistics.value_counts",
        "logloom.statistics.exact_sums",
        "logloom.statistics.series",
        "logloom.statistics.rows",
        "logloom.transforms.rows.calibrations",
        "logloom.transforms.rows.derive.structs",
        "logloom.transforms.rows.missing_values",
        "logloom.transforms.rows.point_times",
        "logloom.transforms.rows.row_splits",
        "logloom.transforms.rows.sequences",
        "logloom.transforms.rows.ticks",
        "logloom.transforms.suggest.json_properties",
        "logloom.transforms.suggest.samples",
        "logloom.query.arithmetic",
        "logloom.query.binder",
        "logloom.query.bounds",
        "logloom.query.comparison",
        "logloom.demo.arm",
        "logloom.io.formats.ipc.saved_datasets",
        "logloom.transforms.build.read_back",
        "logloom.query.where",
        "logloom.windows",
        "logloom.text",
    ]
)
IN_A_FOLDER = present(
    *[
        "logloom.datasets.mixing.concatenation",
        "logloom.datasets.mixing.mixture",
        "logloom.datasets.dataset",
        "logloom.datasets.search.find",
        "logloom.datasets.loader.loader",
        "logloom.datasets.loader.rows_seen",
        "logloom.durations",
        "logloom.datasets.opening",
        "logloom.errors",
        "logloom.io.beam.write",
        "logloom.io.storage.missing_paths",
        "logloom.io.formats.bags.dataset_reader",
        "logloom.io.formats.bags.dataset_writer",
        "logloom.io.formats.table.index.index",
        "logloom.io.formats.table.read.loader",
        "logloom.io.formats.table.read.merge",
        "logloom.io.formats.table.write.user_rows",
        "logloom.io.formats.table.verification",
        "logloom.io.formats.table.write.write",
        "logloom.pipelines.build.build",
        "logloom.pipelines.commands",
        "logloom.pipelines.plan.plan",
        "logloom.pipelines.stats.stats",
        "logloom.pipelines.verify.verify",
        "logloom.recipe.model",
        "logloom.schema",
        "logloom.transforms.beam.read_logs",
        "logloom.transforms.rows.derive.columns",
    ]
)
NAMES = {"ll": logloom, "logloom": logloom, "np": np, "tt": tt, "bags": bags}
# Public functions and classes that are called in every program; torch_dataset has its page (make torch).
CALLED = present(
    *[
        "logloom.LogloomError",
        *(f"logloom.{name}" for name in logloom.__all__ if not name.endswith("Error")),
        "logloom.datasets.concat",
        "logloom.datasets.rows_seen",
        *(
            f"logloom.datasets.Dataset.{name}"
            for name in ("filter", "get_many", "map", "normalized", "select", "stats", "window")
        ),
        *(f"logloom.io.formats.bags.{name}" for name in ("DatasetReader", "DatasetWriter")),
        *(
            f"logloom.io.formats.table.{name}"
            for name in ("infer_types", "merge", "read_index", "row_loader", "verify", "write_table")
        ),
        "logloom.pipelines.build.build.build",
        "logloom.pipelines.plan.plan.plan_build",
        "logloom.pipelines.stats.stats.column_statistics",
        "logloom.pipelines.verify.verify.verify",
        "logloom.transforms.beam.read_logs.ReadFromLogs",
    ]
)


def tried(name, **more):
    failed, number = doctest.testmod(importlib.import_module(name), extraglobs=more)
    assert number
    assert not failed


@pytest.mark.parametrize("name", PURE)
def test_examples_in_docstrings_do_what_they_say(name):
    tried(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The demo as `logloom demo` lays it out, and tables and bags that examples read."""
    needs("table", "bags", "tar", "l5kit")
    place = tmp_path_factory.mktemp("examples")
    demo = place / "demo"
    make_drives(demo / "logs", seconds=8)
    (demo / "recipe.yaml").write_text(demo_recipe("logs"))
    build(plan_build(Recipe.load(str(demo / "recipe.yaml")), str(demo / "dataset"), base=str(demo)))
    rows = [
        {
            "log_id": "a",
            "timestamp": number * 10**8,
            "pedestrians": number % 5,
            "lidar.points": np.zeros((number % 5, 4), "f4"),
        }
        for number in range(25)
    ]
    tt.write_table(str(place / "sensors"), rows, index=["pedestrians"])
    labels = [{"log_id": "a", "timestamp": number * 10**8, "label": "stop"} for number in range(5)]
    tt.write_table(str(place / "labels"), labels, index=["label"])
    with bags.DatasetWriter(place / "words", {"label": "int", "words": "utf8[]"}, bags.encoders) as writer:
        for number in range(3):
            writer.append({"label": number, "words": ["stop"] * number}, flush=False)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_A_FOLDER)
def test_examples_that_read_and_write_do_what_they_say(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    tried(name, **NAMES)


@pytest.mark.parametrize("name", CALLED)
def test_what_every_program_calls_has_an_example_that_runs(name):
    found = pkgutil.resolve_name(name)
    assert ">>> " in inspect.getdoc(found), f"{name} has no example"
    assert found.__module__ in IN_A_FOLDER


def test_modules_with_examples_of_public_names_are_run():
    """So that nobody adds an example that nothing runs."""
    package = pathlib.Path(logloom.__file__).parent
    with_examples = {
        path.relative_to(package.parent).with_suffix("").as_posix().replace("/", ".")
        for path in package.rglob("*.py")
        if "\n    >>> " in path.read_text() or "\n        >>> " in path.read_text()
    }
    assert {name.removesuffix(".__init__") for name in with_examples} <= {*PURE, *IN_A_FOLDER}
