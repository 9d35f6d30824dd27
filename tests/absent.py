"""Tests in a project without some part of it, as `make without` makes one.

There a test is skipped if the test itself uses what is absent: a name from a module of the part, something
that the part offers, named in a recipe, a command or a call, which ends with the error that users get, or the
folder of an output in a root. If the code asks for what is absent, the test fails.

Here: `needs`, `present`, `outputs_present`, `ABSENT`, `said`, and what tests/conftest.py registers.
Elsewhere: the copy of the project (tests/without.py).
"""

from __future__ import annotations

import builtins
import inspect
import os
import re
import subprocess
import types
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NoReturn

import pytest

# By absent part, what it offered: names of outputs, verbs, ...; empty but in a copy.
ABSENT: dict[str, list[str]] = {
    part: offers.split(",")
    for part, offers in (word.split("=") for word in os.environ.get("LOGLOOM_WITHOUT", "").split())
}
_OFFERS = "|".join(re.escape(name) for names in ABSENT.values() for name in names if name) or "(?!)"
_REFUSED = re.compile(
    # By logloom, by the parser of commands, and by Python for a program of a test (`python -c`).
    rf"no installed part (?:reads a log|reads notes|offers [\w ]*'(?:{_OFFERS})')"
    rf"|no such command '(?:{_OFFERS})'|no output '(?:{_OFFERS})'"
    r'|File "(?:<string>|docs/[^"]+)", line \d+, in <module>\n(?:.*\n)??'
    rf".*No module named .*\b(?:{'|'.join(ABSENT)})\b"
)
# By logloom for a folder that no installed part recognises, whatever wrote it.
_UNKNOWN = re.compile(
    r"no dataset that can be opened \((?:it contains|a file)|neither a version of logloom nor"
)
_NAME = re.compile(rf"\b(?:{'|'.join([*ABSENT, _OFFERS])})\b")
# Of an absent output in a root; or just its name.
_FOLDER = re.compile(rf"\b(?:parts|v0000000\d)[\"'/ ]+(?:{_OFFERS})\b|^(?:{_OFFERS})$")


def needs(*parts: str) -> None:
    """Skip the calling test, or the module at whose top this stands, if a part is absent."""
    for part in parts:
        if part in ABSENT:
            pytest.skip(f"needs {part}", allow_module_level=True)


def present(*names: str) -> list[str]:
    """Those that are there of some parts, modules, or files."""
    return [name for name in names if not in_absent_part(name)]


def outputs_present(recipe: str) -> str:
    """The text of a recipe without the outputs that absent parts would write."""
    output = rf"^( +)(?:{'|'.join(ABSENT)}):.*\n(?:\1 +.*\n)*"
    return re.sub(output, "", recipe, flags=re.MULTILINE) if ABSENT else recipe


def bears_name(path: str, parts: Collection[str] = tuple(ABSENT)) -> bool:
    """Whether a file belongs to a part, by default to one that is absent.

    A file or folder of the part's name does, and `test_<part>.py`, `<any.module>.<part>.md`.
    """
    *folders, name = path.split("/")
    stems = name.removesuffix(".md").split(".") if name.endswith(".md") else [name.partition(".")[0]]
    return any(word.removeprefix("test_") in parts for word in (*folders, *stems))


def in_absent_part(module: str) -> bool:
    """Whether a module, or a name in one, is of an absent part."""
    return bears_name(module.replace(".", "/"))


# --- names that tests import ----------------------------------------------------------------------------

_running: list[pytest.Item] = []  # the test that runs
said: list[str] = []  # on stderr by the commands that it ran (tests.forking)


class Absent:
    """What stands for a name from an absent module: a test that uses it is skipped.

    While tests are collected, what is made of it is absent, too.
    """

    def __init__(self, name: str) -> None:
        self._absent_name = name

    def __repr__(self) -> str:
        return f"absent {self._absent_name}"

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._used(name)

    def _used(self, *_: Any, **__: Any) -> Absent:
        if _running:
            pytest.skip(f"needs {self._absent_name}")
        return self

    def __iter__(self) -> Iterator[Absent]:
        return iter([self._used()])

    def __mro_entries__(self, bases: Sequence[type]) -> tuple[type, ...]:
        self._used()
        return ()

    def __instancecheck__(self, one: object) -> NoReturn:
        pytest.skip(f"needs {self._absent_name}")

    __call__ = __getitem__ = __add__ = __radd__ = __or__ = __ror__ = __fspath__ = __enter__ = _used
    __eq__ = __ne__ = __lt__ = __mul__ = __len__ = __contains__ = __format__ = __bool__ = _used  # type: ignore[assignment]

    def __hash__(self) -> int:
        return hash(self._absent_name)


def _import(
    name: str,
    globals: dict[str, Any] | None = None,
    locals: Any = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """The builtin `__import__`, by which tests get absent names from absent modules."""
    importer = str((globals or {}).get("__name__", "tests"))
    if level or not importer.startswith(("tests", "page")) or not name.startswith(("logloom.", "tests.")):
        return _own_import(name, globals, locals, fromlist, level)
    if in_absent_part(name):
        return Absent(name)._used()
    module = _own_import(name, globals, locals, fromlist, level)
    absent = [one for one in fromlist or () if in_absent_part(one) and not hasattr(module, one)]
    if not absent:
        return module
    found = {one: Absent(one) if one in absent else getattr(module, one) for one in fromlist or ()}
    return types.SimpleNamespace(**found)


_own_import = builtins.__import__
if ABSENT:
    builtins.__import__ = _import


# --- hooks ----------------------------------------------------------------------------------------------


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out files that name no absent part, nor what it offers, where only those that do are to run."""
    if os.environ.get("LOGLOOM_WITHOUT_TESTS") != "naming":
        return
    chosen = {
        path: path.parent.name == "tests" or bool(_NAME.search(path.read_text("utf-8")))
        for path in {item.path for item in items}
    }
    config.hook.pytest_deselected(items=[item for item in items if not chosen[item.path]])
    items[:] = [item for item in items if chosen[item.path]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.clear()
        said.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    """Skip a test that fails because it imports, names or opens what is absent."""
    report: Any = yield
    if ABSENT and report.failed and (reason := _reason(item, call, report)):
        path, line, _ = item.location
        report.outcome = "skipped"
        report.longrepr = (path, line or 0, f"Skipped: {reason}")
    return report


def _reason(item: pytest.Item, call: pytest.CallInfo[Any], report: Any) -> str:
    """Return what a test that failed needs of an absent part, or nothing."""
    error = call.excinfo.value if call.excinfo else None
    tests = f"{item.config.rootpath}{os.sep}tests{os.sep}"
    if call.excinfo and (folder := _folder_named(item, call.excinfo)):
        return f"needs {folder}"
    if call.excinfo and isinstance(error, ModuleNotFoundError) and in_absent_part(error.name or ""):
        *_, importer = (one for one in call.excinfo.traceback if "importlib" not in str(one.path))
        if str(importer.path).startswith(tests):
            return f"needs {error.name}"
    if isinstance(error, FileNotFoundError):
        path = os.path.relpath(error.filename or "", item.config.rootpath)
        if not path.startswith(os.pardir) and bears_name(path):
            return f"needs {path}"
    shown = [report.longreprtext, report.capstderr, report.capstdout, *said]
    if isinstance(error, subprocess.CalledProcessError):
        shown += [
            one.decode() if isinstance(one, bytes) else one or "" for one in (error.stdout, error.stderr)
        ]
    if found := _REFUSED.search("".join(shown)):
        return found[0]
    if call.excinfo and _UNKNOWN.search("".join(shown)):
        return _text_found(_NAME, item, call.excinfo.traceback)
    return ""


def _folder_named(item: pytest.Item, failed: pytest.ExceptionInfo[Any]) -> str:
    """Return the folder of an absent output that failing functions of tests name, if logloom's don't fail.

    A test that comes as far as comparing what it found says nothing of a folder that isn't there.
    """
    code = f"{item.config.rootpath}{os.sep}logloom{os.sep}"
    if isinstance(failed.value, AssertionError) or any(
        str(one.path).startswith(code) for one in failed.traceback
    ):
        return ""
    return _text_found(_FOLDER, item, failed.traceback)


def _text_found(wanted: re.Pattern[str], item: pytest.Item, entries: Sequence[Any]) -> str:
    """Return what is found in failing functions of tests, or in the texts that they were given."""
    tests = f"{item.config.rootpath}{os.sep}tests{os.sep}"
    for entry in (one for one in entries if str(one.path).startswith(tests)):
        given = (value for value in entry.locals.values() if isinstance(value, str))
        for text in (inspect.getsource(entry.frame.code.raw), *given):
            if found := wanted.search(text):
                return found[0]
    return ""
