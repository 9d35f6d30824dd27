"""A root that an earlier logloom built stays what it is: proven, open, its units found finished.

But for its tar units, which are made anew: their meta.json tells more of floats and types today.

`earlier.tar.xz` holds two small drives, the recipe over them and the root that was built from both on
2026-11-22, in every output; all of it under memory://earlier, since the URIs of logs are part of identities.
It is never made again: a change that makes it fail would make users build their archives again.
"""

import pathlib
import tarfile
from dataclasses import replace

import fsspec
import pytest

import logloom.datasets
from logloom.io.manifest import read_assembled, read_manifest
from logloom.io.storage import Store
from logloom.io.version_files import version_file
from logloom.pipelines.build import build
from logloom.pipelines.plan import plan_build
from logloom.pipelines.verify import verify
from logloom.recipe import Recipe

ARCHIVE = pathlib.Path(__file__).with_name("earlier.tar.xz")
ROOT = "memory://earlier/root"


UNITS, TAR_UNITS = 36, 6


@pytest.fixture
def recipe(monkeypatch):
    """The recipe of the earlier root, which lies in memory together with its logs."""
    monkeypatch.setattr("logloom.pipelines.verify_claims.__version__", "later")  # than the root's
    memory = fsspec.filesystem("memory")
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            memory.pipe_file(f"/earlier/{member.name}", archive.extractfile(member).read())
    yield Recipe.from_yaml(memory.cat_file("/earlier/recipe.yaml").decode(), source="recipe.yaml")
    memory.rm("/earlier", recursive=True)


def without_tar(recipe):
    outputs = {name: options for name, options in recipe.outputs.items() if name != "tar"}
    return recipe.model_copy(update={"outputs": outputs})


def test_only_its_tar_units_are_made_anew_and_then_it_is_up_to_date(recipe):
    plan = plan_build(recipe, ROOT)
    assert not plan.up_to_date
    assert sorted(plan.job.outputs) == ["annotations", "bags", "l5kit", "table", "tar", "zarr"]
    built = build(plan)
    assert (built.built, built.reused) == (TAR_UNITS, UNITS - TAR_UNITS)
    assert plan_build(recipe, ROOT).up_to_date


def test_without_tar_no_unit_is_made_anew(recipe):
    built = build(plan_build(without_tar(recipe), ROOT))
    assert (built.built, built.reused) == (0, UNITS - TAR_UNITS)


def test_it_verifies_against_its_digests_and_its_logs(recipe):
    report = verify(ROOT, against_logs=True, num_workers=1)
    assert report.findings == ()
    assert report.units == UNITS


def test_its_units_and_assembled_outputs_are_found_finished(recipe):
    store = Store.at(ROOT)
    before = read_manifest(store)
    fsspec.filesystem("memory").rm(store.fs_path(version_file(1)))
    built = build(plan_build(recipe, ROOT))
    assert (built.built, built.reused) == (TAR_UNITS, UNITS - TAR_UNITS)
    assert built.manifest.assembled == before.assembled
    # What was read back of a log, and how many units it has, manifests of then didn't note.
    assert tuple(map(as_before, built.manifest.logs)) == tuple(map(as_before, before.logs))


def as_before(record):
    """What a record says that the tar units of its log don't change."""
    return replace(record, verified="", units=None, key="", part="", statistics="")


@pytest.mark.parametrize("output", ["bags", "table", "tar", "zarr"])
def test_it_opens_in_each_output_that_keeps_columns(recipe, output):
    rows = logloom.datasets.open(ROOT, output=output)
    assert len(rows) == 15
    row = rows[7]
    assert row["log_id"] == "drive-01"
    assert row["camera.front"][:2] == b"\xff\xd8"


def test_a_root_of_an_earlier_format_goes_on_in_this_one(recipe):
    memory = fsspec.filesystem("memory")
    before = read_manifest(Store.at(ROOT))
    assert before.format < 3
    memory.pipe_file("/earlier/logs/drive-02.mcap", memory.cat_file("/earlier/logs/drive-01.mcap"))
    built = build(plan_build(without_tar(recipe), ROOT), view="none")
    assert built.manifest.format == 3
    assert [*map(as_before, built.manifest.logs[:2])] == [*map(as_before, before.logs)]
    assert built.manifest.logs[2].log_id == "drive-02"
    assert verify(ROOT, num_workers=1).findings == ()
    assert plan_build(without_tar(recipe), ROOT).up_to_date


def test_it_grows_by_portions_that_later_versions_share(recipe):
    memory = fsspec.filesystem("memory")
    memory.cp_file("/earlier/logs/drive-01.mcap", "/earlier/logs/drive-02.mcap")
    build(plan_build(without_tar(recipe), ROOT))
    assert [verify(ROOT, number, num_workers=1).findings for number in (1, 2)] == [(), ()]
    store = Store.at(ROOT)
    manifest = read_manifest(store, 2)
    (split,) = {record.split for record in manifest.logs if record.log_id == "drive-02"}
    for part in manifest.assembled:
        if part.output == "zarr":
            found = [portion.path for portion in read_assembled(store, part).portions]
            logs = [record.log_id for record in manifest.logs if record.split == part.split]
            assert found == (logs if part.split == split else [])
    assert len(logloom.datasets.open(ROOT, output="zarr")) > 15
