"""A root that an earlier logloom built opens and verifies, and is built anew once.

`earlier.tar.xz` holds two small drives, the recipe over them and the root that was built from both on
2026-11-22, in every output; all of it under memory://earlier, since the URIs of logs are part of identities.
"""

import pathlib
import tarfile

import fsspec
import pytest

import logloom.datasets
from logloom.errors import UsageError
from logloom.io.manifest import read_manifest
from logloom.io.storage import Store
from logloom.pipelines.build import build
from logloom.pipelines.plan import plan_build
from logloom.pipelines.verify import verify
from logloom.recipe import Recipe

ARCHIVE = pathlib.Path(__file__).with_name("earlier.tar.xz")
ROOT = "memory://earlier/root"


UNITS = 36


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


def test_all_its_units_are_made_anew_and_then_it_is_up_to_date(recipe):
    plan = plan_build(recipe, ROOT)
    assert not plan.up_to_date
    assert sorted(plan.job.outputs) == ["annotations", "bags", "l5kit", "table", "tar", "zarr"]
    built = build(plan)
    assert (built.built, built.reused) == (UNITS, 0)
    assert built.manifest.format == 3
    assert [record.rows for record in built.manifest.logs] == [
        record.rows for record in read_manifest(Store.at(ROOT), 1).logs
    ]
    assert plan_build(recipe, ROOT).up_to_date
    assert verify(ROOT, against_logs=True, num_workers=1).findings == ()


def test_it_verifies_against_its_digests(recipe):
    report = verify(ROOT, num_workers=1)
    assert report.findings == ()
    assert report.units == UNITS
    with pytest.raises(UsageError, match="whose rows may differ"):
        verify(ROOT, against_logs=True, num_workers=1)


@pytest.mark.parametrize("output", ["bags", "table", "tar", "zarr"])
def test_it_opens_in_each_output_that_keeps_columns(recipe, output):
    rows = logloom.datasets.open(ROOT, output=output)
    assert len(rows) == 15
    row = rows[7]
    assert row["log_id"] == "drive-01"
    assert row["camera.front"][:2] == b"\xff\xd8"
