"""Stores that answer a tenth of the requests with 429 or 503, or break the connection, late too."""

import pytest

from logloom.errors import StorageError
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.runners import RunnerOptions
from tests.pipelines.conftest import digests

pytestmark = [pytest.mark.engines, pytest.mark.faults]


def immutable(store, root) -> dict[str, bytes]:
    return {
        name: data
        for name, data in store.objects(root).items()
        if not name.startswith(("runs/", "index/")) and ".times." not in name
    }


def plain_files(root) -> dict[str, bytes]:
    """What a version on a disk holds besides its view."""
    return {name: (root / name).read_bytes() for name in digests(root) if not name.startswith("v0")}


@pytest.fixture
def many_units(drive, tmp_path):
    """A recipe of so many units that a tenth of their requests are dozens, and what it builds on a disk."""
    assert "partition: {rows: 10}" in drive.text
    text = drive.text.replace("partition: {rows: 10}", "partition: {rows: 5}")
    recipe = Recipe.from_yaml(text, source="drive.yaml")
    build(plan_build(recipe, str(tmp_path / "plain")))
    return recipe, plain_files(tmp_path / "plain")


def test_a_build_into_a_failing_store_ends_with_the_same_bytes_and_counts_its_retries(
    many_units, store, bucket
):
    recipe, expected = many_units
    root = f"{bucket}/root"
    store.faults.share = 0.1
    done = build(plan_build(recipe, root, storage_options=store.storage_options))
    verified = verify(root, num_workers=1, storage_options=store.storage_options)
    store.faults.share = 0.0
    assert done.manifest.version == 1
    assert verified.findings == ()
    assert len(store.faults.done) > 10
    assert done.counters["storage_retries"] > 10
    assert immutable(store, root) == expected


@pytest.mark.parametrize("store", ["gcs"], indirect=True)
def test_flink_s_workers_build_into_a_failing_store_and_count_their_retries(many_units, store, bucket):
    recipe, expected = many_units
    root = f"{bucket}/root"
    plan = plan_build(recipe, root, storage_options=store.storage_options)
    store.faults.share = 0.1
    done = build(plan, runner=RunnerOptions("flink", workers=2))
    store.faults.share = 0.0
    assert len(store.faults.done) > 10
    assert done.counters["storage_retries"] > 10
    assert immutable(store, root) == expected


def test_a_store_that_is_gone_is_an_error_that_names_it(drive, store, bucket):
    store.faults.share = 1.0
    with pytest.raises(StorageError, match=f"{bucket}/root"):
        plan_build(drive.recipe(), f"{bucket}/root", storage_options=store.storage_options)
