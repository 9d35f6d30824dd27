"""The documentation does what it shows: each page runs in a fresh folder, from top to bottom."""

import importlib.metadata
import json
import re
import shlex
import sys
import tomllib

import pytest
import yaml

from logloom.cli import commands
from logloom.demo import demo_recipe
from logloom.errors import RecipeError
from logloom.recipe import Recipe
from logloom.recipe import yaml as recipe_yaml
from tests.pages import PAGES, REPOSITORY, blocks, names_of, run_page
from tests.parsing import parse

DOCS = REPOSITORY / "docs"
LANGUAGES = {"sh", "python", "yaml", "toml", "json", "csv", "text"}
# What pages print, as patterns: values that a reader should see.
PRINTED = {
    "README.md": [r"\(320, 240\)"],
    "docs/beam.md": [
        r"Written\(uri='.*/demo/fast', format='parquet', logs=2, rows=227,",
        r"^84$",
        r"^366$",
        r"^drive-00 130$",
        r"^drive-01 97$",
        r"^\['rain', 'dry'\] 10\.01",
        r"^\[\(0\.5, \(1, 2\)\), \(1\.0, \(2, 2\)\), \(1\.5, \(3, 2\)\)\]$",
    ],
    "docs/convert.md": [r"webdataset float32\[\?, 4\]"],
    "docs/deleting.md": [r"was purged \(request 1187\)"],
    "docs/lerobot.md": ["follow the road"],
    "docs/openmmlab.md": ["camera.front/drive-00/", "^drive-00 "],
    "docs/quickstart.md": [r"up to date", r"\(240, 320, 3\)"],
    "docs/training.md": [r"\(5,\) \(5, 3\) 5"],
    "docs/zarr.md": [r"^\(\d+, 4\)$", r"\[nan, 273\.5, 274\.0\]"],
}


def blocks_of(*languages):
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


@pytest.mark.pages
@pytest.mark.timeout(1200)  # dozens of commands
@pytest.mark.parametrize(
    "page", [page for page in PAGES if {b.language for b in blocks(page)} & {"sh", "python"}]
)
def test_a_page_runs_from_top_to_bottom(page, tmp_path):
    folder = tmp_path / "page"
    folder.mkdir()
    printed, lacking = run_page(page, folder)
    for expected in PRINTED.get(page, ()):
        assert re.search(expected, printed, re.MULTILINE), f"{page} doesn't print {expected}:\n{printed}"
    if lacking:
        pytest.skip(f"needs {', '.join(lacking)}; all blocks without it ran")


def test_blocks_are_of_a_kind_that_is_looked_at():
    unknown = [block.place for page in PAGES for block in blocks(page) if block.language not in LANGUAGES]
    assert unknown == []


def test_every_fence_opens_or_closes_a_block():
    for page in PAGES:
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(blocks(page)), page


def test_shells_end_a_block_where_they_began_it():
    """Each block is run by a shell of its own; a reader's goes on."""
    moving = re.compile(r"^(cd|export) ", re.MULTILINE)
    found = [block.place for block in blocks_of("sh") if not block.title and moving.search(block.text)]
    assert found == []


def distribution(requirement):
    return re.match(r"[\w-]+", requirement)[0].lower()


def test_packages_that_programs_need_are_named_with_their_install_line():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    known = {*sys.stdlib_module_names, "logloom", *map(distribution, project["dependencies"])}
    names = importlib.metadata.packages_distributions()
    missing = []
    for page in PAGES:
        files = {re.split(r"[./]", block.title)[0] for block in blocks(page)}
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        installed = re.findall(r"pip install\s+([^`\n]*(?:\n[^`\n]*`)?)", text)
        shown = set(re.findall(r"[\w-]+", " ".join(installed).lower()))
        for block in blocks(page):
            for module in names_of(block)[0] - files - known if block.language == "python" else ():
                wanted = {name.lower() for name in names.get(module, [module])}
                wanted |= {extra for extra, some in extras.items() if wanted & set(map(distribution, some))}
                if not wanted & (shown | known):
                    missing.append(f"{block.place} imports {module}")
    assert missing == []


def shown_commands():
    """The calls of logloom in what no page runs: (place, arguments)."""
    for block in (block for page in PAGES for block in blocks(page)):
        if block.is_shown_only or block.language in ("text", "yaml"):
            for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
                if found := re.match(r"(?:\s*- run: )?logloom (.*)", line):
                    yield block.place, found[1]


@pytest.mark.parametrize(("place", "line"), list(shown_commands()))
def test_the_command_takes_the_lines_that_are_only_shown(place, line):
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    ours = list(iter(lambda: next(words, ";"), ";"))
    ours = ours[: next((number for number, word in enumerate(ours) if set(word) <= set("|&;<>")), None)]
    parse(ours)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_parse(page):
    for block in blocks(page):
        if block.language == "python":
            compile(block.text, block.place, "exec")
        elif block.language == "yaml":
            assert isinstance(yaml.safe_load(block.text), dict), block.place
        elif block.language == "toml":
            assert tomllib.loads(block.text), block.place
        elif block.language == "json":
            json.loads(block.text)


@pytest.mark.parametrize("page", sorted({block.page for block in blocks_of("yaml")}))
def test_recipes_load_and_parts_of_one_fit_into_a_recipe(page):
    """Parts are tried with one other column, or with those of the demo and of the page above them."""
    keys = {info.alias or name for name, info in Recipe.model_fields.items()}
    columns = yaml.safe_load(demo_recipe("demo/logs"))["columns"]
    other = {"topic": "/a", "field": "a", "tolerance": "1s"}
    base = {"name": "t", "logs": "x", "clock": {"rate": 1}, "columns": {"a": other}}
    for block in (block for block in blocks(page) if block.language == "yaml"):
        part, _, mistakes = recipe_yaml.load(block.text, block.place)
        if not part.keys() <= keys:
            continue  # settings of something else
        assert not mistakes
        columns = columns | part.get("columns", {})
        try:
            whole = block.text if block.is_file else recipe_yaml.dump(base | part)
            Recipe.from_yaml(whole, source=block.place)
        except RecipeError:
            if block.is_file or "columns" in part:
                raise
            Recipe.from_yaml(recipe_yaml.dump(base | part | {"columns": columns}), source=block.place)


COMMANDS = ("docs/commands.md", "docs/versions.md")


def test_the_pages_on_commands_have_a_section_for_each():
    pages = [(REPOSITORY / page).read_text() for page in COMMANDS]
    explained = [name for page in pages for name in re.findall(r"^## (\w+)$", page, re.MULTILINE)]
    app = commands()
    groups = [group.typer_instance.info.name for group in app.registered_groups]
    verbs = [one.name or one.callback.__name__ for one in app.registered_commands]
    assert sorted(explained) == sorted([*verbs, *groups])


def pages_linked(page):
    links = re.findall(r"\]\(([^):#\s]+\.md)", page.read_text(encoding="utf-8"))
    return {
        (page.parent / link).resolve() for link in links if DOCS in (page.parent / link).resolve().parents
    }


def test_each_page_is_two_clicks_from_the_index():
    near = pages_linked(DOCS / "index.md")
    reached = near | {far for page in near for far in pages_linked(page)}
    missing = {str(path.relative_to(DOCS)) for path in set(DOCS.rglob("*.md")) - reached}
    assert missing <= {"index.md"}


def test_the_navigation_of_the_site_has_each_page():
    settings = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w./-]+\.md", settings.partition("\nnav:\n")[2]))
    assert {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - named == set()


def test_the_page_on_flink_names_what_the_manifest_has():
    page = (DOCS / "howto/flink-on-kubernetes.md").read_text()
    manifest = (REPOSITORY / "examples/deploy/kubernetes/flink.yaml").read_text()
    for value in ("europe-west4-docker.pkg.dev/PROJECT/", "gs://BUCKET/flink/ha", "gs://drives/recipe.yaml"):
        assert value in page
        assert value in manifest
    for name in ("logloom-urban-on-flink", "logloom-pool", "high-availability.storageDir"):
        assert name in page
        assert name in manifest


def test_the_tutorial_shows_the_pictures_that_make_picture_makes():
    picture = pytest.importorskip("tests.browser.picture", reason="playwright is not installed")
    shown = re.findall(r"!\[[^\]]+\]\(pictures/(\w+)\.png\)", (DOCS / "tutorial.md").read_text())
    made = {path.stem: path.stat().st_size for path in (DOCS / "pictures").iterdir()}
    assert shown == list(picture.PARTS)
    assert made.keys() == set(shown)
    assert max(made.values()) < 50_000
