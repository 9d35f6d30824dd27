"""One recipe, the same bytes: whichever engine builds a version, every file of it is equal."""

import pytest

from logloom.demo import car_recipe, make_car_drives
from logloom.recipe import Recipe
from tests.conftest import REPOSITORY
from tests.pipelines.conftest import digests
from tests.runners.conftest import build_on

pytestmark = pytest.mark.engines

ENGINES = {
    "two processes": {"runner": "direct", "workers": 2},
    "flink within the command": {"runner": "flink", "workers": 2},
}


@pytest.fixture(scope="session")
def laser(shared_data) -> Recipe:
    """A real ROS 1 log, in several partitions."""
    recipe = Recipe.load(str(REPOSITORY / "examples" / "tilt_laser.yaml")).identity_json()
    log = str(shared_data / "logs" / "tilt_laser.bag")
    return Recipe.model_validate(recipe | {"logs": [log], "partition": {"rows": 50, "bytes": "512MiB"}})


@pytest.fixture(scope="session")
def expected_laser(laser, tmp_path_factory):
    root = tmp_path_factory.mktemp("expected-laser") / "root"
    build_on(laser, root, runner="direct", workers=1)
    return digests(root)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_demo_is_the_same_to_the_byte(engine, drive, expected, tmp_path):
    built = build_on(drive, tmp_path / "root", **ENGINES[engine])
    assert digests(tmp_path / "root") == expected
    assert (built.built, built.reused) == (20, 0)
    # Flink counts attempts, of which there may be more than one.
    assert built.counters["partitions"] >= 10
    assert built.counters["rows"] >= built.manifest.totals["rows"] > 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_real_log_is_the_same_to_the_byte(engine, laser, expected_laser, tmp_path):
    built = build_on(laser, tmp_path / "root", **ENGINES[engine])
    assert built.built > 2
    assert digests(tmp_path / "root") == expected_laser


@pytest.mark.parametrize("engine", ENGINES)
def test_logs_that_workers_open_are_the_same_to_the_byte(engine, drive, expected, tmp_path):
    build_on(drive, tmp_path / "root", sample=1, **ENGINES[engine])
    assert digests(tmp_path / "root") == expected


def test_a_whole_car_is_the_same_to_the_byte_on_flink(tmp_path):
    """Video, transforms, deskewing, calibration and labels, in several partitions."""
    make_car_drives(tmp_path / "car", seconds=3)
    recipe = Recipe.from_yaml(car_recipe(tmp_path / "car") + "\npartition: {rows: 10}\n")
    build_on(recipe, tmp_path / "direct", runner="direct", workers=1)
    built = build_on(recipe, tmp_path / "flink", runner="flink", workers=2)
    assert built.built > 2
    assert digests(tmp_path / "flink") == digests(tmp_path / "direct")


def test_a_standing_flink_cluster_gives_the_same_bytes(cluster, drive, expected, tmp_path):
    build_on(drive, tmp_path / "drive", flink_master=cluster.address)
    assert digests(tmp_path / "drive") == expected
