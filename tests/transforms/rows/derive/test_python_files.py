"""Files given as --py and the modules beside them, where their folder isn't there."""

import importlib.machinery
import pickle
import sys

import numpy as np
import pytest

from logloom.errors import UsageError
from logloom.transforms.rows.derive.columns import dependencies_of, load
from logloom.transforms.rows.derive.python_files import load_files, modules_of, read_files

FUNCTION = "from logloom import derive\n@derive\ndef f(rows):\n    {}return rows['x'] * factor\n"


def written(folder, **files):
    for name, text in files.items():
        path = folder / f"{name.replace('_', '/').replace('INIT', '__init__')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "beakers.py"


def called():
    return load("beakers:f")({"x": np.ones(1)}).tolist()


WAYS = {
    "a neighbour": ("from liquids import factor\n" + FUNCTION.format(""), {"liquids": "factor = {}\n"}),
    "a neighbour within a function": (
        FUNCTION.format("from liquids import factor\n    "),
        {"liquids": "factor = {}\n"},
    ),
    "a neighbour of a neighbour": (
        "from liquids import factor\n" + FUNCTION.format(""),
        {"liquids": "from gases import factor\n", "gases": "factor = {}\n"},
    ),
    "an init of a package": (
        "from vessels.glass import factor\n" + FUNCTION.format(""),
        {"vessels_INIT": "factor = {}\n", "vessels_glass": "from . import factor\n"},
    ),
    "a module of a package": (
        "import vessels\nfactor = vessels.factor\n" + FUNCTION.format(""),
        {"vessels_INIT": "from .glass import *\n", "vessels_glass": "factor = {}\n"},
    ),
    "a folder without init": (
        "from vessels.glass import factor\n" + FUNCTION.format(""),
        {"vessels_glass": "factor = {}\n"},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_beside_a_file_travels_and_counts(way, tmp_path):
    text, beside = WAYS[way]
    seen = []
    for number, folder in ((2, "one"), (3, "one"), (2, "two")):
        file = written(
            tmp_path / folder, beakers=text, **{k: v.replace("{}", str(number)) for k, v in beside.items()}
        )
        travelled = pickle.dumps(read_files([file]))
        for path in (tmp_path / folder).rglob("*.py"):
            path.unlink()
        load_files(pickle.loads(travelled))
        assert called() == [number]
        seen.append(dependencies_of("beakers:f"))
    assert seen[0] != seen[1]
    assert seen[0] == seen[2]


def test_a_file_beside_that_is_not_imported_neither_travels_nor_counts(tmp_path):
    file = written(tmp_path, beakers="factor = 1\n" + FUNCTION.format(""), liquids="1 / 0\n")
    (read,) = read_files([file])
    load_files((read,))
    assert [one.name for one in dependencies_of("beakers:f")] == ["beakers"]


def test_only_files_that_are_given_may_be_derived_by(tmp_path):
    file = written(tmp_path, beakers="import liquids\n", liquids="")
    assert modules_of(read_files([file])) == ["beakers"]
    assert sorted(modules_of(read_files([file, tmp_path / "liquids.py"]))) == ["beakers", "liquids"]


def test_files_that_import_each_other_may_be_given_in_any_order(tmp_path):
    given = written(tmp_path / "a", beakers="from liquids import factor\n" + FUNCTION.format(""))
    other = written(tmp_path / "b", liquids="factor = 5\n").with_name("liquids.py")
    load_files(read_files([given, other]))
    assert called() == [5]
    assert [one.name for one in dependencies_of("beakers:f")] == ["beakers", "liquids"]


@pytest.mark.parametrize(("name", "where"), [("yaml", "site-packages"), ("colorsys", "a module of Python")])
def test_a_neighbour_that_would_hide_another_module_is_refused(name, where, tmp_path):
    file = written(tmp_path, beakers=f"import {name}\n", **{name: ""})
    with pytest.raises(
        UsageError, match=rf"beakers\.py: {name} may be .*{name}\.py, a file beside it, or .*{where}.*rename"
    ):
        read_files([file])


def test_a_mere_folder_beside_gives_way_to_a_package(tmp_path):
    file = written(tmp_path, beakers="import yaml\n", yaml_old="")
    assert [one.module for one in read_files([file])] == ["beakers"]


def test_modules_beside_files_of_another_folder_are_forgotten(tmp_path):
    """What was loaded before decides nothing."""
    text = "try:\n    from liquids import factor\nexcept ImportError:\n    factor = 1\n" + FUNCTION.format("")
    load_files(read_files([written(tmp_path / "one", beakers=text, liquids="factor = 2\n")]))
    assert called() == [2]
    load_files(read_files([written(tmp_path / "two", beakers=text)]))
    assert called() == [1]
    assert [one.name for one in dependencies_of("beakers:f")] == ["beakers"]
    load_files(read_files([written(tmp_path / "three", beakers="factor = 3\n" + FUNCTION.format(""))]))
    assert "liquids" not in sys.modules


def test_two_files_of_one_name_are_refused(tmp_path):
    files = [written(tmp_path / name, beakers=f"x = {name!r}\n") for name in ("one", "two")]
    with pytest.raises(UsageError, match=r"two/beakers\.py: another .* is .*one/beakers\.py; rename"):
        read_files(files)


def test_a_compiled_neighbour_is_refused(tmp_path):
    file = written(tmp_path, beakers="import fast\n")
    (tmp_path / f"fast{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF")
    with pytest.raises(UsageError, match=r"beakers\.py: imports .*fast.*compiled.*installed"):
        read_files([file])


@pytest.mark.parametrize(
    ("liquids", "what"),
    [(b"def f(:\n", "SyntaxError"), (b"x = '\xe4'\n", "SyntaxError"), (b"1 / 0\n", "ZeroDivisionError")],
)
def test_a_broken_neighbour_is_an_error_or_left_to_run_time(liquids, what, tmp_path):
    file = written(tmp_path, beakers="import liquids\n")
    (tmp_path / "liquids.py").write_bytes(liquids)
    with pytest.raises(UsageError, match=rf"beakers\.py: can't be imported: {what}"):
        load_files(read_files([file]))
    written(
        tmp_path,
        beakers="try:\n    import liquids\nexcept Exception:\n    factor = 4\n" + FUNCTION.format(""),
    )
    load_files(read_files([file]))
    assert called() == [4]


def test_modules_that_import_each_other_and_missing_ones_are_no_fault(tmp_path):
    late = FUNCTION.format("import nowhere_to_be_found\n    ")
    file = written(tmp_path, beakers="import liquids\nfactor = 2\n" + late, liquids="import beakers\n")
    load_files(read_files([file]))
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        called()


def test_a_file_with_a_byte_order_mark_or_another_encoding_works(tmp_path):
    for encoding, head in (("utf-8-sig", ""), ("latin-1", "# coding: latin-1\n")):
        file = written(tmp_path, beakers="")
        file.write_bytes((head + "name = 'ä'\nfactor = len(name)\n" + FUNCTION.format("")).encode(encoding))
        load_files(read_files([file]))
        assert called() == [1]
