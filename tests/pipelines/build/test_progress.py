"""Progress: what workers note is what is shown, an ETA follows the speed, and no build fails for it."""

import dataclasses
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from logloom.pipelines.build import progress
from logloom.pipelines.build.build import build
from logloom.pipelines.build.progress import Meter, UnitLooker, Watch, rest_after
from logloom.pipelines.plan.plan import plan_build
from logloom.runners.flink import cache
from logloom.text import human_seconds
from logloom.transforms.build import partition_progress
from logloom.transforms.build.journal import (
    ASSEMBLING,
    BUILDING,
    CHECKING,
    FINISHING,
    PLANNING,
    READING_BACK,
    Journal,
    JournalReader,
    Note,
)

WORK = {"a": (1000, 10), "b": (3000, 10)}


@pytest.fixture
def plan(quick_drive, tmp_path):
    """With an output of many units, and one that is assembled."""
    recipe = quick_drive.recipe(**{"{tar: {}}": "{tar: {}, zarr: {}}"})
    return plan_build(recipe, str(tmp_path / "root"))


def test_looking_takes_a_tenth_of_the_time_at_most():
    assert rest_after(0.001, 5.0) == 5.0
    assert rest_after(200.0, 5.0) == 1800.0


def test_notes_are_read_once_and_a_line_that_is_on_its_way_later(tmp_path):
    journal, reader = Journal(str(tmp_path)), JournalReader(str(tmp_path))
    notes = [Note(BUILDING, "é\n", done=False), Note(BUILDING, "b", seconds=0.5, rows=3, found=True)]
    for note in notes:
        journal.write(note)
    assert list(reader.new()) == notes
    (path,) = tmp_path.iterdir()
    journal.write(notes[0])
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert list(reader.new()) == []
    path.write_bytes(whole)
    assert list(reader.new()) == [notes[0]]


def test_a_journal_without_a_folder_or_whose_folder_is_gone_takes_no_notes(tmp_path):
    Journal().write(Note(BUILDING, "a"))
    Journal(str(tmp_path / "gone")).write(Note(BUILDING, "a"))
    assert list(JournalReader(str(tmp_path / "gone")).new()) == []
    assert list(tmp_path.iterdir()) == []


def test_the_time_left_follows_from_the_speed_so_far():
    meter = Meter(WORK)
    assert meter.seconds_left(0.0) is None
    meter.take(Note(BUILDING, "a", done=False), 100.0)
    assert meter.phase == "building a"
    assert meter.seconds_left(101.0) is None
    for _ in range(10):
        meter.take(Note(BUILDING, "a", seconds=1.0, rows=7), 110.0)
    assert (meter.built, meter.rows) == (1000, 70)
    # A fourth is built in ten seconds; reading back is guessed to take 0.4 of the time of building.
    assert meter.seconds_left(110.0) == pytest.approx(30 + 0.4 * 40)
    for _ in range(10):
        meter.take(Note(READING_BACK, "a", seconds=0.1), 111.0)
    # By now it is known to take a tenth.
    assert meter.seconds_left(111.0) == pytest.approx((3000 + 0.1 * 3000) * 11 / (1000 + 100))
    assert "1000 B of 3.9 KiB" in meter.words(111.0)


def test_what_was_found_finished_counts_as_done_and_not_as_speed():
    meter = Meter(WORK, reads_back=0.0)
    meter.take(Note(BUILDING, "b", pieces=10, rows=5, found=True), 0.0)
    assert meter.share == 0.75
    assert meter.seconds_left(10.0) is None
    meter.take(Note(BUILDING, "a", pieces=5, seconds=2.0), 10.0)
    assert meter.seconds_left(10.0) == pytest.approx(10.0)
    meter.take(Note(BUILDING, "a", pieces=5, seconds=2.0), 20.0)
    assert meter.share == 1.0
    assert meter.seconds_left(20.0) is None


@pytest.mark.parametrize(
    ("took", "bound"),
    [
        ({"cpu": 2.9, "made": 1.0, "made_cpu": 1.0, "wrote": 1.9, "wrote_cpu": 1.8}, "encoding"),
        ({"cpu": 1.6, "made": 0.8, "made_cpu": 0.1, "wrote": 2.0, "wrote_cpu": 1.5}, "encoding"),
        ({"cpu": 2.9, "made": 1.9, "made_cpu": 1.8, "wrote": 1.0, "wrote_cpu": 1.0}, "decoding"),
        ({"cpu": 0.6, "made": 2.4, "made_cpu": 0.2, "wrote": 0.4, "wrote_cpu": 0.4}, "network (reading)"),
        ({"cpu": 0.6, "made": 0.4, "made_cpu": 0.4, "wrote": 2.4, "wrote_cpu": 0.2}, "network (writing)"),
        ({"cpu": 0.6, "made": 0.3, "made_cpu": 0.3, "wrote": 0.3, "wrote_cpu": 0.3}, "network (files)"),
        ({"cpu": 2.9}, "processor"),
        ({}, ""),
    ],
)
def test_progress_names_what_building_waits_for_once_it_is_known(took, bound):
    meter = Meter(WORK, waits_for="network")
    meter.take(Note(BUILDING, "a", seconds=1.0, **{name: value / 3 for name, value in took.items()}), 1.0)
    assert "bound" not in meter.words(1.0)
    meter.take(Note(BUILDING, "a", seconds=2.0, **{name: 2 * value / 3 for name, value in took.items()}), 3.0)
    assert meter.bound_by == bound
    assert (f"bound by {bound}" in meter.words(3.0)) == bool(bound)


def test_a_partition_that_is_half_done_counts_half():
    meter = Meter(WORK)
    meter.take(Note(BUILDING, "a", done=False), 0.0)
    meter.take(Note(BUILDING, "a", done=False, rows=20, seconds=1.0, part=0.25), 1.0)
    meter.take(Note(BUILDING, "a", done=False, rows=20, seconds=1.0, part=0.25), 2.0)
    assert (meter.built, meter.rows) == (50, 40)
    assert meter.seconds_left(2.0) is not None
    meter.take(Note(BUILDING, "a", rows=45, seconds=2.0, part=0.5), 4.0)
    assert (meter.built, meter.rows) == (100, 85)


def test_a_build_notes_how_far_a_partition_is(plan, monkeypatch):
    monkeypatch.setattr(partition_progress, "_NOTE_EVERY", 0.0)
    noted = []

    class Remembering(Watch):
        def __exit__(self, *error):
            noted.extend(JournalReader(self.journal.folder).new())
            super().__exit__(*error)

    small = dataclasses.replace(plan, job=dataclasses.replace(plan.job, block_bytes=1 << 6))
    built = build(small, watch=Remembering)
    own = [note for note in noted if note.phase == BUILDING]
    within = [note for note in own if not note.done and note.part]
    assert len(within) >= 2 * sum(note.done for note in own)
    assert all(0 < note.part <= 1 for note in within)
    assert sum(note.part for note in within) == pytest.approx(sum(note.part for note in own if note.done))
    assert sum(note.rows for note in own) == built.manifest.totals["rows"]


def test_what_follows_building_is_counted():
    meter = Meter(WORK)
    meter.take(Note(FINISHING, "a"), 0.0)
    assert meter.phase == f"finishing, 1 of {len(WORK)} logs"
    meter.take(Note(CHECKING, "zarr", done=False, pieces=1000), 0.0)
    meter.take(Note(CHECKING, "a"), 0.0)
    assert meter.phase == "checking, 1 of 1,000 units"
    meter.take(Note(ASSEMBLING, "", done=False, pieces=12), 0.0)
    meter.take(Note(ASSEMBLING, "zarr"), 1.0)
    assert meter.phase == "assembling, 1 of 12 files"
    meter.take(Note(READING_BACK, "zarr", done=False), 1.0)
    assert (meter.phase, meter.share) == ("reading back zarr", 0.0)


def test_a_build_notes_all_of_its_phases(tmp_path, plan):
    noted = []

    class Remembering(Watch):
        def __exit__(self, *error):
            noted.extend(JournalReader(self.journal.folder).new())
            super().__exit__(*error)

    build(plan, watch=Remembering)
    counts = {
        (phase, done): sum(note.pieces for note in noted if (note.phase, note.done) == (phase, done))
        for phase in (FINISHING, CHECKING, ASSEMBLING)
        for done in (False, True)
    }
    assert counts[FINISHING, True] == len(plan.work)
    assert counts[CHECKING, True] == counts[CHECKING, False] > 0
    assert counts[ASSEMBLING, True] == counts[ASSEMBLING, False] > 0
    assert {note.phase for note in noted} >= {PLANNING, READING_BACK}


def test_a_build_leaves_no_notes_behind(plan, tmp_path):
    folders = []

    class Remembering(Watch):
        def __enter__(self):
            super().__enter__()
            folders.append(self.journal.folder)
            return self

    build(plan, watch=Remembering)
    assert folders[0].startswith(str(tmp_path / "root" / "tmp"))
    assert list((tmp_path / "root" / "tmp").iterdir()) == []


def test_units_that_appear_in_the_root_count_where_workers_can_note_nothing(plan):
    looker = UnitLooker(plan)
    assert list(looker.new()) == []
    build(plan)
    meter = Meter(plan.work)
    for note in looker.new():
        meter.take(note, 0.0)
    assert meter.built == pytest.approx(plan.message_bytes)
    assert list(looker.new()) == []


def test_without_a_terminal_the_first_line_comes_soon_and_the_last_one_has_everything(
    plan, monkeypatch, capfd
):
    monkeypatch.setattr(progress, "_FIRST_PLAIN", 0.0)
    monkeypatch.setattr(progress, "_PLAIN_EVERY", 1000.0)  # the next line would come long after the end
    first = []

    class Waiting(Watch):
        def __enter__(self):
            super().__enter__()
            while not first:
                first.extend(capfd.readouterr().err.splitlines())
                time.sleep(0.01)
            return self

    rows = build(plan, watch=Waiting).manifest.totals["rows"]
    assert first[0].startswith("starting: 0 B of ")
    *_, last = capfd.readouterr().err.splitlines()
    size = progress.human_bytes(plan.message_bytes)
    assert re.fullmatch(rf"finishing: {size} of {size}, (\S+ MiB/s, )?{rows:,} rows", last)


def test_durations_are_told_in_two_units_at_most():
    assert [human_seconds(s) for s in (0.4, 59.2, 61, 7500)] == ["0 s", "59 s", "1 min 1 s", "2 h 5 min"]


def test_what_is_fetched_is_said_when_it_begins_and_while_it_goes_on(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("LOGLOOM_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_LOG_EVERY", 0.01)

    def fetch(folder):
        (folder / "big.jar").write_bytes(bytes(3_000_000))
        while "3 MB so far" not in caplog.text:
            time.sleep(0.01)

    with caplog.at_level("INFO", logger="logloom.runners"):
        cache.fetched("jars", fetch)
    assert f"fetching jars into {tmp_path}, this once" in caplog.text


RESIZED = """
import time
from logloom.pipelines.build.progress import live_line
with live_line() as show:
    for i in range(1000000):
        show("building drive-01", "about 12 s left, 50.9 MiB of 141.6 MiB, 5.0 MiB/s", i % 100 / 100)
        time.sleep(0.01)
"""


def test_the_live_line_leaves_nothing_behind_in_a_terminal_that_gets_narrower():
    import fcntl
    import struct
    import termios

    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen([sys.executable, "-c", RESIZED], stderr=child, env=environment)

    def read_until(wanted):
        seen = b""
        while wanted not in seen:
            assert select.select([parent], [], [], 60)[0], seen[-500:]
            seen += os.read(parent, 65536)
        return seen

    try:
        read_until(b"building")
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        # 100 columns are three rows of 40 by now: up two rows, to their start, and all below is removed.
        assert b"\x1b[1A\x1b[1A\x1b[1G\x1b[J" in read_until(b"\x1b[J")
    finally:
        process.kill()
        process.wait()
        os.close(parent)
        os.close(child)
