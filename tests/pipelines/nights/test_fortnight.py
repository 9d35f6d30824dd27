"""Fourteen nights of drives that arrive, change, break and vanish, of kills, and of all that a team does with
versions: they end in the bytes that one clean build over the last night's drives gives.
"""

import functools
import multiprocessing
import os
import pathlib
import random
import shutil
from collections.abc import Callable, Iterator

import mcap.writer
import pytest

import logloom.datasets
from logloom import demo
from logloom.demo import make_drives
from logloom.errors import PurgedError
from logloom.io.catalog.entries import read_log_part
from logloom.io.catalog.manifest import Manifest, read_manifest
from logloom.io.catalog.version_files import version_numbers
from logloom.io.storage.store import Store
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.versions.rollback import rollback
from logloom.pipelines.versions.tag import tag
from logloom.recipe import Keep, Recipe
from tests.files import flip
from tests.pipelines.conftest import build_at, digests
from tests.pipelines.roots import DAY, age

pytestmark = pytest.mark.faults

RECIPE = """
name: fortnight
logs: ["{folder}/*.mcap"]
vanished: drop
on_error: salvage
clock: {{rate: 10}}
columns:
  position: {{topic: /odom, field: pose.pose.position, resample: linear}}
  rotation: {{topic: /odom, field: pose.pose.orientation, resample: slerp, as: rotation_matrix}}
  objects: {{topic: /tracks, field: objects, strings: 16, resample: nearest}}
partition: {{rows: 7}}
outputs:
  l5kit:
    translation: position
    rotation: rotation
    agents: {{column: objects, label_probabilities: {{from: class, map: {{car: PERCEPTION_LABEL_CAR}}}}}}
  table: {{index: [position]}}
  tar: {{}}
  bags: {{}}
  zarr: {{columns: [position, objects]}}
"""
KILLED = 9
WRITES = ("create", "replace", "restore", "publish", "remove", "remove_all")


def killed_at(count: int, verb: Callable[..., object], *arguments: object) -> None:
    """Runs a verb in this process, which ends without a word before or after one of its writes.

    Args:
        count: of halves of writes, before and after the act, until then.
    """
    left = iter(range(count))

    def counted(act: Callable[..., object]) -> Callable[..., object]:
        def write(*arguments: object, **options: object) -> object:
            if next(left, None) is None:
                os._exit(KILLED)
            done = act(*arguments, **options)
            if next(left, None) is None:
                os._exit(KILLED)
            return done

        return write

    for name in WRITES:
        setattr(Store, name, counted(getattr(Store, name)))
    verb(*arguments)


def build_text(text: str, root: pathlib.Path) -> None:
    build_at(Recipe.from_yaml(text), root)


class Team:
    """Drives of tonight, and the root that is built of them each night."""

    def __init__(self, folder: pathlib.Path):
        self.logs, self.root = folder / "logs", folder / "root"
        self.logs.mkdir()
        self._made = [make_drives(folder / f"made-{seed}", seconds=1.5, logs=8, seed=seed) for seed in (0, 1)]
        self._rng = random.Random(14)
        self._processes = multiprocessing.get_context("forkserver")
        self.text = RECIPE.format(folder=self.logs)

    @property
    def store(self) -> Store:
        return Store.at(str(self.root))

    def arrives(self, *numbers: int, seed: int = 0) -> None:
        """Drives arrive, or are replaced by others of the same names."""
        for number in numbers:
            shutil.copy2(self._made[seed][number], self.logs)

    def breaks(self, number: int) -> None:
        path = self.logs / self._made[0][number].name
        size = path.stat().st_size
        flip(path, self._rng.randrange(size // 4, size // 2))

    def vanishes(self, number: int) -> None:
        (self.logs / self._made[0][number].name).unlink()

    def builds(self) -> Manifest:
        """A build, which commits what verification finds sound."""
        built = build_at(Recipe.from_yaml(self.text), self.root)
        self.is_sound()
        return built.manifest

    def is_sound(self) -> None:
        assert verify(str(self.root), num_workers=1).findings == ()

    def is_killed_amid(self, most: int, verb: Callable[..., object], *arguments: object) -> None:
        count = self._rng.randrange(1, most)
        process = self._processes.Process(target=killed_at, args=(count, verb, *arguments))
        process.start()
        process.join()
        assert process.exitcode == KILLED, f"it had ended before half write {count}"
        if version_numbers(self.store):
            self.is_sound()

    def rows_of(self, version: int | str) -> list[dict[str, object]]:
        rows = logloom.datasets.open(self.root, version=version, output="table", check=True)
        return [{name: repr(value) for name, value in row.items()} for row in rows]


@pytest.fixture
def team(tmp_path) -> Iterator[Team]:
    with pytest.MonkeyPatch.context() as patch:
        few = tuple(topic for topic in demo.TOPICS if topic.name in ("/odom", "/tracks"))
        patch.setattr(demo, "TOPICS", few)  # the others have pictures and scans
        patch.setattr(mcap.writer, "Writer", functools.partial(mcap.writer.Writer, chunk_size=4000))
        yield Team(tmp_path)


def fourteen_nights(team: Team) -> None:
    build = (build_text, team.text, team.root)
    # 1: three drives
    team.arrives(0, 1, 2)
    team.builds()
    # 2: a fourth; the build is killed, and run again in the morning
    team.arrives(3)
    team.is_killed_amid(60, *build)
    assert len(team.builds().logs) == 4
    # 3: a drive was uploaded anew; somebody trains on this version
    team.arrives(1, seed=1)
    good, _ = tag(team.store, team.builds().version, ["good"])
    trained_on = team.rows_of("good")
    # 4: a disk broke
    team.breaks(2)
    broken = team.builds()
    assert broken.logs.find("drive-02").status == "salvaged"
    # 5: two drives, and a build that nobody runs again
    team.arrives(4, 5)
    team.is_killed_amid(60, *build)
    # 6: another drive; what was finished the night before is found
    team.arrives(6)
    assert len(team.builds().logs) == 7
    # 7: a drive vanishes
    team.vanishes(0)
    assert team.builds().logs.find("drive-00") is None
    # 8: last night's was a mistake, it is said: back, amid which the machine goes down
    team.is_killed_amid(3, rollback, team.store, "good")
    if read_manifest(team.store).logs != read_manifest(team.store, good).logs:
        rollback(team.store, "good")
    assert read_manifest(team.store).logs == read_manifest(team.store, good).logs
    assert team.rows_of("latest") == trained_on
    # 9: it was none; but a build that was to say so is killed
    team.is_killed_amid(20, *build)
    # 10: a month later gc takes what is no longer needed, is killed, and is run again
    age(team.root, 30)
    collect = (collect_garbage, str(team.root))
    team.is_killed_amid(6, *collect)
    collect_garbage(str(team.root), keep=Keep(last=2), grace_s=DAY)
    assert version_numbers(team.store)[0] == good
    team.is_sound()
    assert team.rows_of("good") == trained_on
    assert len(team.builds().logs) == 6
    # 11: somebody who was filmed wants a drive erased; the first attempt is killed
    team.vanishes(3)
    part = read_manifest(team.store).logs.find("drive-03").part
    team.is_killed_amid(2, purge, str(team.root), ["drive-03"])
    erased = purge(str(team.root), ["drive-03"], reason="asked for")
    assert erased.left == []
    assert erased.is_proven
    with pytest.raises(PurgedError):
        read_log_part(team.store, part)
    team.is_sound()
    team.builds()
    # 12: the broken drive was saved from another disk, one is uploaded anew
    team.arrives(2)
    team.arrives(5, seed=1)
    team.builds()
    # 13: one more breaks and one arrives; killed, gc comes by before the build is run again
    team.breaks(6)
    team.arrives(7)
    team.is_killed_amid(60, *build)
    age(team.root, 30)
    collect_garbage(str(team.root), keep=Keep(last=2), grace_s=DAY)
    team.builds()
    # 14: a drive comes back
    team.arrives(0)
    team.builds()


def of_newest(root: pathlib.Path, version: int) -> dict[str, str]:
    """Digests of a root's files, but for manifests and notes, which tell of other versions; its view by one
    name."""
    view = f"v{version:08d}/"
    kept = {}
    for name, digest in digests(root).items():
        if not name.startswith("versions/") or name.startswith("versions/pages/"):
            kept[name.replace(view, "view/")] = digest
    return kept


@pytest.mark.usefixtures("_settled_at_once")
def test_a_fortnight_ends_in_the_bytes_of_one_clean_build(team, tmp_path):
    fourteen_nights(team)
    clean = build_at(Recipe.from_yaml(team.text), tmp_path / "clean").manifest
    newest = read_manifest(team.store)
    assert list(newest.logs) == list(clean.logs)
    assert (newest.assembled, newest.totals, newest.schema) == (clean.assembled, clean.totals, clean.schema)
    assert of_newest(team.root, newest.version).items() >= of_newest(tmp_path / "clean", 1).items()
    assert verify(str(team.root), against_logs=True, num_workers=1).findings == ()
    assert plan_build(Recipe.from_yaml(team.text), str(team.root)).up_to_date
    # Once all others went, nothing else is left but what versions keep of themselves.
    for _ in range(2):
        age(team.root, 30)
        collect_garbage(str(team.root), keep=Keep(last=1, tags="none"), grace_s=DAY)
    left = of_newest(team.root, newest.version)
    assert left == of_newest(tmp_path / "clean", 1)
