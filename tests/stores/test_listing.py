"""What listings of real object stores' interfaces decide: GCS by gcsfs, S3 by s3fs."""

import time

import fsspec
import pytest

from logloom.io.logs.listings import listed
from logloom.io.storage.filesystems import filesystem
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe

pytestmark = pytest.mark.engines

PATTERNS = [
    "day-1/*.mcap",
    "day-*/a.mcap",
    "*/*.mcap",
    "**/*.mcap",
    "**",
    "*",
    "day-1/?.mcap",
    "day-[12]/deep/*",
]


def test_a_pattern_means_what_fsspec_makes_of_it_and_files_have_stamps(store, bucket):
    fs = store.fs
    for name in (
        "day-1/a.mcap",
        "day-1/b.mcap",
        "day-2/a.mcap",
        "day-2/deep/c.mcap",
        "other/a.mcap",
        "x.mcap",
    ):
        fs.pipe_file(f"{bucket}/logs/{name}", b"x")
    for pattern in PATTERNS:
        own, path = filesystem(f"{bucket}/logs/{pattern}", store.storage_options)
        own.invalidate_cache()
        files, matched, folders = listed(own, path, time.time_ns())
        assert {*files, *matched} == set(fs.glob(path)), pattern
        lying = {name: entry for entries in folders.values() for name, entry in entries.items()}
        assert all(lying[name].stamp for name in files if name in lying), pattern
        for folder, entries in folders.items():
            assert set(entries) == {info.rstrip("/") for info in fs.ls(folder, detail=False)}, (
                pattern,
                folder,
            )


def test_logs_that_stay_in_a_store_are_not_opened(drive, store, bucket):
    for number in range(4):
        for log in drive.logs:
            store.fs.pipe_file(f"{bucket}/logs/day-{number}/{log.name}", log.read_bytes())
    text = drive.text.replace(str(drive.logs[0].parent), f"{bucket}/logs/*")
    text += "\nlog_id: '{parent}-{stem}'\n"
    recipe, root = Recipe.from_yaml(text, source="drive.yaml"), f"{bucket}/root"
    build(plan_build(recipe, root, storage_options=store.storage_options))
    plan = plan_build(recipe, root, storage_options=store.storage_options)
    assert plan.up_to_date
    assert len(plan.opened) == 1
    store.fs.pipe_file(f"{bucket}/logs/day-2/{drive.logs[0].name}", drive.logs[1].read_bytes())
    plan = plan_build(recipe, root, storage_options=store.storage_options)
    assert [log.task.log_id for log in plan.logs] == [f"day-2-{drive.logs[0].stem}"]
    assert len(plan.opened) == 2


@pytest.mark.parametrize("data", [b"later", b""])
def test_what_another_process_made_since_its_folder_was_listed_is_found(store, bucket, data, tmp_path):
    own, folder = filesystem(f"{bucket}/versions", store.storage_options)
    other = fsspec.filesystem(store.protocol, **store.options, skip_instance_cache=True)
    asked = [
        own.cat_file,
        lambda path: data if own.info(path)["size"] == len(data) else None,
        lambda path: own.open(path, "rb").read(),
        lambda path: own.get_file(path, str(tmp_path / "it")) or (tmp_path / "it").read_bytes(),
    ]
    other.pipe_file(f"{folder}/0", b"before")
    for number, ask in enumerate(asked, 1):
        assert len(own.ls(folder)) == number
        other.pipe_file(f"{folder}/{number}", data)
        assert ask(f"{folder}/{number}") == data
        own.invalidate_cache()
    for ask in asked:
        own.ls(folder)
        with pytest.raises(FileNotFoundError):
            ask(f"{folder}/gone")
