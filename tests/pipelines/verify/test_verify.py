"""Verification finds and names every kind of damage."""

import os
import shutil
import tarfile
from dataclasses import replace

import pytest

from logloom.io.catalog.manifest import read_manifest
from logloom.io.catalog.manifest_digest import write_digest
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.pages import page_file, table_of, write_page
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.version_files import version_file
from logloom.io.storage.store import Store
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.verify.claims import manifest_state
from logloom.pipelines.verify.verify import verify
from tests.absent import needs, present
from tests.files import flip
from tests.forking import command
from tests.pipelines.conftest import restate
from tests.pipelines.roots import commit_version


@pytest.fixture
def root(built, tmp_path):
    """A copy of a good version that may be damaged; its view holds the same files by hard links."""
    copy = tmp_path / "root"
    shutil.copytree(built, copy, ignore=shutil.ignore_patterns("v????????"))
    return copy


def rewrite(root, old: str, new: str) -> None:
    """Changes the newest manifest, and its digest with it, as somebody would who means to."""
    path = root / "versions" / "00000001.json"
    data = path.read_bytes()
    assert old.encode() in data
    data = data.replace(old.encode(), new.encode(), 1)
    path.chmod(0o644)
    path.write_bytes(data)
    write_digest(Store.at(str(root)), 1, data)


def writable(path):
    path.chmod(0o644)
    return path


def shards(root):
    needs("tar")
    return sorted(root.glob("parts/tar/*/*/shard.tar"), key=lambda path: path.stat().st_size)[::-1]


def findings(root, **choices):
    return [finding.message for finding in verify(str(root), num_workers=1, **choices).findings]


def test_an_untouched_copy_is_proven(root):
    report = verify(str(root), num_workers=1)
    assert report.findings == ()
    manifest = read_manifest(Store.at(str(root)))
    assert report.rows == manifest.totals["rows"] * len(manifest.outputs)
    assert (report.manifest, report.against_logs, report.purged) == ("checked", False, 0)


def test_the_smallest_sample_reads_one_unit_of_each_output(root):
    outputs = read_manifest(Store.at(str(root))).outputs
    assert verify(str(root), sample="sample:1e-12", num_workers=1).units == len(outputs)


def test_a_flipped_byte_in_a_shard_is_found_and_named(root):
    victim = shards(root)[0]
    flip(victim)
    (message,) = findings(root)
    assert str(victim) in message
    assert "bytes changed" in message


def test_a_deleted_chunk_of_the_l5kit_arrays_is_found_and_named(root):
    victim = min(root.glob("parts/l5kit/*/*/agents/0"))
    victim.unlink()
    (message,) = findings(root)
    assert str(victim) in message
    assert "missing" in message


def test_a_shard_cut_between_two_samples_is_found_and_named(root):
    victim = shards(root)[0]
    with tarfile.open(victim) as tar:
        cut = tar.getmembers()[-4].offset
    with writable(victim).open("r+b") as file:
        file.truncate(cut)
    (message,) = findings(root)
    assert str(victim) in message


def test_two_swapped_files_are_both_found(root):
    first, second = shards(root)[:2]
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    messages = findings(root)
    assert len(messages) == 2
    assert {str(path) for path in (first, second)} == {m.split(": ")[0] for m in messages}


def test_two_files_swapped_in_the_view_are_found(built, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(built, root, copy_function=os.link)
    view = next((root / "v00000001" / "tar").iterdir())
    first, second = view / "000000.tar", view / "000001.tar"
    first.rename(view / "aside")
    second.rename(first)
    (view / "aside").rename(second)
    messages = findings(root)
    assert len(messages) == 2
    assert "000000.tar" in messages[0]


def test_a_stranger_in_the_view_is_found(built, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(built, root, copy_function=os.link)
    (root / "v00000001" / "notes.txt").write_text("hello")
    assert any("not part of this version" in message for message in findings(root))


def test_a_changed_log_is_found_when_verifying_against_logs(root, drive, tmp_path, monkeypatch):
    other = tmp_path / "logs"
    other.mkdir()
    for log in drive.logs:
        shutil.copy(log, other)
    before = drive.logs[0].parent
    rewrite(root, str(before / "*.mcap"), str(other / "*.mcap"))
    restate(root, lambda log: replace(log, uris=(log.uris[0].replace(str(before), str(other)),)))
    moved = "its key isn't of this log"
    assert all(moved in message for message in findings(root, against_logs=True))
    shutil.copy(drive.logs[0], other / drive.logs[1].name)
    messages = [message for message in findings(root, against_logs=True) if moved not in message]
    assert messages
    assert all("no longer the log" in message for message in messages)


def test_a_manifest_that_lies_about_its_rows_is_found(root):
    restate(root, lambda log: replace(log, rows=1))
    assert any("the manifest has 1" in message for message in findings(root))


def test_a_log_that_was_taken_out_of_the_manifest_is_found(root):
    store = Store.at(str(root))
    manifest = read_manifest(store)
    *stay, gone = manifest.logs
    overwrite(root, replace(manifest, logs=write_records(store, stay)).to_bytes())
    messages = findings(root)
    assert any("its logs add up to" in message for message in messages)
    if present("l5kit"):
        assert any(f"l5kit of split {gone.split}: units contain" in message for message in messages)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("split", "val", "the manifest has it in split val"),
        ("content_id", "0" * 64, "its unit is of another content_id"),
        ("uris", ("/elsewhere.mcap",), "its key isn't of this log"),
        ("planned", 7, "the manifest has 7"),
        ("dropped", {}, "counted dropped"),
        ("refused", 3, "the manifest has 3 and the status whole"),
    ],
)
def test_a_record_that_its_units_contradict_is_found(root, name, value, message):
    restate(root, lambda log: replace(log, **{name: value} if log.log_id == "drive-00" else {}))
    assert any(message in found for found in findings(root))


def overwrite(root, data: bytes) -> None:
    path = writable(root / "versions" / "00000001.json")
    path.write_bytes(data)
    write_digest(Store.at(str(root)), 1, data)


def record_page(root):
    (path,) = root.glob("versions/pages/*.parquet")
    return path


def test_a_damaged_or_lost_page_of_the_manifest_is_named_and_no_repair_makes_it_up(root):
    path = record_page(root)
    healthy = path.read_bytes()
    flip(path)
    (message,) = findings(root)
    assert str(path) in message
    assert "damaged, its bytes don't match its name" in message
    path.unlink()
    (message,) = findings(root)
    assert f"{path}: a page of the manifest is missing" in message
    assert "logloom repair" not in command("verify", root).stderr
    report = repair(str(root), num_workers=1)
    assert not report.is_sound
    assert "restore it from a backup" in report.unrepaired[0].message
    path.write_bytes(healthy)
    assert findings(root) == []


def test_of_two_pages_the_logs_of_the_whole_one_are_still_verified(root):
    store = Store.at(str(root))
    manifest = read_manifest(store)
    halves = [write_page(store, table_of([record])) for record in manifest.logs]
    overwrite(root, replace(manifest, logs=LogRecords(store, halves)).to_bytes())
    assert findings(root) == []  # where pages are cut is no claim
    (root / page_file(halves[0])).unlink()
    report = verify(str(root), num_workers=1)
    assert report.units * 2 == verify_units(manifest)
    (finding,) = report.findings
    assert halves[0].digest in finding.message


def verify_units(manifest) -> int:
    return manifest.logs.totals["units"]


def test_a_lost_manifest_of_another_version_is_found(tmp_path):
    store = Store.at(str(tmp_path))
    for number in (1, 2, 3):
        commit_version(store, number, ["a"])
    store.remove(version_file(2))
    state, (finding,) = manifest_state(store, 3)
    assert state == "checked"
    assert "the manifest of version 2 is lost" in str(finding)
