"""A small synthetic drive, and one version built from it, for all tests of whole jobs."""

import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from logloom.demo import demo_recipe
from logloom.io.catalog.manifest import read_manifest
from logloom.io.catalog.manifest_digest import write_digest
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.version_files import version_file
from logloom.io.logs import listings
from logloom.io.logs.opening import open_log
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan import logs as plan_logs
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from tests import faulty
from tests.absent import present
from tests.pipelines.verbs import one_at_a_time, two_versions  # noqa: F401  # fixtures
from tests.transforms.ros2_logs import SECOND

FULL_OUTPUT = present("tar", "bags")[0]  # of `built`, the output that has all columns


@dataclass(frozen=True)
class Drive:
    """Logs and a recipe over them."""

    logs: list[pathlib.Path]
    text: str

    def recipe(self, **changes: str) -> Recipe:
        """The recipe, with lines replaced: {old: new}."""
        text = self.text
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        return Recipe.from_yaml(text, source="drive.yaml")


QUICK = """
name: quick
logs: ["{folder}/*.mcap"]
clock: {{rate: 10}}
columns: {{speed: {{topic: /odom, field: twist.twist.linear.x, resample: previous}}}}
outputs: {outputs}
partition: {{rows: {rows}}}
{more}
"""


def quick_recipe(folder: pathlib.Path, rows: int = 20, outputs: str = "{tar: {}}", more: str = "") -> Recipe:
    """A recipe over the logs of a folder with one column, which takes a tenth of the demo's to build."""
    text = QUICK.format(folder=folder, rows=rows, outputs=outputs, more=more)
    return Recipe.from_yaml(text, source="quick.yaml")


def one_log_in_faulty_store(drive: Drive, outputs: str, rows: int) -> Recipe:
    """A recipe for the first log, which then lies in the store that fails as told, beside where roots may."""
    faulty.install()
    faulty.FaultyFiles().pipe_file("/bucket/logs/one.mcap", drive.logs[0].read_bytes())
    logs = str(drive.logs[0].parent)
    text = drive.text[: drive.text.index("outputs:")].replace(logs, f"{faulty.ROOT}/logs")
    return Recipe.from_yaml(f"{text}{outputs}\npartition: {{rows: {rows}}}\n", source="drive.yaml")


def build_at(recipe: Recipe, root: pathlib.Path, num_workers: int = 1, beside: bool = False, **choices):
    return build(plan_build(recipe, str(root), **choices), num_workers=num_workers, beside=beside)


def digests(root: pathlib.Path) -> dict[str, str]:
    """Digest of every file of a dataset, but for times of versions, and for runs/, index/ and tmp/."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and path.relative_to(root).parts[0] not in ("runs", "index", "tmp")
        and not path.name.endswith(".times.json")
    }


def restate(root: pathlib.Path, change: Callable[[LogRecord], LogRecord], **fields: Any) -> None:
    """Changes the records of version 1, and digests with them, as somebody would who means to."""
    store = Store.at(str(root))
    manifest = read_manifest(store, 1)
    logs = write_records(store, map(change, manifest.logs))
    data = dataclasses.replace(manifest, logs=logs, **fields).to_bytes()
    store.replace(version_file(1), data)
    write_digest(store, 1, data)


def drive_of(folder: pathlib.Path) -> Drive:
    """The demo's recipe over the logs of a folder."""
    text = demo_recipe(folder)
    if FULL_OUTPUT != "tar":
        text += f"  {FULL_OUTPUT}: {{types: {{camera.front: jpg}}}}\n"
    if "partition:" not in text:
        text += "\npartition: {rows: 10}\n"
    return Drive(sorted(folder.iterdir()), text)


def with_outputs(text: str, outputs: str) -> str:
    """The text of a recipe of a drive with more outputs, each once."""
    known = re.findall(r"^  (\w+):", text[text.index("outputs:") :], re.MULTILINE)
    more = [line for line in outputs.splitlines() if line.split(":")[0].strip() not in known]
    return text.replace("\npartition:", "\n".join([*more, "", "partition:"]))


@pytest.fixture(scope="session")
def drive(logs_of) -> Drive:
    return drive_of(logs_of(2.5, 2))


@pytest.fixture(scope="session")
def quick_drive(logs_of) -> Drive:
    """For tests to which rows are all the same: one column and one output take a quarter of the time."""
    folder = logs_of(2.5, 2)
    return Drive(sorted(folder.iterdir()), QUICK.format(folder=folder, rows=10, outputs="{tar: {}}", more=""))


@pytest.fixture(scope="session")
def long_drive(logs_of) -> Drive:
    """For what takes a while to happen in a drive."""
    return drive_of(logs_of(4, 2))


@pytest.fixture(scope="session")
def built(drive, root_of) -> pathlib.Path:
    """The root of a version built in one process; not to be changed."""
    return root_of(drive.recipe())


@pytest.fixture
def _settled_at_once(monkeypatch):
    """Files that were written just now count as settled, so that tests need not wait for a minute."""
    monkeypatch.setattr(listings, "SETTLED_NS", -3600 * SECOND)


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """The names of the logs that plans open."""
    names: list[str] = []

    def note(uris, *more):
        names.append(pathlib.PurePath(uris[0]).stem)
        return open_log(uris, *more)

    monkeypatch.setattr(plan_logs, "open_log", note)
    return names
