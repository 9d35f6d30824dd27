"""A log that was damaged far from its ends and is whole again has the same content id, and other rows."""

import random
import shutil

import pytest

from logloom.io.catalog.manifest import read_manifest
from logloom.io.logs.files import ranges
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan import logs
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.transforms.ros2_logs import SECOND, START, write_log

pytestmark = pytest.mark.usefixtures("_settled_at_once")

NAMES = ("car-0", "car-1", "car-2", "car-3")
PADDED = ("demo_msgs/msg/Padded", "int32 speed\nuint8[] pad")
HURT = "car-2"


@pytest.fixture(autouse=True)
def _short_ends(monkeypatch):
    """A content id reads the first and last 16 KiB of a log."""
    monkeypatch.setattr(ranges, "MIB", 1 << 14)
    monkeypatch.setattr(logs, "_READ", 1 << 15)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Logs of 64 KiB."""
    folder, rng = tmp_path_factory.mktemp("mended"), random.Random(7)
    for name in NAMES:
        messages = [
            (START + number * SECOND // 10, {"speed": number, "pad": list(rng.randbytes(4000))})
            for number in range(16)
        ]
        write_log(folder / f"{name}.mcap", {"/can": (PADDED, messages)}, chunk_size=5000)
    return folder


def hurt_a_log(folder):
    path = folder / f"logs/{HURT}.mcap"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def built(folder, on_error, sample=None):
    recipe = Recipe.from_yaml(
        f"name: t\nlogs: [logs/*.mcap]\non_error: {on_error}\nclock: {{rate: 10}}\npartition: {{rows: 10}}\n"
        "columns:\n  speed: {topic: /can, field: speed, resample: nearest}\n"
        "outputs: {tar: {}, zarr: {}}\n"
    )
    plan = plan_build(recipe, str(folder / "root"), base=str(folder), sample=sample, compare=sample is None)
    build(plan, num_workers=1)
    return plan, read_manifest(Store.at(str(folder / "root")))


@pytest.mark.parametrize("sample", [None, 1], ids=["opened by the command", "opened by workers"])
@pytest.mark.parametrize("on_error", ["skip", "salvage"])
def test_a_log_whose_middle_was_mended_is_built_again(whole, tmp_path, on_error, sample):
    shutil.copytree(whole, tmp_path / "logs")
    hurt_a_log(tmp_path)
    _, first = built(tmp_path, on_error)
    before = first.logs.find(HURT)
    assert before.status == ("skipped" if on_error == "skip" else "salvaged")
    plan, same = built(tmp_path, on_error)
    assert plan.up_to_date

    shutil.copy(whole / f"{HURT}.mcap", tmp_path / "logs")
    if sample:
        (tmp_path / "root/index/listing").unlink()  # so that all logs are opened, most by workers
    plan, second = built(tmp_path, on_error, sample)
    assert (second.version, same.version) == (2, 1)
    assert bool(plan.compared) == bool(sample)
    record = second.logs.find(HURT)
    assert (record.status, record.content_id, record.key) == ("whole", before.content_id, before.key)
    assert (record.refused, before.refused > 0) == (0, on_error == "salvage")
    assert verify(str(tmp_path / "root"), against_logs=True, num_workers=1).findings == ()
    assert verify(str(tmp_path / "root"), 1, num_workers=1).findings == ()

    plan, third = built(tmp_path, on_error)
    assert plan.up_to_date
    assert third.version == 2


@pytest.mark.parametrize("on_error", ["skip", "salvage"])
def test_a_damaged_log_that_was_only_touched_makes_no_version(whole, tmp_path, on_error):
    shutil.copytree(whole, tmp_path / "logs")
    hurt_a_log(tmp_path)
    built(tmp_path, on_error)
    (tmp_path / f"logs/{HURT}.mcap").touch()
    plan, manifest = built(tmp_path, on_error)
    assert not plan.up_to_date  # only building it tells
    assert manifest.version == 1
    plan, _ = built(tmp_path, on_error)
    assert plan.up_to_date
