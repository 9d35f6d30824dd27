"""Whole builds in real object stores' interfaces: GCS by gcsfs, S3 by s3fs."""

import io
import json
import pickle
import subprocess
import sys

import lance
import numpy as np
import pytest
import webdataset
from webdataset.tariterators import group_by_keys, tar_file_expander

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.errors import CommitConflictError
from logloom.pipelines.build.build import build
from logloom.pipelines.head.head import head
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.conftest import REPOSITORY
from tests.pipelines.conftest import digests

pytestmark = pytest.mark.engines


def build_at(drive, store, root, **changes):
    return build(plan_build(drive.recipe(**changes), root, storage_options=store.storage_options))


def findings(store, root, **choices):
    report = verify(root, num_workers=1, storage_options=store.storage_options, **choices)
    return [finding.message for finding in report.findings]


def immutable(store, root):
    return {
        name: data
        for name, data in store.objects(root).items()
        if not name.startswith(("runs/", "index/")) and ".times." not in name
    }


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "logloom", *map(str, arguments)], capture_output=True, text=True, timeout=200
    )


def test_a_version_has_the_bytes_that_it_has_on_a_disk_and_is_proven_against_its_logs(
    drive, built, store, bucket
):
    root = f"{bucket}/root"
    build_at(drive, store, root)
    there = immutable(store, root)
    assert set(there) == {name for name in digests(built) if not name.startswith("v0")}
    assert all((built / name).read_bytes() == data for name, data in there.items())
    assert findings(store, root, against_logs=True) == []
    assert len(head(root, count=3, storage_options=store.storage_options)) == 3


def test_a_real_log_has_the_bytes_that_it_has_on_a_disk(shared_data, store, bucket, tmp_path):
    recipe = Recipe.load(str(REPOSITORY / "examples" / "tilt_laser.yaml")).identity_json()
    recipe |= {"logs": [str(shared_data / "logs" / "tilt_laser.bag")], "partition": {"rows": 50}}
    laser = Recipe.model_validate(recipe)
    build(plan_build(laser, str(tmp_path / "root")))
    build(plan_build(laser, f"{bucket}/root", storage_options=store.storage_options))
    there = immutable(store, f"{bucket}/root")
    assert {name for name in digests(tmp_path / "root") if not name.startswith("v0")} == set(there)
    assert all((tmp_path / "root" / name).read_bytes() == data for name, data in there.items())


def test_a_second_build_is_up_to_date(drive, store, bucket):
    build_at(drive, store, f"{bucket}/root")
    before = immutable(store, f"{bucket}/root")
    plan = plan_build(drive.recipe(), f"{bucket}/root", storage_options=store.storage_options)
    assert plan.up_to_date
    assert build(plan).manifest.version == 1
    assert immutable(store, f"{bucket}/root") == before


def test_logs_lie_in_a_store_too_and_one_more_of_them_adds_only_its_own(drive, built, store, bucket):
    first, second = drive.logs
    store.fs.put_file(str(first), f"{bucket}/logs/{first.name}")
    text = drive.text.replace(str(first.parent), f"{bucket}/logs")
    assert text != drive.text
    source = type(drive)(drive.logs, text)
    build_at(source, store, f"{bucket}/root")
    store.fs.put_file(str(second), f"{bucket}/logs/{second.name}")
    done = build_at(source, store, f"{bucket}/root")
    assert done.manifest.version == 2
    assert done.manifest.totals["logs"] == 2
    assert done.reused == 0  # the first log's record is kept whole, its partitions aren't even planned
    assert findings(store, f"{bucket}/root", against_logs=True) == []
    units = {name for name in digests(built) if name.startswith("parts/tar/")}
    assert units <= set(store.objects(f"{bucket}/root"))


def test_of_two_builds_at_once_the_second_is_refused(drive, store, bucket):
    root = f"{bucket}/root"
    slow = plan_build(drive.recipe(), root, storage_options=store.storage_options)
    build_at(drive, store, root, **{"name: ": "name: other-"})
    with pytest.raises(CommitConflictError, match="version 1 first; build again"):
        build(slow)


def test_the_commands_take_the_store_s_options(drive, store, bucket, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(drive.text)
    root = f"{bucket}/root"
    done = command("build", recipe, "--to", root, "--quiet", "--json", *store.flags)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["version"] == 1
    assert command("verify", root, *store.flags).returncode == 0
    assert command("head", f"{root}@1", "-n", 1, *store.flags).returncode == 0


def test_damaged_and_lost_objects_are_built_again_with_the_same_bytes(drive, store, bucket):
    root = f"{bucket}/root"
    build_at(drive, store, root)
    before = immutable(store, root)

    def first(folder, name):
        return next(path for path in sorted(before) if path.startswith(folder) and path.endswith(name))

    shard, entry = first("parts/tar/", "shard.tar"), first("parts/l5kit/", "entry.json")
    part, stage = first("logs/", ".parquet"), first("parts/l5kit/", "/frames")
    store.fs.pipe_file(f"{root}/{shard}", before[shard][:-1] + b"x")
    store.fs.pipe_file(f"{root}/{stage}", before[stage][1:])
    store.fs.rm_file(f"{root}/{entry}")
    store.fs.rm_file(f"{root}/{part}")
    assert len(findings(store, root)) >= 1
    trial = repair(root, dry_run=True, num_workers=1, storage_options=store.storage_options)
    assert not trial.is_sound
    done = repair(root, num_workers=1, storage_options=store.storage_options)
    assert done.unrepaired == ()
    assert done.is_sound
    assert immutable(store, root) == before
    assert findings(store, root) == []


def test_a_view_is_copied_within_the_store(drive, built, store, bucket):
    root = f"{bucket}/root"
    build_at(drive, store, root)
    refused = command("view", root, *store.flags)
    assert refused.returncode == 2
    assert "use --copy for copies, or --list for URLs" in refused.stderr
    done = command("view", root, "--copy", *store.flags)
    assert (done.returncode, done.stdout) == (0, f"{root}/v00000001\n")
    there = {name: data for name, data in immutable(store, root).items() if name.startswith("v0")}
    assert there.pop("v00000001/_SUCCESS") == b""
    assert set(there) == {name for name in digests(built) if name.startswith("v0")}
    assert all((built / name).read_bytes() == data for name, data in there.items())


def test_a_build_copies_the_view_itself_where_it_is_told_to(drive, built, store, bucket, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(drive.text)
    root = f"{bucket}/root"
    done = command("build", recipe, "--to", root, "--view", "copy", "--quiet", *store.flags)
    assert (done.returncode, done.stdout) == (0, f"{root}/v00000001\n"), done.stderr
    there = {name: data for name, data in immutable(store, root).items() if name.startswith("v0")}
    assert there.pop("v00000001/_SUCCESS") == b""
    assert set(there) == {name for name in digests(built) if name.startswith("v0")}
    assert all((built / name).read_bytes() == data for name, data in there.items())


def test_webdataset_reads_the_shards_from_the_urls_that_the_version_lists(drive, built, store, bucket):
    root = f"{bucket}/root"
    build_at(drive, store, root)
    listed = command("view", root, "--list", "--output", "tar", *store.flags)
    urls = listed.stdout.split()
    assert all(url.startswith(f"{root}/parts/tar/") for url in urls)
    streams = [{"url": url, "stream": io.BytesIO(store.fs.cat_file(url))} for url in urls]
    samples = list(group_by_keys(tar_file_expander(streams)))
    local = sorted(str(path) for path in (built / "v00000001/tar/all").iterdir())
    expected = list(webdataset.WebDataset(local, shardshuffle=False, empty_check=False))
    assert [sample["__key__"] for sample in samples] == [sample["__key__"] for sample in expected]
    pictures = [[sample["camera.front.jpg"] for sample in side] for side in (samples, expected)]
    assert pictures[0] == pictures[1]


def test_a_version_is_converted_into_plain_folders_on_a_disk(drive, built, store, bucket, tmp_path):
    root = f"{bucket}/root"
    build_at(drive, store, root)
    done = command("convert", f"{root}@1", tmp_path / "tar", "--format", "tar", "--plain", *store.flags)
    assert done.returncode == 0, done.stderr
    shards = {path.name: path.read_bytes() for path in (built / "v00000001/tar/all").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "tar").rglob("*.tar")} == shards
    done = command("convert", root, f"{bucket}/zarr", "--format", "zarr", *store.flags)
    assert done.returncode == 0, done.stderr
    assert findings(store, f"{bucket}/zarr") == []


def test_a_version_without_a_view_is_opened_for_training(drive, built, store, bucket):
    build_at(drive, store, f"{bucket}/root")
    there = logloom.datasets.open(f"{bucket}/root", output="tar", storage_options=store.storage_options)
    here = logloom.datasets.open(str(built), output="tar")
    assert len(there) == len(here)
    assert there[3]["camera.front"] == here[3]["camera.front"]


def test_a_version_s_table_is_read_by_its_root_without_a_view(drive, store, bucket, tmp_path):
    recipe = {"outputs:": "outputs:\n  table: {index: [ego.speed]}"}
    root, options = f"{bucket}/root", {"storage_options": store.storage_options}
    build_at(drive, store, root, **recipe)
    built = build(plan_build(drive.recipe(**recipe), str(tmp_path / "root")))
    there, here = tt.read_index(root, **options), tt.read_index(f"{built.view}/table/all")
    pointing = [name for name in here if name.endswith((".log", ".blob"))]
    assert there.drop(columns=pointing).equals(here.drop(columns=pointing))
    assert there["__0.log"].cat.categories[0].startswith(f"{root}/v00000001/table/all/index/")
    moving = there[there["ego.speed"] > 0].sort_values("ego.speed")
    loader = pickle.loads(pickle.dumps(tt.row_loader(moving, check=True, **options)))
    plain = tt.row_loader(here[here["ego.speed"] > 0].sort_values("ego.speed"))
    for position in (0, len(loader) - 1):
        both = [rows.get_rows(position, ".*", range(-12, 3), on_edge="drop") for rows in (loader, plain)]
        assert len(both[0]) == len(both[1]) > 2
        assert all(np.array_equal(a[k], b[k]) for a, b in zip(*both, strict=True) for k in b)
    batches = [rows.get_many(range(9), ["lidar.points", "ego.*"]) for rows in (loader, plain)]
    np.testing.assert_array_equal(batches[0]["lidar.points"][0], batches[1]["lidar.points"][0])
    assert tt.verify(f"{root}@1", **options) == []


def test_a_later_version_refers_to_a_table_in_a_store_and_stores_what_is_new(drive, store, bucket):
    table = {"outputs:": "outputs:\n  table: {index: [ego.speed]}"}
    build_at(drive, store, f"{bucket}/root", **table)
    table = {"outputs:": f"outputs:\n  table: {{reference: '{bucket}/root@1'}}"}
    build_at(drive, store, f"{bucket}/new", **table)
    sizes = [
        sum(len(data) for name, data in store.objects(f"{bucket}/{root}").items() if name.endswith(".blob"))
        for root in ("root", "new")
    ]
    assert sizes[1] < sizes[0] // 20
    options = {"storage_options": store.storage_options}
    assert tt.verify(f"{bucket}/new", **options) == []
    rows = [
        tt.row_loader(tt.read_index(f"{bucket}/{root}", **options), **options).get_row(3, ["lidar.*"])
        for root in ("root", "new")
    ]
    np.testing.assert_array_equal(rows[0]["lidar.points"], rows[1]["lidar.points"])
    build_at(drive, store, f"{bucket}/root", **{"rate: 10": "rate: 5"})  # what refers to it is no stranger


def test_a_lance_table_in_a_store_opens_by_its_root_and_as_a_plain_folder(drive, store, bucket, tmp_path):
    recipe = {"outputs:": "outputs:\n  lance: {images: {camera.front: jpg}}"}
    root, options = f"{bucket}/root", {"storage_options": store.storage_options}
    build_at(drive, store, root, **recipe)
    built = build(plan_build(drive.recipe(**recipe), str(tmp_path / "root")))
    here = logloom.datasets.open(f"{built.view}/lance/all")
    assert findings(store, root) == []
    made = command("convert", root, f"{bucket}/plain", "--format", "lance", "--plain", *store.flags)
    assert made.returncode == 0, made.stderr
    for there in (
        logloom.datasets.open(root, output="lance", **options),
        logloom.datasets.open(f"{bucket}/plain", **options),
    ):
        assert len(there) == len(here) > 20
        numbers = [len(here) - 1, 3, 17]
        batches = [rows.get_many(numbers, ["lidar.points", "ego.position"]) for rows in (there, here)]
        np.testing.assert_array_equal(batches[0]["lidar.points"][0], batches[1]["lidar.points"][0])
        np.testing.assert_array_equal(batches[0]["ego.position"], batches[1]["ego.position"])
        assert there[3]["camera.front"] == here[3]["camera.front"]
    settings = lance_settings(store)
    table = lance.dataset(f"{bucket}/plain", storage_options=settings)
    stamps = table.take(numbers, columns=["timestamp"])["timestamp"].to_pylist()
    assert stamps == [here[number]["timestamp"] for number in numbers]


def lance_settings(store):
    """What pylance's own clients are told, to find the stand-in and to send no credentials elsewhere."""
    endpoint = store.options["endpoint_url"]
    if store.protocol == "gs":
        return {"google_base_url": endpoint, "google_skip_signature": "true", "allow_http": "true"}
    keys = {"aws_access_key_id": store.options["key"], "aws_secret_access_key": store.options["secret"]}
    return {"aws_endpoint": endpoint, "allow_http": "true", "aws_region": "us-east-1", **keys}
