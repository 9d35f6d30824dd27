"""Each call of each command on versions meets each fault: an error that says so or the right end, and never
half of one; run again, the command succeeds.

The tier check lets a sample of the calls of each command fail, nightly the first from each place of the code,
exhaust each.
"""

import dataclasses
import datetime
import errno
import io
import os
import pathlib
import random
import shutil
import sys

import pytest

from logloom.errors import LogloomError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage import files
from logloom.io.storage.remote import retries
from logloom.pipelines.versions.diff import compare
from logloom.pipelines.versions.history import follow, versions
from tests import faulty
from tests.pipelines.roots import age
from tests.pipelines.verbs import VERBS, as_made, chosen, fresh, of_long_ago, state, store_at
from tests.tier import by_tier

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("one_at_a_time")]
SAMPLES = 2
FEW_PLACES = 6
CALLS = (
    "open",
    "link",
    "rename",
    "replace",
    "unlink",
    "rmdir",
    "mkdir",
    "fsync",
    "scandir",
    "listdir",
    "stat",
    "write",
    "writev",
    "fdatasync",
)
READS = ("pread", "preadv")  # by the names that logloom.io.storage.files has for them
CODES = {"full": errno.ENOSPC, "broken": errno.EIO, "forbidden": errno.EACCES, "lost": errno.EIO}
KINDS = [*CODES, "short"]
IN_STORES = ["reset", "503", "403", "lost", "dead", "lost and dead"]


def listed(made, store):
    return [dataclasses.replace(one, started=None, run="", engine="") for one in versions(store)]


def compared(made, store):
    return compare(("1", "2"), read_manifest(store, 1), read_manifest(store, 2)).to_json()


def followed(made, store):
    log_id = read_manifest(store, 1).logs[0].log_id
    return [stay.to_json() for stay in follow(store, log_id)]


READING = {"versions": (as_made, listed), "diff": (as_made, compared), "versions --log": (as_made, followed)}
COMMANDS = VERBS | READING


class Calls:
    """Counts what a command asks of the disk, and lets one such call fail."""

    def __init__(self, patch, root):
        self.number, self.at, self.kind, self.said = 0, -1, "", ""
        self.places = {}  # of the code, and the number of the first call that each made
        self._root = str(root)
        for name in CALLS:
            patch.setattr(os, name, self._failing(name, getattr(os, name)))
        for name in READS:
            patch.setattr(files, name, self._failing(name, getattr(files, name)))
        self._open = pathlib.Path.open
        patch.setattr(pathlib.Path, "open", lambda *given, **options: self._opened(*given, **options))

    def set(self, root, kind="", at=-1):
        self._root, self.kind, self.at, self.number, self.said = str(root), kind, at, 0, ""

    def _is_ours(self, place, options):
        return isinstance(place, int) or options.get("dir_fd") or os.fspath(place).startswith(self._root)

    def ask(self, what, work, short=None):
        number, self.number = self.number, self.number + 1
        if self.kind == "noted":
            self.places.setdefault(faulty.place_of(sys._getframe(2), most=3), number)
        if number != self.at:
            return work()
        self.said = what
        if self.kind == "short":
            return work() if short is None else short()
        if self.kind == "lost":
            work()
        raise OSError(CODES[self.kind], os.strerror(CODES[self.kind]))

    def _failing(self, name, real):
        def call(*arguments, **options):
            if not self._root or not arguments or not self._is_ours(arguments[0], options):
                return real(*arguments, **options)
            short = None
            if name == "write":
                descriptor, data = arguments
                short = lambda: real(descriptor, bytes(data)[: max(1, len(data) // 2)])  # noqa: E731
            if name == "writev":
                descriptor, pieces = arguments
                whole = b"".join(pieces)
                short = lambda: real(descriptor, [whole[: max(1, len(whole) // 2)]])  # noqa: E731
            return self.ask(f"{name} {arguments[0]}", lambda: real(*arguments, **options), short)

        return call

    def _opened(self, path, mode="r", *arguments, **options):
        if not self._root or not str(path).startswith(self._root):
            return self._open(path, mode, *arguments, **options)
        calls = self
        if mode not in ("xb", "wb"):
            found = self.ask(f"open {path}", lambda: self._open(path, mode, *arguments, **options))
            if mode != "rb" or arguments or options:
                return found
            found.close()

            class Read(io.FileIO):
                def readinto(self, buffer):
                    return calls.ask(f"read {path}", lambda: io.FileIO.readinto(self, buffer))

                def readall(self):
                    return calls.ask(f"read {path}", lambda: io.FileIO.readall(self))

            return io.BufferedReader(Read(path))

        class Raw(io.FileIO):
            def write(self, data):
                whole = super().write
                return calls.ask(
                    f"write {path}", lambda: whole(data), lambda: whole(data[: len(data) // 2 or 1])
                )

        return io.BufferedWriter(self.ask(f"create {path}", lambda: Raw(path, mode)))


def outcome(run, made, store):
    """What a command gave, and the error that it ended by."""
    try:
        return run(made, store), None
    except LogloomError as error:
        return None, error


def check(command, before, after, right, found, what):
    """What a root shows after a fault: the old state or the new; the new where no error said so."""
    given, error, shown = found
    assert shown[:2] in (before[:2], after[:2]), what
    assert shown[3] <= before[3], what
    assert error is None or str(error), what
    if error is None and command in READING:
        told = [one.problem for one in given] if command == "versions" else []
        assert given == right or any(told), what
    elif error is None:
        assert shown == after, what


@pytest.mark.parametrize("command", COMMANDS)
def test_a_call_of_the_disk_that_fails_ends_with_an_error_or_the_right_state(
    two_versions, tmp_path, monkeypatch, command
):
    prepare, run = COMMANDS[command]
    template, rng = fresh(two_versions, prepare, tmp_path / "template"), random.Random(command)
    before = state(template)
    calls = Calls(monkeypatch, "")

    def copied(name):
        root = shutil.copytree(template, tmp_path / name / "root")
        if prepare is of_long_ago:
            age(root, 30)
        return root

    root = copied("right")
    store = store_at(root)
    calls.set(root, "noted")
    right = run(two_versions, store)
    number, places = calls.number, dict(calls.places)
    calls.set("")
    after = state(root)
    for at in chosen(number, places, rng, SAMPLES):
        for kind in by_tier([rng.choice(KINDS)], KINDS):
            root = copied(f"{kind}-{at}")
            store = store_at(root)
            calls.set(root, kind, at)
            try:
                given, error = outcome(run, two_versions, store)
            finally:
                what = f"{command}: {kind} at call {at} of {number}: {calls.said}"
                calls.set("")
            what = f"{what}: {error}"
            check(command, before, after, right, (given, error, state(root)), what)
            run(two_versions, store_at(root))
            assert state(root) == after, what
            shutil.rmtree(root.parent)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_place_that_asks_the_disk_lets_its_own_error_through(two_versions, tmp_path, monkeypatch, command):
    prepare, run = COMMANDS[command]
    template = fresh(two_versions, prepare, tmp_path / "template")
    calls = Calls(monkeypatch, "")

    def run_on(name, kind, at=-1):
        root = shutil.copytree(template, tmp_path / name / "root")
        if prepare is of_long_ago:
            age(root, 30)
        store = store_at(root)
        calls.set(root, kind, at)
        try:
            outcome(run, two_versions, store)
        finally:
            calls.set("")
        shutil.rmtree(root.parent)

    run_on("right", "noted")
    places = sorted(calls.places.values())
    assert places
    few = random.Random(command).sample(places, min(len(places), FEW_PLACES))
    for at in by_tier(few, places):
        run_on(f"broken-{at}", "broken", at)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "build"])
def test_a_request_that_fails_ends_with_an_error_or_the_right_state(
    two_versions, tmp_path, monkeypatch, command
):
    prepare, run = COMMANDS[command]
    template, rng = fresh(two_versions, prepare, tmp_path / "template"), random.Random(command)
    monkeypatch.setattr(retries, "WAITS", (0, 0, 0))
    faults = faulty.install()
    stored = faulty.FaultyFiles()
    uri = f"{faulty.ROOT}/root"

    def put():
        stored.store.clear()
        for path in sorted(path for path in template.rglob("*") if path.is_file()):
            name = f"/{uri.partition('://')[2]}/{path.relative_to(template)}"
            stored.pipe_file(name, path.read_bytes())
            if prepare is of_long_ago:
                stored.store[name].modified -= datetime.timedelta(days=30)
        return store_at(uri)

    store = put()
    before = state(uri)
    faults.set()
    right = run(two_versions, store)
    number, places = faults.requests, dict(faults.places)
    after = state(uri)
    for at in chosen(number, places, rng, SAMPLES):
        for kind in by_tier([rng.choice(IN_STORES)], IN_STORES):
            store = put()
            lasting = {"dead": ("reset", at, 1 << 30), "lost and dead": ("lost", at, 4)}
            faults.set(*lasting.get(kind, (kind, at)))
            try:
                given, error = outcome(run, two_versions, store)
            finally:
                what = f"{command}: {kind} at request {at} of {number}: {faults.done[:1]}"
                faults.set()
            what = f"{what}: {error}"
            check(command, before, after, right, (given, error, state(uri)), what)
            run(two_versions, store_at(uri))
            assert state(uri) == after, what
