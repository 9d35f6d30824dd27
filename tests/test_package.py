"""The package as a whole: its public names, and which way its imports point."""

import ast
import functools
import graphlib
import importlib
import pkgutil
import re
import subprocess
import sys
import tokenize
import tomllib

import pytest

import logloom
from tests.absent import in_absent_part, present
from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "logloom"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
ENTRY_POINTS = PROJECT["project"]["entry-points"]
PARTS = {
    name: importlib.import_module(home.partition(":")[0]).PART
    for name, home in ENTRY_POINTS["logloom.parts"].items()
}
WITH_BEAM = (
    "/metrics.py",
    "pipelines/dataflow/template.py",
    "transforms/beam/read_logs.py",
    "runners/",
    "io/beam/",
    "/beam.py",
)
# What each room may import beside itself and what is beneath it; the order is that of CONTRIBUTING.md.
VALUES = (
    *(
        "uris",
        "values",
        "cpus",
        "text",
        "familiar_names",
        "caching",
        "markup",
        "pictures",
        "errors",
        "extras",
        "validation",
        "schema",
        "blocks",
        "digests",
        "software",
        "interpreter",
        "metrics",
        "parts",
    ),
    *(
        "windows",
        "inference",
        "query",
        "durations",
        "row_splits",
    ),
)
BENEATH = {
    **{room: VALUES[:number] for number, room in enumerate(VALUES)},
    "statistics": VALUES,
    "io": (*VALUES, "statistics"),
    "resample": (*VALUES, "io"),
    "recipe": (*VALUES, "io", "resample"),
    "transforms": (*VALUES, "statistics", "io", "resample", "recipe"),
    "runners": VALUES,
    "demo": VALUES,
    "pipelines": (*VALUES, "statistics", "io", "resample", "recipe", "transforms", "runners", "demo"),
    "cli": (
        *VALUES,
        *("io", "datasets", "resample", "recipe", "transforms", "runners", "demo", "pipelines"),
    ),
    "datasets": (*VALUES, "statistics", "io"),
    "testing": (*VALUES, "io"),
}
# Folders of one package, which may import each other.
PARTS_OF_ONE = re.compile(r"^(io/storage|io/logs(?=/(?:files|messages))|io/formats/\w+)/.*")
UPWARDS = {
    # Who knows granular looks for its Loader beside its bags.
    ("logloom.io.formats.bags", "logloom.datasets.loader.loader"),
    # Who writes a pipeline finds all connectors in one place.
    ("logloom.io.beam", "logloom.transforms.beam.log_rows"),
    ("logloom.io.beam", "logloom.transforms.beam.read_logs"),
    # A connector opens and filters what users name, as `logloom.open` does.
    ("logloom.io.beam.read", "logloom.datasets.opening"),
    ("logloom.io.beam.read", "logloom.datasets.search.log_matches"),
    ("logloom.io.beam.read", "logloom.datasets.views.column_choice"),
}


def test_every_public_name_is_there_and_listed():
    for name in logloom.__all__:
        assert getattr(logloom, name) is not None
    assert set(logloom.__all__) < set(dir(logloom))
    with pytest.raises(AttributeError, match="no attribute 'opne'; did you mean open"):
        logloom.opne  # noqa: B018
    assert {name for names in logloom._HOMES.values() for name in names} == set(logloom.__all__)


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text())


@pytest.fixture(autouse=True, scope="module")
def trees():
    """Shared by the tests here, and by no others, whose collections of garbage would walk through them."""
    yield
    tree_of.cache_clear()


def imports_of(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_files_beside_the_modules_are_installed_with_them():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["logloom"]
    packed = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert packed == files


def test_only_wiring_imports_beam():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not any(part in f"/{name}" for part in WITH_BEAM):
            assert not [m for m in imports_of(path) if m.split(".")[0] == "apache_beam"], name


def modules():
    """The file of each module, by its name."""
    files = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


@functools.cache
def arrows(*, for_types):
    """Which module imports which, at its top or within functions; the list of public names is no room.

    Args:
        for_types: also what is imported for type checkers alone.
    """
    known, pairs = modules(), []
    for name, path in known.items():
        tree = tree_of(path)
        typing = [
            node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        ]
        left_out = set() if for_types else {id(inner) for node in typing for inner in ast.walk(node)}
        for node in ast.walk(tree):
            found = []
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                found = [one if one in known else node.module for one in inner]
            for module in found if id(node) not in left_out else ():
                if module in known and module != name and "logloom" not in (module, name):
                    pairs.append((name, module))
    return pairs


def room_of(module):
    return module.split(".")[1]


def test_imports_point_downwards():
    pairs = {pair for pair in arrows(for_types=True) if room_of(pair[0]) != room_of(pair[1])}
    upwards = {(a, b) for a, b in pairs if room_of(a) != "__main__" and room_of(b) not in BENEATH[room_of(a)]}
    assert upwards == {pair for pair in UPWARDS if not any(map(in_absent_part, pair))}


def test_no_package_of_io_imports_itself_by_way_of_others():
    folders = {
        name: PARTS_OF_ONE.sub(r"\1", path.parent.relative_to(PACKAGE).as_posix())
        for name, path in modules().items()
    }
    graph = {}
    for a, b in arrows(for_types=False):
        if room_of(a) == room_of(b) == "io" and folders[a] != folders[b]:
            graph.setdefault(folders[a], set()).add(folders[b])
    assert {"io/logs/mcap", *present("io/formats/table", "io/formats/zarr")} <= graph.keys()
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_no_module_imports_itself_by_way_of_others():
    graph = {}
    for a, b in arrows(for_types=False):
        graph.setdefault(a, set()).add(b)
    assert len(graph) > 300
    graphlib.TopologicalSorter(graph).prepare()


def modules_named_in_header(path):
    """The names in round brackets of what a module's header says stands elsewhere, prose left out."""
    _, _, elsewhere = (ast.get_docstring(tree_of(path)) or "").partition("Elsewhere: ")
    sentence = re.split(r"\.\s", elsewhere)[0]
    for names in re.findall(r"\((\w+(?:(?:\.|, )\w+)*)\)", sentence):
        yield from names.split(", ")


def is_named_right(name, path):
    if in_absent_part(name):
        return True
    if name.startswith("logloom."):
        try:
            return pkgutil.resolve_name(name) is not None
        except (AttributeError, ImportError):
            return False
    places = [folder / name for folder in path.parents]
    return any(place.is_dir() or place.with_suffix(".py").is_file() for place in places)


def test_headers_name_modules_that_are_there():
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in modules_named_in_header(path):
            assert is_named_right(name, path), f"the header of {path.relative_to(PACKAGE)} names {name}"


def names_in_code(path):
    """All names and words of short texts in a module: what it defines, imports, uses and looks up by name."""
    words = set()
    for node in ast.walk(tree_of(path)):
        texts = [getattr(node, field, None) for field in ("id", "attr", "arg", "name", "module", "asname")]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
            texts.append(node.value)
        for text in texts:
            words.update(re.findall(r"\w+", text) if isinstance(text, str) else ())
    return words


def test_what_headers_say_stands_here_stands_here():
    for path in sorted(PACKAGE.rglob("*.py")):
        header = ast.get_docstring(tree_of(path)) or ""
        here = re.search(r"\bHere: (.*?)(?=\.\s|\Z)", header, re.DOTALL)
        named = re.findall(r"`([A-Za-z_]\w*)`", here[1]) if here else []
        strange = set(named) - names_in_code(path) if named else ()
        assert not strange, f"the header of {path.relative_to(PACKAGE)} names {sorted(strange)}"


# Each can be removed: a module belongs to the part whose name a folder of it, or itself, bears.
REMOVABLE = {
    name: part.requires for name, part in PARTS.items() if name not in ("direct", "mcap", "messages")
}


def part_of(module):
    return next((name for name in module.split(".")[1:] if name in REMOVABLE), "")


def test_no_module_imports_a_part_that_its_own_does_not_require():
    for module, other in arrows(for_types=True):
        own = part_of(module)
        assert part_of(other) in ("", own, *REMOVABLE.get(own, ())), f"{module} imports {other}"


# Words that mean something else there, the one choice, and what is still to move into the engines' folders.
NAMES_OF_PARTS = {
    "annotations": {"io/labels/tools/cvat.py"},  # the root of CVAT's XML
    "bags": {"io/logs/log_cache.py"},  # ROS's
    "dataflow": {
        "cli/options/groups.py",
        "cli/options/jobs.py",
        "pipelines/build/build.py",
        "runners/options.py",
    },
    "flink": {"cli/options/groups.py", "cli/options/jobs.py", "runners/options.py"},  # the options of engines
    "parquet": {"io/logs/table_files/files.py"},  # the encoding of messages
    "segments": {  # of a unit of rows
        f"io/formats/lerobot/{name}.py" for name in ("episodes", "plan", "stage")
    },
    "table": {  # a key of recipes, of logs and of columns of labels
        "io/labels/label_tables.py",
        *(f"recipe/{name}.py" for name in ("checks", "columns", "labels", "logs", "model")),
        "pipelines/plan/vanished_labels.py",
    },
    # The type of messages that are rows; a key of recipes; the kind of notes on tables.
    "tables": {"io/logs/interface.py", "io/logs/table_dialects.py"},
    "tar": {"transforms/suggest/recipe.py"},  # the output that a suggested recipe begins with
    "zarr": {"software.py"},  # the package
}


def test_nobody_but_a_part_spells_its_name():
    found = {}
    for module, path in modules().items():
        own = part_of(module)
        for node in ast.walk(tree_of(path)) if not module.startswith("logloom.parts") else ():
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            name = text.split("/")[0]  # of a name, or the path of a file in a root
            if name in REMOVABLE and name not in (own, *REMOVABLE.get(own, ())):
                found.setdefault(name, set()).add(path.relative_to(PACKAGE).as_posix())
    known = {name: set(present(*modules)) for name, modules in NAMES_OF_PARTS.items() if name in REMOVABLE}
    assert found == {name: modules for name, modules in known.items() if modules}


def docstrings_and_comments(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    yield from (token.string for token in tokens if token.type == tokenize.COMMENT)


def test_docstrings_and_comments_name_modules_and_what_is_in_them():
    for path in sorted(PACKAGE.rglob("*.py")):
        for text in docstrings_and_comments(path):
            for name in re.findall(r"(?<![\w./@-])logloom(?:\.\w+)+", text):
                right = name in ENTRY_POINTS or is_named_right(name, path)
                assert right, f"{path.relative_to(PACKAGE)} names {name}"


def definitions():
    """(module, definition) of each class and function of the package, nested ones too."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, kinds):
                yield path.relative_to(PACKAGE).as_posix(), node


# Docstrings and messages are plain technical English: programs report and contain, they tell nobody anything.
OUR_OWN_WORDS = re.compile(
    r"\b(whoever|likewise|of before|nobody|somebody|isn't there|told|tells"
    r"|says (?:so|that|what|which|nothing)|lies?|stands?)\b",
    re.IGNORECASE,
)


# Messages and help are read by users; docstrings may still "take" arguments.
NOT_IN_MESSAGES = re.compile(r"\b(holds|says|knows|wants|takes|gives)\b")


def messages_of(tree):
    """Literals with several words that aren't docstrings, each with its line."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docs else None
        if isinstance(text, str) and " " in text.strip():
            yield node.lineno, text


def test_messages_and_help_let_programs_report_and_contain():
    for path in sorted(PACKAGE.rglob("*.py")):
        for line, text in messages_of(tree_of(path)):
            found = NOT_IN_MESSAGES.search(text)
            assert not found, f"{path.relative_to(PACKAGE)}:{line}: {found and found[0]!r} in {text!r}"


def test_docstrings_and_messages_are_plain_english():
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = OUR_OWN_WORDS.search(node.value)
                assert not found, f"{path.relative_to(PACKAGE)}:{node.lineno}: {found and found[0]!r}"


def test_each_function_is_short():
    for module, node in definitions():
        lines = node.end_lineno - node.lineno + 1
        assert isinstance(node, ast.ClassDef) or lines <= 60, f"{module}: {node.name} has {lines} lines"


def test_each_class_has_a_name_of_its_own():
    homes = {}
    for module, node in definitions():
        if isinstance(node, ast.ClassDef):
            homes.setdefault(node.name.lstrip("_"), []).append(module)
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}


def test_reading_and_verifying_work_without_beam():
    modules = [
        "logloom.pipelines.verify.verify",
        "logloom.io.formats.tar",
        "logloom.io.formats.l5kit",
        "logloom.datasets",
    ]
    code = f"import sys, {', '.join(present(*modules))}; print('apache_beam' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_errors_survive_pickling():
    import pickle

    errors = importlib.import_module("logloom.errors")
    for name in errors.__all__:
        error = pickle.loads(pickle.dumps(getattr(errors, name)("what, where and the way out")))
        assert str(error) == "what, where and the way out"
        assert isinstance(error, logloom.LogloomError)
