"""Manifests, log parts and entries: canonical bytes, and clear words where they are damaged."""

import dataclasses
import subprocess
import sys

import pytest

from logloom.errors import DatasetError, UsageError
from logloom.io.manifest import (
    Entry,
    FileEntry,
    LogRecord,
    Manifest,
    canonical,
    check_root,
    find_entry,
    read_log_part,
    read_manifest,
    resolve_version,
    split_root,
    version_file,
    write_log_part,
)
from logloom.io.storage import Store
from tests.conftest import REPOSITORY
from tests.files import flip


def make_entry(partition: str = "0-10", start: int = 0) -> Entry:
    return Entry(
        output="tar",
        identity=f"id{partition}",
        log_id="drive",
        content_id="c0",
        partition=partition,
        start=start,
        stop=start + 10,
        rows=3,
        files=(FileEntry("shard.tar", 10240, "ab"),),
        columns={"timestamp": "12"},
        unit={"rows": 3},
        tally={"planned": 3, "dropped": {}},
    )


def make_manifest(version: int = 1) -> Manifest:
    log = LogRecord("drive", ("/logs/drive.mcap",), "c0", "all", "k", "whole", "p", 3, 3, {}, 0)
    return Manifest(
        version=version,
        parent=None,
        name="n",
        recipe={"columns": {}},
        schema={"columns": [], "sampled": []},
        plan="x",
        outputs={"tar": {}},
        logs=(log,),
        assembled=(),
        totals={"rows": 3},
        verified="all",
        software={"logloom": "0"},
    )


def test_a_log_part_comes_back_equal_and_its_name_is_its_content(tmp_path):
    store = Store.at(str(tmp_path))
    entries = [make_entry(), make_entry("10-20", 10)]
    part = write_log_part(store, entries)
    assert read_log_part(store, part) == entries
    assert write_log_part(store, entries) == part


def test_a_log_part_is_read_by_no_thread_that_outlives_the_read(tmp_path):
    part = write_log_part(Store.at(str(tmp_path)), [make_entry()])
    script = f"""
import os, pyarrow.parquet
from logloom.io.manifest import read_log_part
from logloom.io.storage import Store
before = os.listdir("/proc/self/task")
read_log_part(Store.at({str(tmp_path)!r}), {part!r})
assert os.listdir("/proc/self/task") == before
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=REPOSITORY)


def test_a_flipped_byte_in_a_log_part_is_found(tmp_path):
    store = Store.at(str(tmp_path))
    part = write_log_part(store, [make_entry()])
    flip(tmp_path / "logs" / f"{part}.parquet")
    with pytest.raises(DatasetError, match=r"parquet: damaged"):
        read_log_part(store, part)


def test_a_missing_log_part_names_its_file(tmp_path):
    with pytest.raises(DatasetError, match=r"logs/abc\.parquet.*missing"):
        read_log_part(Store.at(str(tmp_path)), "abc")


def test_a_manifest_comes_back_equal(tmp_path):
    store = Store.at(str(tmp_path))
    manifest = make_manifest()
    store.create(version_file(1), manifest.to_bytes())
    assert read_manifest(store) == manifest
    assert read_manifest(store, 1) == manifest
    assert read_manifest(store, "1") == manifest


def test_a_manifest_of_a_newer_format_asks_for_a_newer_logloom():
    data = canonical(dataclasses.asdict(make_manifest()) | {"format": 99})
    with pytest.raises(DatasetError, match="install a newer logloom"):
        Manifest.from_bytes(data, "v.json")


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff", b'{"format": 1}'])
def test_what_is_no_manifest_is_named(data):
    with pytest.raises(DatasetError, match=r"v\.json: not a manifest"):
        Manifest.from_bytes(data, "v.json")


def test_asking_for_a_version_that_is_not_there_lists_those_that_are(tmp_path):
    store = Store.at(str(tmp_path))
    with pytest.raises(UsageError, match="logloom build"):
        resolve_version(store, "latest")
    store.create(version_file(1), make_manifest().to_bytes())
    store.replace("versions/tags.json", canonical({"gold": 1}))
    assert resolve_version(store, "gold") == 1
    with pytest.raises(UsageError, match=r"no version '7'; there are 1, gold"):
        resolve_version(store, "7")


def test_an_entry_that_is_not_json_names_the_command_that_repairs_it(tmp_path):
    store = Store.at(str(tmp_path))
    store.create("parts/tar/x/entry.json", b"{")
    with pytest.raises(DatasetError, match=r"parts/tar/x/entry\.json: not .*`logloom repair /.*` builds"):
        find_entry(store, "tar", "x")
    assert find_entry(store, "tar", "y") is None


def test_a_folder_with_other_things_is_no_root(tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(UsageError, match=r"not a logloom root, it holds holiday\.jpg"):
        check_root(Store.at(str(tmp_path)))
    with pytest.raises(UsageError, match="is a file"):
        check_root(Store.at(str(tmp_path / "holiday.jpg")))
    check_root(Store.at(str(tmp_path / "new")))


def test_a_root_may_carry_a_version():
    assert split_root("/data/urban@7") == ("/data/urban", "7")
    assert split_root("/data/urban") == ("/data/urban", "latest")
    assert split_root("/data/me@home/urban") == ("/data/me@home/urban", "latest")
