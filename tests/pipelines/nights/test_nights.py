"""Nights of builds, drops, rollbacks, purges, tags and retention, with clocks that are wrong, copies whose
files have other dates, files that a copy lost, and labels that a sync lost: versions hold what a dictionary
says.

The tier check tries a few seeds, others many.
"""

import pathlib
import random
import re
import shutil
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logloom.datasets
from logloom.errors import InputError
from logloom.io.catalog import commit_times, tags
from logloom.io.catalog.commit_times import times_file
from logloom.io.catalog.manifest import read_manifest
from logloom.io.catalog.tags import AGAIN, TAGS, read_tags
from logloom.io.catalog.version_files import all_versions, version_file
from logloom.io.storage.file_ages import changed_at
from logloom.io.storage.store import Store
from logloom.pipelines.build.result import Built
from logloom.pipelines.gc import gc
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.plan import logs as plan_logs
from logloom.pipelines.plan import next_version
from logloom.pipelines.plan.build_plan import BuildPlan
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.versions import rollback as rolling_back
from logloom.pipelines.versions.rollback import plan_drop, rollback
from logloom.pipelines.versions.tag import tag
from logloom.recipe import Keep, Recipe
from logloom.transforms.build import commit
from tests.pipelines.roots import DAY, age
from tests.simulation.eager import build_eagerly
from tests.tier import by_tier

RECIPE = """
name: nights
logs: [{logs}]
clock: {{rate: 10}}
columns:
  x: {{topic: /odom, field: x, resample: previous}}
  label: {{table: "{labels}/*.parquet", field: value, expect: one}}
outputs:
  zarr: {{}}
vanished: {vanished}
"""
SEEDS = by_tier(2, 30)
TICKS = np.arange(5)
TIMES = 1_700_000_000_000_000_000 + TICKS * 10**8
Rows = tuple[int, int | None]  # what a log's rows are made of: its content, and its label


class Nights:
    """A root, and what its versions must hold.

    Attributes:
        files: tonight's logs, and the content of each.
        labels: tonight's labels by log, and the file in which each stands; None where no file is found.
        rows: by version the content and the label of each of its logs.
        days: by version the day of its commit; None where nobody can know it.
        tags, dropped, purged: what must stay so.
    """

    def __init__(self, folder: pathlib.Path, seed: int, patch: pytest.MonkeyPatch):
        self.folder, self.root, self.rng = folder, folder / "root-0", random.Random(seed)
        self.files: dict[str, int] = {}
        self.labels: dict[str, tuple[int, str]] | None = {}
        self.rows: dict[int, dict[str, Rows]] = {}
        self.days: dict[int, int | None] = {}
        self.there: set[int] = set()
        self.tags: dict[str, int] = {}
        self.dropped: set[str] = set()
        self.purged: set[str] = set()
        self.night, self.is_clock_right, self.copies = 0, True, 0
        self.began = int(time.time() / DAY) * int(DAY) - 100 * int(DAY)
        for module in (commit_times, next_version, commit):
            patch.setattr(module, "clock", self.clock)
        patch.setattr(rolling_back, "build", self.built)

    @property
    def store(self) -> Store:
        return Store.at(str(self.root))

    @property
    def newest(self) -> int:
        return max(self.rows)

    def clock(self) -> int:
        right = self.began + self.night * int(DAY) + 7200
        return right if self.is_clock_right else self.rng.choice([60, right + 4000 * int(DAY)])

    def built(self, plan, **how):
        build_eagerly(plan, random.Random(0))
        return Built(read_manifest(self.store), "", 0, 0)

    def committed(self, rows: dict[str, Rows]) -> None:
        number = read_manifest(self.store).version
        assert number == max(self.rows, default=0) + 1
        self.rows[number] = {name: made for name, made in rows.items() if name not in self.purged}
        self.days[number] = self.night if self.is_clock_right else None
        self.there.add(number)

    # --- what somebody does in a night

    def arrives(self) -> None:
        name = self.rng.choice([name for name in "abcdefgh" if name not in self.purged])
        content = self.files[name] = self.rng.randrange(10**6)  # hardly ever one of another log
        path = self.folder / name / "odom.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"timestamp": TIMES, "x": TICKS + 10.0 * content}), path)

    def vanishes(self) -> None:
        if len(self.files) > 2:
            del self.files[self.rng.choice(sorted(self.files))]

    def is_labelled(self) -> None:
        """A log gets a label, or another one."""
        name = self.rng.choice(sorted(self.files))
        self.labels = (self.labels or {}) | {name: (self.rng.randrange(1, 1000), name)}

    def labels_move(self) -> None:
        """Labels move to one file with others, or to one of their own."""
        found = self.labels or {}
        self.labels = found and {
            name: (value, self.rng.choice([name, "all"])) for name, (value, _) in found.items()
        }

    def labels_vanish(self) -> None:
        if self.labels:
            leaving = self.rng.choice(sorted(self.labels))
            self.labels = {name: label for name, label in self.labels.items() if name != leaving}
        if self.rng.random() < 0.2:
            self.labels = None

    def writes_labels(self) -> None:
        folder = self.folder / "labels"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        of_file: dict[str, list[tuple[str, int]]] = {"others": [("nobody", 0)]}
        for name, (value, file) in (self.labels or {}).items():
            of_file.setdefault(file, []).append((name, value))
        for file, labels in of_file.items() if self.labels is not None else ():
            log_ids, values = (np.repeat(column, len(TICKS)) for column in zip(*labels, strict=True))
            table = {"log_id": log_ids, "timestamp": np.tile(TIMES, len(labels)), "value": values}
            pq.write_table(pa.table(table), folder / f"{file}.parquet")

    def planned(self, vanished: str) -> BuildPlan:
        logs = ", ".join(str(self.folder / name) for name in sorted(self.files))
        text = RECIPE.format(logs=logs, labels=self.folder / "labels", vanished=vanished)
        return plan_build(Recipe.from_yaml(text, source="nights.yaml"), str(self.root))

    def refused(self) -> list[str]:
        """The logs whose labels vanished, by the error of a plan."""
        try:
            self.planned("fail")
            why = "nothing was refused"
        except InputError as error:
            why = str(error)
        assert "set `vanished: keep`" in why
        named = re.search(r"lost labels that version \d+ has \(([^)]*)\)", why)
        return named[1].split(", ") if named else []

    def builds(self) -> None:
        there = sorted(self.files.keys() - self.dropped)
        if not there:
            return
        self.writes_labels()
        labels = {name: value for name, (value, _) in (self.labels or {}).items()}
        expected: dict[str, Rows] = {name: (self.files[name], labels.get(name)) for name in there}
        before = self.rows[self.newest] if self.rows else {}
        gone = {name: made for name, made in before.items() if name not in {*there, *self.purged}}
        lost = {name for name in before.keys() & expected if before[name][1] is not None} - labels.keys()
        vanished = self.rng.choice(["fail", "keep", "drop"])
        if vanished == "fail" and (gone or lost or self.labels is None):
            assert self.refused() == sorted(lost)
            vanished = self.rng.choice(["keep", "drop"])
        if vanished == "keep":
            expected |= gone | {name: (self.files[name], before[name][1]) for name in lost}
        plan = self.planned(vanished)
        assert plan.labels_gone.get("label", ()) == (tuple(sorted(lost)) if vanished == "drop" else ())
        if plan.up_to_date:
            assert self.rows[self.newest] == expected
        else:
            build_eagerly(plan, random.Random(0))
            self.committed(expected)

    def drops(self) -> None:
        rows = self.rows[self.newest]
        names = sorted(rows.keys() - self.purged)
        if len(names) > 1:
            name = self.rng.choice(names)
            build_eagerly(plan_drop(self.store, [name], "asked"), random.Random(0))
            self.dropped.add(name)
            self.committed({other: content for other, content in rows.items() if other != name})

    def takes_back(self) -> None:
        if names := sorted(self.dropped):
            name = self.rng.choice(names)
            build_eagerly(plan_drop(self.store, [name], undo=True), random.Random(0))
            self.dropped.remove(name)
            self.committed(self.rows[self.newest])

    def rolls_back(self) -> None:
        wanted = self.rng.choice(sorted(self.there))
        left = {*self.dropped, *self.purged}
        expected = {name: content for name, content in self.rows[wanted].items() if name not in left}
        if rollback(self.store, wanted, view="none").up_to_date:
            left_of_newest = self.rows[self.newest].items()
            assert expected == {name: content for name, content in left_of_newest if name not in left}
        else:
            self.committed(expected)

    def purges(self) -> None:
        names = sorted(self.rows[self.newest].keys() - self.purged)
        if len(names) > 2:
            name = self.rng.choice(names)
            assert purge(str(self.root), [name]).is_proven
            self.purged.add(name)
            self.files.pop(name, None)

    def tags_one(self) -> None:
        name, number = self.rng.choice(["gold", "paper"]), self.rng.choice(sorted(self.there))
        tag(self.store, number, [name], move=True)
        self.tags[name] = number

    def collects(self) -> None:
        keep = Keep(daily=self.rng.randint(1, 4))
        done = collect_garbage(str(self.root), keep=keep)
        assert done.unknown == []
        newest_of_day: dict[int, int] = {}
        for number in sorted(self.there):
            day = self.days[number]
            if day is not None:
                newest_of_day[day] = number
        kept = {newest_of_day[day] for day in sorted(newest_of_day)[-keep.daily :]}
        kept |= {number for number in self.there if self.days[number] is None}
        kept |= {self.newest, *self.tags.values()} & self.there
        assert set(done.kept) == kept, "retention"
        self.there = kept

    def is_copied(self) -> None:
        """Copied as `cp -r` does, or restored with dates of long ago; now and then a file is lost."""
        if list(tags.tag_problems(self.store)):  # since the last copy
            assert repair(str(self.root), num_workers=1).is_sound
            assert list(tags.tag_problems(self.store)) == []
        self.copies += 1
        new = self.folder / f"root-{self.copies}"
        shutil.copytree(self.root, new, copy_function=shutil.copyfile)
        self.root = new
        if self.rng.random() < 0.5:
            age(self.root, 30)
        changes = self.store.names(TAGS)
        if changes and self.rng.random() < 0.5:
            self.store.remove(f"{self.rng.choice([TAGS, AGAIN])}/{changes[-1]}")
        if self.rng.random() < 0.3:
            number = self.rng.choice(sorted(self.there))
            self.store.remove(times_file(number))
            self.days[number] = None

    def passes(self, nights: int) -> None:
        """Nights pass, each with a build and some of all that."""
        for _ in range(3):
            self.arrives()
        self.is_labelled()
        may_be = [self.arrives, self.vanishes, self.drops, self.takes_back, self.rolls_back, self.rolls_back]
        may_be += [self.is_labelled, self.is_labelled, self.labels_move, self.labels_vanish]
        may_be += [self.purges, self.tags_one, self.collects, self.collects, self.is_copied, self.is_copied]
        for self.night in range(nights):
            self.is_clock_right = self.rng.random() > 0.15
            self.arrives()
            self.builds()
            for act in self.rng.sample(may_be, 3):
                act()
            self.holds(self.rng.sample(sorted(self.there), min(2, len(self.there))))
        self.holds(sorted(self.there))

    # --- what must be true

    def holds(self, numbers: list[int]) -> None:
        assert set(all_versions(self.store).there) == self.there
        assert read_tags(self.store) == self.tags
        for number in numbers:
            expected = self.rows[number]
            manifest = read_manifest(self.store, number)
            assert {log.log_id for log in manifest.logs if log.rows} == expected.keys(), f"version {number}"
            if not self.purged.intersection(expected):  # else what is assembled was erased, too
                assert rows_of(self.root, number) == expected, f"version {number}"
        report = verify(str(self.root), num_workers=1)
        lost = [one for one in report.findings if "one of two files with the tags" not in one.message]
        assert lost == []


def rows_of(root: pathlib.Path, number: int) -> dict[str, Rows]:
    """The content and the label of each log of a version, by its rows."""
    found: dict[str, list[float]] = {}
    labels: dict[str, set[int | None]] = {}
    for row in logloom.datasets.open(str(root), version=number, output="zarr", check=True):
        found.setdefault(row["log_id"], []).append(float(row["x"]))
        labels.setdefault(row["log_id"], set()).add(int(row["label"]) or None)
    assert all(values == list(TICKS + values[0]) for values in found.values())
    assert all(len(own) == 1 for own in labels.values())
    return {name: (round(values[0] / 10), labels[name].pop()) for name, values in found.items()}


@pytest.mark.parametrize("seed", range(2))
def test_versions_hold_over_a_week_what_a_dictionary_says(tmp_path, monkeypatch, seed):
    Nights(tmp_path, seed, monkeypatch).passes(5)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(2, 2 + SEEDS))
def test_versions_hold_over_weeks_what_a_dictionary_says(tmp_path, monkeypatch, seed):
    Nights(tmp_path, seed, monkeypatch).passes(20)


def by_dates_of_files(collection, numbers, rule):
    return {number: changed_at(collection._store, version_file(number)) for number in numbers}


def one_folder_of_tags(store):
    return sorted(int(name[:8]) for name in store.names(TAGS))


MISTAKES = {
    "retention goes by dates of files": (gc._Collection, "_times", by_dates_of_files),
    "a rollback brings back what was dropped": (rolling_back, "_changes", lambda *of: ([], ())),
    "labels vanish without a word": (plan_logs, "settle_vanished_labels", lambda *of: ({}, {}, [])),
    "tags are read from one folder": (tags, "_changes", one_folder_of_tags),
}


@pytest.mark.faults
@pytest.mark.parametrize("mistake", by_tier(list(MISTAKES)[:1], MISTAKES))
def test_a_mistake_is_found_within_weeks(tmp_path, mistake):
    place, name, wrong = MISTAKES[mistake]
    for seed in range(10):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, name, wrong)
            (tmp_path / str(seed)).mkdir()
            try:
                Nights(tmp_path / str(seed), seed, patch).passes(20)
            except Exception as found:
                print(seed, repr(found)[:300])
                return
    pytest.fail("nothing was found")
