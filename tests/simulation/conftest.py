"""Schedules run the real commands, each actor in one thread, over a store in memory."""

import contextlib
import os
import random
import threading
import uuid
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logloom.io.catalog import removal_notes
from logloom.io.formats.table.write import part_writer
from logloom.io.storage import processes, threads
from logloom.io.storage.processes import Process
from logloom.io.storage.remote import retries
from logloom.io.storage.store import Store
from logloom.pipelines.build import build
from logloom.runners.options import Finished
from logloom.transforms.build import partition, quarantine, run_note, unit_writer
from tests import faulty
from tests.faulty import FaultyFiles
from tests.simulation.world import LOGS, MANIFEST, NAMES, OUTPUTS, THEMES, TRIED, World, build_all

SHARES = {"tar: {}": 1.0, "zarr: {}": 0.25}  # of schedules, by their output


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


class Silent:
    """In place of the thread that gives signs of life: here a process is known to live."""

    def __init__(self, *arguments, **options):
        pass

    def start(self):
        pass

    def join(self):
        pass


def actor():
    """The process that an actor stands for."""
    number = FaultyFiles.faults.current
    return Process(host="here", pid=number, process=str(number), boot="boot", namespace="all", began=1)


create = Store.create


def noted_create(store, name, data, **options):
    if MANIFEST.search(name):
        TRIED.by["manifest"] = data
    return create(store, name, data, **options)


def in_this_process(job, tasks):
    """Builds what another process should, which wouldn't reach this store."""
    return [partition.build_partition(job, task) for task in tasks], ""


def run_engine(steps, runner, size, **how):
    """Builds in the world of whoever asks."""
    FaultyFiles.faults.engine(steps.keywords["plan"])
    return Finished("", {})


@pytest.fixture(scope="session")
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
    """One thread an actor, which stands for a process, and no waiting."""
    for module in (unit_writer, part_writer, threads):
        monkeypatch.setattr(module, "ThreadPoolExecutor", Inline)
    monkeypatch.setattr(retries, "WAITS", (0, 0, 0))
    monkeypatch.setattr(Store, "create", noted_create)
    monkeypatch.setattr(build, "run", run_engine)
    monkeypatch.setattr(quarantine, "_in_child", in_this_process)
    monkeypatch.setattr(quarantine, "_APART", contextlib.nullcontext())
    monkeypatch.setattr(removal_notes, "WAIT_S", 0)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=NAMES.getrandbits(128)))
    quiet = SimpleNamespace(Thread=Silent, Lock=threading.Lock, Event=threading.Event)
    monkeypatch.setattr(run_note, "threading", quiet)
    monkeypatch.setattr(processes, "own_process", actor)
    monkeypatch.setattr(run_note, "own_process", actor)
    monkeypatch.setattr(processes, "is_running", lambda *of: FaultyFiles.faults.is_running(*of))
    faulty.install()
    monkeypatch.setattr(FaultyFiles, "faults", FaultyFiles.faults)


@pytest.fixture(scope="session")
def clean(logs):
    """Gives, by output and logs, the objects of a root that one build without faults made."""
    made = {}

    def objects(output, names):
        if (output, names) not in made:
            faults, held = FaultyFiles.faults, dict(FaultyFiles.store)
            world = World(logs, 0, output)
            if names:
                build_all(world, sorted(names))
            made[output, names] = world.objects()
            FaultyFiles.faults = faults
            FaultyFiles.store.clear()
            FaultyFiles.store.update(held)
        return made[output, names]

    return objects


@pytest.fixture
def run(logs, clean):
    """Runs the schedule of a seed; gives its world."""

    def run_seed(seed, theme="", **shares):
        chosen = random.Random(seed)
        output = chosen.choices([*SHARES], [*SHARES.values()])[0]
        theme = theme or chosen.choice([*THEMES])
        output = OUTPUTS.get(theme, output)
        world = World(logs, seed, output, **shares)
        try:
            world.run(theme, lambda names: clean(output, names))
        except Exception as error:
            again = f"PYTHONHASHSEED={os.environ.get('PYTHONHASHSEED', '?')}"
            raise AssertionError(
                f"LOGLOOM_SEED={seed} LOGLOOM_ROOT={world.number} {again}: {error}"
            ) from error
        return world

    return run_seed
