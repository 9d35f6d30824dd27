"""Rows that depend on code: a change of any of it builds them again, and every command names it."""

import json
import sys

import pytest

import logloom.datasets
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage.store import Store
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from tests.forking import command
from tests.pipelines.conftest import build_at

RECIPE = """\
name: scaled
logs: [logs/drive-00.mcap]
clock: {{rate: 10}}
columns:
  speed: {{topic: /odom, field: twist.twist.linear.x, resample: previous}}
  scaled: {{derive: "{module}:scaled", from: speed, dtype: float64}}
partition: {{rows: 13}}
outputs: {{tar: {{}}}}
"""
SCALED = """\
import logloom
from units import metric

@logloom.derive
def scaled(rows):
    from limits import most
    return rows["speed"] * metric.FACTOR + most()
"""
BESIDE = {
    "units/__init__.py": "from ._base import BASE\n",
    "units/_base.py": "BASE = 2.0\n",
    "units/metric.py": "from . import BASE as FACTOR\n",
    "limits.py": "def most():\n    return 0.0\n",
    "unused.py": "1 / 0\n",
}


def write_code(folder, logs):
    """A recipe beside its logs, and in code/ a function with the modules that it imports."""
    (folder / "logs").symlink_to(logs)
    (folder / "recipe.yaml").write_text(RECIPE.format(module="scales"))
    for name, text in {"scales.py": SCALED, **BESIDE}.items():
        path = folder / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_code_and_root(folder, logs):
    write_code(folder, logs)
    built(folder)


@pytest.fixture
def folder(drive, again):
    """A recipe and its code, and in root/ a version that was built with it."""
    return again(write_code_and_root, drive.logs[0].parent)


def logloom_in(folder, *arguments):
    return command(*arguments, "--py", "code/scales.py", cwd=folder)


def built(folder, workers=1):
    done = logloom_in(folder, "build", "recipe.yaml", "--to", "root", "--workers", workers)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_an_edited_module_beside_a_file_builds_rows_again_in_all_processes(folder):
    edits = [
        ("units/_base.py", "BASE = 3.0\n", 3, 0, 1),
        ("units/__init__.py", "from ._base import BASE\nBASE += 2\n", 5, 0, 1),
        ("limits.py", "def most():\n    return 1.0\n", 5, 1, 2),  # of the others, too, they see the edits
    ]
    for version, (name, text, factor, more, workers) in enumerate(edits, 2):
        (folder / "code" / name).write_text(text)
        said = built(folder, workers)
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert f"changed since version {version - 1}" in said
        assert f"are built again: module {module}" in said
        rows = list(logloom.datasets.open(f"{folder}/root"))
        assert len(rows) > 20
        assert [row["scaled"] for row in rows] == [row["speed"] * factor + more for row in rows]
    (folder / "code" / "unused.py").write_text("2 / 0\n")
    assert "up to date" in built(folder)


def test_plan_manifest_and_diff_name_the_code(folder):
    modules = ["module limits", "module scales", "module units", "module units._base", "module units.metric"]
    planned = logloom_in(folder, "plan", "recipe.yaml", "--to", "other", "--json")
    assert planned.returncode == 0, planned.stderr
    dependencies = json.loads(planned.stdout)["dependencies"]
    assert list(dependencies) == modules
    assert "module units._base" in logloom_in(folder, "plan", "recipe.yaml", "--to", "other").stdout
    assert read_manifest(Store.at(f"{folder}/root")).dependencies == dependencies
    (folder / "code" / "units" / "_base.py").write_text("BASE = 3.0\n")
    built(folder)
    said = json.loads(command("diff", "root", "--json", cwd=folder).stdout)
    assert list(said["dependencies"]) == ["module units._base"]
    assert "~ module units._base: " in command("diff", "root", cwd=folder).stdout


def test_verify_and_repair_name_code_that_is_not_what_a_version_was_built_with(folder):
    assert logloom_in(folder, "verify", "root", "--against-logs", "--workers", 1).returncode == 0
    (folder / "code" / "limits.py").write_text("def most():\n    return 7.0\n")
    done = logloom_in(folder, "verify", "root", "--against-logs", "--workers", 1)
    assert done.returncode == 2
    assert "built with other module limits" in done.stderr


def test_the_same_code_in_another_folder_is_up_to_date(folder):
    (folder / "code").rename(folder / "moved")
    done = command("plan", "recipe.yaml", "--to", "root", "--check", "--py", "moved/scales.py", cwd=folder)
    assert done.returncode == 0, done.stderr


def test_an_edited_module_of_a_package_builds_rows_again(drive, tmp_path, monkeypatch):
    folder = tmp_path
    write_code(folder, drive.logs[0].parent)
    package = folder / "src" / "scales_of_a_test"
    (folder / "src").mkdir()
    (folder / "code").rename(package)
    (package / "__init__.py").write_text("")
    text = SCALED.replace("from units", "from .units").replace("from limits", "from .limits")
    (package / "scales.py").write_text(text)
    monkeypatch.syspath_prepend(folder / "src")
    recipe = Recipe.from_yaml(RECIPE.format(module="scales_of_a_test.scales"))
    choices = {"base": str(folder), "allow_derive": ["scales_of_a_test"]}
    for number in (2.0, 3.0):
        for name in [name for name in sys.modules if name.startswith("scales_of_a_test")]:
            del sys.modules[name]
        (package / "units" / "_base.py").write_text(f"BASE = {number}\n")
        build_at(recipe, folder / "root", **choices)
        rows = list(logloom.datasets.open(f"{folder}/root"))
        assert [row["scaled"] for row in rows] == [row["speed"] * number for row in rows]
        assert plan_build(recipe, f"{folder}/root", **choices).up_to_date


def test_a_version_that_follows_without_a_build_keeps_what_its_rows_depend_on(folder):
    before = read_manifest(Store.at(f"{folder}/root")).dependencies
    (folder / "code" / "limits.py").write_text("def most():\n    return 7.0\n")
    built(folder)
    assert command("rollback", "root@1", cwd=folder).returncode == 0
    manifest = read_manifest(Store.at(f"{folder}/root"))
    assert (manifest.version, manifest.dependencies) == (3, before)
