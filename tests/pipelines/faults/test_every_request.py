"""Requests of every command meet every fault: the rows are right, or the error names the store.

In the tier check a sample of requests of each command does, in nightly the first from each place of the
code, in exhaust each.
"""

import contextlib
import functools
import itertools
import random

import numpy as np
import pytest

import logloom.datasets as ld
from logloom.errors import AfterCommitError, LogloomError, StorageError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.catalog.version_files import version_numbers
from logloom.io.formats.registry import format_named, format_names
from logloom.io.storage.remote import retries
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.convert.convert import convert
from logloom.pipelines.convert.plan import plan_convert
from logloom.pipelines.convert.sources import open_source
from logloom.pipelines.head.head import head
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from tests import faulty
from tests.absent import outputs_present
from tests.faulty import ROOT
from tests.pipelines.conftest import one_log_in_faulty_store
from tests.pipelines.verbs import chosen, some_pairs

pytestmark = pytest.mark.faults

FORMATS = format_names()
OUTPUTS = outputs_present("""\
outputs:
  tar: {}
  bags: {}
  table: {}
  zarr: {}
  parquet: {}
  lance: {}
  l5kit: {host: demo, translation: ego.position, rotation: ego.rotation}
  lerobot: {fps: 10, features: {observation.state: ego.position}}
  annotations: {images: {img_path: camera.front}}
""")
MAPPED = {"l5kit": "ego_translation", "lerobot": "observation.state"}
# A column of each output that is opened by row; annotation files aren't.
COLUMNS = {name: MAPPED.get(name, "ego.position") for name in FORMATS if format_named(name).has_rows}


@pytest.fixture(scope="module")
def made(drive):
    """A small log in the store that fails, and a version of it in every format."""
    recipe = one_log_in_faulty_store(drive, OUTPUTS, rows=20)
    version = build(plan_build(recipe, f"{ROOT}/root")).manifest
    return recipe, version, dict(faulty.FaultyFiles.store)


@pytest.fixture
def faults(made, monkeypatch):
    monkeypatch.setattr(retries, "WAITS", (0, 0, 0))
    put_back(made)
    yield faulty.FaultyFiles.faults
    faulty.FaultyFiles.faults.set()


def put_back(made):
    """The store as it was: to list a folder takes as long as all that it has."""
    faulty.FaultyFiles.store.clear()
    faulty.FaultyFiles.store.update(made[2])


def rows_of(manifest):
    columns = [(e.log_id, e.status, e.rows) for e in manifest.logs]
    return columns, manifest.totals


def built_again(made, root):
    done = build(plan_build(made[0], root))
    return rows_of(done.manifest)


def converted(made, root, output="table", to="tar"):
    # What isn't there is damage of the source, which is left out where that is asked for.
    on_error = "fail" if faulty.FaultyFiles.faults.kind == "404" else "skip"
    source = open_source(f"{ROOT}/root", output=output, on_error=on_error)
    done = convert(plan_convert(source, root, to, on_error=on_error))
    assert done.damaged == ()
    return rows_of(done.manifest)


def verified(made, root):
    return [finding.message for finding in verify(f"{ROOT}/root", num_workers=1).findings]


def shown(made, root):
    return [[row.lines() for row in head(f"{ROOT}/root", output=output, count=2)] for output in FORMATS]


def opened(made, root):
    found = []
    for output, column in COLUMNS.items():
        rows = ld.open(f"{ROOT}/root", output=output)
        found.append([rows[i]["timestamp"] for i in range(0, len(rows), 5)])
        found.append([np.asarray(rows[i][column]).tolist() for i in (0, len(rows) - 1)])
    return found


def loaded(made, root):
    found = []
    for output, column in COLUMNS.items():
        rows = ld.open(f"{ROOT}/root", output=output, columns=[column])
        with ld.Loader(rows, 8, shuffle=False, workers=0, prefetch=0) as loader:
            batches = [np.array(next(loader)[column]) for _ in range(3)]
        found.append(np.concatenate(batches).tolist())
    return found


COMMANDS = {
    "build": built_again,
    "convert": converted,
    "convert from l5kit": functools.partial(converted, output="l5kit"),
    "convert from lance": functools.partial(converted, output="lance", to="parquet"),
    "convert from lerobot": functools.partial(converted, output="lerobot", to="lance"),
    "convert to l5kit": functools.partial(converted, to="l5kit"),
    "convert to annotations": functools.partial(converted, to="annotations"),
    "verify": verified,
    "head": shown,
    "open": opened,
    "load": loaded,
}
AT_FIRST = ("reset", "time-out", "short", "503", "lost")
FOR_GOOD = ("403", "404", "dead")
ROOTS = (f"{ROOT}/new-{number}" for number in itertools.count())


def committed(root):
    """The rows of the versions that a root has."""
    store = Store.at(root)
    return [rows_of(read_manifest(store, number)) for number in version_numbers(store)]


@pytest.fixture(scope="module")
def expected(made):
    """What each command gives without faults, the number of its requests, and the places of the code."""
    faults = faulty.FaultyFiles.faults
    found = {}
    for name, command in COMMANDS.items():
        faults.set()
        right = command(made, next(ROOTS))
        found[name] = (right, faults.requests, dict(faults.places))
    return found


@pytest.mark.parametrize(("command", "kind"), some_pairs(COMMANDS, AT_FIRST))
def test_a_command_whose_every_request_fails_at_first_ends_as_without_faults(
    made, expected, faults, command, kind
):
    run = COMMANDS[command]
    faults.set(kind, once=True)
    found = run(made, next(ROOTS))
    assert len(faults.done) > 20
    faults.set()
    assert found == expected[command][0]


@pytest.mark.filterwarnings("ignore:.*can't fill batches")
@pytest.mark.parametrize("kind", FOR_GOOD)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_meets_a_fault_for_good_ends_with_an_error_or_the_right_rows(
    made, expected, faults, command, kind
):
    run = COMMANDS[command]
    right, number, places = expected[command]
    for at in chosen(number, places, random.Random(f"{command} {kind}"), 1):
        root = next(ROOTS)
        faults.set(*(("reset", at, 1 << 30) if kind == "dead" else (kind, at)))
        error, found = None, right
        try:
            found = run(made, root)
        except LogloomError as raised:
            error = raised
        what = f"request {at}: {faults.done[:1]}: {error or found}"
        faults.set()
        if kind == "404" and command == "verify" and error is None:
            assert all("missing" in message or "no such" in message for message in found), what
        else:
            assert found == right, what
        fault = error.__cause__ if isinstance(error, AfterCommitError) else error
        of_store = isinstance(fault, StorageError) or "errors.StorageError: " in str(fault)  # a worker's
        assert error is None or kind == "404" or of_store, what
        assert committed(root) in ([], [right]), what
        put_back(made)


def test_a_log_that_a_store_refuses_is_no_mistake_of_the_recipe(made, faults):
    run = COMMANDS["build"]
    for at in range(12, 20):  # the log is looked into for what the columns of the recipe need
        faults.set("403", at)
        with contextlib.suppress(StorageError):
            run(made, next(ROOTS))
        assert faults.done
