"""Conversions: equal digests on both sides, whatever the formats."""

import dataclasses
import itertools
import json
import pathlib
import re
import shutil

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logloom as ll
import logloom.io.formats.bags as granular
import logloom.io.formats.table as tt
from logloom.errors import DatasetError, LogloomError, ReadBackError, UsageError
from logloom.io.catalog.entries import unit_folder
from logloom.io.catalog.manifest import entries_of, open_root, read_manifest
from logloom.io.formats.bags.format import BagsFormat
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.tar import TarReader
from logloom.io.storage.store import Store
from logloom.pipelines.build import build as build_module
from logloom.pipelines.convert.convert import convert
from logloom.pipelines.convert.plain_folder import PlainFolder, can_copy, copy_out
from logloom.pipelines.convert.plan import plan_convert
from logloom.pipelines.convert.sources import open_source
from logloom.pipelines.head.head import head
from logloom.pipelines.status import builds
from logloom.pipelines.verify.verify import reading_of, verify
from logloom.runners import RunnerOptions
from logloom.transforms.build import outcomes
from logloom.transforms.build.job import Target
from tests.absent import needs, present
from tests.forking import command as logloom
from tests.pipelines.conftest import FULL_OUTPUT, digests
from tests.tier import by_tier

NUMBERS = itertools.count()


def converted(source, root, output, *, columns=None, runner=None, **choices):
    rows = open_source(str(source), columns=columns, where=choices.get("where", ""))
    return convert(plan_convert(rows, str(root), output, columns=columns, **choices), runner=runner)


def columns_of(root, *, output=None):
    """The digests of every unit's columns, by log and partition."""
    store = Store.at(str(root))
    return {
        (entry.log_id, entry.partition): dict(entry.columns)
        for _, entry in entries_of(store, read_manifest(store).logs)
        if output is None or entry.output == output
    }


def digested(root):
    """The digest of every column of a version's rows, read through its readers: parts joined, log by log."""
    from logloom.digests import RowsDigest

    store, manifest = open_root(Store.at(str(root)))
    reading = reading_of(store, manifest)
    logs = {}
    for _, entry in entries_of(store, manifest.logs):
        if entry.rows and entry.output != "l5kit":
            digest = logs.setdefault(entry.log_id, RowsDigest(reading.schema))
            for block in reading.open(entry).blocks():
                digest.update(block)
    return {log_id: digest.hexdigests() for log_id, digest in logs.items()}


def test_a_second_conversion_is_up_to_date_and_one_of_another_source_makes_a_version(built, tmp_path):
    root = tmp_path / "root"
    first = convert(plan_convert(open_source(str(built)), str(root), "bags", limit=1))
    assert (first.manifest.version, list(first.manifest.outputs)) == (1, ["bags"])
    before = digests(root)
    again = plan_convert(open_source(str(built)), str(root), "bags", limit=1)
    assert again.up_to_date
    assert convert(again).manifest.version == 1
    assert digests(root) == before
    more = plan_convert(open_source(str(built)), str(root), "bags")
    assert not more.up_to_date
    assert [log.task.log_id for log in more.logs] == ["drive-01"]  # the first log is kept
    assert convert(more).manifest.version == 2
    assert columns_of(root) == columns_of(built, output=FULL_OUTPUT)


@pytest.mark.slow
def test_a_ring_of_conversions_through_all_formats_keeps_every_columns_digest(built, tmp_path):
    expected = columns_of(built, output=FULL_OUTPUT)
    before = built
    for number, output in enumerate(present("bags", "zarr", "tar", "parquet", "lance", "table", "bags")):
        root = tmp_path / f"{number}-{output}"
        done = converted(before, root, output)
        assert columns_of(root) == expected
        assert done.manifest.schema == read_manifest(Store.at(str(built))).schema
        assert done.manifest.recipe["convert"]["from"] == str(before)
        before = root
    assert verify(str(before), num_workers=1).findings == ()
    with pytest.raises(UsageError, match="was converted from"):
        verify(str(before), against_logs=True, num_workers=1)
    shown, first = head(str(before), count=3), head(str(built), output=FULL_OUTPUT, count=3)
    assert [row.lines() for row in shown] == [row.lines() for row in first]
    for row, other in zip(shown, first, strict=True):
        assert {n: row.values[n] for n in row.schema.meta} == {n: other.values[n] for n in row.schema.meta}
    (last,) = (before / "v00000001" / "bags").iterdir()
    with granular.ShardedDatasetReader(last, None) as reader:
        assert reader.spec["camera.front"] == "jpg"  # known through zarr and table too


@pytest.mark.slow
def test_the_same_bytes_come_of_one_process_and_of_two(built, tmp_path):
    converted(built, tmp_path / "a", FULL_OUTPUT)
    converted(built, tmp_path / "b", FULL_OUTPUT, runner=RunnerOptions("direct", workers=2))
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


def test_a_source_or_root_on_this_disk_is_refused_before_dataflow_is_asked(built, tmp_path):
    dataflow = RunnerOptions("dataflow")
    with pytest.raises(UsageError, match=r"/root \(and 1 more\): Dataflow's workers don't see this disk"):
        converted(built, tmp_path / "root", FULL_OUTPUT, runner=dataflow)
    plan = plan_convert(open_source(str(built)), str(tmp_path / "root"), FULL_OUTPUT)
    elsewhere = {"convert": {**plan.job.recipe["convert"], "from": "gs://bucket/root"}}
    plan = dataclasses.replace(plan, job=dataclasses.replace(plan.job, recipe=plan.job.recipe | elsewhere))
    with pytest.raises(UsageError, match=rf"{tmp_path}/root: Dataflow's workers don't see this disk"):
        convert(plan, runner=dataflow)


def test_parts_that_go_together_give_the_same_bytes_and_are_found_finished_one_by_one(built, tmp_path):
    units = []
    for bundle in (1, 3):
        plan = plan_convert(open_source(str(built)), str(tmp_path / f"root-{bundle}"), "bags")
        plan = dataclasses.replace(plan, job=dataclasses.replace(plan.job, bundle=bundle))
        done = convert(plan)
        units.append((done.built, done.reused))
    assert units == [(plan.num_partitions, 0)] * 2
    assert plan.num_partitions > len(plan.logs)
    assert digests(tmp_path / "root-1") == digests(tmp_path / "root-3")
    (tmp_path / "root-3/versions/00000001.json").unlink()
    (output, identity), *_ = plan.unit_identities()
    shutil.rmtree(plan.job.store.path_of(unit_folder(output, identity)))
    again = convert(plan)
    assert (again.built, again.reused) == (1, plan.num_partitions - 1)
    assert digests(tmp_path / "root-1") == digests(tmp_path / "root-3")


def test_very_many_parts_go_to_workers_by_files_and_give_the_same_bytes(built, tmp_path, monkeypatch):
    plan = plan_convert(open_source(str(built)), str(tmp_path / "graph"), FULL_OUTPUT)
    convert(plan)
    for module in (build_module, outcomes):
        monkeypatch.setattr(module, "GROUP", 1)
    staged = []
    plain = build_module.stage_packed
    monkeypatch.setattr(build_module, "stage_packed", lambda *told: staged.extend(plain(*told)) or (*staged,))
    converted(built, tmp_path / "files", FULL_OUTPUT)
    assert len(staged) == plan.num_partitions
    assert digests(tmp_path / "graph") == digests(tmp_path / "files")


def test_a_file_of_parts_that_somebody_changed_is_not_unpacked_nor_missed_in_silence(tmp_path):
    job = Target(store=Store.at(str(tmp_path)), name="t", recipe={}, outputs={}, number=1, parent=None)
    (digest,) = outcomes.stage_packed(job, [b"x"])
    (path,) = tmp_path.glob("runs/*/*.tasks")
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DatasetError, match="changed while the job ran"):
        outcomes.staged_packed(digest, job)
    path.unlink()
    with pytest.raises(DatasetError, match=r"\.tasks: removed while the job ran; run it again"):
        outcomes.staged_packed(digest, job)


def test_columns_that_are_chosen_bring_their_ages_and_no_others(built, tmp_path):
    done = converted(built, tmp_path / "root", "zarr", columns=["ego.*"])
    names = {column["name"] for column in done.manifest.schema["columns"]}
    assert names
    assert all(name.startswith("ego.") for name in names)
    expected = columns_of(built, output=FULL_OUTPUT)
    for where, found in columns_of(tmp_path / "root").items():
        assert found.items() <= expected[where].items()
        assert not found or any(name.endswith(".age") for name in found)  # no rows, no columns


def test_rows_that_a_format_cant_hold_are_refused_before_anything_is_written(built, tmp_path):
    with pytest.raises(UsageError, match="l5kit can't store these rows"):
        converted(built, tmp_path / "root", "l5kit", columns=["imu"])
    with granular.DatasetWriter(tmp_path / "set", {"odd": "array"}, granular.encoders) as writer:
        writer.append({"odd": np.zeros(2, np.longdouble)})
    with pytest.raises(UsageError, match="column odd"):
        converted(tmp_path / "set", tmp_path / "root", "zarr")
    assert not (tmp_path / "root").exists()


def test_a_version_is_not_converted_into_its_own_root(built, tmp_path):
    (tmp_path / "link").symlink_to(built)
    before = Store.at(str(built)).names("versions")
    for source, root in [(built, built), (f"{built}@1", f"file://{built}/"), (tmp_path / "link", built)]:
        with pytest.raises(UsageError, match="the source itself; choose another folder"):
            plan_convert(open_source(str(source)), str(root), "zarr")
    done = logloom("convert", f"{built}@1", built, "--format", "zarr")
    assert (done.returncode, Store.at(str(built)).names("versions")) == (2, before)
    assert f"{built}: the source itself" in done.stderr


def test_a_source_that_changed_since_it_was_built_is_an_error_that_names_the_column(built, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(built, copy)
    shard = max(copy.glob("parts/tar/*/*/shard.tar"), key=lambda path: path.stat().st_size)
    data = bytearray(shard.read_bytes())
    header = data.index(b".imu.npy") // 512 * 512
    data[header + 512 + 128] ^= 1  # the first value, behind the header of tar and that of npy
    shard.chmod(0o644)
    shard.write_bytes(data)
    with pytest.raises(ReadBackError, match="column imu reads otherwise"):
        converted(copy, tmp_path / "root", "bags")
    assert not list((tmp_path / "root").glob("versions/*.json"))


@pytest.mark.slow
def test_a_version_in_an_object_store_becomes_plain_folders_by_copying(built, tmp_path):
    needs("tar")
    there = f"memory://convert-{next(NUMBERS)}/root"
    fs = fsspec.filesystem("memory")
    for name in digests(built):
        fs.pipe_file(f"{there}/{name}", (built / name).read_bytes())
    source = open_source(f"{there}@1")
    assert can_copy(source, "tar")
    assert not can_copy(source, "zarr")
    files, _ = copy_out(source, PlainFolder.at(str(tmp_path / "shards")), "tar")
    view = built / "v00000001" / "tar" / "all"
    assert files == len(list(view.iterdir()))
    for path in view.iterdir():
        assert (tmp_path / "shards" / path.name).read_bytes() == path.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["shards"]
    folder = PlainFolder.at(str(tmp_path / "arrays"))
    done = convert(plan_convert(source, folder.work.uri, "zarr"))
    folder.publish(done.manifest, done.view, "zarr")
    assert open_foreign(str(tmp_path / "arrays")).schema == source.schema


def test_a_plain_folder_can_be_made_in_an_object_store(built):
    there = f"memory://convert-{next(NUMBERS)}/plain"
    folder = PlainFolder.at(there)
    done = convert(plan_convert(open_source(str(built)), folder.work.uri, "table", columns=["ego.*"]))
    folder.publish(done.manifest, done.view, "table")
    assert len(tt.read_index(there)) == done.manifest.totals["rows"]
    assert not fsspec.filesystem("memory").exists(folder.work.uri)
    with pytest.raises(UsageError, match="is there already"):
        PlainFolder.at(there)
    with pytest.raises(UsageError, match="in a bucket"):
        PlainFolder.at("memory://whole-bucket")


def test_a_file_that_is_damaged_or_gone_is_not_copied_out(built, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(built, copy)
    shard = sorted(copy.glob("parts/tar/*/*/shard.tar"))[0]
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with pytest.raises(DatasetError, match="its bytes changed"):
        copy_out(open_source(str(copy)), PlainFolder.at(str(tmp_path / "out")), "tar")
    shard.unlink()
    with pytest.raises(DatasetError, match="missing"):
        copy_out(open_source(str(copy)), PlainFolder.at(str(tmp_path / "out")), "tar")
    assert not (tmp_path / "out").exists()


# --- foreign datasets -----------------------------------------------------------------------------------


def parquet(folder):
    folder.mkdir()
    for number in range(2):
        n = range(number * 3, number * 3 + 3)
        columns = {
            "speed": pa.array([i / 2 for i in n], pa.float32()),
            "name": pa.array([f"n{i}" for i in n]),
            "points": pa.array([[float(i)] * i for i in n], pa.list_(pa.float64())),
            "gap": pa.array([None if i == 1 else i for i in n], pa.int16()),
            "frame": pa.array([b"\xff\xd8" * i for i in n]),
        }
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    return folder


@pytest.mark.slow
def test_a_parquet_folder_goes_through_all_formats_and_keeps_types_and_missing_values(tmp_path):
    source = parquet(tmp_path / "drive")
    before, expected, schema = source, None, open_foreign(str(source)).schema
    for output in present("table", "bags", "parquet", "lance", "tar", "zarr"):
        root = tmp_path / output
        done = converted(before, root, output)
        assert done.manifest.schema == schema.to_json()
        assert [log.log_id for log in done.manifest.logs] == ["drive"]
        expected = expected or digested(root)
        assert digested(root) == expected
        before = root
    plan = plan_convert(open_source(str(source)), str(tmp_path / "table"), "table")
    assert plan.up_to_date
    index = tt.read_index(str(tmp_path / "table" / "v00000001" / "table" / "all"))
    row = tt.row_loader(index).get_row(1, columns=["gap", "gap.available", "speed"])
    assert (row["gap"], row["gap.available"], row["speed"]) == (0, False, np.float32(0.5))


def test_rows_that_pass_a_filter_are_converted_and_the_others_counted(tmp_path):
    source = parquet(tmp_path / "drive")
    done = converted(source, tmp_path / "root", "tar", columns=["name"], where="speed >= 0.5 and gap != 3")
    (record,) = done.manifest.logs
    assert (record.rows, record.dropped) == (3, {"where of the conversion": 3})  # one has no gap
    assert done.manifest.recipe["convert"]["where"] == "speed >= 0.5 and gap != 3"
    rows = ll.open(tmp_path / "root")
    assert [row["name"] for row in rows] == ["n2", "n4", "n5"]
    assert list(rows.schema.columns) == ["name"]
    assert verify(str(tmp_path / "root"), num_workers=1).findings == ()
    # Another filter makes other rows of them, and is counted beside the first.
    again = converted(tmp_path / "root", tmp_path / "again", "zarr", where="name in ('n4', 'n5')")
    (record,) = again.manifest.logs
    assert (record.rows, record.dropped) == (2, {"where of the conversion": 4})
    assert plan_convert(
        open_source(str(tmp_path / "root")), str(tmp_path / "again"), "zarr", where="name in ('n4', 'n5')"
    ).up_to_date
    assert not plan_convert(open_source(str(tmp_path / "root")), str(tmp_path / "again"), "zarr").up_to_date


def half_of(root):
    """A filter that half of the rows pass."""
    middle = np.median([row["ego.position"][0] for row in ll.open(root)])
    return f"ego.position[0] > {middle} and isfinite(objects)"


def test_a_filter_takes_the_rows_of_a_version_that_opening_it_takes(built, tmp_path):
    text = half_of(built)
    some = [*ll.open(built, where=text)]
    assert 0 < len(some) < len(ll.open(built))
    done = converted(built, tmp_path / "root", "table", where=text)
    found = ll.open(tmp_path / "root")
    assert [(row["log_id"], row["timestamp"]) for row in found] == [
        (row["log_id"], row["timestamp"]) for row in some
    ]
    for row, other in zip(found, some, strict=True):
        np.testing.assert_array_equal(row["imu"], other["imu"])
    for record in done.manifest.logs:
        assert record.planned == record.rows + sum(record.dropped.values())
    assert verify(str(tmp_path / "root"), num_workers=1).findings == ()


def test_a_filter_that_no_row_passes_is_named(built, tmp_path):
    with pytest.raises(
        LogloomError, match=r"no rows at all \(\d+ ticks dropped .*\); choose another `where`$"
    ):
        converted(built, tmp_path / "root", "table", where="timestamp < 0")


def test_a_filter_of_damaged_parts_says_which_rows_were_lost(built, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(built, copy)
    flip_largest_shard(copy)
    whole = {record.log_id: record for record in read_manifest(Store.at(str(copy))).logs}
    source = open_source(str(copy), output="tar", on_error="skip")
    text = "timestamp >= 0 and row_is_odd"
    with pytest.raises(UsageError, match="no column 'row_is_odd'"):
        plan_convert(source, str(tmp_path / "root"), "bags", on_error="skip", where=text)
    text = half_of(built)
    done = convert(plan_convert(source, str(tmp_path / "root"), "bags", on_error="skip", where=text))
    (record,) = done.damaged
    dropped = record.dropped
    assert dropped["damage of the source"] > 0
    assert whole[record.log_id].rows == record.rows + sum(
        dropped[why] for why in ("damage of the source", "where of the conversion")
    )


@pytest.mark.slow
def test_plain_folders_give_the_digests_of_the_version_that_they_came_from(built, tmp_path):
    expected = digested(built)
    # Of parquet and lance, the test of plain tables below shows it.
    for output in present("zarr", "table", *by_tier([], ["parquet", "lance"])):
        folder = PlainFolder.at(str(tmp_path / output))
        done = convert(plan_convert(open_source(str(built)), folder.work.uri, output))
        folder.publish(done.manifest, done.view, output)
        converted(tmp_path / output, tmp_path / f"{output}-root", "bags")
        assert digested(tmp_path / f"{output}-root") == expected


def test_our_own_shards_and_bags_read_as_others_keep_logs_times_ages_and_values(built, tmp_path):
    view = built / "v00000001" / "tar" / "all"
    converted(view, tmp_path / "from-tar", "bags")
    first = columns_of(built, output=FULL_OUTPUT)
    expected = digested(built)
    found = digested(tmp_path / "from-tar")
    assert found.keys() == expected.keys()
    for log_id, columns in found.items():
        same = {name for name, digest in columns.items() if expected[log_id][name] == digest}
        assert {"log_id", "timestamp", "imu", "lidar.points", "camera.front", "imu.age"} <= same
    assert first
    shards = tmp_path / "from-tar" / "v00000001" / "bags" / "all"
    again = open_foreign(str(shards))
    assert again.kind == "granular"
    converted(shards, tmp_path / "from-bags", "table")
    assert digested(tmp_path / "from-bags") == found


def test_a_real_l5kit_scene_goes_to_bags_and_back_to_equal_arrays(shared_data, tmp_path):
    from logloom.io.formats.l5kit import ChunkedDataset

    source = shared_data / "l5kit" / "single_scene.zarr"
    converted(source, tmp_path / "bags", "bags")
    folder = PlainFolder.at(str(tmp_path / "again.zarr"))
    done = convert(
        plan_convert(
            open_source(str(tmp_path / "bags")),
            folder.work.uri,
            "l5kit",
            options={"host": "host-a013", "agents": "agents", "tl_faces": "tl_faces"},
        )
    )
    folder.publish(done.manifest, done.view, "l5kit")
    one, two = ChunkedDataset(source).open(), ChunkedDataset(tmp_path / "again.zarr").open()
    for name in ("frames", "agents", "tl_faces"):
        np.testing.assert_array_equal(getattr(one, name)[:], getattr(two, name)[:])


def test_a_damaged_foreign_part_stops_the_conversion_and_names_it(tmp_path):
    source = parquet(tmp_path / "drive")
    plan = plan_convert(open_source(str(source)), str(tmp_path / "root"), "bags")
    (source / "1.parquet").unlink()
    with pytest.raises(DatasetError, match=r"drive 000001: .*1\.parquet: there is no such file"):
        convert(plan)
    pq.write_table(pa.table({"speed": [1.0]}), source / "1.parquet")
    plan = plan_convert(open_source(str(source)), str(tmp_path / "root"), "bags")
    (note,) = plan.notes
    assert re.search(r"speed is left out: .*1\.parquet: .*different types", note)
    done = convert(plan)
    assert done.manifest.totals["rows"] == 4
    assert all("speed" not in own for own in columns_of(tmp_path / "root").values())


def flip_largest_shard(root):
    """Flips a bit in the largest unit of tar; gives what undoes it."""
    shard = max(root.glob("parts/tar/*/*/shard.tar"), key=lambda path: path.stat().st_size)
    whole = shard.read_bytes()
    data = bytearray(whole)
    data[data.index(b".imu.npy") // 512 * 512 + 512 + 128] ^= 1  # the first value
    shard.chmod(0o644)
    shard.write_bytes(data)
    return lambda: shard.write_bytes(whole)


@pytest.mark.slow
@pytest.mark.parametrize("output", by_tier(["zarr"], ["bags", "zarr", "table"]))
def test_damaged_parts_of_a_version_are_left_out_listed_and_tried_again(built, tmp_path, output):
    copy, root = tmp_path / "copy", tmp_path / "root"
    shutil.copytree(built, copy)
    repair = flip_largest_shard(copy)
    before = columns_of(copy, output="tar")
    rows = sum(record.rows for record in read_manifest(Store.at(str(copy))).logs)

    def convert_skipping():
        source = open_source(str(copy), output="tar", on_error="skip")
        return convert(plan_convert(source, str(root), output, on_error="skip"))

    done = convert_skipping()
    kept = columns_of(root)
    (missing,) = before.keys() - kept.keys()
    assert kept == {key: columns for key, columns in before.items() if key != missing}
    (record,) = done.damaged
    assert (record.log_id, record.status) == (missing[0], "salvaged")
    assert re.search(rf"partition {missing[1]}: .*column imu reads otherwise", record.reasons[-1])
    assert record.dropped["damage of the source"] == rows - done.manifest.totals["rows"] > 0
    assert record.planned == record.rows + sum(record.dropped.values())
    assert verify(str(root), num_workers=1).findings == ()

    repair()
    again = convert_skipping()
    assert (again.damaged, again.built) == ((), 1)
    assert columns_of(root) == before


@pytest.mark.parametrize("kind", present("lance", "parquet"))
def test_plain_tables_of_ours_convert_to_the_same_rows_where_damage_is_skipped(built, tmp_path, kind):
    folder = PlainFolder.at(str(tmp_path / kind))
    plan = plan_convert(
        open_source(str(built)), folder.work.uri, kind, options={"images": {"camera.front": "jpg"}}
    )
    done = convert(plan)
    folder.publish(done.manifest, done.view, kind)
    source = open_source(str(tmp_path / kind), on_error="skip")
    convert(plan_convert(source, str(tmp_path / "root"), "zarr", on_error="skip"))
    assert digested(tmp_path / "root") == digested(built)


def test_what_a_format_refuses_stops_a_conversion_that_skips_too(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise UsageError("no room for this name")

    monkeypatch.setattr(BagsFormat, "writer", refuse)
    source = open_source(str(parquet(tmp_path / "drive")), on_error="skip")
    with pytest.raises(DatasetError, match="no room for this name"):
        convert(plan_convert(source, str(tmp_path / "root"), "bags", on_error="skip"))


def test_files_of_others_that_can_not_be_read_are_left_out_and_listed(tmp_path):
    source = parquet(tmp_path / "drive")
    (source / "2.parquet").write_bytes(b"PAR1 and no more")
    pq.write_table(pa.table({"speed": [1.0]}), source / "3.parquet")
    with pytest.raises(DatasetError, match=r"2\.parquet"):
        open_source(str(source))
    rows = open_source(str(source), on_error="skip")
    done = convert(plan_convert(rows, str(tmp_path / "root"), "bags", on_error="skip"))
    assert done.manifest.totals["rows"] == 6
    assert done.manifest.totals["skipped"] == 2
    assert [record.log_id for record in done.manifest.logs] == [
        "drive",
        "drive.lost.000000",
        "drive.lost.000001",
    ]
    assert "2.parquet" in done.damaged[0].reasons[0]
    assert "3.parquet: row group 0: speed: files say different types" in done.damaged[1].reasons[0]
    assert plan_convert(rows, str(tmp_path / "root"), "bags", on_error="skip").up_to_date


def test_a_part_that_is_gone_when_its_turn_comes_is_left_out(tmp_path):
    source = parquet(tmp_path / "drive")
    plan = plan_convert(
        open_source(str(source), on_error="skip"), str(tmp_path / "root"), "bags", on_error="skip"
    )
    (source / "1.parquet").unlink()
    done = convert(plan)
    assert [(r.status, r.rows, r.dropped) for r in done.damaged] == [
        ("salvaged", 3, {"damage of the source": 3})
    ]


def test_a_dataset_of_damaged_files_alone_is_an_error_whatever_is_skipped(tmp_path):
    source = parquet(tmp_path / "drive")
    for path in source.iterdir():
        path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DatasetError, match=r"\.parquet"):
        open_source(str(source), on_error="skip")


# --- the command ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_makes_a_plain_folder_and_refuses_one_that_is_there(built, tmp_path):
    done = logloom("convert", built, tmp_path / "out", "--format", "bags", "--plain", "-c", "ego.*", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["folder"] == str(tmp_path / "out")
    with granular.ShardedDatasetReader(tmp_path / "out", granular.decoders) as reader:
        assert len(reader) == said["rows"]
        assert "ego.position" in reader[0]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    again = logloom("convert", built, tmp_path / "out", "--format", "bags", "--plain")
    assert again.returncode == 2
    assert "is there already" in again.stderr


@pytest.mark.slow
def test_the_command_says_up_to_date_and_copies_what_is_there(built, tmp_path):
    command = ("convert", built, tmp_path / "root", "--format", "tar", "--limit", "1")
    first = logloom(*command)
    assert first.returncode == 0, first.stderr
    assert pathlib.Path(first.stdout.strip()) == tmp_path / "root" / "v00000001"
    again = logloom(*command)
    assert "up to date" in again.stderr
    assert again.stdout == first.stdout
    plain = ("convert", f"{built}@1", tmp_path / "shards", "--format", "tar", "--plain")
    dry = logloom(*plain, "--dry-run", "--runner", "dataflow")
    assert (dry.returncode, (tmp_path / "shards").exists()) == (2, False), dry.stderr
    assert "--dry-run: this command copies" in dry.stderr
    copied = logloom(*plain)
    assert copied.returncode == 0, copied.stderr
    assert "copied from version 1" in copied.stderr
    assert len(TarReader(sorted(map(str, (tmp_path / "shards").glob("*.tar"))))) > 10


@pytest.mark.slow
def test_the_command_exits_with_3_where_it_left_something_out(tmp_path):
    source = parquet(tmp_path / "drive")
    (source / "2.parquet").write_bytes(b"PAR1 and no more")
    command = ("convert", source, tmp_path / "out", "--format", "bags", "--plain")
    assert logloom(*command).returncode == 1
    done = logloom(*command, "--on-error", "skip")
    assert done.returncode == 3, done.stderr
    assert "skipped: drive.lost.000000: left out; " in done.stderr
    assert (tmp_path / "out").is_dir()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere", "out", "--format", "tar"), "there is no such file or folder"),
        (("notes", "out", "--format", "tar"), "neither a version of logloom nor"),
        ((".", "out", "--format", "tar", "--from", "csv"), "--from 'csv'"),
        (("drive", "out", "--format", "nonsense"), "no installed part offers output 'nonsense'"),
        (("drive", "out", "--format", "tar", "-c", "nothing"), "no column matches"),
        (("drive", "out", "--format", "tar", "--options", "[1]"), "expected a mapping"),
        (
            ("drive", "out", "--format", "tar", "--options", "{exts: {}}"),
            "tar exts: unknown key; did you mean ext?",
        ),
        (("drive", "out", "--format", "tar", "--where", "sped > 1"), "did you mean speed?"),
        (("drive", "out", "--format", "tar", "--where", "speed > 1 for 1s"), "'for' is for rows"),
        (("drive", "drive", "--format", "tar"), "not a logloom root"),
        (("drive", "out", "--format", "tar", "--output", "bags"), "--output chooses"),
    ],
)
def test_a_wrong_command_is_told_in_words(tmp_path, arguments, words):
    parquet(tmp_path / "drive")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "today.txt").touch()
    done = logloom("convert", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_conversion_is_seen_while_it_runs(built, tmp_path, monkeypatch):
    """So that `gc` knows how long it takes, and `purge` waits for it."""
    seen = []
    run = build_module.run

    def running(*told, **choices):
        store = Store.at(str(tmp_path / "root"))
        seen.extend((one.version, one.state, one.engine) for one in builds(store))
        return run(*told, **choices)

    monkeypatch.setattr(build_module, "run", running)
    converted(built, tmp_path / "root", FULL_OUTPUT)
    assert seen == [(1, "running", "direct")]
    assert [one.state for one in builds(Store.at(str(tmp_path / "root")))] == ["committed"]
