"""What a derived column depends on, as the driver and its workers see it."""

import importlib
import importlib.metadata
import os
import py_compile
import shutil
import subprocess
import sys

import numpy as np
import pytest

from logloom.errors import UsageError
from logloom.schema import ColumnType
from logloom.transforms.rows.derive.columns import compute, dependencies_of, load
from logloom.transforms.rows.plan.row_plan import DerivedPlan

FUNCTION = "\nfrom logloom import derive\n@derive\ndef f(rows):\n    return rows['x'] * FACTOR\n"
PACKAGE = {
    "__init__.py": "",
    "labels.py": f"from .limits import FACTOR{FUNCTION}",
    "limits.py": "from acme_of_a_test.deep import limit as FACTOR\n",
    "deep/__init__.py": "limit = 2\n",
    "late.py": "",
    "unused.py": "",
}
NAME = "acme_of_a_test.labels:f"


@pytest.fixture(autouse=True)
def forgotten():
    """No test meets the modules of another."""
    yield
    for name in [name for name in sys.modules if name.startswith("acme_of_a_test")]:
        del sys.modules[name]


def made(folder, monkeypatch):
    for name, text in PACKAGE.items():
        path = folder / "acme_of_a_test" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(folder)
    return folder / "acme_of_a_test"


def names(dependencies):
    return [f"{one.kind} {one.name.removeprefix('acme_of_a_test')}" for one in dependencies]


def again():
    """The dependencies as a new process has them."""
    for name in [name for name in sys.modules if name.startswith("acme_of_a_test")]:
        del sys.modules[name]
    return dependencies_of(NAME)


def test_modules_of_the_package_count_by_content_and_no_other(tmp_path, monkeypatch):
    made(tmp_path, monkeypatch)
    found = dependencies_of(NAME)
    assert names(found) == ["module ", "module .deep", "module .labels", "module .limits"]


@pytest.mark.parametrize("changed", ["__init__.py", "labels.py", "limits.py", "deep/__init__.py", "late.py"])
def test_a_change_of_any_imported_module_changes_them(changed, tmp_path, monkeypatch):
    package = made(tmp_path, monkeypatch)
    (package / "labels.py").write_text(
        PACKAGE["labels.py"] + "def g():\n    if f:\n        from . import late\n"
    )
    before = again()
    with (package / changed).open("a") as file:
        file.write("# another\n")
    assert again() != before


def test_a_change_of_a_module_that_is_not_imported_changes_nothing(tmp_path, monkeypatch):
    package = made(tmp_path, monkeypatch)
    before = again()
    (package / "unused.py").write_text("x = 1\n")
    (package / "deep" / "data.csv").write_text("1\n")
    assert again() == before


def test_they_depend_neither_on_the_folder_nor_on_what_is_imported(tmp_path, monkeypatch):
    made(tmp_path / "one", monkeypatch)
    first = again()
    importlib.import_module("acme_of_a_test.unused")
    importlib.import_module("acme_of_a_test.late")
    assert dependencies_of(NAME) == first
    made(tmp_path / "another", monkeypatch)
    shutil.rmtree(tmp_path / "one")
    assert again() == first


def test_installed_packages_count_by_version_and_python_and_logloom_not_at_all(tmp_path, monkeypatch):
    package = made(tmp_path, monkeypatch)
    imports = "import json, numpy.linalg, logloom.schema\n"
    imports += "try:\n    import nowhere\nexcept ImportError:\n    import yaml\n"
    (package / "limits.py").write_text(imports + PACKAGE["limits.py"])
    packages = {one.name: one.content for one in dependencies_of(NAME) if one.kind == "package"}
    assert packages == {
        "numpy": importlib.metadata.version("numpy"),
        "pyyaml": importlib.metadata.version("PyYAML"),
    }


def test_an_editable_package_counts_by_content(tmp_path, monkeypatch):
    """As one that lies anywhere on the path."""
    package = made(tmp_path / "own", monkeypatch)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "acme_of_a_test_too.py").write_text("import json\n")
    monkeypatch.syspath_prepend(tmp_path / "other")
    (package / "limits.py").write_text("import acme_of_a_test_too\n" + PACKAGE["limits.py"])
    assert "module _too" in names(dependencies_of(NAME))


def installed(folder, version):
    """A package that is installed in a folder, as pip does it."""
    info = folder / f"acme-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: Acme.Lib\nVersion: {version}\n")
    (folder / "acme_of_a_test_lib.py").write_text("")
    (info / "RECORD").write_text("acme_of_a_test_lib.py,,\n")
    return folder


def test_another_version_of_an_installed_package_changes_them(tmp_path, monkeypatch):
    package = made(tmp_path / "own", monkeypatch)
    (package / "limits.py").write_text("def late():\n    import acme_of_a_test_lib\n" + PACKAGE["limits.py"])
    found = []
    for version in ("1.0", "1.1"):
        monkeypatch.syspath_prepend(installed(tmp_path / version, version))
        found.append({one.content for one in again() if (one.kind, one.name) == ("package", "acme-lib")})
    assert found == [{"1.0"}, {"1.1"}]


def test_a_module_that_changed_after_it_was_imported_is_refused(tmp_path, monkeypatch):
    package = made(tmp_path, monkeypatch)
    dependencies_of(NAME)
    (package / "deep" / "__init__.py").write_text("limit = 3\n")
    with pytest.raises(UsageError, match=r"acme_of_a_test\.deep was changed after this process imported it"):
        dependencies_of(NAME)
    for name in ("deep", "limits", "labels"):
        importlib.reload(sys.modules[f"acme_of_a_test.{name}"])
    dependencies_of(NAME)


@pytest.mark.parametrize("mode", ["TIMESTAMP", "UNCHECKED_HASH", "CHECKED_HASH"])
def test_bytecode_of_another_source_is_not_what_rows_are_made_by(mode, tmp_path, monkeypatch):
    """Python takes it for a source of the same size that was changed in the same second."""
    path = made(tmp_path, monkeypatch) / "deep" / "__init__.py"
    invalidation = getattr(py_compile.PycInvalidationMode, mode)
    py_compile.compile(str(path), doraise=True, invalidation_mode=invalidation)
    stat = path.stat()
    path.write_text("limit = 3\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    dependencies_of(NAME)
    assert load(NAME)({"x": np.ones(1)}).tolist() == [3]


def test_a_worker_with_other_code_refuses_to_make_rows(tmp_path, monkeypatch):
    package = made(tmp_path, monkeypatch)
    ticks, ctype = np.array([1, 2]), ColumnType(np.dtype("<f8"))
    planned = DerivedPlan("d", NAME, dependencies_of(NAME), ("x",), ctype)
    assert compute(planned, {"x": np.ones(2)}, ticks).tolist() == [2, 2]
    (package / "deep" / "__init__.py").write_text("limit = 3\n")
    again()
    other = DerivedPlan("d", NAME, planned.dependencies[:2] + planned.dependencies[3:], ("x",), ctype)
    with pytest.raises(
        UsageError, match=r"module acme_of_a_test\.deep, .*differs from the plan of the build"
    ):
        compute(other, {"x": np.ones(2)}, ticks)


def test_a_package_that_fails_to_import_is_named(tmp_path, monkeypatch):
    package = made(tmp_path, monkeypatch)
    for text, what in [("def f(:\n", "SyntaxError"), ("1 / 0\n", "ZeroDivisionError"), ("exit()\n", "Exit")]:
        (package / "limits.py").write_text(text)
        with pytest.raises(UsageError, match=f"derive '{NAME}': .*{what}"):
            again()


def test_a_function_of_a_script_depends_on_what_the_script_imports(tmp_path):
    (tmp_path / "script.py").write_text(
        "import helper\nfrom logloom import derive\n"
        "from logloom.transforms.rows.derive.columns import dependencies_of\n"
        "@derive\ndef f(rows):\n    return 1\n"
        "print([one.name for one in dependencies_of('__main__:f')])\n"
    )
    (tmp_path / "helper.py").write_text("")
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True)
    assert done.stdout.strip() == "['__main__', 'helper']", done.stderr
