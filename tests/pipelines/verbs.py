"""What a team does with versions, each as one call upon a small root, and what a root shows."""

import random
import shutil

import pytest

from logloom.errors import LogloomError
from logloom.io.catalog.entries import read_log_part
from logloom.io.catalog.manifest import as_laid_out, read_manifest
from logloom.io.catalog.tags import read_tags
from logloom.io.catalog.tombstones import Purged
from logloom.io.catalog.version_files import version_file, version_numbers
from logloom.io.storage import disk
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import prepared
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.verify.verify import check_view
from logloom.pipelines.versions.rollback import plan_drop, rollback
from logloom.pipelines.versions.tag import remove_tags, tag
from logloom.pipelines.view import copy_view, make_view
from logloom.recipe import Keep, Recipe
from logloom.transforms.build.unit_checks import unit_problems
from tests.pipelines.roots import age
from tests.simulation.eager import build_eagerly
from tests.tier import TIER


def chosen(number, places, rng, count):
    """Which of so many calls meet a fault; places of the code have the number of the first that each made."""
    firsts = sorted(places.values()) if places and TIER != "exhaust" else range(number)
    return sorted(rng.sample(firsts, min(len(firsts), count))) if TIER == "check" else firsts


def some_pairs(cases, kinds):
    """Pairs of a case and a kind of fault: one of each case, among which each kind is, or all."""
    pairs = [(n + m, case, kind) for n, case in enumerate(cases) for m, kind in enumerate(kinds)]
    chosen = [(case, kind) for number, case, kind in pairs if TIER != "check" or number % len(kinds) == 0]
    return [pytest.param(case, kind, id=f"{_said(case)}-{kind}") for case, kind in chosen]


def _said(case):
    return case if isinstance(case, str) else "-".join(case)


@pytest.fixture
def one_at_a_time(monkeypatch):
    monkeypatch.setattr(disk, "AT_ONCE", 1)


@pytest.fixture(scope="session")
def two_versions(drive, once):
    """A recipe over two small logs, and a root with version 1 of one and version 2 of both; for copies."""
    return once(make_two_versions, drive)


def make_two_versions(folder, drive):
    logs = folder / "logs"
    logs.mkdir()
    text = drive.text[: drive.text.index("outputs:")].replace(str(drive.logs[0].parent), str(logs))
    recipe = Recipe.from_yaml(f"{text}outputs:\n  tar: {{}}\npartition: {{rows: 20}}\n", source="drive.yaml")
    for log in drive.logs[:2]:
        shutil.copy2(log, logs)
        build_eagerly(plan_build(recipe, str(folder / "root")), random.Random(0))
    store = store_at(folder / "root")
    tag(store, 1, ["first"])
    make_view(store, read_manifest(store, 2))
    return recipe, folder


def store_at(root, options=None):
    return as_laid_out(Store.at(str(root), options))


def built(made, store):
    plan = plan_build(made[0], store.uri, storage_options=store.options)
    if plan.up_to_date:
        prepared(plan)
    else:
        build_eagerly(plan, random.Random(0))


def rolled_back(made, store):
    if version_numbers(store)[-1] == 2:
        rollback(store, 1, view="none")


def dropped(made, store):
    if version_numbers(store)[-1] == 2:
        build_eagerly(plan_drop(store, [read_manifest(store, 2).logs[1].log_id]), random.Random(0))


def tagged(made, store):
    tag(store, 2, ["golden"])


def untagged(made, store):
    if "first" in read_tags(store):
        remove_tags(store, ["first"])


def viewed(made, store):
    (copy_view if store.local is None else make_view)(store, read_manifest(store, 1))


def collected(made, store):
    collect_garbage(store.uri, keep=Keep(last=1), storage_options=store.options)


def purged(made, store):
    log_id = read_manifest(store, 1).logs[0].log_id
    done = purge(store.uri, [log_id], storage_options=store.options)
    if not done.is_proven:
        raise LogloomError("\n".join(done.left))


def repaired(made, store):
    done = repair(store.uri, num_workers=1, storage_options=store.options)
    if not done.is_sound:
        raise LogloomError("\n".join(finding.message for finding in done.unrepaired))


def as_made(root):
    pass


def nothing(root):
    shutil.rmtree(root)
    root.mkdir()


def damaged(root):
    path = min(root.glob("parts/tar/*/*/shard.tar"))
    path.chmod(0o644)
    path.write_bytes(b"of another unit")
    shutil.rmtree(next(root.glob("v0*")))


def without_tags(root):
    store = store_at(root)
    remove_tags(store, ["first"])


def of_long_ago(root):
    """Version 1 was taken out and its grace is over; a unit lies there that no version ever named."""
    without_tags(root)
    shutil.rmtree(next(root.glob("v0*")))
    age(root, 30)
    rollback(store_at(root), 1, view="none")
    collect_garbage(str(root), keep=Keep(last=1))
    age(root, 30)


VERBS = {
    "build": (nothing, built),
    "rollback": (as_made, rolled_back),
    "drop": (as_made, dropped),
    "tag": (as_made, tagged),
    "tag --delete": (as_made, untagged),
    "view": (as_made, viewed),
    "gc": (of_long_ago, collected),
    "purge": (as_made, purged),
    "repair": (damaged, repaired),
}


def state(root, options=None):
    """What a root shows: versions with what is wrong with them, tags, and what was purged."""
    store = store_at(root, options)
    erased = Purged(store)
    versions, wrong = {}, set()
    for number in version_numbers(store):
        manifest = read_manifest(store, number)
        versions[number] = store.read(version_file(number))
        for record in manifest.logs:
            if record.part and not erased.has_named(record.log_id):
                for entry in read_log_part(store, record.part):
                    wrong.update(problem.split(":")[0] for problem in unit_problems(store, entry))
        if not len(erased):
            wrong.update(finding.message for finding in check_view(store, manifest) if store.local)
    purged = sorted(f"{top}/{name}" for top in ("parts", "logs") for name in store.sizes(top) if len(erased))
    return versions, read_tags(store), (len(erased), purged), {text.replace(str(root), "") for text in wrong}


def fresh(made, prepare, at):
    shutil.copytree(made[1] / "root", at, ignore=shutil.ignore_patterns("v????????"))
    store = store_at(at)
    make_view(store, read_manifest(store, 2))
    prepare(at)
    return at
