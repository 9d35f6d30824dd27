"""One root in memory, those who work on it, and what must hold whatever they do and whoever is killed.

Actors are real commands: builds, gc, purge, rollback, drop, tags, readers. `World.expect` says of each which
errors it may end with, and what must be so then; any other error is a finding.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import itertools
import json
import os
import random
import re
import threading
from collections.abc import Iterator

from logloom.errors import (
    AfterCommitError,
    BesideError,
    CommitConflictError,
    DatasetError,
    LogloomError,
    LogReadError,
    PurgedError,
    ReadBackError,
    StorageError,
    UsageError,
)
from logloom.io.catalog.entries import ENTRY, FAN_OUT, read_log_part, unit_folder
from logloom.io.catalog.manifest import manifest_at, read_manifest
from logloom.io.catalog.removal_notes import REMOVING
from logloom.io.catalog.tags import read_tags
from logloom.io.catalog.tombstones import Purged
from logloom.io.catalog.version_files import version_file, version_numbers
from logloom.io.formats.table import verify
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.gc.gc import GRACE_S, collect_garbage
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.versions.rollback import plan_drop, rollback
from logloom.pipelines.versions.tag import remove_tags, tag
from logloom.recipe import Keep, Recipe
from logloom.transforms.build.unit_checks import assembled_problems, unit_problems
from tests.faulty import ROOT, FaultyFiles
from tests.simulation.eager import build_eagerly, run_eagerly
from tests.simulation.scheduler import Scheduler

LOGS = ("car0", "car1", "car2")
RECIPE = """
name: simulated
logs: [{logs}]
clock: {{rate: 10}}
columns:
  x: {{topic: /odom, field: x, resample: previous}}
outputs:
  {outputs}
partition: {{rows: 15}}
vanished: drop
"""
OUTPUTS = {"references": "table: {}"}  # of themes that are about one output
MANIFEST = re.compile(r"versions/\d{8}\.json$")
OF_VERSIONS = ("parts", "logs", "versions")  # the folders of what they are made of
# By its theme: how many versions there may be when a schedule begins, and how many of each actor at most, at
# least half as many.
THEMES: dict[str, tuple[int, dict[str, int]]] = {
    "builds": (1, {"build": 3, "collect": 2, "read": 1}),
    "retention": (3, {"build": 1, "collect": 2, "roll_back": 2, "read": 2, "drop": 1}),
    "purges": (2, {"build": 2, "purge": 2, "roll_back": 1, "drop": 1, "collect": 1, "read": 1}),
    "tags": (3, {"tag": 3, "collect": 2, "build": 1}),
    "references": (2, {"refer": 2, "build": 1, "collect": 2, "roll_back": 1, "read": 1}),
    "all": (3, {"build": 2, "collect": 1, "roll_back": 1, "drop": 1, "purge": 1, "tag": 1, "read": 1}),
}
NUMBERS = itertools.count(int(os.environ.get("LOGLOOM_ROOT", "0")))
NAMES = random.Random()  # of what gets a random name


class Tried(threading.local):
    """What an actor, or a worker that outlives its build, tried to commit last."""

    def __init__(self):
        self.by: dict[str, bytes] = {}


TRIED = Tried()


class LieError(AssertionError):
    """Somebody was told what isn't so."""


class World:
    """One root, what is to become of it, and the promises.

    Attributes:
        ended: how often actors' work ended by each error that is expected, by its name in `expect`.
    """

    def __init__(self, logs, seed, output="tar: {}", number=None, **shares):
        self.seed, self.logs, self.output = seed, logs, output
        self.number = next(NUMBERS) if number is None else number
        self.root = f"{ROOT}/root-{self.number}"  # nothing that this process remembers is about it
        NAMES.seed(seed)
        self.manifests: dict[str, bytes] = {}
        self.things: set[str] = set()
        self.elsewhere: list[str] = []  # other roots, whose tables point into this one
        self.proven: set[str] = set()  # logs of which a purge said that nothing is left
        self.tags: dict[str, set[int | None]] = {}  # which versions each name may stand for
        self.ended: dict[str, int] = {}
        self.scheduler = Scheduler(seed, check=self.check, engine=self.engine, **shares)
        FaultyFiles.store.clear()
        FaultyFiles.faults = self.scheduler

    @property
    def store(self):
        return Store.at(self.root)

    @property
    def rng(self):
        return self.scheduler.rng

    def recipe(self, names, output=""):
        logs = ", ".join(str(self.logs / name) for name in names)
        text = RECIPE.format(logs=logs, outputs=output or self.output)
        return Recipe.from_yaml(text, source="simulated.yaml")

    def names(self) -> Iterator[str]:
        start = self.root.removeprefix("faulty:/") + "/"
        return (name.removeprefix(start) for name in FaultyFiles.store if name.startswith(start))

    def tombs(self) -> set[str]:
        """The tombstones that stand now."""
        return {name for name in self.names() if name.startswith("versions/purged/")}

    def check_new(self, number, tombs):
        """What was purged before a version was begun isn't in it."""
        manifest = manifest_at(self.store, number)
        erased = {part for name in tombs for part in json.loads(self.read_object(name))["parts"]}
        back = erased.intersection(record.part for record in manifest.logs)
        assert not back, f"version {number} brings back {sorted(back)}, which was purged before"

    def read_object(self, name) -> bytes | None:
        file = FaultyFiles.store.get(f"{self.root.removeprefix('faulty:/')}/{name}")
        return None if file is None else file.getvalue()

    def objects(self) -> dict[str, bytes]:
        """What versions are made of, but for their times."""
        names = (name for name in self.names() if name.startswith(OF_VERSIONS) and ".times." not in name)
        return {name: self.read_object(name) for name in names}

    # --- errors

    def expect(self, *kinds: str) -> contextlib.AbstractContextManager[None]:
        """Lets the block end by an error of these kinds, if what it says is so."""
        return self._expecting(kinds)

    @contextlib.contextmanager
    def _expecting(self, kinds):
        began = self.scheduler.requests
        try:
            yield
        except LogloomError as error:
            for kind in (*kinds, "refused"):
                type_, words, is_so = EXPECTED[kind]
                if type(error) is type_ and re.search(words, str(error)):
                    if not is_so(self, str(error), began):
                        raise LieError(f"{kind}: {error!r}, and it isn't so") from error
                    self.ended[kind] = self.ended.get(kind, 0) + 1
                    return
            raise AssertionError(f"nobody expects {error!r}") from error

    # --- actors

    def build(self, name="", attempts=3):
        for _ in range(attempts):
            self.scheduler.begin()
            names = sorted(self.rng.sample(LOGS, self.rng.randint(1, len(LOGS))))
            with self.expect("all dropped"):
                tombs = self.tombs()
                self.commit(plan_build(self.recipe(names), self.root), tombs)

    def commit(self, plan, tombs):
        """Runs a plan; what a build says of its commit must be so.

        Args:
            tombs: the tombstones that stood before it was planned.
        """
        if plan.up_to_date:
            return
        with self.expect(*BUILDING):
            build(plan, view="none", beside=True)
            if self.read_object(version_file(plan.job.number)) != TRIED.by.get("manifest"):
                raise LieError(f"version {plan.job.number} was said to be committed")
            self.check_new(plan.job.number, tombs)

    def engine(self, plan):
        """Runs a build's steps; may take a worker for dead that goes on."""
        tried = TRIED.by = {}
        if self.rng.random() < 0.2:

            def go_on():
                TRIED.by = tried
                with contextlib.suppress(LogloomError):  # nobody hears of it
                    run_eagerly(plan, self.rng)

            self.scheduler.spawn("zombie", go_on)
        run_eagerly(plan, self.rng)

    def roll_back(self, name):
        for _ in range(2):
            self.scheduler.begin()
            wanted = self.rng.randint(1, 4)
            usual = "no version", "version removed"
            other = "rollback collected", "purged", "all dropped", "another build"
            with self.expect(*usual, *other, *BUILDING):
                tombs = self.tombs()
                done = rollback(self.store, wanted, view="none")
                if done.up_to_date:
                    continue
                made = done.manifest
                self.check_new(made.version, tombs)
                before = manifest_at(self.store, made.parent)
                assert dropped_in(made) == dropped_in(before), "a rollback brings back what was dropped"

    def drop(self, name):
        for undo in (False, True):
            self.scheduler.begin()
            log = self.rng.choice(LOGS)
            with self.expect("no version", "no such log", "erased"):
                tombs = self.tombs()
                self.commit(plan_drop(self.store, [log], "why not", undo=undo, allow_empty=True), tombs)

    def purge(self, name):
        self.scheduler.begin()
        log = self.rng.choice(LOGS)
        for _ in range(3):
            with self.expect("no version", "nobody has", "a build runs"):
                if purge(self.root, [log]).is_proven:
                    # A worker that outlives its build, which no purge sees, may write what it was about.
                    if not any(one.name == "zombie" and one.is_alive for one in self.scheduler.actors):
                        self.proven.add(log)
                    return

    def refer(self, name):
        """Builds versions of a root of its own, whose tables point to what versions here hold already."""
        other = f"{self.root}-{name}"
        self.elsewhere.append(other)
        for _ in range(2):
            self.scheduler.begin()
            names = sorted(self.rng.sample(LOGS, self.rng.randint(1, len(LOGS))))
            wanted = self.rng.choice([self.root, self.root, f"{self.root}@{self.rng.randint(1, 3)}"])
            with self.expect("no table", "no version", "version removed", "removed amid", *BUILDING):
                plan = plan_build(self.recipe(names, f"table: {{reference: '{wanted}'}}"), other)
                if not plan.up_to_date:
                    build(plan, view="none")

    def tag(self, name):
        """Names versions, by a name that nobody else uses."""
        known = self.tags.setdefault(name, {None})
        for _ in range(self.rng.randint(1, 4)):
            self.scheduler.begin()
            wanted = None if self.rng.random() < 0.3 else self.rng.randint(1, 4)
            before = set(known)
            known.add(wanted)  # also where it is killed before it hears of it
            with self.expect("no version", "version removed", "no such tag"):
                if wanted is None:
                    remove_tags(self.store, [name])
                else:
                    tag(self.store, wanted, [name], move=True)
                before = {wanted}
            known.intersection_update(before)

    def read(self, name):
        """Opens versions and reads all of them, each again later."""
        self.scheduler.begin()
        opened = []
        for _ in range(5):
            with self.expect("no version", "version removed"):
                wanted = self.rng.choice(["latest", "latest", 1, 2, 3])
                opened.append(read_manifest(self.store, wanted))
            with self.expect():
                for manifest in opened:
                    assert problems_of(self.store, manifest) == []

    def collect(self, name):
        """Collects garbage, and lets time pass: whatever may be old by then is."""
        for _ in range(3):
            self.scheduler.begin()
            if self.rng.random() < 0.7:
                self.age()
            keep = self.rng.choice([None, Keep(last=1), Keep(last=2)])
            with self.expect("no version"):
                collect_garbage(self.root, keep=keep, grace_s=GRACE_S)

    def age(self):
        """Makes old what no actor has written, or may have found, since it began what it is about."""
        for path in self.scheduler.old():
            file = FaultyFiles.store.get(FaultyFiles._strip_protocol(path))
            if file is not None:
                file.created -= datetime.timedelta(seconds=2 * GRACE_S)

    # --- promises

    def check(self):
        """What holds at any time: versions never change, and name only what is there or was purged."""
        names = set(self.names())
        now = {name: self.read_object(name) for name in names if MANIFEST.search(name)}
        for name, data in self.manifests.items():
            assert now.get(name) == data, f"{name} changed"
        is_new, self.manifests = len(now) > len(self.manifests), now
        gone, self.things = self.things - names, names
        self.check_marks(gone)
        if is_new or any(name.startswith(OF_VERSIONS) for name in gone):
            assert sorted(now) == [version_file(number) for number in range(1, len(now) + 1)]
            self.check_versions()
        if self.proven:
            self.check_proofs()

    def check_marks(self, gone):
        """A unit loses its mark before its files, but for one that was erased.

        One that had no mark when gc looked may get one, and new files, before gc removes those: a note in
        runs/ keeps builds from naming it.
        """
        units = {unit for name in gone if (unit := "/".join(name.split("/")[:4])).startswith("parts/")}
        for mark in (f"{unit}/{ENTRY}" for unit in units):
            asked = f"{self.root}/{mark}" in self.scheduler.removed
            if mark in self.things and not asked and not self.is_purging:
                raise AssertionError(f"{mark}: is there, and files of its unit went")

    @property
    def is_purging(self) -> bool:
        return any(name.startswith("versions/purged/") for name in self.things)

    def check_versions(self):
        store = self.store
        for number in version_numbers(store):
            problems = problems_of(store, read_manifest(store, number))
            assert problems == [], f"version {number} names what isn't there: {problems}"
        self.check_elsewhere()

    def check_elsewhere(self):
        """What tables of other roots point to stays."""
        for other in map(Store.at, self.elsewhere):
            for number in version_numbers(other):
                problems = problems_of(other, read_manifest(other, number))
                assert problems == [], f"a table elsewhere names what isn't there: {problems}"
                problems = verify(f"{other.uri}@{number}")
                assert problems == [], f"a table elsewhere points to what isn't there: {problems}"

    def check_proofs(self):
        """Nothing is left of a log once a purge said so, and no later version has it."""
        for name in self.things:
            if name.startswith("parts/") and name.endswith(f"/{ENTRY}"):
                log_id = json.loads(self.read_object(name)).get("log_id")
                assert log_id not in self.proven, f"{name}: of {log_id}, which a purge said is gone"

    def check_tags(self):
        """No change of a name is lost, and those that somebody heard of name a version that is there."""
        tags, numbers = read_tags(self.store), version_numbers(self.store)
        for name, known in self.tags.items():
            assert tags.get(name) in known, f"{name} names {tags.get(name)}, and was {known}"
            if len(known) == 1 and tags.get(name) is not None:
                assert tags[name] in numbers, f"{name} names version {tags[name]}, which was removed"

    # --- a schedule

    def run(self, theme, clean):
        """
        Args:
            theme: a name in `THEMES`.
            clean: gives the objects of a root that one build without faults made, by logs.

        Raises:
            AssertionError: a promise is broken.
        """
        before, most = THEMES[theme]
        rng = self.rng
        for _ in range(rng.randint(theme in OUTPUTS, before)):  # else there is nothing to refer to
            build_all(self, sorted(rng.sample(LOGS, rng.randint(1, len(LOGS)))))
        if rng.random() < 0.7:  # something lies there that a build left which was killed
            self.scheduler.ends_at = {"parts": 0.02, "versions": 0.9}  # most of them at the commit
            self.scheduler.spawn("builder of before", lambda: self.build(attempts=1))
            self.scheduler.run()
            self.scheduler.ends_at = {}
        self.age()
        for kind, number in most.items():
            work = getattr(self, kind)
            for one in range(rng.randint((number + 1) // 2, number)):
                name = f"{kind}-{one}"
                self.scheduler.spawn(name, lambda work=work, name=name: work(name))
        self.scheduler.run()
        self.check_versions()
        if not any(one.is_dead and one.name.startswith("collect") for one in self.scheduler.actors):
            self.check_tags()
        keep = rng.choice([None, Keep(last=1)])
        if "runs" in self.store.names():  # also what a killed gc was about is brought to its end
            collect_garbage(self.root, keep=keep, grace_s=GRACE_S)
            self.check_versions()
        self.check_tags()
        self.age()
        if "runs" in self.store.names():
            collect_garbage(self.root, keep=keep, grace_s=GRACE_S)
            self.check_versions()
            self.check_tags()
        mine = self.finish()
        self.check_versions()
        for name, data in clean(frozenset(mine)).items():
            if not name.startswith("versions/0"):
                assert self.read_object(name) == data, f"{name} differs from that of a clean build"

    def finish(self) -> list[str]:
        """Builds a version of all logs that weren't purged, which meets no faults; gives their names."""
        purged = Purged(self.store)
        if version_numbers(self.store) and (dropped := dropped_in(read_manifest(self.store))):
            build_eagerly(plan_drop(self.store, dropped, undo=True), random.Random(0))
        names = [name for name in LOGS if not purged.has_named(name)]
        if names:
            build_all(self, names)
        return names


def dropped_in(manifest):
    return [one.log_id for one in manifest.logs if one.status == "dropped"]


def build_all(world, names=LOGS):
    """Builds a version of some logs, which meets no faults."""
    plan = plan_build(world.recipe(names), world.root)
    if not plan.up_to_date:
        build_eagerly(plan, random.Random(0))


def problems_of(store, manifest):
    """What isn't as a version promises, by the digests of all its files; but for what was purged."""
    store = dataclasses.replace(store, fan_out=FAN_OUT)
    found = []
    for record in manifest.logs:
        with contextlib.suppress(PurgedError):
            own = [p for entry in _entries(store, record) for p in unit_problems(store, entry)]
            if own and record.part not in Purged(store).parts:
                found += own
    for part in manifest.assembled:
        with contextlib.suppress(PurgedError):
            own = list(assembled_problems(store, part))
            if own and unit_folder(part.output, part.identity) not in Purged(store).folders:
                found += own
    return found


def _entries(store, record):
    return read_log_part(store, record.part) if record.part else ()


def _is_noted(world, error, began):
    """A removal was on its way, or had been killed: it may be done by the time that somebody hears of it."""
    notes = [name for name in world.names() if name.startswith(f"{REMOVING}/")]
    done = {name for name in notes if world.scheduler.written.get(f"{world.root}/{name}", 0) < began}
    return any(not name.endswith(".done") and f"{name}.done" not in done for name in notes)


def _was_removed(world, error, began):
    """All of it was written since the build began, and went later: a build writes the mark of what it takes,
    then looks."""
    units = re.findall(r"bucket/(root-\d+/(?:parts/\w+/\w\w/[0-9a-f]+|logs/\w+))", error)

    def last(of, unit, end=""):
        return max((n for path, n in of.items() if unit in path and path.endswith(end)), default=0)

    written, removed = world.scheduler.written, world.scheduler.removed
    return bool(units) and all(
        began <= last(written, unit, "" if "/logs/" in unit else ENTRY) < last(removed, unit)
        for unit in units
    )


def _was_refused(world, error, began):
    return any(path in error for path in world.scheduler.refused)


def _stands(world, error, began):
    """There is such a version, and it isn't what the actor tried to commit."""
    number = int(re.findall(r"committed version (\d+)", error)[0])
    return world.read_object(version_file(number)) not in (None, TRIED.by.get("manifest"))


def _is_purged(world, error, began):
    return world.is_purging


def _is_taken_out(world, error, began):
    number = int(re.findall(r"version (\d+) was removed", error)[0])
    return f"versions/{number:08d}.removed" in world.names()


def _anything(world, error, began):
    return True


# What may go wrong, by a name: the error, what it says, and what must be so then.
EXPECTED = {
    "first": (CommitConflictError, r"another build committed version \d+ first", _stands),
    "collected": (ReadBackError, "removed by `logloom gc` while this build ran; build again", _was_removed),
    "collected amid": (ReadBackError, "build again: it will be made anew", _was_removed),
    "rollback collected": (LogloomError, "removed by `logloom gc` while this build ran", _was_removed),
    "collecting": (StorageError, "is being removed by `logloom gc`", _is_noted),
    "collecting after it": (AfterCommitError, "is being removed by `logloom gc`", _is_noted),
    "refused after it": (AfterCommitError, "connection was reset|answered 503|were requested", _was_refused),
    "refused": (StorageError, "connection was reset|answered 503|were requested", _was_refused),
    "purged while it ran": (LogReadError, "was purged while this build ran", _is_purged),
    "erased": (PurgedError, "was purged: a log that it held rows of", _is_purged),
    "erased amid": (DatasetError, "there is no such file; `logloom repair|: missing; ", _is_purged),
    "no rows": (LogloomError, "no rows at all", _is_purged),
    "purged before it ran": (PurgedError, "was purged since this build was planned", _is_purged),
    "purged": (DatasetError, "can't be gone back to: .*was purged", _is_purged),
    "all dropped": (
        UsageError,
        "none of .* is to be built: .* left the dataset by `logloom drop`",
        _anything,
    ),
    "no version": (
        UsageError,
        "no version here|no version '?\\d|there is no version|nothing is there; check",
        _anything,
    ),
    "no table": (DatasetError, "no table here", _anything),
    "version removed": (UsageError, "was removed by `logloom gc`", _is_taken_out),
    "removed amid": (LogReadError, "was removed by `logloom gc`", _is_taken_out),
    "no such log": (UsageError, r"version \d+ has no log", _anything),
    "nobody has": (UsageError, "no version has 'car", _anything),
    "a build runs": (BesideError, "a build runs", _anything),
    "another build": (BesideError, "another build of version", _anything),
    "no such tag": (UsageError, "no version has the tag", _anything),
}
BUILDING = (
    "refused after it",
    "first",
    "collected",
    "collected amid",
    "collecting",
    "collecting after it",
    "purged while it ran",
    "purged before it ran",
    "erased",
    "erased amid",
    "no rows",
)
