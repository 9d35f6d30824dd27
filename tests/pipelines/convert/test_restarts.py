"""Conversions are builds: what is noted, counted, kept and refused of builds, is of them, too."""

import json
import os
import shutil
import signal

import pytest

from logloom.digests import digest_of
from logloom.errors import ReadBackError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.catalog.version_files import runs_folder
from logloom.io.storage.store import Store
from logloom.pipelines.build.progress import Meter
from logloom.pipelines.convert import sources
from logloom.pipelines.convert.convert import convert
from logloom.pipelines.convert.plan import plan_convert
from logloom.pipelines.convert.sources import VersionSource, open_source
from logloom.pipelines.plan.build_plan import Plan
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.status import builds
from logloom.software import software
from logloom.transforms.build import quarantine
from logloom.transforms.build.bundles import unpacked
from logloom.transforms.build.commit import finish_log
from logloom.transforms.build.job import PartitionTask
from logloom.transforms.build.journal import Journal, JournalReader
from logloom.transforms.build.quarantine import Suspect, build_bundle
from logloom.transforms.build.run_note import Announced
from tests.pipelines.conftest import FULL_OUTPUT
from tests.pipelines.convert.test_convert import flip_largest_shard, logloom


@pytest.fixture
def copy(built, tmp_path):
    return shutil.copytree(built, tmp_path / "copy")


def plan_at(source, root, **choices):
    return plan_convert(open_source(str(source), on_error="skip"), str(root), "bags", **choices)


def test_a_conversion_that_starts_again_reads_nothing_back_twice(copy, tmp_path):
    repair = flip_largest_shard(copy)
    plan = plan_at(copy, tmp_path / "root")
    with pytest.raises(ReadBackError, match=r"column imu reads otherwise") as raised:
        convert(plan)
    (listed,) = [word for word in str(raised.value).split() if ".failures-" in word]
    (failure,) = map(json.loads, (tmp_path / "root" / listed).read_text().splitlines())
    assert (failure["kind"], failure["left_out"]) == ("readback", False)
    assert [one.state for one in builds(plan.job.store)] == ["failed"]
    repair()
    done = convert(plan_at(copy, tmp_path / "root"))
    counted = done.counters
    assert (done.built, done.reused) == (1, plan.num_partitions - 1)
    assert counted["units_known_read"] == counted["units_found"] == done.reused
    assert (counted["units_built"], counted["partitions"]) == (1, plan.num_partitions)
    assert done.spreads["partition_bytes"].count == plan.num_partitions


def test_a_conversion_notes_its_progress(built, tmp_path):
    plan = plan_at(built, tmp_path / "root")
    notes, notes_folder = [], tmp_path / "notes"
    notes_folder.mkdir()

    class Watching:
        def __init__(self, watched, sees_workers):
            assert isinstance(watched, Plan)
            self.meter, self.journal = Meter(dict(watched.work)), Journal(str(notes_folder))

        def __enter__(self):
            return self

        def __exit__(self, *error):
            for note in JournalReader(self.journal.folder).new():
                notes.append(note)
                self.meter.take(note, 0.0)
            assert self.meter.built == pytest.approx(self.meter.total)
            assert self.meter.rows == sum(part.rows for _, part in plan.partitions)

    convert(plan, watch=Watching)
    assert {note.phase for note in notes} >= {"building", "reading back"}


class Deadly(VersionSource):
    """Rows that end the process that reads them."""

    def scan_part(self, part, names, max_bytes):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_part_that_workers_die_of_is_left_out_where_damage_is_skipped(built, tmp_path):
    source = open_source(str(built), output=FULL_OUTPUT)
    source.__class__ = Deadly
    plan = plan_convert(source, str(tmp_path / "root"), "bags", on_error="skip")
    job, (log, parts) = plan.job, plan.logs[0]
    tasks = [PartitionTask(log, part) for part in parts if part.rows][:1]
    mark = f"{runs_folder(1)}/attempts/{digest_of([log.key, software()])[:32]}.json"
    quarantine._write(job, mark, Suspect(log.log_id, tasks[0].span.name, 1))  # as one that died leaves it
    results = build_bundle(job, tasks)
    (failure,) = results[0].failures
    assert failure.kind == "worker"
    assert "by SIGKILL" in failure.message
    record = finish_log(job, results).record
    assert (record.status, record.rows) == ("skipped", 0)
    assert record.dropped["damage of the source"] == sum(part.rows for part in parts)


def test_a_plan_starts_with_its_parts_in_bundles(built, tmp_path):
    plan = plan_at(built, tmp_path / "root")
    tasks = [task for element in plan.elements for task in unpacked(element)]
    assert [(task.log, task.span) for task in tasks] == list(plan.partitions)
    assert plan.num_partitions == len(tasks) == len(plan.unit_identities())
    assert plan.finished() == 0


def test_the_logs_of_a_version_are_listed_once_however_often_its_rows_are_read(built, monkeypatch):
    asked = []
    entries_of = sources.entries_of
    source = open_source(str(built), output=FULL_OUTPUT)
    monkeypatch.setattr(sources, "entries_of", lambda *told: asked.append(told) or entries_of(*told))
    first = [block.log_id for block in source.blocks(())]
    assert [block.log_id for block in source.blocks(())] == first != []
    assert len(source.logs()) == 2
    assert len(asked) == 1


@pytest.mark.slow
def test_the_command_refuses_to_run_beside_another_and_shows_labels(built, tmp_path):
    root = tmp_path / "root"
    command = ("convert", built, root, "--format", "bags", "--limit", "1", "--view", "none")
    with Announced(plan_at(built, root).job, "direct"):
        done = logloom(*command)
    assert done.returncode == 1, done.stderr
    assert "another build of version 1 runs" in done.stderr
    shutil.rmtree(root)  # its process lives on
    done = logloom(*command, "--labels", "team=perception", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["view"] == ""
    assert said["counters"]["units_built"] == said["units_built"] > 0
    assert "team" in json.dumps([dict(one.labels) for one in builds(Store.at(str(root)))])
    plain = logloom("convert", built, tmp_path / "out", "--format", "bags", "--plain", "--detach")
    assert plain.returncode == 2
    assert "--plain" in plain.stderr


def test_a_log_that_was_purged_stays_out_though_the_source_has_it(built, tmp_path):
    root = str(tmp_path / "root")
    convert(plan_convert(open_source(str(built)), root, "bags"))
    gone, *others = [record.log_id for record in read_manifest(Store.at(root)).logs]
    assert purge(root, [gone]).is_proven
    plan = plan_convert(open_source(str(built)), root, "bags")
    assert f"{gone}: left out, since it was purged" in plan.notes
    made = convert(plan)
    assert ([record.log_id for record in made.manifest.logs], made.built) == (others, 0)
    assert plan_convert(open_source(str(built)), root, "bags").up_to_date
