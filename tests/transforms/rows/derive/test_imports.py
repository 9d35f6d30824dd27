"""Which modules a source imports: found without importing, in every way that Python has to import."""

import importlib.machinery
import shutil
import sys
import sysconfig

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.transforms.rows.derive.imports import (
    Module,
    ModuleSearch,
    follow,
    imported_names,
    providing_package,
)


def written(folder, **files):
    """Writes sources; a_b stands for a/b.py, a_INIT for a/__init__.py."""
    for name, text in files.items():
        path = folder / f"{name.replace('_', '/').replace('INIT', '__init__')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def met(folder, first="labels"):
    return follow(first, ModuleSearch(str(folder)).module)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import a", {"a"}),
        ("import a.b", {"a", "a.b"}),
        ("import a.b as c", {"a", "a.b"}),
        ("from a import b", {"a", "a.b"}),
        ("from a import *", {"a"}),
        ("from a import f", {"a"}),
        ("from a.b import f", {"a", "a.b"}),
        ("def f():\n    from a import b", {"a", "a.b"}),
        ("class C:\n    async def f(self):\n        import a", {"a"}),
        ("try:\n    import fast\nexcept ImportError:\n    import a", {"a"}),
        ("if 1 > 2:\n    import a", {"a"}),
        ("import importlib\nx = importlib.import_module('a.b')", {"a", "a.b"}),
        ("x = __import__('a')", {"a"}),
        ("import importlib\nx = importlib.import_module('a' + '.b')", set()),
        ("from . import a", set()),
        ("'import a'  # import a", set()),
    ],
)
def test_each_way_to_import_is_followed(text, names, tmp_path):
    written(tmp_path, labels=text, a_INIT="", a_b="", unused="")
    assert set(met(tmp_path)[0]) - {"labels"} == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from . import x", {"p.x"}),
        ("from .x import y", {"p.x"}),
        ("from .deep import z", {"p.deep", "p.deep.z"}),
        ("from .deep.z import y", {"p.deep", "p.deep.z"}),
        ("from .. import p", set()),
        ("import p.x", {"p.x"}),
        ("from .deep import *", {"p.deep", "p.deep.w"}),
        ("import importlib\nimportlib.import_module('.x', __package__)", {"p.x"}),
    ],
)
def test_relative_imports_start_at_the_package_and_its_init_counts(text, names, tmp_path):
    inner = {"p_deep_INIT": "__all__ = ['w']\n", "p_deep_z": "", "p_deep_w": ""}
    written(tmp_path, p_INIT="", p_labels=text, p_x="", **inner)
    assert set(met(tmp_path, "p.labels")[0]) == {"p", "p.labels"} | names


def test_what_an_init_on_the_way_imports_counts_and_circles_end(tmp_path):
    inner = {
        "a_INIT": "from . import c",
        "a_b": "import labels",
        "a_c": "from . import b, d\nimport a.c",
    }
    written(tmp_path, labels="import a.b", a_d="", a_e="", **inner)
    assert set(met(tmp_path)[0]) == {"labels", "a", "a.b", "a.c", "a.d"}


def test_names_that_lead_elsewhere_are_told(tmp_path):
    written(tmp_path, labels="import numpy as np\nfrom a import f, b\nimport json.decoder", a="")
    assert met(tmp_path)[1] == {"numpy", "a.f", "a.b", "json"}


@pytest.mark.parametrize(
    "content", [b"def f(:\n", b"\xff\xfe\x00", b"x = '\xe4'\n", b"(" * 5000, b"import a\x00"]
)
def test_a_module_that_cannot_be_parsed_counts_and_ends_there(content, tmp_path):
    written(tmp_path, labels="import broken")
    (tmp_path / "broken.py").write_bytes(content)
    assert met(tmp_path)[0]["broken"].content == content


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_source_makes_it_fail(content):
    for name in imported_names(Module("m", "m.py", content, is_package=True)):
        assert all(part.isidentifier() or part == "*" for part in name.split("."))


def test_sources_of_another_encoding_are_followed(tmp_path):
    written(tmp_path, a="")
    (tmp_path / "labels.py").write_bytes("# coding: latin-1\nä = 1\nimport a\n".encode("latin-1"))
    assert set(met(tmp_path)[0]) == {"labels", "a"}


def test_a_compiled_module_counts_by_its_bytes(tmp_path):
    written(tmp_path, labels="import fast")
    (tmp_path / f"fast{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF import a")
    module = met(tmp_path)[0]["fast"]
    assert (module.content, module.is_python) == (b"\x7fELF import a", False)


def test_modules_in_a_zip_and_in_folders_without_init_are_found(tmp_path, monkeypatch):
    written(tmp_path / "made", labels="import inner.x", inner_x="")
    archive = shutil.make_archive(str(tmp_path / "code"), "zip", tmp_path / "made")
    for folder in (archive, str(tmp_path / "made")):
        monkeypatch.syspath_prepend(folder)
        found = follow("labels", ModuleSearch().module)[0]
        assert set(found) == {"labels", "inner", "inner.x"}
        assert found["labels"].path.startswith(folder)


def test_a_search_imports_nothing(tmp_path, monkeypatch):
    written(tmp_path, outside_INIT="raise SystemExit('imported')", outside_x="")
    monkeypatch.syspath_prepend(tmp_path)
    found, _ = follow("outside.x", ModuleSearch().module)
    assert set(found) == {"outside", "outside.x"}
    assert "outside" not in sys.modules


@pytest.mark.parametrize(
    ("module", "package"), [("numpy.linalg", "numpy"), ("yaml", "PyYAML"), ("PIL.Image", "pillow")]
)
def test_the_package_that_installed_a_module_is_known_whatever_its_name(module, package):
    spec = ModuleSearch().spec(module)
    assert spec.origin.startswith(sysconfig.get_path("purelib"))
    assert providing_package(spec).metadata["Name"].lower() == package.lower()


def test_a_module_on_the_path_is_of_no_package(tmp_path, monkeypatch):
    written(tmp_path, numpy="")
    monkeypatch.syspath_prepend(tmp_path)
    assert providing_package(ModuleSearch().spec("numpy")) is None
    assert providing_package(ModuleSearch().spec("logloom")) is None  # installed as editable
