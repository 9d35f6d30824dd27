"""Mistakes that the simulation must find: rules of builds, gc, purge and tags are switched off one by one.

Each has the seeds of schedules that showed it; where a change made these other ones, all are tried. The tier
check has one in four.
Elsewhere: all rules, in the model of versions (tests/model), those of references to other roots among them,
which no schedule was seen to need.
"""

import contextlib
import sys

import pytest

from logloom.io.catalog.entries import ENTRY
from logloom.io.catalog.tombstones import Purged
from logloom.io.storage.remote.object_stores import RemoteFiles
from logloom.io.storage.store import Store
from logloom.pipelines.gc import gc, removal
from logloom.pipelines.purge import purge
from logloom.pipelines.versions import tag
from logloom.transforms.build import commit, read_back, reuse, unit_checks
from tests.simulation import conftest
from tests.simulation.scheduler import Scheduler
from tests.simulation.world import MANIFEST
from tests.tier import by_tier

pytestmark = pytest.mark.faults

TRIED = 200  # schedules
FIRST_ROOT = 1_000_000  # other tests have roots of smaller numbers

collection = gc._Collection
create, read = Store.create, Store.read


def nothing(*arguments, **options):
    return iter(())


def entry_first(store, folder, name, last):
    """As `Store._restore_all`, but that the mark is written before the files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in sorted(files, key=lambda path: path != folder / last):
        store.restore(path, f"{name}/{path.relative_to(folder).as_posix()}")


def unsure_of_its_own(fs, path, value, mode="overwrite", **options):
    """As `RemoteFiles.pipe_file`, but that what exists is another's."""
    fs._request(path, lambda: fs._own.pipe_file(path, value, mode=mode, **options))


def refused_whatever_is_there(store, name):
    """As `Store.read`, so that a version that is there never looks like one's own."""
    is_commit = sys._getframe(1).f_code.co_name == "create_version"
    return read(store, name) + (b" " if MANIFEST.search(name) and is_commit else b"")


def last_writer_wins(store, name, data, **options):
    store.replace(name, data)
    return True


def tags_of_the_last_writer(store, name, data, **options):
    return last_writer_wins(store, name, data) if "/tags/" in name else create(store, name, data, **options)


def found_without_a_look(store, folders):
    return all(store.exists(f"{folder}/{ENTRY}") for folder in folders)


def files_first(self, folders, check):
    files = [file.name for folder in folders for file in self._old_files(folder)]
    removal.remove_files(self._store, sorted(files, key=lambda name: name.endswith(ENTRY)))


def manifest_removed(store, number, why):
    store.remove(f"versions/{number:08d}.json")


def anything_is_old(scheduler):
    return list(scheduler.written)


def without_tombstones(purging, folders, reason):
    purging._purged = Purged(purging._store)


# By what is wrong: the theme and the seeds of schedules that show it, before what all stand still there, and
# what takes whose place.
MISTAKES = {
    "a mark is written before its files, and nobody looks at these": (
        ("builds", (9, 11), ""),
        [
            (Store, "_restore_all", entry_first),
            (unit_checks, "_problems", nothing),
            (read_back, "differences", nothing),
        ],
    ),
    "one's own commit is refused": (
        ("builds", (33, 49), ""),
        [(RemoteFiles, "pipe_file", unsure_of_its_own), (Store, "read", refused_whatever_is_there)],
    ),
    "a commit replaces another": (("builds", (6, 11), ""), [(conftest, "create", last_writer_wins)]),
    "a unit is taken without writing its mark again": (
        ("builds", (101,), ""),
        [(reuse, "refresh", found_without_a_look)],
    ),
    "a commit doesn't look for what is being removed": (
        ("builds", (24, 16), "remove parts"),
        [(commit, "removed_meanwhile", nothing)],
    ),
    "gc doesn't note what it removes": (
        ("builds", (16, 24), "remove parts"),
        [(one, "removing", lambda *what: contextlib.nullcontext(lambda: None)) for one in (gc, removal)],
    ),
    "gc removes files before their mark": (
        ("builds", (7, 4), ""),
        [(collection, "_remove_units", files_first)],
    ),
    "the grace is shorter than a build": (("builds", (3, 38), ""), [(Scheduler, "old", anything_is_old)]),
    "retention removes a manifest": (("retention", (4, 11), ""), [(gc, "mark_removed", manifest_removed)]),
    "gc doesn't look for tags after it took a version out": (
        ("tags", (5, 0), ""),
        [(gc, "read_tags", lambda store: {})],
    ),
    "a tag doesn't look whether its version was removed meanwhile": (
        ("tags", (4, 12), "write versions/tags"),
        [
            (tag, "version_numbers", lambda store: range(1, 100)),
            (gc._Collection, "_bring_back", lambda self, number: False),  # by which the next gc heals it
        ],
    ),
    "the last writer of tags wins": (("tags", (6, 0), ""), [(conftest, "create", tags_of_the_last_writer)]),
    "a purge leaves no tombstone": (
        ("purges", (4, 12), ""),
        [(purge._Purging, "_write_tombstones", without_tombstones)],
    ),
}


@pytest.mark.parametrize("mistake", by_tier(list(MISTAKES)[::4], MISTAKES))
def test_a_mistake_breaks_a_promise_under_some_schedule(run, monkeypatch, mistake):
    (theme, shown_by, stalls_before), replaced = MISTAKES[mistake]
    how = {"theme": theme, "crashes": 0.01, "faults": 0.05, "stalls_before": stalls_before}
    # Names of roots are part of a schedule, too: these don't depend on what this process ran before.
    roots = FIRST_ROOT + 2 * TRIED * list(MISTAKES).index(mistake)
    for seed in dict.fromkeys([*shown_by, *range(TRIED)]):
        with monkeypatch.context() as broken:
            for place, name, wrong in replaced:
                broken.setattr(place, name, wrong)
            try:
                run(seed, number=roots + seed, **how)
            except AssertionError as found:
                print(seed, found)
                break
    else:
        pytest.fail("nothing was found")
    run(seed, number=roots + TRIED + seed, **how)  # and nothing is, once all rules hold
