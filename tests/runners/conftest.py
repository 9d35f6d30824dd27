"""Real engines, a drive of ten partitions, and what a build in one process makes of it.

Engines are fetched into .cache/engines of the checkout unless $LOGLOOM_CACHE names another place.
"""

import os
import pathlib
import shutil

import pytest

from logloom.demo import demo_recipe, make_drives
from logloom.io.logs.log_list import SAMPLE
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.runners import RunnerOptions
from tests.conftest import REPOSITORY
from tests.pipelines.conftest import digests
from tests.runners.breaking import RECIPE, SLOWLY, plan_at
from tests.runners.cluster import Cluster


@pytest.fixture(autouse=True, scope="session")
def engines_cache():
    with pytest.MonkeyPatch.context() as patch:
        if "LOGLOOM_CACHE" not in os.environ:
            patch.setenv("LOGLOOM_CACHE", str(REPOSITORY / ".cache" / "engines"))
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_java():
    """JVMs live for seconds here: to optimize what they run would take longer than to run it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        yield


def build_on(
    recipe: Recipe,
    root: pathlib.Path,
    on_message=lambda text: None,
    sample: int | None = SAMPLE,
    **options,
):
    """Builds with an engine: the options of RunnerOptions."""
    plan = plan_build(recipe, str(root), sample=sample)
    return build(plan, runner=RunnerOptions(**options), on_message=on_message)


@pytest.fixture(scope="session")
def drive(tmp_path_factory) -> Recipe:
    """The demo's recipe over four seconds of two drives, in ten partitions."""
    folder = tmp_path_factory.mktemp("drive")
    make_drives(folder / "logs", seconds=4)
    return Recipe.from_yaml(demo_recipe(folder / "logs") + "\npartition: {rows: 10}\n", source="drive.yaml")


@pytest.fixture(scope="session")
def expected(drive, tmp_path_factory) -> dict[str, str]:
    """Digest of every file of a version that one process built, undisturbed."""
    root = tmp_path_factory.mktemp("expected") / "root"
    build_on(drive, root, runner="direct", workers=1)
    return digests(root)


@pytest.fixture(scope="session")
def slow(tmp_path_factory):
    """A recipe of some twenty partitions that take a second each; its file, and that of its function."""
    folder = tmp_path_factory.mktemp("slow")
    make_drives(folder / "logs", seconds=4)
    (folder / "slowly.py").write_text(SLOWLY)
    (folder / "recipe.yaml").write_text(RECIPE.format(logs=folder / "logs"))
    return folder


@pytest.fixture(scope="session")
def undisturbed(slow, tmp_path_factory):
    root = tmp_path_factory.mktemp("undisturbed") / "root"
    build(plan_at(slow, root))
    return digests(root)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A standing Flink cluster of two task managers, for tests that leave it as it is."""
    if shutil.which("java") is None:
        pytest.skip("no Java on PATH to run Flink with")
    with Cluster(tmp_path_factory.mktemp("flink")) as running:
        yield running
