"""The project without some of its parts: `make without PART="lance l5kit"`.

    python -m tests.without lance l5kit --stages "lint test docs" --pytest-args "tests/io"

Copies the tracked files that don't bear the name of a part, or of one that requires it, to a folder for
temporary files; takes the parts out of pyproject.toml, the site's navigation and links of pages; then runs
targets of make there with this environment. The copy stays, to look at what failed.

Elsewhere: which tests are skipped there (absent).
"""

from __future__ import annotations

import argparse
import os
import pathlib
import pkgutil
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import typing
from collections.abc import Collection, Mapping

from tests.absent import bears_name

REPOSITORY = pathlib.Path(__file__).parents[1]
STAYS = ("direct", "mcap", "messages")  # registered as parts are, but everything stands on them
TARGETS = {"lint": [], "test": ["interop", "browser"], "docs": ["browser"]}
# Modules of the copy alone: what an editable installation would find in the repository isn't there.
SITE = """import sys
sys.meta_path[:] = [one for one in sys.meta_path if "__editable__" not in getattr(one, "__module__", "")]
"""


def installed_parts() -> dict[str, typing.Any]:
    """The parts that pyproject.toml registers, by name."""
    points = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["entry-points"]
    return {
        name: pkgutil.resolve_name(home)
        for name, home in points["logloom.parts"].items()
        if name not in STAYS
    }


def requiring(chosen: list[str], parts: dict[str, typing.Any]) -> list[str]:
    """Some parts and all that can't be there without them."""
    found = [*chosen]
    for name in found:
        found += [other for other, one in parts.items() if name in one.requires and other not in found]
    return found


def offers(part: typing.Any) -> list[str]:
    """All that a part is asked for by name."""
    return sorted({name for field in part if isinstance(field, Mapping) for name in field})


def copy_without(names: list[str], copy: pathlib.Path) -> None:
    """Copies the tracked files that bear none of some names, and what is made from them."""
    shutil.rmtree(copy, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    for path in filter(None, listed.stdout.split("\0")):
        is_left_out = bears_name(path, names) and not path.startswith("benchmarks/")  # which compare parts
        if not is_left_out and (REPOSITORY / path).is_file():
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / path, copy / path)
            for made in (REPOSITORY / path).parent.glob(f"__pycache__/{pathlib.Path(path).stem}.*.pyc"):
                (copy / path).parent.joinpath("__pycache__").mkdir(exist_ok=True)
                shutil.copy2(made, (copy / path).parent / "__pycache__")
    for made in [*REPOSITORY.glob(".venv*"), *REPOSITORY.glob(".cache")]:
        (copy / made.name).symlink_to(made.resolve())
    if (REPOSITORY / ".mypy_cache").is_dir():
        shutil.copytree(REPOSITORY / ".mypy_cache", copy / ".mypy_cache")


def take_out(names: list[str], copy: pathlib.Path) -> None:
    """Takes parts out of the settings of the copy, its navigation and its pages."""
    project = copy / "pyproject.toml"
    parts = "|".join(names)
    text = project.read_text(encoding="utf-8")
    text = re.sub(rf'^(?:{parts}) = (?:"logloom\.parts\..*|\[".*)\n', "", text, flags=re.MULTILINE)
    project.write_text(text, encoding="utf-8")
    pages = copy / "mkdocs.yml"
    entry = re.compile(r"^ +- (\S+\.md)\n|([^\s,\[\]]+\.md)(?:, |(?=\]))", re.MULTILINE)
    text = entry.sub(lambda m: "" if bears_name(m[1] or m[2], names) else m[0], pages.read_text("utf-8"))
    pages.write_text(text.replace(", ]", "]"), encoding="utf-8")
    # Rows about a page, links to one or to a section, and sections.
    text_of_link = r"((?:!\[[^\]]*\]\([^)]*\)|[^\[\]])*)"  # an image, too
    link = re.compile(
        rf"^\| \[[^\]]*\]\(([^)\s:#]+)\) \|.*\n|!?\[{text_of_link}\]\(([^)\s:#]*)(?:#([^)\s]*))?\)",
        re.MULTILINE,
    )
    section = re.compile(rf"^## (?:{parts})\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    for page in copy.rglob("*.md"):
        folder = page.parent.relative_to(copy).as_posix()

        def kept(found: re.Match[str], folder: str = folder) -> str:
            path = posixpath.normpath(posixpath.join(folder, found[1] or found[3]))
            if bears_name(path, names) or found[4] in names:
                return link.sub(kept, found[2] or "")
            return found[0]

        text = section.sub("", page.read_text(encoding="utf-8"))
        page.write_text(link.sub(kept, text), encoding="utf-8")


def make(target: str, copy: pathlib.Path, absent: str, tests: str, pytest_args: str) -> int:
    """Runs a target of make in the copy; what targets set up is there already."""
    site = copy.parent / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(SITE)
    stamps = [f"{venv.name}/{stamp}" for venv in copy.glob(".venv*") for stamp in (".installed", ".locked")]
    done = [word for name in (*TARGETS[target], *stamps) for word in ("-o", name)]
    environment = {
        "LOGLOOM_TEST_DATA": str(REPOSITORY.parent / "shared" / "data"),
        **{name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))},
        "LOGLOOM_WITHOUT": absent,
        "LOGLOOM_WITHOUT_TESTS": tests,
        "PYTHONPATH": f"{copy}{os.pathsep}{site}",
    }
    command = ["make", *done, target, f"PYTEST_ARGS={pytest_args}"]
    return subprocess.run(command, cwd=copy, env=environment, check=False).returncode


def chosen_parts(given: list[str], parts: Collection[str]) -> list[str]:
    """The parts to leave out; of `turn`, one that depends on the commit."""
    if given == ["turn"]:
        commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=REPOSITORY)
        return [sorted(parts)[int(commit, 16) % len(parts)]]
    if unknown := {*given} - {*parts}:
        sys.exit(f"no part {', '.join(sorted(unknown))}; there are {', '.join(sorted(parts))}")
    return given


def main() -> None:
    parser = argparse.ArgumentParser(description="The project without some of its parts.")
    parser.add_argument("parts", nargs="+", help="their names; turn: one chosen by the commit")
    parser.add_argument("--stages", default=" ".join(TARGETS), help="of make, run in this order")
    parser.add_argument(
        "--tests",
        choices=("all", "naming"),
        default="all",
        help="naming: of all that are collected, those at the top, and files that name an absent part",
    )
    parser.add_argument("--pytest-args", default="", help="of the stages test and docs")
    given = parser.parse_args()
    parts = installed_parts()
    chosen = chosen_parts(given.parts, parts)
    names = requiring(chosen, parts)
    what = f"without {', '.join(names)}"
    copy = pathlib.Path(tempfile.gettempdir(), f"logloom-without-{'-'.join(chosen)}", "logloom")
    print(f"== {what}: copy the project to {copy}", flush=True)
    copy_without(names, copy)
    take_out(names, copy)
    code = "from setuptools import setup; setup()"
    subprocess.run([sys.executable, "-c", code, "-q", "egg_info"], cwd=copy, check=True)
    absent = " ".join(f"{name}={','.join(offers(parts[name]))}" for name in names)
    for stage in given.stages.split():
        print(f"== {what}: make {stage}", flush=True)
        if make(stage, copy, absent, given.tests, given.pytest_args):
            sys.exit(f"{what}: make {stage} failed; look at {copy}")


if __name__ == "__main__":
    main()
