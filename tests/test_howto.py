"""The tutorial and the pages of docs/howto and docs/coming-from, done as they say, from top to bottom."""

import re
import shlex

import pytest
import typer
import yaml

from logloom.cli import commands
from tests.conftest import REPOSITORY
from tests.test_docs import BLOCK, run

PAGES = [
    "docs/tutorial.md",
    *sorted(
        path.relative_to(REPOSITORY).as_posix()
        for folder in ("howto", "coming-from")
        for path in (REPOSITORY / "docs" / folder).glob("*.md")
    ),
]
SHOWN = ("text", "yaml")  # blocks that name commands which want a cluster, a store or a runner


def parts(page):
    """(language, text) of the page's blocks, in order."""
    return BLOCK.findall((REPOSITORY / page).read_text(encoding="utf-8"))


@pytest.mark.pages
@pytest.mark.timeout(1200)  # a dozen commands a page, each of which starts Python anew
@pytest.mark.parametrize("page", [page for page in PAGES if any(kind == "sh" for kind, _ in parts(page))])
def test_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for kind, text in parts(page):
        if kind == "sh":
            run(["bash", "-euo", "pipefail", "-c", text], tmp_path)
        elif kind == "python":
            exec(compile(text, page, "exec"), names)


def test_blocks_are_of_a_kind_that_is_looked_at():
    for page in PAGES:
        found = {kind for kind, _ in parts(page)}
        assert found, f"{page} shows nothing"
        assert found <= {"sh", "python", "py", *SHOWN}, page
        before_py = re.findall(r"^(.*)\n```py$", (REPOSITORY / page).read_text(), re.MULTILINE)
        assert all(line.startswith("<!-- needs ") for line in before_py), page


def shown_commands():
    for page in PAGES:
        for kind, text in parts(page):
            if kind in SHOWN:
                for line in re.sub(r"\\\n\s*", " ", text).splitlines():
                    if found := re.match(r"(?:\s*- run: )?logloom (.*)", line):
                        yield page, found[1]


@pytest.mark.parametrize(("page", "line"), list(shown_commands()))
def test_the_command_takes_the_lines_that_are_only_shown(page, line):
    command = typer.main.get_command(commands())
    with command.make_context("logloom", shlex.split(line)) as context:
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        found.make_context(name, rest, parent=context)  # parses, and runs nothing


def test_blocks_of_yaml_are_yaml():
    shown = [text for page in PAGES for kind, text in parts(page) if kind == "yaml"]
    assert shown
    assert all(isinstance(yaml.safe_load(text), dict) for text in shown)


def test_the_page_on_flink_names_what_the_manifest_has():
    page = (REPOSITORY / "docs/howto/flink-on-kubernetes.md").read_text()
    manifest = (REPOSITORY / "examples/deploy/kubernetes/flink.yaml").read_text()
    for said in ("europe-west4-docker.pkg.dev/PROJECT/", "gs://BUCKET/flink/ha", "gs://drives/recipe.yaml"):
        assert said in page
        assert said in manifest
    for name in ("logloom-urban-on-flink", "logloom-pool", "high-availability.storageDir"):
        assert name in page
        assert name in manifest


def test_the_tutorial_shows_the_pictures_that_make_picture_makes():
    picture = pytest.importorskip("tests.browser.picture", reason="playwright is not installed")
    shown = re.findall(r"!\[[^\]]+\]\(pictures/(\w+)\.png\)", (REPOSITORY / "docs/tutorial.md").read_text())
    there = {path.stem: path.stat().st_size for path in (REPOSITORY / "docs/pictures").iterdir()}
    assert shown == list(picture.PARTS)
    assert there.keys() == set(shown)
    assert max(there.values()) < 50_000
