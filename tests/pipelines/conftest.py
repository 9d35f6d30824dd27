"""A small synthetic drive, and one version built from it, for all tests of whole jobs."""

import hashlib
import pathlib
from dataclasses import dataclass

import pytest

from logloom.demo import demo_recipe, make_drives
from logloom.pipelines.build import build
from logloom.pipelines.plan import plan_build
from logloom.recipe import Recipe


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


def build_at(recipe: Recipe, root: pathlib.Path, num_workers: int = 1, **choices):
    return build(plan_build(recipe, str(root), **choices), num_workers=num_workers)


def digests(root: pathlib.Path) -> dict[str, str]:
    """Digest of every file of a dataset, but for the mutable ones (runs/, index/, tmp/)."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root).parts[0] not in ("runs", "index", "tmp")
    }


@pytest.fixture(scope="session")
def drive(tmp_path_factory) -> Drive:
    folder = tmp_path_factory.mktemp("drive")
    logs = make_drives(folder / "logs", seconds=4)
    text = demo_recipe(folder / "logs")
    if "partition:" not in text:
        text += "\npartition: {rows: 10}\n"
    return Drive(logs, text)


@pytest.fixture(scope="session")
def built(drive, tmp_path_factory) -> pathlib.Path:
    """The root of a version built in one process; not to be changed."""
    root = tmp_path_factory.mktemp("built") / "root"
    build_at(drive.recipe(), root)
    return root
