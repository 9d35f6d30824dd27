"""Statistics of versions: those of numpy, however rows were parted, built or read; verified and repaired."""

import base64
import dataclasses
import json
import os
import shutil

import numpy as np
import pytest

import logloom.datasets
from logloom.cli.stats import _cells
from logloom.errors import DatasetError, PurgedError, UsageError
from logloom.io.catalog.artifacts import LOG_FILES, STATISTICS
from logloom.io.catalog.entries import ENTRY, read_log_part
from logloom.io.catalog.log_statistics import noted, read_statistics
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.convert.convert import convert
from logloom.pipelines.convert.plan import plan_convert
from logloom.pipelines.convert.sources import open_source
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.repair import units
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.stats.stats import changes_of, column_statistics, elements
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.versions.rollback import plan_drop
from logloom.statistics.columns import Statistics
from tests.forking import command
from tests.pipelines.conftest import FULL_OUTPUT, build_at, digests, quick_recipe, restate


@pytest.fixture
def root(built, tmp_path):
    """A copy of the built version, to be damaged."""
    copy = tmp_path / "root"
    shutil.copytree(built, copy, ignore=shutil.ignore_patterns("v????????"))
    return copy


@pytest.mark.parametrize("every_value", [False, True])
def test_statistics_of_some_logs_are_those_of_their_rows(built, every_value):
    rows = logloom.datasets.open(str(built), output=FULL_OUTPUT)
    every = sorted({row["log_id"] for row in rows})
    for logs in (every[:1], every):
        found = column_statistics(str(built), logs=logs, columns=["ego.speed"], every_value=every_value)
        speeds = [row["ego.speed"] for row in rows if row["log_id"] in logs]
        said = found.columns()["ego.speed"]
        assert (found.logs, found.rows, said["count"]) == (len(logs), len(speeds), len(speeds))
        assert (said["min"], said["max"]) == (min(speeds), max(speeds))
        assert said["mean"] == pytest.approx(np.mean(speeds), rel=1e-12)
    with pytest.raises(UsageError, match=f"has no log 'drive-0'; did you mean {every[0][:7]}"):
        column_statistics(str(built), logs=["drive-0"])


def test_statistics_are_those_that_numpy_has_of_all_rows(built):
    said = column_statistics(str(built)).columns()
    every_value = column_statistics(str(built), every_value=True).columns()
    sampled = [name for name, one in said.items() if "left_out" in one]
    assert sampled == ["lidar.points"]
    said |= {name: every_value[name] for name in sampled}
    rows = logloom.datasets.open(str(built), output=FULL_OUTPUT, columns=[".*", "*.age", "*.available"])
    every = [rows[number] for number in range(len(rows))]
    for name in ("ego.position", "ego.speed", "imu", "lidar.points", "intrinsics"):
        usable = [row[name] for row in every if row[f"{name}.available"]]
        values = np.concatenate([np.asarray(one, "f8").reshape(-1, *np.shape(one)[-1:]) for one in usable])
        told = {key: np.atleast_1d(value) for key, value in said[name].items()}
        assert said[name]["unavailable"] == len(every) - len(usable)
        values = values.reshape(-1, len(told["count"]))
        assert told["count"].tolist() == [len(values)] * values.shape[1]
        assert told["min"].tolist() == values.min(axis=0).tolist()
        assert told["max"].tolist() == values.max(axis=0).tolist()
        assert told["mean"] == pytest.approx(values.mean(axis=0), rel=1e-12, abs=1e-12)
        assert told["std"] == pytest.approx(values.std(axis=0), rel=1e-9, abs=1e-12)
        for percent, value in said[name]["quantiles"].items():
            true = np.quantile(values, int(percent) / 100, axis=0)
            assert (np.abs(value - true) <= np.atleast_1d(said[name]["errors"][percent]) + 1e-12).all()
        ages = [row[f"{name}.age"] for row in every if row[f"{name}.available"]]
        assert (said[f"{name}.age"]["min"], said[f"{name}.age"]["max"]) == (min(ages), max(ages))
    kinds = [str(one) for row in every for one in row["objects"]["class"]]
    assert dict(zip(*said["objects"]["fields"]["class"]["distinct"].values(), strict=True)) == {
        kind: kinds.count(kind) for kind in set(kinds)
    }
    assert said["camera.front"]["lengths"]["max"] == max(len(row["camera.front"]) for row in every)


def test_any_partitioning_and_two_workers_give_the_same(built, drive, tmp_path):
    before = read_manifest(Store.at(str(built)))
    recipe = drive.recipe(**{"partition: {rows: 10}": "partition: {rows: 1000}"})
    build_at(recipe, tmp_path / "whole")
    build_at(drive.recipe(), tmp_path / "again", num_workers=2)
    for root in ("whole", "again"):
        manifest = read_manifest(Store.at(str(tmp_path / root)))
        assert [one.statistics for one in manifest.logs] == [one.statistics for one in before.logs]
    assert all(one.statistics for one in before.logs)


def test_a_log_with_rows_and_without_statistics_is_damaged(root):
    restate(root, lambda record: dataclasses.replace(record, statistics=""))
    with pytest.raises(DatasetError, match="the statistics of a log are missing"):
        column_statistics(str(root))
    found = verify(str(root), num_workers=1).findings
    assert [one.message for one in found if "the statistics of a log are missing" in one.message]


def test_dropping_a_log_takes_away_just_its_rows(root, drive):
    store = Store.at(str(root))
    whole = {one.log_id: read_statistics(store, one) for one in read_manifest(store).logs}
    build(plan_drop(store, ["drive-00"]))
    found = column_statistics(str(root))
    assert found.statistics == whole["drive-01"]
    assert Statistics.merged(whole.values()) == column_statistics(str(root), 1).statistics


def test_a_conversion_has_the_statistics_of_what_it_converts(built, tmp_path):
    convert(plan_convert(open_source(str(built)), str(tmp_path / "bags"), "bags"))
    assert column_statistics(str(tmp_path / "bags")).statistics == column_statistics(str(built)).statistics
    assert column_statistics(str(tmp_path / "bags")).read == 0


def entry_path(root, record):
    """Of a unit of a log, with rows, in the first of its outputs."""
    store = Store.at(str(root))
    unit = next(one for one in read_log_part(store, record.part) if one.rows)
    return next(root.glob(f"parts/{unit.output}/*/{unit.identity}/{ENTRY}"))


def statistics_file(record):
    (name,) = LOG_FILES[STATISTICS].of(record)
    return name


@pytest.mark.parametrize("broken", ["", "no base64", noted(Statistics({}))[:-40], "another unit's"])
def test_verify_finds_statistics_that_are_not_of_the_rows(root, broken):
    store = Store.at(str(root))
    first, second = (entry_path(root, record) for record in read_manifest(store).logs)
    data = json.loads(first.read_bytes())
    if broken == "another unit's":
        broken = json.loads(second.read_bytes())["statistics"]
    first.chmod(0o644)
    first.write_bytes(canonical(data | {"statistics": broken}))
    findings = verify(str(root), num_workers=1).findings
    assert findings
    assert {one.log_id for one in findings} == {data["log_id"]}


def test_repair_restores_lost_and_damaged_statistics(root, built):
    for record in read_manifest(Store.at(str(root))).logs:
        path, place = entry_path(root, record), root / statistics_file(record)
        for file in (path, place):
            file.chmod(0o644)
        place.write_bytes(place.read_bytes()[:-9]) if record.log_id == "drive-00" else place.unlink()
        path.write_bytes(canonical(json.loads(path.read_bytes()) | {"statistics": ""}))
    assert len(verify(str(root), num_workers=1).findings) == 4
    assert repair(str(root), num_workers=1).is_sound
    assert verify(str(root), num_workers=1).findings == ()
    assert digests(root) == {
        name: digest for name, digest in digests(built).items() if not name.startswith("v0000")
    }


def test_a_bit_that_turned_without_another_value_is_found_and_mended(root):
    sound = digests(root)
    record = read_manifest(Store.at(str(root))).logs[0]
    path = entry_path(root, record)
    data = json.loads(path.read_bytes())
    written = base64.b64decode(data["statistics"])
    turned = written.replace(b"parquet-cpp", b"parquet-cpq")
    assert Statistics.from_bytes(turned, "here") == Statistics.from_bytes(written, "here")
    path.chmod(0o644)
    path.write_bytes(canonical(data | {"statistics": base64.b64encode(turned).decode()}))
    (finding,) = verify(str(root), num_workers=1).findings
    assert f"{path}: its statistics have other bytes than were written" in str(finding)
    assert repair(str(root), num_workers=1).is_sound
    assert digests(root) == sound


def test_repair_counts_again_where_no_entry_has_statistics(root, built, monkeypatch):
    monkeypatch.setattr(units, "_derive_statistics", None)  # which reads logs, though rows suffice
    for path in root.glob(f"parts/*/*/*/{ENTRY}"):
        data = json.loads(path.read_bytes())
        if data.pop("statistics", ""):
            path.chmod(0o644)
            path.write_bytes(canonical(data))
    assert repair(str(root), num_workers=1).is_sound
    assert verify(str(root), num_workers=1).findings == ()
    assert digests(root).items() <= digests(built).items()


def test_the_command_shows_a_table_and_json(built):
    shown = command("stats", str(built), "--columns", "ego.*", "--columns", "objects")
    assert shown.returncode == 0, shown.stderr
    assert "ego.position[2]" in shown.stdout
    assert "objects class: " in shown.stdout
    told = json.loads(command("stats", str(built), "--json", "--split", "all").stdout)
    assert told == column_statistics(str(built)).to_json()
    missing = command("stats", str(built), "--split", "test")
    assert missing.returncode == 2
    assert "no split 'test'; there is only all" in missing.stderr


def test_logs_of_another_split_than_the_one_that_is_asked_for_are_an_error(drive, tmp_path):
    build_at(quick_recipe(drive.logs[0].parent, more="split: {val: [drive-01]}"), tmp_path / "root")
    root = str(tmp_path / "root")
    assert column_statistics(root, split="val", logs=["drive-01"]).logs == 1
    for logs in (["drive-01"], ["drive-00", "drive-01"]):
        with pytest.raises(UsageError, match="log 'drive-01' is in split 'val', not in 'train'"):
            column_statistics(root, split="train", logs=logs)
    with pytest.raises(UsageError, match="log 'drive-00' is in split 'train', not in 'val'"):
        column_statistics(root, split="val", logs=["drive-00"], every_value=True)


def test_times_are_durations_and_numbers_of_a_ragged_column_together_have_its_name():
    number = {"count": 3, "min": 1, "max": 3}
    listed = {key: [value] for key, value in number.items()}
    ragged = {"type": "float64 (?,)", "unit": "rad", "lengths": {"count": 2}, **listed}
    assert [*elements("joints", ragged)] == [
        ("joints", {**number, "unit": "rad"}),
        ("joints lengths", {"count": 2}),
    ]
    two = {key: [value, value] for key, value in number.items()}
    assert [label for label, _ in elements("x", two)] == ["x[0]", "x[1]"]
    assert [label for label, _ in elements("x", {**listed, "names": ["elbow"]})] == ["x[elbow]"]
    age = {"unit": "ns", "min": 151602, "max": 3_000_000_000, "mean": 14749100.5, "count": 3}
    assert [cell for cell in _cells(age) if cell] == ["3", "152 us", "3 s", "14.7 ms"]


def test_what_matters_of_changed_statistics_is_less_available_or_beyond_the_range_before():
    def column(unavailable, low, high):
        return {"rows": 100, "unavailable": unavailable, "count": 100 - unavailable, "min": low, "max": high}

    before = {"a": column(0, 0, 10), "b": column(95, 5, 5), "c": column(50, 0, 1), "a.age": column(0, 0, 10)}
    after = {
        "a": column(9, 0, 11),
        "b": column(100, None, None),
        "c": column(60, -1, 1),
        "d": column(0, 0, 0),
    }
    found = changes_of(before, after | {"a.age": column(90, -90, 90)})  # as often as its column
    assert found.availability == {"b": ((5, 100), (0, 100)), "c": ((50, 100), (40, 100))}
    assert found.ranges == {"c": ((0, 1), (-1, 1)), "a.age": ((0, 10), (-90, 90))}
    one_value = changes_of({"a": column(0, 220, 220)}, {"a": column(0, 220, 220.5)})
    assert one_value.ranges == {"a": ((220, 220), (220, 220.5))}
    assert one_value.numbers == {"a": {"max": (220, 220.5)}}


def test_gc_keeps_statistics_that_a_version_names_and_a_purge_erases_those_of_its_logs(root):
    store = Store.at(str(root))
    gone, kept = read_manifest(store).logs
    stray = root / "logs" / f"{'0' * 64}.parquet"
    stray.write_bytes(b"of no log")
    for path in root.rglob("*"):
        os.utime(path, (0, 0))
    collect_garbage(str(root))
    assert not stray.exists()
    assert all((root / statistics_file(record)).exists() for record in (gone, kept))
    purge(str(root), [gone.log_id], reason="asked to")
    assert not (root / statistics_file(gone)).exists()
    assert read_statistics(store, kept).lanes
    with pytest.raises(PurgedError, match="was purged"):
        column_statistics(str(root))
