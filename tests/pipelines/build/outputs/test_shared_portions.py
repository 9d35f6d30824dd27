"""An archive that grows: what is assembled anew of an output is what the new logs bring, and bytes stay.

Chunks of L5Kit arrays are made small here, so that a few short drives fill some.
"""

import json
import pathlib
import pickle
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import fsspec
import pytest

import logloom.datasets
from logloom.demo import make_drives
from logloom.errors import ReadBackError
from logloom.io.catalog import entries
from logloom.io.catalog import manifest as manifests
from logloom.io.catalog.entries import unit_folder
from logloom.io.catalog.manifest import entries_of, open_root, read_assembled
from logloom.io.formats.l5kit.dtypes import ARRAYS
from logloom.io.logs.files.sidecars import Sidecars
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import prepared
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.transforms.beam import build as build_logs
from logloom.transforms.build import commit
from logloom.transforms.build.assembly import files as assembly
from logloom.transforms.build.assembly import known_units
from logloom.transforms.build.assembly.known_units import UnitMemory
from logloom.transforms.build.commit import outcome_file, read_outcome
from logloom.transforms.build.settings import BuildSettings
from tests.cases import case
from tests.pipelines.conftest import build_at, digests
from tests.simulation.eager import run_eagerly

LOGS = 5
RECIPE = """
name: growing
logs: ["{folder}/*.mcap"]
vanished: drop
clock: {{rate: 10}}
columns:
  position: {{topic: /odom, field: pose.pose.position, resample: linear}}
  rotation: {{topic: /odom, field: pose.pose.orientation, resample: slerp, as: rotation_matrix}}
  camera: {{topic: /cam/front/compressed, field: data, resample: nearest}}
  objects: {{topic: /tracks, field: objects, strings: 16, resample: nearest}}
partition: {{rows: 20}}
outputs:
  l5kit:
    translation: position
    rotation: rotation
    agents: {{column: objects, label_probabilities: {{from: class, map: {{car: PERCEPTION_LABEL_CAR}}}}}}
  annotations: {{images: {{img_path: camera}}}}
  zarr: {{columns: [position, objects]}}
"""


class Archive:
    """Drives that come and go, and the root that is built of them."""

    recipe = RECIPE

    def __init__(self, folder: pathlib.Path, root: pathlib.Path, drives: list[pathlib.Path]):
        self.folder, self.root, self._drives = folder, root, drives
        self.folder.mkdir(exist_ok=True)

    def build(self, *numbers, **choices):
        """Builds a version of these drives alone; gives the files of units and portions that it wrote."""
        recipe = self.recipe_of(*numbers)
        before = self.files()
        build_at(recipe, self.root, **choices)
        return self.files() - before

    def recipe_of(self, *numbers):
        """Leaves these drives alone where the recipe finds its logs."""
        for path in self.folder.iterdir():
            path.unlink()
        for number in numbers:
            shutil.copy2(self._drives[number], self.folder)
        return Recipe.from_yaml(self.recipe.format(folder=self.folder))

    def files(self):
        parts = self.root / "parts"
        return {path.relative_to(parts).as_posix() for path in parts.rglob("*") if path.is_file()}

    def view(self, number):
        return digests(self.root / f"v{number:08d}")

    def entry(self, number, output):
        """Of what a version has of an output."""
        store, manifest = open_root(Store.at(str(self.root)), number)
        (part,) = [part for part in manifest.assembled if part.output == output]
        return read_assembled(store, part)

    def folder_of(self, output, identity):
        """Of a unit, a portion, or an assembled output."""
        return open_root(Store.at(str(self.root)))[0].path_of(unit_folder(output, identity))

    def findings(self, number):
        return [str(one) for one in verify(str(self.root), number, num_workers=1).findings]


@pytest.fixture(scope="module")
def small_chunks():
    with pytest.MonkeyPatch.context() as patch:
        for name, kind in ARRAYS.items():
            patch.setitem(ARRAYS, name, replace(kind, chunk_rows=30 if name == "agents" else 10))
        yield


@pytest.fixture(scope="module")
def grown(small_chunks, tmp_path_factory):
    """Versions of drives 0-1, 0-2, 0-3, then without 1, then with it and 4; and what each of them wrote."""
    folder = tmp_path_factory.mktemp("grown")
    archive = Archive(
        folder / "logs", folder / "root", make_drives(folder / "drives", seconds=1.2, logs=LOGS)
    )
    nights = [(0, 1), (0, 1, 2), (0, 1, 2, 3), (0, 2, 3), (0, 1, 2, 3, 4)]
    return archive, [archive.build(*numbers) for numbers in nights]


@pytest.fixture
def archive(grown, tmp_path):
    """A copy of these versions, to be changed."""
    original, _ = grown
    shutil.copytree(original.root, tmp_path / "root")
    return Archive(original.folder, tmp_path / "root", original._drives)


def names_of(written, output):
    """Names within the dataset of the files of an output that were written, its small ones left out."""
    found = (name.split("/", 3) for name in written)
    names = {rest for own, *_, rest in found if own == output}
    return {name for name in names if "/c/" in name or (output == "l5kit" and name.split("/")[-1].isdigit())}


def portions(archive, number, output):
    return {portion.path: portion for portion in archive.entry(number, output).portions}


def test_a_night_writes_the_logs_that_it_brought_and_the_chunks_that_these_fill(grown):
    archive, (_, second, third, _, _) = grown
    for number, written in ((2, second), (3, third)):
        assert {name.split("/")[0] for name in names_of(written, "zarr")} == {f"drive-{number:02d}"}
        before, after = portions(archive, number - 1, "l5kit"), portions(archive, number, "l5kit")
        assert before.items() < after.items()
        assert any(path.startswith("agents_mask/") for path in before)
        assert not names_of(written, "l5kit") & set(before)


def test_a_night_reads_no_part_of_a_kept_log_and_checks_new_units_alone(grown, tmp_path, monkeypatch):
    original, _ = grown
    archive = Archive(original.folder, tmp_path / "root", original._drives)
    monkeypatch.setattr(archive, "recipe", RECIPE[: RECIPE.index("  l5kit:")] + "  zarr: {{}}\n")
    archive.build(0, 1)
    read, planned = [], []
    plain, plan = entries.read_log_part, build_logs.plan_assemblies

    def read_part(store, part, **how):
        if not how.get("brief"):  # as views read it
            read.append(part)
        return plain(store, part, **how)

    def planned_once(*told):
        planned.extend(plan(*told))
        return planned

    monkeypatch.setattr(manifests, "read_log_part", read_part)
    monkeypatch.setattr(known_units, "read_log_part", read_part)
    monkeypatch.setattr(build_logs, "plan_assemblies", planned_once)
    archive.build(0, 1, 2)
    _, version = open_root(Store.at(str(archive.root)))
    assert [read.count(log.part) for log in version.logs] == [0, 0, 2]
    (one,) = planned
    assert {unit.log_id for unit in one.checks} == {"drive-02"}
    assert [bool(portion.files) for portion in one.portions] == [False, False, True]


def swapped(logs):
    names, texts = zip(*logs, strict=True)
    return [*zip(names, texts[::-1], strict=True)]


def changed(logs, change):
    known = ((name, *json.loads(text)) for name, text in logs)
    return [[name, canonical([facts, change(units)])] for name, facts, units in known]


def outside(units):
    return {output: [["../x", *rest] for _, *rest in own] for output, own in units.items()}


NONSENSE = {
    "of other outputs": lambda data: {**data, "about": "0" * 64},
    "of other logs": lambda data: {**data, "logs": swapped(data["logs"])},
    "no logs": lambda data: {**data, "logs": 7},
    "no text": lambda data: {**data, "logs": [[name, 7] for name, _ in data["logs"]]},
    "no JSON": lambda data: {**data, "logs": [[name, b"["] for name, _ in data["logs"]]},
    "too deep": lambda data: {**data, "logs": [[name, b"[" * 100_000] for name, _ in data["logs"]]},
    "no units": lambda data: {**data, "logs": changed(data["logs"], lambda units: {})},
    "outside": lambda data: {**data, "logs": changed(data["logs"], outside)},
}


def test_what_is_remembered_of_units_is_what_is_read_whatever_becomes_of_its_file(archive):
    job, outputs = (
        plan_build(archive.recipe_of(0, 1), str(archive.root)).job,
        ["l5kit", "annotations", "zarr"],
    )
    records = list(open_root(job.store)[1].logs)
    read = [UnitMemory(job, tuple(outputs)).units_of(record) for record in records]
    sidecars = Sidecars(str(archive.root / "index"), {})
    sound = sidecars.load("units")
    for name, change in {"as it was": lambda data: data, **NONSENSE}.items():
        with case(name):
            sidecars.save("units", change(sound))
            memory = UnitMemory.load(job, outputs)
            assert [facts_of(memory.units_of(record)) for record in records] == [*map(facts_of, read)]
            assert (
                (len(memory.used), len(memory.read)) == (len(records), 0)
                if name == "as it was"
                else memory.read
            )


def facts_of(units):
    """Of units by output, what every plan needs: which columns a unit has, it remembers elsewhere."""
    return {
        output: [(unit.log_id, unit.partition, unit.folder, unit.rows, unit.unit) for unit in own]
        for output, own in units.items()
    }


@pytest.mark.parametrize("done", ["gone", "cut", "of other logs"])
def test_whatever_became_of_what_is_remembered_of_units_the_bytes_are_the_same(grown, archive, done):
    original, _ = grown
    forget_versions(archive, 5)
    remembered = archive.root / "index" / "units"
    clean = remembered.read_bytes()
    if done == "gone":
        remembered.unlink()
    elif done == "cut":
        remembered.write_bytes(clean[:-1])
    else:
        sidecars = Sidecars(str(archive.root / "index"), {})
        sidecars.save("units", NONSENSE[done](sidecars.load("units")))
    archive.build(0, 1, 2, 3, 4)
    assert manifest_of(archive.root) == manifest_of(original.root)
    assert remembered.read_bytes() != clean  # and it is written anew


def manifest_of(root):
    """Of version 5, all but the counts of what was trusted: more lay finished there."""
    found = json.loads(root.joinpath("versions/00000005.json").read_bytes())
    return {key: value for key, value in found.items() if key != "trusted"}


def test_a_log_that_goes_changes_what_follows_it_alone(grown):
    archive, (*_, dropped, _) = grown
    assert not names_of(dropped, "zarr")
    before, after = portions(archive, 3, "l5kit"), portions(archive, 4, "l5kit")
    shared = {path for path in after if before.get(path) == after[path]}
    assert "frames/0" in shared  # all of the first drive
    assert shared < set(after)


def test_a_log_that_comes_back_is_found_where_it_lay(grown):
    archive, (*_, last) = grown
    assert {name.split("/")[0] for name in names_of(last, "zarr")} == {"drive-04"}
    assert portions(archive, 5, "zarr").items() >= portions(archive, 3, "zarr").items()


def test_every_version_is_whole_and_shows_what_a_new_build_of_its_logs_does(grown, tmp_path):
    archive, _ = grown
    assert [archive.findings(number) for number in range(1, 6)] == [[]] * 5
    for number, drives in ((4, (0, 2, 3)), (5, (0, 1, 2, 3, 4))):
        new = Archive(archive.folder, tmp_path / f"{number}", archive._drives)
        new.build(*drives)
        assert new.view(1) == archive.view(number)
        for output in ("l5kit", "zarr"):
            assert new.entry(1, output) == archive.entry(number, output)


def test_rows_open_without_a_view(grown, archive):
    original, _ = grown
    for output in ("l5kit", "zarr"):
        expected = [row["timestamp"] for row in logloom.datasets.open(original.root, output=output)]
        shutil.rmtree(archive.root / "v00000005", ignore_errors=True)
        rows = logloom.datasets.open(archive.root, output=output, check=True)
        assert [row["timestamp"] for row in rows] == expected
        assert len(rows) == archive.entry(5, output).rows


def test_versions_in_an_object_store_open_and_verify_without_a_view(grown):
    original, _ = grown
    memory = fsspec.filesystem("memory")
    for name in ("parts", "logs", "versions"):
        memory.put(str(original.root / name), f"/grown/{name}", recursive=True)
    for output in ("l5kit", "zarr"):
        expected = [row["timestamp"] for row in logloom.datasets.open(original.root, output=output)]
        rows = logloom.datasets.open("memory://grown", output=output)
        assert [row["timestamp"] for row in pickle.loads(pickle.dumps(rows))] == expected
    for number in (2, 5):
        assert verify("memory://grown", number, num_workers=1).findings == ()


def flip(archive, output):
    """A file of the first portion of an output, which all versions name, with a bit of it flipped."""
    portion = archive.entry(1, output).portions[0]
    assert portion in archive.entry(5, output).portions
    folder = archive.folder_of(output, portion.identity)
    path = next(path for path in sorted(folder.rglob("*[0-9]")) if path.is_file())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)
    return path, folder


def test_damage_is_named_in_every_version_that_shares_it_and_one_repair_mends_all(archive):
    damaged = [flip(archive, output) for output in ("l5kit", "zarr")]
    for number in (1, 5):
        found = archive.findings(number)
        for path, _ in damaged:
            assert any(f"{path}: its bytes changed" in finding for finding in found)
    for _, folder in damaged:
        (folder / "entry.json").unlink()
    for number in (1, 5):
        found = archive.findings(number)
        for _, folder in damaged:
            assert any(f"{folder}/entry.json: missing" in finding for finding in found)
    mended = repair(str(archive.root), 5, num_workers=1)
    assert (mended.unrepaired, mended.is_sound) == ((), True)
    assert [archive.findings(number) for number in (1, 5)] == [[], []]


def test_a_lost_entry_of_an_output_whose_portions_are_there_is_put_together_again(archive):
    for output in ("l5kit", "zarr"):
        _, manifest = open_root(Store.at(str(archive.root)), 5)
        (part,) = [part for part in manifest.assembled if part.output == output]
        (archive.folder_of(output, part.identity) / "entry.json").unlink()
    mended = repair(str(archive.root), 5, num_workers=1)
    assert (mended.unrepaired, mended.is_sound) == ((), True)
    assert archive.findings(5) == []


def test_what_the_parent_has_is_trusted_unless_all_is_to_be_read(archive):
    path, _ = flip(archive, "zarr")
    with pytest.raises(ReadBackError, match=r"logloom repair .*@\d+` builds again damaged files"):
        archive.build(0, 1, 2, 4, settings=BuildSettings(verify="all"))
    archive.build(0, 1, 2, 4)
    _, manifest = open_root(Store.at(str(archive.root)), 6)
    # Four of zarr; of L5Kit, which lies finished since the build before, as many as if it did not.
    assert (manifest.trusted["assembled"], manifest.trusted["portions"]) == (0, 13)
    assert any(f"{path}: its bytes changed" in finding for finding in archive.findings(6))


def test_a_job_whose_steps_are_all_done_once_more_has_still_committed_its_own_version(archive):
    plan = prepared(plan_build(archive.recipe_of(0, 1, 4), str(archive.root)))
    for _ in range(2):  # as where an engine takes a worker for dead that goes on
        run_eagerly(plan, random.Random(0))
        outcome = read_outcome(plan.job)
        assert (outcome.committed, outcome.conflict) == (True, "")
        plan.job.store.remove(outcome_file(plan.job))  # the first may have been killed before it wrote it
    assert open_root(Store.at(str(archive.root)))[1].trusted["portions"] > 0


def test_units_that_nothing_new_is_made_of_are_not_read(archive):
    store, manifest = open_root(Store.at(str(archive.root)))
    units = [e for _, e in entries_of(store, manifest.logs) if e.log_id == "drive-00" and e.rows]
    for output, built in (("zarr", True), ("l5kit", False)):
        unit = next(entry for entry in units if entry.output == output)
        path = store.path_of(unit.path_of(unit.files[0]))
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        if built:
            archive.build(0, 2, 4)  # of its group nothing changes
        else:
            with pytest.raises(ReadBackError, match="its bytes changed"):
                archive.build(0, 3, 4, settings=BuildSettings(verify="all"))


def forget_versions(archive, first):
    """Leaves of versions what builds that died before their commit would have left."""
    for number in range(first, 6):
        (archive.root / f"versions/{number:08d}.json").unlink()
        (archive.root / f"versions/{number:08d}.blake3").unlink()
        shutil.rmtree(archive.root / f"v{number:08d}")
    for output in ("l5kit", "zarr"):
        for path in (archive.root / "parts" / output).glob("*/*/entry.json"):
            if b'"split"' in path.read_bytes():
                path.unlink()


def damage(path):
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def test_portions_of_a_build_that_died_before_its_commit_are_found(archive):
    kept = archive.entry(5, "zarr").portions
    forget_versions(archive, 2)
    before = archive.files()
    written = archive.build(0, 1, 2, 3, 4)
    assert not [name for name in written if name.startswith("zarr/") and not name.endswith("entry.json")]
    assert archive.entry(2, "zarr").portions == kept
    assert before <= archive.files()


def test_a_build_that_fails_takes_no_portion_from_another_that_is_about_to_commit(archive, monkeypatch):
    portions = {portion.path: portion.identity for portion in archive.entry(5, "zarr").portions}
    forget_versions(archive, 2)
    damage(archive.folder_of("zarr", portions["drive-04"]) / "drive-04/timestamp/c/0")
    real = commit.create_version

    def create_after_another_failed(*arguments):
        monkeypatch.setattr(commit, "create_version", real)
        with ThreadPoolExecutor(1) as pool, pytest.raises(ReadBackError):
            pool.submit(archive.build, 0, 1, 2, 3, 4, beside=True).result()
        return real(*arguments)

    monkeypatch.setattr(commit, "create_version", create_after_another_failed)
    archive.build(0, 1, 2)  # it found the portion of drive 2, as the other one did
    assert [portion.path for portion in archive.entry(2, "zarr").portions] == [
        "drive-00",
        "drive-01",
        "drive-02",
    ]
    assert archive.findings(2) == []
    archive.build(0, 1, 2, 3, 4)  # what was damaged is made anew
    assert archive.findings(3) == []


def test_what_lists_the_portions_of_a_build_that_failed_is_replaced(archive, monkeypatch):
    for name in ("versions/00000005.json", "versions/00000005.blake3"):
        (archive.root / name).unlink()
    named = {p.identity for number in range(1, 5) for p in archive.entry(number, "zarr").portions}
    for path in (archive.root / "parts" / "zarr").glob("*/*/drive-04/timestamp/c/0"):
        assert path.parts[len(archive.root.parts) + 3] not in named
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ReadBackError, match="build again; should it fail"):
        archive.build(0, 1, 2, 3, 4)
    monkeypatch.setattr(assembly, "software", lambda: {"logloom": "another"})
    archive.build(0, 1, 2, 3, 4)
    assert archive.entry(5, "zarr").software == {"logloom": "another"}
    assert archive.findings(5) == []


def test_a_portion_that_other_software_makes_again_is_that_of_earlier_versions_too(archive, monkeypatch):
    archive.build(0, 2, 3)
    (portion,) = [p for p in archive.entry(5, "zarr").portions if p.path == "drive-01"]
    path = archive.folder_of("zarr", portion.identity) / "entry.json"
    path.unlink()
    path.write_bytes(b"{}")
    monkeypatch.setattr(assembly, "software", lambda: {"logloom": "another"})
    archive.build(1, 3, 4)
    assert b"another" in path.read_bytes()
    assert portion in archive.entry(7, "zarr").portions
    assert [archive.findings(number) for number in (5, 7)] == [[], []]
    path.unlink()
    assert repair(str(archive.root), 7, num_workers=1).is_sound
    assert [archive.findings(number) for number in (5, 7)] == [[], []]
