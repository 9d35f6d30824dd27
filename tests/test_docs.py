"""The documentation, run as it stands: every command and every program in it, in the order of the page."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from logloom.cli import commands
from logloom.datasets import open as open_dataset
from logloom.demo import make_drives
from tests.absent import needs, present
from tests.forking import pages_environment

REPOSITORY = pathlib.Path(__file__).parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    """The fenced blocks of a language, in order; without installing, which tests don't."""
    found = [text for name, text in BLOCK.findall((REPOSITORY / page).read_text()) if name == language]
    return [re.sub(r"^(pip install|make) .*\n", "", text, flags=re.MULTILINE) for text in found]


def run(command, folder, env=None):
    done = subprocess.run(command, cwd=folder, env=env or pages_environment(), capture_output=True, text=True)
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.pages
def test_the_quickstart_runs_from_top_to_bottom(tmp_path):
    for text in blocks("docs/quickstart.md", "sh"):
        run(["bash", "-euo", "pipefail", "-c", text], tmp_path)
    programs = blocks("docs/quickstart.md", "python")
    assert len(programs) == 3
    assert all(run([sys.executable, "-c", text], tmp_path) for text in programs)


@pytest.mark.pages
def test_the_recipe_and_the_program_of_the_readme_work_on_a_drive(tmp_path):
    """In processes of their own, as its readers run them."""
    beside = pathlib.Path(sys.executable).parent
    own = {**os.environ, "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"}
    make_drives(tmp_path / "drives")
    (recipe,), (program,) = blocks("README.md", "yaml"), blocks("README.md", "python")
    (tmp_path / "urban.yaml").write_text(recipe)
    for text in blocks("README.md", "sh"):
        run(["bash", "-euo", "pipefail", "-c", text], tmp_path, own)
    assert "(320, 240)" in run([sys.executable, "-c", program], tmp_path)
    assert len([line for line in program.splitlines() if line.strip()]) <= 10


OF_COMMANDS = ("docs/commands.md", "docs/versions.md")


@pytest.mark.pages
@pytest.mark.parametrize("page", [*OF_COMMANDS, "docs/damaged-logs.md", "docs/missing-values.md"])
def test_a_page_on_commands_runs_from_top_to_bottom(page, tmp_path):
    for text in blocks(page, "sh"):
        run(["bash", "-euo", "pipefail", "-c", text], tmp_path)


def test_the_pages_on_commands_tell_of_each():
    pages = [(REPOSITORY / page).read_text() for page in OF_COMMANDS]
    told = [name for page in pages for name in re.findall(r"^## (\w+)$", page, re.MULTILINE)]
    app = commands()
    groups = [group.typer_instance.info.name for group in app.registered_groups]
    verbs = [one.name or one.callback.__name__ for one in app.registered_commands]
    assert sorted(told) == sorted([*verbs, *groups])


# What the program of a page prints once its commands were run.
PRINTED = {
    "docs/convert.md": "webdataset float32[?, 4]",
    "docs/deleting.md": "was purged (request 1187)",
    "docs/lerobot.md": "follow the road",
}


@pytest.mark.pages
@pytest.mark.parametrize("page", present(*PRINTED))
def test_a_page_with_a_program_runs_from_top_to_bottom(page, tmp_path):
    for text in blocks(page, "sh"):
        run(["bash", "-euo", "pipefail", "-c", text], tmp_path)
    (program,) = blocks(page, "python")
    assert PRINTED[page] in run([sys.executable, "-c", program], tmp_path)


@pytest.mark.pages
def test_the_page_on_beam_runs_from_top_to_bottom(tmp_path):
    needs("parquet", "zarr")
    for text in blocks("docs/beam.md", "sh"):
        run(["bash", "-euo", "pipefail", "-c", text], tmp_path)
    printed = run([sys.executable, "-c", "\n".join(blocks("docs/beam.md", "python"))], tmp_path)
    assert re.search(r"Written\(uri='.*/demo/fast', format='parquet', logs=2, rows=227,", printed)
    assert {"84", "366", "drive-00 130", "drive-01 97"} <= {*printed.splitlines()}
    rows = open_dataset(f"{tmp_path}/demo/fast")
    assert [rows[row]["weather"] for row in (0, 226)] == ["rain", "dry"]
    assert min(row["ego.speed"] for row in rows.select(["ego.speed"])) > 10
    bench = open_dataset(f"{tmp_path}/demo/bench")
    assert [(row["speed"], row["points"].shape) for row in bench] == [
        (0.5, (1, 2)),
        (1, (2, 2)),
        (1.5, (3, 2)),
    ]


def test_the_index_has_one_row_for_each_page():
    rows = re.findall(r"^\| \[.*?\]\((.*?)\) \|", (REPOSITORY / "docs/index.md").read_text(), re.MULTILINE)
    docs = REPOSITORY / "docs"
    pages = [path.relative_to(docs).as_posix() for path in docs.rglob("*.md") if path.name != "index.md"]
    assert sorted(rows) == sorted([*pages, "../examples"])


@pytest.mark.pages
@pytest.mark.parametrize("page", present("docs/parquet.md", "docs/lance.md"))
def test_a_page_of_plain_tables_runs_from_top_to_bottom(page, tmp_path):
    for text in blocks(page, "sh"):
        run(["bash", "-euo", "pipefail", "-c", text], tmp_path)
    programs = blocks(page, "python")
    assert all(run([sys.executable, "-c", text], tmp_path) for text in programs)
    assert len(programs) >= 2


@pytest.mark.parametrize("page", present("docs/bags.md", "docs/table.md", "docs/tar.md"))
def test_pages_of_python_run_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), names)
