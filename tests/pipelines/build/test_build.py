"""Whole builds: the same bytes however they are run, and nothing half-published."""

import dataclasses
import json
import logging
import multiprocessing
import shutil
import time
from collections import Counter

import numpy as np
import pytest
from mcap.reader import make_reader

from logloom.errors import (
    CommitConflictError,
    DatasetError,
    LogloomError,
    LogReadError,
    ReadBackError,
    RecipeError,
)
from logloom.io.catalog.entries import ENTRY, unit_folder
from logloom.io.catalog.manifest import entries_of, open_root
from logloom.io.catalog.manifest_digest import digest_file, write_digest
from logloom.io.catalog.version_files import version_file
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.opening import open_log
from logloom.io.storage.store import Store
from logloom.pipelines import status
from logloom.pipelines.build import build as build_module
from logloom.pipelines.build.build import build
from logloom.pipelines.build.progress import Watch
from logloom.pipelines.head.head import head
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.transforms.build import commit, partition
from logloom.transforms.build.outcomes import merge_outcomes, write_outcomes
from logloom.transforms.build.partition_results import Failure
from logloom.transforms.build.settings import BuildSettings
from tests.files import flip
from tests.forking import command
from tests.once import copied
from tests.pipelines.conftest import Drive, build_at, digests, quick_recipe

RECIPE = """
name: lean
logs: ["{logs}/*.mcap"]
clock: {{rate: 10}}
columns:
  position: {{topic: /odom, field: pose.pose.position, resample: linear}}
  rotation: {{topic: /odom, field: pose.pose.orientation, resample: slerp, as: rotation_matrix}}
  camera: {{topic: /cam/front/compressed, field: data, resample: nearest, tolerance: 50ms}}
  objects: {{topic: /tracks, field: objects, strings: 16, resample: nearest}}
rows: {{require: [position, rotation, camera]}}
outputs:
  l5kit:
    translation: position
    rotation: rotation
    agents: {{column: objects, label_probabilities: {{from: class, map: {{car: PERCEPTION_LABEL_CAR}}}}}}
  tar: {{}}
partition: {{rows: 10}}
"""


@pytest.fixture(scope="session")
def drive(logs_of):
    """With less columns than the demo's, of which this module makes dozens of builds."""
    folder = logs_of(2.5, 2)
    return Drive(sorted(folder.iterdir()), RECIPE.format(logs=folder))


@pytest.fixture(scope="session")
def built(drive, root_of):
    return root_of(drive.recipe())


@pytest.fixture
def logs(drive, tmp_path):
    """A folder with copies of the logs of the drive, to be changed."""
    (tmp_path / "logs").mkdir()
    for path in drive.logs:
        shutil.copy(path, tmp_path / "logs")
    return tmp_path / "logs"


def test_a_second_build_is_up_to_date_and_one_of_one_more_log_reuses_all_units(drive, logs, tmp_path):
    root, recipe = tmp_path / "root", quick_recipe(logs, outputs="{tar: {}, zarr: {}}")
    (logs / drive.logs[1].name).unlink()
    first = build(plan_build(recipe, str(root)), num_workers=1)
    before = digests(root)
    assert plan_build(recipe, str(root)).up_to_date
    shutil.copy(drive.logs[1], logs)
    plan = plan_build(recipe, str(root))
    second = build(plan, num_workers=1)
    assert (second.manifest.version, second.manifest.parent) == (2, 1)
    assert second.built == plan.num_partitions * len(second.manifest.outputs)
    assert len(second.manifest.logs) == 2
    assert second.manifest.logs[0] == first.manifest.logs[0]
    assert before.items() <= digests(root).items()


def test_a_version_verifies_against_its_logs(built):
    report = verify(str(built), against_logs=True, num_workers=1)
    assert report.findings == ()
    assert report.rows > 0
    assert report.against_logs


def test_messages_and_ticks_are_all_accounted_for(built):
    store, manifest = open_root(Store.at(str(built)))
    for record in manifest.logs:
        assert record.planned == record.rows + sum(record.dropped.values())
    for _, entry in entries_of(store, manifest.logs):
        assert entry.tally["planned"] == entry.rows + sum(entry.tally["dropped"].values())


def test_the_end_of_a_build_counts_what_became_of_all_messages(drive, tmp_path):
    recipe = drive.recipe()
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    plan = plan_build(recipe, str(tmp_path / "root"))
    of_topic: Counter[str] = Counter()
    for uri in plan.uris:
        with open(uri.removeprefix("file://"), "rb") as file:
            summary = make_reader(file).get_summary()
        for channel, count in summary.statistics.channel_message_counts.items():
            of_topic[summary.channels[channel].topic] += count
    expected = sum(of_topic[column.topic] for column in plan.job.plan.columns)
    done = command("build", tmp_path / "recipe.yaml", "--to", tmp_path / "root", "--json")
    found = json.loads(done.stdout)["messages"]
    assert list(found) == ["used", "not_chosen", "refused"]
    assert sum(found.values()) == expected
    assert found["refused"] == 0 < min(found["used"], found["not_chosen"])
    line = f"{found['used']:,} used, {found['not_chosen']:,} not chosen, 0 refused, of {expected:,} messages"
    assert f"messages of columns: {line}" in " ".join(done.stderr.split())
    again = command("build", tmp_path / "recipe.yaml", "--to", tmp_path / "root", "--json")
    assert json.loads(again.stdout)["messages"] is None


def test_a_recipe_without_outputs_is_refused_before_a_log_is_opened(drive, tmp_path, opened):
    text = drive.text[: drive.text.index("outputs:")]
    with pytest.raises(RecipeError, match=r"^drive\.yaml: outputs: a build writes at least one; name a"):
        plan_build(Recipe.from_yaml(text, source="drive.yaml"), str(tmp_path / "root"))
    assert opened == []
    assert not (tmp_path / "root").exists()


def test_two_processes_give_the_same_bytes_as_one(drive, built, tmp_path):
    build_at(drive.recipe(), tmp_path / "root", num_workers=2)
    assert digests(tmp_path / "root") == digests(built)


def test_partitions_built_in_another_order_and_smaller_blocks_give_the_same_bytes(drive, built, tmp_path):
    plan = plan_build(drive.recipe(), str(tmp_path / "root"))
    job = dataclasses.replace(plan.job, block_bytes=100_000)
    pieces = [p for log in reversed(plan.logs) for p in partition.plan_partitions(job, log.task)]
    for piece in reversed(pieces):
        assert not partition.build_partition(job, piece).failures
    build(plan)
    assert digests(tmp_path / "root") == digests(built)


def together(plan, bundle):
    return dataclasses.replace(plan, job=dataclasses.replace(plan.job, bundle=bundle))


def test_partitions_that_go_together_give_the_same_bytes_counters_and_lines(drive, built, tmp_path, caplog):
    caplog.set_level(logging.INFO, "logloom.build")
    counters, lines = [], []
    for bundle in (1, 3):
        plan = plan_build(drive.recipe(), str(tmp_path / f"root-{bundle}"))
        counters.append(build(together(plan, bundle)).counters)
        lines.append(sorted(record.message.rpartition(",")[0] for record in caplog.records))
        caplog.clear()
        assert digests(tmp_path / f"root-{bundle}") == digests(built)
    assert counters[0] == counters[1]
    assert lines[0] == lines[1]
    assert counters[0]["partitions"] == len(lines[0]) == plan.num_partitions > 3


def test_bad_partitions_are_listed_one_by_one_though_they_went_together(drive, logs, tmp_path):
    plan = plan_build(quick_recipe(logs, rows=5), str(tmp_path / "root"))
    damage(logs / drive.logs[1].name)
    said = []
    for bundle in (1, 64):
        with pytest.raises(LogReadError, match=drive.logs[1].name) as caught:
            build(together(plan, bundle))
        said.append(str(caught.value))
    assert said[0] == said[1]


def damage(log):
    """Flips bits in many of its chunks."""
    data = bytearray(log.read_bytes())
    for offset in range(len(data) // 4, len(data) // 2, 5000):
        data[offset] ^= 0xFF
    log.write_bytes(data)


def test_units_are_found_finished_one_by_one_though_they_go_together(drive, built, tmp_path):
    plan = together(plan_build(drive.recipe(), str(tmp_path / "root")), 64)
    first = partition.plan_partitions(plan.job, plan.logs[0].task)[0]
    assert not partition.build_partition(plan.job, first).failures
    done = build(plan)
    assert done.reused == len(plan.job.outputs)
    assert done.built == (plan.num_partitions - 1) * len(plan.job.outputs)
    assert digests(tmp_path / "root") == digests(built)


def test_a_build_killed_in_the_middle_is_finished_by_the_next_one_with_the_same_bytes(drive, built, tmp_path):
    root = tmp_path / "root"
    plan = plan_build(drive.recipe(), str(root))
    process = multiprocessing.get_context("forkserver").Process(target=build, args=(plan,))
    process.start()
    deadline = time.monotonic() + 60
    while not list(root.glob("parts/*/*/*/entry.json")) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    process.join()
    assert list(root.glob("parts/*/*/*/entry.json")), "nothing was built before the kill"
    assert not (root / version_file(1)).exists()
    again = build_at(drive.recipe(), root)
    assert again.reused > 0
    assert digests(root) == digests(built)
    assert list((root / "tmp").iterdir()) == []


def test_another_build_that_committed_first_is_a_clean_refusal(logs, tmp_path):
    root, recipe = str(tmp_path / "root"), quick_recipe(logs)
    slow = plan_build(recipe, root)
    winner = plan_build(recipe.model_copy(update={"name": "other"}), root)
    build(winner)
    with pytest.raises(CommitConflictError, match="version 1 first; build again"):
        build(slow)
    said = json.loads(Store.at(root).read(commit.outcome_file(winner.job)))
    assert (said["committed"], said["conflict"]) == (True, "")  # each is told its own outcome
    assert build(plan_build(recipe, root)).manifest.version == 2


def test_committing_twice_with_equal_bytes_is_success(logs, tmp_path):
    plan = plan_build(quick_recipe(logs), str(tmp_path / "root"))
    build(plan)
    assert build(plan).manifest.version == 1


def test_a_commit_that_an_engine_does_once_more_after_a_purge_says_what_it_said(logs, tmp_path, monkeypatch):
    plain, commits = commit.commit, []

    def noted(*arguments):
        commits.append((arguments, plain(*arguments)))
        return commits[-1][1]

    monkeypatch.setattr(commit, "commit", noted)
    build_at(quick_recipe(logs), tmp_path / "root")
    ((arguments, said),) = commits
    assert said["committed"]
    log, *_ = open_root(Store.at(str(tmp_path / "root")))[1].logs
    assert purge(str(tmp_path / "root"), [log.log_id]).is_proven
    assert plain(*arguments) == said


def test_a_build_that_committed_before_an_engine_failed_at_an_earlier_step_has_committed(
    logs, tmp_path, monkeypatch
):
    plain = build_module._run

    def run(plan, *arguments):
        plain(plan, *arguments)
        raise DatasetError("runs/: missing")

    monkeypatch.setattr(build_module, "_run", run)
    assert build_at(quick_recipe(logs), tmp_path / "root").manifest.version == 1
    monkeypatch.setattr(commit, "committed_before", lambda job: None)
    with pytest.raises(CommitConflictError, match="another build committed version 2 first"):
        build_at(quick_recipe(logs, rows=7), tmp_path / "root")


def test_the_view_is_made_of_links_that_nobody_can_write(built):
    view = built / "v00000001"
    shards = sorted((view / "tar").rglob("*"))
    assert [p.name for p in shards if p.is_file()] == [f"{n:06d}.tar" for n in range(len(shards) - 1)]
    for path in view.rglob("*"):
        if path.is_file():
            assert path.stat().st_nlink >= 2
            assert path.stat().st_mode & 0o222 == 0


def test_a_view_that_was_removed_can_be_made_again(built, tmp_path):
    from logloom.pipelines.view import make_view

    root = copied(built, tmp_path / "root")
    shutil.rmtree(root / "v00000001")
    make_view(*open_root(Store.at(str(root))))
    assert digests(root) == digests(built)


def test_a_build_that_died_between_commit_and_view_is_given_its_view_by_the_next(drive, built, tmp_path):
    view = copied(built, tmp_path / "root") / "v00000001"
    shutil.rmtree(view)
    plan = plan_build(drive.recipe(), str(tmp_path / "root"))
    assert plan.up_to_date
    again = build(plan)
    assert (again.manifest.version, again.built, again.view) == (1, 0, str(view))
    assert digests(tmp_path / "root") == digests(built)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_damaged_entry_of_an_unfinished_build_is_no_entry_and_progress_does_not_mind(
    drive, built, tmp_path, capfd
):
    plan = plan_build(drive.recipe(), str(tmp_path / "root"))
    (output, identity), *_ = plan.unit_identities()
    plan.job.store.create(f"{unit_folder(output, identity)}/{ENTRY}", b"{")
    build(plan, watch=Watch)
    assert "Traceback" not in capfd.readouterr().err
    assert digests(tmp_path / "root") == digests(built)


def test_head_shows_rows_and_where_they_come_from(built):
    rows = head(str(built), count=12, why=True)
    assert len(rows) == 12
    stamps = [int(row.values["timestamp"]) for row in rows]
    assert (np.diff(stamps) > 0).all()
    why = rows[0].to_json()["why"]
    assert why["uris"][0].endswith(".mcap")
    assert any(column["topic"] for column in why["columns"].values())
    assert head(str(built), start=5, count=1)[0].values["timestamp"] == stamps[5]


def test_a_log_damaged_after_planning_fails_with_its_name_and_commits_nothing(drive, logs, tmp_path):
    plan = plan_build(quick_recipe(logs), str(tmp_path / "root"))
    victim = logs / drive.logs[1].name
    flip(victim, victim.stat().st_size // 2)  # inside a chunk
    with pytest.raises(LogReadError, match=drive.logs[1].name):
        build(plan)
    assert not (tmp_path / "root" / version_file(1)).exists()
    assert not (tmp_path / "root" / "v00000001").exists()


def test_under_skip_a_damaged_log_is_left_out_and_listed(drive, logs, tmp_path):
    damage(logs / drive.logs[1].name)
    done = build_at(quick_recipe(logs, more="on_error: skip"), tmp_path / "root")
    assert [log.status for log in done.manifest.logs] == ["whole", "skipped"]
    assert not done.is_whole
    assert done.manifest.logs[1].reasons
    assert verify(str(tmp_path / "root"), num_workers=1).findings == ()


def test_a_log_cut_short_is_salvaged_and_what_was_lost_is_listed_with_its_place(drive, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    data = drive.logs[0].read_bytes()
    (logs / "cut.mcap").write_bytes(data[: len(data) * 6 // 10])
    done = build_at(quick_recipe(logs, more="on_error: salvage"), tmp_path / "root")
    (record,) = done.manifest.logs
    assert record.rows > 0
    assert record.status == "salvaged"
    assert not done.is_whole
    assert any("cut.mcap, byte" in reason for reason in record.reasons)


def test_a_skipped_log_within_the_budget_is_as_good_as_whole(drive, logs, tmp_path):
    (logs / drive.logs[1].name).write_bytes(b"")
    assert build_at(quick_recipe(logs, more="on_error: {skip: 50%}"), tmp_path / "root").is_whole
    with pytest.raises(LogloomError, match="1 of 2 logs skipped, over the budget"):
        build_at(quick_recipe(logs, more="on_error: {skip: 49%}"), tmp_path / "other")


def test_what_is_said_of_a_skipped_log_does_not_depend_on_the_order_of_its_partitions(drive, tmp_path):
    plan = plan_build(drive.recipe().model_copy(update={"on_error": "skip"}), str(tmp_path / "root"))
    task = plan.logs[0].task
    bad = [
        partition.PartitionResult(task, name, (), (Failure(task.log_id, name, "log", f"bad {name}"),))
        for name in ("0-10", "10-20", "100-110")
    ]
    there, back = commit.finish_log(plan.job, bad), commit.finish_log(plan.job, bad[::-1])
    assert there.record is not None
    assert there.record.reasons == back.record.reasons == ("bad 0-10", "bad 10-20", "bad 100-110")


def test_an_assembled_output_that_does_not_read_back_is_not_committed(drive, built, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(built, root, ignore=shutil.ignore_patterns("v????????", "versions"))
    victim = min(root.glob("parts/l5kit/*/*/agents/0"))
    victim.chmod(0o644)
    data = bytearray(victim.read_bytes())
    data[-9] ^= 0xFF
    victim.write_bytes(data)
    with pytest.raises(ReadBackError, match="l5kit"):
        build_at(drive.recipe(), root)
    assert not (root / version_file(1)).exists()
    assert build_at(drive.recipe(), root, settings=BuildSettings(verify="none")).manifest.verified == "none"


def test_a_flipped_bit_in_a_stage_is_named_and_once_it_is_repaired_builds_go_on(drive, logs, tmp_path):
    root, recipe = tmp_path / "root", drive.recipe(**{str(drive.logs[0].parent): str(logs)})
    (logs / drive.logs[1].name).unlink()
    build_at(recipe, root)
    clean = copied(root, tmp_path / "clean")
    stage = next(path for path in sorted(root.glob("parts/l5kit/*/*/frames")) if path.is_file())
    good = stage.read_bytes()
    flip(stage)
    shutil.copy(drive.logs[1], logs)
    marks = set(root.glob("parts/l5kit/*/*/entry.json"))
    for _ in range(2):
        with pytest.raises(ReadBackError, match="bytes changed") as caught:
            build_at(recipe, root)
        assert str(stage) in str(caught.value)
        assert "logloom repair" in str(caught.value)
    assembled = [
        path.parent
        for path in set(root.glob("parts/l5kit/*/*/entry.json")) - marks
        if (path.parent / "scenes").is_dir()
    ]
    assert assembled == []
    stage.write_bytes(good)
    build_at(recipe, root)
    build_at(recipe, clean)
    assert digests(root) == digests(clean)


def test_chunks_that_a_failed_assembly_left_are_not_taken_for_good(drive, built, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(built, root, ignore=shutil.ignore_patterns("v????????", "versions"))
    chunk = min(root.glob("parts/l5kit/*/*/agents/0"))
    (chunk.parent.parent / ENTRY).unlink()
    flip(chunk)
    build_at(drive.recipe(), root)
    assert digests(root) == digests(built)


def test_a_unit_that_does_not_read_back_counts_as_unfinished_unless_a_version_names_it(
    drive, built, tmp_path
):
    root = tmp_path / "root"
    shutil.copytree(built, root, ignore=shutil.ignore_patterns("v????????", "versions"))
    shard = next(iter(sorted(root.glob("parts/tar/*/*/shard.tar"))))
    flip(shard)
    with pytest.raises(ReadBackError, match="build again: it will be made anew"):
        build_at(drive.recipe(), root)
    build_at(drive.recipe(), root)
    assert digests(root) == digests(built)


def test_a_finished_unit_that_lost_a_file_is_built_again(drive, built, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(built, root, ignore=shutil.ignore_patterns("v????????", "versions"))
    min(root.glob("parts/tar/*/*/shard.tar")).unlink()
    assert build_at(drive.recipe(), root).built == 1
    assert digests(root) == digests(built)


def test_what_was_read_back_and_what_was_trusted_stands_in_the_manifest(drive, logs, tmp_path):
    root, recipe = tmp_path / "root", quick_recipe(logs)
    (logs / drive.logs[1].name).unlink()
    first = build_at(recipe, root, settings=BuildSettings(verify="none")).manifest
    assert (first.verified, first.trusted["logs"]) == ("none", 0)
    shutil.copy(drive.logs[1], logs)
    shard = next(iter(sorted(root.glob("parts/tar/*/*/shard.tar"))))
    good = shard.read_bytes()
    flip(shard)
    with pytest.raises(ReadBackError, match="logloom repair"):
        build_at(recipe, root, settings=BuildSettings(verify="all"))
    second = build_at(recipe, root).manifest
    assert (second.verified, second.trusted["logs"]) == ("new", 1)
    assert [log.verified for log in second.logs] == ["none", "all"]
    shard.write_bytes(good)
    third = build_at(
        recipe.model_copy(update={"name": "other"}), root, settings=BuildSettings(verify="all")
    ).manifest
    assert (third.verified, third.trusted) == ("all", {"logs": 0, "assembled": 0, "portions": 0})


def test_the_smallest_sample_reads_one_unit_of_each_output(logs, tmp_path):
    smallest = BuildSettings(verify="sample:1e-12")
    recipe = quick_recipe(logs)
    sound, damaged = tmp_path / "sound", tmp_path / "damaged"
    build_at(recipe, sound, settings=smallest)
    (one,) = status.builds(Store.at(str(sound)))
    assert (one.state, one.units_read_back) == ("committed", 1)
    assert one.units > 1
    shutil.copytree(sound, damaged, ignore=shutil.ignore_patterns("v????????", "versions", "runs"))
    for shard in damaged.glob("parts/tar/*/*/shard.tar"):
        flip(shard)
    with pytest.raises(ReadBackError):
        build_at(recipe, damaged, settings=smallest)


def test_a_changed_manifest_is_refused_and_a_missing_digest_is_mended(drive, built, tmp_path):
    root = copied(built, tmp_path / "root")
    path, digest = root / version_file(1), root / digest_file(1)
    good, line = path.read_bytes(), digest.read_bytes()
    path.chmod(0o644)
    path.write_bytes(good.replace(b'"skipped":0', b'"skipped":1'))
    for use in (lambda: build_at(drive.recipe(), root), lambda: verify(str(root)), lambda: head(str(root))):
        with pytest.raises(DatasetError, match=r"00000001\.json: damaged or changed"):
            use()
    path.write_bytes(good)
    digest.unlink()
    assert verify(str(root), num_workers=1).manifest.startswith("not checked")
    assert plan_build(drive.recipe(), str(root)).up_to_date
    build_at(drive.recipe(), root)
    assert digest.read_bytes() == line
    assert verify(str(root), num_workers=1).manifest == "checked"


def test_the_next_version_tells_that_a_manifest_was_changed_with_its_digest(drive, built, tmp_path):
    root = copied(built, tmp_path / "root")
    build_at(drive.recipe(**{"name: ": "name: other-"}), root)
    store, path = Store.at(str(root)), root / version_file(1)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b'"verified":"new"', b'"verified":"all"'))
    write_digest(store, 1, path.read_bytes())
    (finding,) = verify(str(root), 1, num_workers=1).findings
    assert "not the manifest that version 2 was built upon" in finding.message


def test_hash_full_sees_a_change_in_the_middle_of_a_large_log(drive, logs, tmp_path, monkeypatch):
    monkeypatch.setattr("logloom.io.logs.files.ranges.MIB", 1 << 16)
    (logs / drive.logs[0].name).rename(logs / "drive.mcap")
    (logs / drive.logs[1].name).unlink()
    middle = (logs / "drive.mcap").stat().st_size // 2
    recipe = quick_recipe(logs)
    full = recipe.model_copy(update={"hash": "full"})
    first = build_at(recipe, tmp_path / "root").manifest
    plan = plan_build(full, str(tmp_path / "root"))
    assert any("every log counts as new" in note for note in plan.notes)
    assert len(plan.logs) == 1
    second = build(plan).manifest
    assert second.recipe["hash"] == "full"
    assert plan_build(full, str(tmp_path / "root")).up_to_date
    flip(logs / "drive.mcap", middle)
    assert len(plan_build(full, str(tmp_path / "root")).logs) == 1
    by_ends, by_all = (
        open_log([str(logs / "drive.mcap")], OpenOptions(hash=hash)) for hash in ("ends", "full")
    )
    before = plan.logs[0].task.content_id
    assert by_all.summary.content_id not in (before, by_ends.summary.content_id)
    assert by_ends.summary.content_id == first.logs[0].content_id


def test_failures_of_every_bad_partition_are_listed_at_once(drive, built, tmp_path):
    plan = plan_build(drive.recipe(), str(tmp_path / "root"))
    task = plan.logs[0].task
    bad = [
        partition.PartitionResult(task, name, (), (Failure(task.log_id, name, "log", f"bad {name}"),))
        for name in ("0-10", "10-20")
    ]
    outcomes = write_outcomes(plan.job, [commit.finish_log(plan.job, bad)])
    outcome = commit.commit(plan.job, merge_outcomes(plan.job, [outcomes]), [])
    assert [failure["message"] for failure in outcome["failures"]] == ["bad 0-10", "bad 10-20"]
    assert not outcome["committed"]
