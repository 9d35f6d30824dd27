"""The real code under schedules of all kinds: builders, readers and what else there is, over one store.

LOGLOOM_SCHEDULES=5000 runs more of them (`make simulate`), LOGLOOM_SEED=17 the one that failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import itertools
import os
import random
import re
import sys
import threading
import uuid
from concurrent.futures import Future

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logloom.errors import CommitConflictError, DatasetError, ReadBackError, StorageError, UsageError
from logloom.io import ages, ahead, removals, retries, storage
from logloom.io.manifest import entries_of, read_manifest, version_file, version_numbers
from logloom.io.remote import RemoteFiles
from logloom.io.storage import Store
from logloom.pipelines import plan_logs
from logloom.pipelines.gc import GRACE_S, collect_garbage
from logloom.pipelines.plan import plan_build
from logloom.recipe import Keep, Recipe
from logloom.transforms import attempts, build_logs, finish, finished, partition
from logloom.transforms.finished import assembled_problems, unit_problems
from tests import faulty
from tests.faulty import ROOT, FaultyFiles
from tests.simulation.eager import EAGER, build_eagerly
from tests.simulation.scheduler import Scheduler

SCHEDULES = int(os.environ.get("LOGLOOM_SCHEDULES", "15"))
SEEDS = [int(os.environ["LOGLOOM_SEED"])] if "LOGLOOM_SEED" in os.environ else range(SCHEDULES)
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
MANIFEST = re.compile(r"versions/\d{8}\.json$")


class Inline:
    """Threads of a pool would make requests that belong to no actor."""

    def __init__(self, *arguments, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def shutdown(self, *arguments, **options):
        pass

    def submit(self, work, *arguments, **options):
        done = Future()
        try:
            done.set_result(work(*arguments, **options))
        except Exception as error:
            done.set_exception(error)
        return done

    def map(self, work, *items):
        return map(work, *items)


class LieError(AssertionError):
    """Somebody was told what isn't so."""


NUMBERS = itertools.count()
NAMES = random.Random()  # of what gets a random name
TRIED = threading.local()  # the manifest that an actor tried to commit last
create = Store.create


def noted_create(store, name, data, **options):
    if MANIFEST.search(name):
        TRIED.manifest = data
    return create(store, name, data, **options)


def in_this_process(job, tasks):
    """Builds what another process should, which wouldn't reach this store."""
    return [partition.build_partition(job, task) for task in tasks], ""


class World:
    """One root, what is to become of it, and the promises."""

    def __init__(self, logs, seed, output="tar: {}", **shares):
        self.seed, self.logs, self.output = seed, logs, output
        self.root = f"{ROOT}/root-{next(NUMBERS)}"  # nothing that this process remembers is about it
        NAMES.seed(seed)
        self.manifests: dict[str, bytes] = {}
        self.things: set[str] = set()
        self.scheduler = Scheduler(seed, check=self.check, **shares)
        FaultyFiles.store.clear()
        FaultyFiles.faults = self.scheduler

    def recipe(self, names):
        logs = ", ".join(str(self.logs / name) for name in names)
        return Recipe.from_yaml(RECIPE.format(logs=logs, outputs=self.output), source="simulated.yaml")

    def objects(self):
        start = self.root.removeprefix("faulty:/")
        own = ((name.removeprefix(f"{start}/"), file) for name, file in FaultyFiles.store.items())
        return {name: file.getvalue() for name, file in own if name.startswith(("parts", "logs", "versions"))}

    # --- actors

    def build(self, rng, attempts=4):
        for _ in range(attempts):
            self.scheduler.begin()
            names = sorted(rng.sample(LOGS, rng.randint(1, len(LOGS))))
            try:
                plan = plan_build(self.recipe(names), self.root)
                if plan.up_to_date:
                    continue
                if rng.random() < 0.2:  # the engine took a worker for dead, which goes on
                    self.scheduler.spawn("zombie", lambda plan=plan: self.commit(plan, rng))
                self.commit(plan, rng)
            except StorageError:
                pass  # the store failed again and again, while it was planned

    def commit(self, plan, rng):
        number = plan.job.number
        try:
            build_eagerly(plan, rng)
        except CommitConflictError:
            if self.objects()[version_file(number)] == TRIED.manifest:
                raise LieError(f"the commit of version {number} was refused, and stands") from None
        except (StorageError, ReadBackError):
            pass  # it failed again and again; or gc removed what was taken over, and "build again" is said
        except DatasetError:
            # Another build was first, and gc removed what this one had on its way to the commit.
            assert version_file(number) in self.objects()
        else:
            if self.objects().get(version_file(number)) != TRIED.manifest:
                raise LieError(f"version {number} was said to be committed")

    def read(self, rng):
        """Opens versions and reads all of them, each again later."""
        self.scheduler.begin()
        store = Store.at(self.root)
        opened = []
        for _ in range(5):
            try:
                opened.append(read_manifest(store))
                for manifest in opened:
                    assert problems_of(store, manifest) == []
            except (UsageError, StorageError):  # no version yet, or the store failed again and again
                pass

    def collect(self, rng):
        """Collects garbage, and lets time pass: whatever may be old by then is."""
        for _ in range(3):
            self.scheduler.begin()
            if rng.random() < 0.7:
                self.age()
            keep = rng.choice([None, Keep(last=1), Keep(last=2)])
            with contextlib.suppress(StorageError, UsageError):  # it failed again and again; no root yet
                collect_garbage(self.root, keep=keep, grace_s=GRACE_S)

    def age(self):
        """Makes old what no actor has written, or may have found, since it began what it is about."""
        for path in self.scheduler.old():
            file = FaultyFiles.store.get(FaultyFiles._strip_protocol(path))
            if file is not None:
                file.created -= datetime.timedelta(seconds=2 * GRACE_S)

    # --- promises

    def check(self):
        """What holds at any time: versions never change, and name only what is there."""
        objects = self.objects()
        now = {name: data for name, data in objects.items() if MANIFEST.search(name)}
        for name, data in self.manifests.items():
            assert now.get(name) == data, f"{name} changed"
        is_new, self.manifests = len(now) > len(self.manifests), now
        gone, self.things = self.things - set(objects), set(objects)
        if is_new or gone:
            assert sorted(now) == [version_file(number) for number in range(1, len(now) + 1)]
            self.check_versions()

    def check_versions(self):
        store = Store.at(self.root)
        for number in version_numbers(store):
            problems = problems_of(store, read_manifest(store, number))
            assert problems == [], f"version {number} names what isn't there: {problems}"

    def run(self, clean):
        """
        Raises:
            AssertionError: a promise is broken.
        """
        rng = self.scheduler.rng
        if rng.random() < 0.5:  # something lies there that a build left which was killed
            self.scheduler.crashes, usual = 0.02, self.scheduler.crashes
            self.scheduler.spawn("builder of before", lambda: self.build(rng, attempts=1))
            self.scheduler.run()
            self.scheduler.crashes = usual
            self.age()
        for number in range(rng.randint(1, 3)):
            self.scheduler.spawn(f"builder {number}", lambda: self.build(rng))
        for number in range(rng.randint(0, 2)):
            self.scheduler.spawn(f"gc {number}", lambda: self.collect(rng))
        self.scheduler.spawn("reader", lambda: self.read(rng))
        self.scheduler.run()
        self.check_versions()
        self.age()
        if "runs" in Store.at(self.root).names():  # also what a killed gc was about is brought to its end
            collect_garbage(self.root, keep=rng.choice([None, Keep(last=1)]), grace_s=GRACE_S)
            self.check_versions()
        build_all(self)
        self.check_versions()
        mine = self.objects()
        for name, data in clean.items():
            if not name.startswith("versions/0"):
                assert mine[name] == data, f"{name} differs from that of a clean build"


def build_all(world):
    """Builds a version of all logs, which meets no faults."""
    plan = plan_build(world.recipe(LOGS), world.root)
    if not plan.up_to_date:
        build_eagerly(plan, random.Random(0))


def problems_of(store, manifest):
    """What isn't as a version promises, by the digests of all its files."""
    store = dataclasses.replace(store, fan_out=manifest.fan_out)
    found = [p for _, entry in entries_of(store, manifest.logs) for p in unit_problems(store, entry)]
    return found + [p for part in manifest.assembled for p in assembled_problems(store, part)]


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    for number, name in enumerate(LOGS):
        (folder / name).mkdir()
        ticks = np.arange(30)
        table = pa.table({"timestamp": 1_700_000_000_000_000_000 + ticks * 10**8, "x": ticks + 0.5 * number})
        pq.write_table(table, folder / name / "odom.parquet")
    return folder


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """One thread an actor, and no waiting."""
    for module in (ages, ahead, storage, partition, plan_logs):
        monkeypatch.setattr(module, "ThreadPoolExecutor", Inline)
    monkeypatch.setattr(retries, "WAITS", (0, 0, 0))
    monkeypatch.setattr(Store, "create", noted_create)
    monkeypatch.setattr(build_logs, "beam", EAGER)
    monkeypatch.setattr(attempts, "_in_child", in_this_process)
    monkeypatch.setattr(attempts, "_APART", contextlib.nullcontext())  # actors stand for processes
    monkeypatch.setattr(removals, "WAIT_S", 0)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=NAMES.getrandbits(128)))
    faulty.install()
    monkeypatch.setattr(FaultyFiles, "faults", FaultyFiles.faults)


@pytest.fixture(scope="module")
def clean(logs):
    """By output, the objects of a root that one build without faults made."""
    found = {}
    faulty.install()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyFiles, "faults", FaultyFiles.faults)
        patch.setattr(build_logs, "beam", EAGER)
        for output in OUTPUTS:
            world = World(logs, 0, output)
            build_all(world)
            found[output] = world.objects()
    return found


OUTPUTS = {"tar: {}": 1.0, "zarr: {}": 0.25}  # with the share of schedules


def run(seed, logs, clean, **shares):
    output = random.Random(seed).choices([*OUTPUTS], [*OUTPUTS.values()])[0]
    world = World(logs, seed, output, **shares)
    try:
        world.run(clean[output])
    except AssertionError as error:
        raise AssertionError(f"LOGLOOM_SEED={seed}: {error}") from error
    return world


def test_whatever_the_schedule_versions_are_whole_and_those_of_a_clean_build(logs, clean):
    worlds = [run(seed, logs, clean) for seed in SEEDS]
    if len(worlds) > 10:
        assert any(actor.is_dead for world in worlds for actor in world.scheduler.actors)
        assert max(len(world.manifests) for world in worlds) > 3


def test_a_seed_gives_the_same_schedule_again(logs, clean):
    first, second = (run(5, logs, clean) for _ in range(2))
    assert first.scheduler.requests == second.scheduler.requests > 100
    assert first.manifests == second.manifests
    assert first.manifests


# --- mistakes that it must find


def entry_first(store, folder, name, last):
    """As `Store._restore_all`, but that the mark is written before the files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in sorted(files, key=lambda path: path != folder / last):
        store.restore(path, f"{name}/{path.relative_to(folder).as_posix()}")


def unsure_of_its_own(fs, path, value, mode="overwrite", **options):
    """As `RemoteFiles.pipe_file`, but that what exists is another's."""
    fs._ask(path, lambda: fs._own.pipe_file(path, value, mode=mode, **options))


def refused_whatever_is_there(store, name):
    """As `Store.read`, so that a version that is there never looks like one's own."""
    return read(store, name) + (b" " if MANIFEST.search(name) and finishing() else b"")


def finishing():
    return sys._getframe(2).f_code.co_name == "create_version"


def last_writer_wins(store, name, data, **options):
    store.replace(name, data)
    return True


read = Store.read
MISTAKES = {
    "a mark before its files, which nobody looks at": [
        (Store, "_restore_all", entry_first),
        (finished, "_problems", lambda *unit: iter(())),
        (partition, "differences", lambda *unit: iter(())),
    ],
    "refusal of one's own commit": [
        (RemoteFiles, "pipe_file", unsure_of_its_own),
        (Store, "read", refused_whatever_is_there),
    ],
    "a commit that replaces another": [(sys.modules[__name__], "create", last_writer_wins)],
    "builds that don't look for what is being removed": [
        (finish, "removed_meanwhile", lambda *job: iter(()))
    ],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_breaks_a_promise_under_some_schedule(logs, clean, monkeypatch, mistake):
    for place, name, wrong in MISTAKES[mistake]:
        monkeypatch.setattr(place, name, wrong)
    for seed in range(200):
        try:
            run(seed, logs, clean, crashes=0.01, faults=0.05)
        except AssertionError as found:
            print(found)
            return
    pytest.fail("nothing was found")
