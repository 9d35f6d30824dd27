"""Pages for people name only what is there: files, modules, names in the code, tests, links.

What the pages say for users to run is tested elsewhere (test_docs, and beside what it is about).
"""

import ast
import functools
import pkgutil
import re

import pytest
import yaml

from tests.absent import ABSENT, bears_name, in_absent_part, present
from tests.conftest import REPOSITORY

PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for folder in ("", "docs", "docs/howto", "docs/coming-from", "docs/design", "benchmarks", "tests/model")
    for path in (REPOSITORY / folder).glob("*.md")
)
EXPLAINING = [
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/guarantees.md",
    "tests/model/README.md",
    *(page for page in PAGES if page.startswith("docs/design/")),
]
FOLDERS = ("logloom/", "tests/", "docs/", "benchmarks/", "examples/", ".ci/")
CODE = re.compile(r"`([^`\n]+)`")


def text_of(page):
    return (REPOSITORY / page).read_text(encoding="utf-8")


def without_fences(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


@functools.cache
def functions_in(path):
    tree = ast.parse((REPOSITORY / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def named_tests(page):
    """(files, test) for each test that a page names: the files stand before it in its line or above."""
    files = []
    for line in without_fences(text_of(page)).splitlines():
        found = []
        for code in CODE.findall(line):
            path, _, name = code.partition("::")
            if re.fullmatch(r"(tests|logloom/testing)/[\w/]+\.py", path):
                found = files = [*found, path]
            if name or re.fullmatch(r"test_\w+", code):
                yield [path] if name else files, name or code


@functools.cache
def words_of_the_code():
    """Every name and word that stands in the package, its tests or its settings."""
    files = [
        *REPOSITORY.glob("logloom/**/*"),
        *REPOSITORY.glob("tests/**/*.py"),
        *REPOSITORY.glob("tests/**/*.tla"),
    ]
    files += [REPOSITORY / name for name in ("pyproject.toml", "Makefile")]
    known = (".py", ".tla", ".xml", ".toml", ".json", "")
    texts = [file.read_text(encoding="utf-8") for file in files if file.is_file() and file.suffix in known]
    return set(re.findall(r"\w+", "\n".join(texts)))


@functools.cache
def files_of_the_project():
    """Paths with a slash before each."""
    found = [
        *REPOSITORY.glob("*"),
        *(path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*")),
    ]
    return [f"/{path.relative_to(REPOSITORY).as_posix()}" for path in found]


@pytest.mark.parametrize("page", EXPLAINING)
def test_files_that_pages_name_are_there(page):
    for code in CODE.findall(without_fences(text_of(page))):
        path = code.partition("::")[0]
        if path.startswith(FOLDERS) and not re.search(r"[<{ ]", path) and not bears_name(path):
            assert any(REPOSITORY.glob(path.rstrip("/"))), f"{page} names {path}"
        elif re.fullmatch(r"[\w/-]+\.(py|toml|yml)", path) and not bears_name(path):
            assert any(file.endswith(f"/{path}") for file in files_of_the_project()), f"{page} names {path}"


@pytest.mark.parametrize("page", EXPLAINING)
def test_tests_that_pages_name_are_there(page):
    for files, name in named_tests(page):
        assert files, f"{page} doesn't say where {name} is"
        for path in present(*files):
            assert name in functions_in(path), f"{page}: {path} has no {name}"


@pytest.mark.parametrize("page", EXPLAINING)
def test_names_that_pages_use_are_those_of_the_code(page):
    for code in CODE.findall(without_fences(text_of(page))):
        if re.fullmatch(r"logloom(\.\w+)+", code):
            group = f'entry-points."{code}"' in text_of("pyproject.toml")
            known = group or in_absent_part(code) or pkgutil.resolve_name(code) is not None
            assert known, f"{page} names {code}"
        elif re.fullmatch(r"make [\w-]+", code):
            target = re.escape(code.removeprefix("make "))
            assert re.search(rf"^{target}:", text_of("Makefile"), re.MULTILINE), f"{page} names {code}"
        elif re.fullmatch(r"\w*_\w*|[A-Z]+[a-z]\w*|[A-Z]\w+\.\w+", code) and not code.startswith("__"):
            missing = set(re.findall(r"\w+", code)) - words_of_the_code()
            assert not missing or ABSENT, f"{page} names {code}, which the code doesn't"


@pytest.mark.parametrize("page", [page for page in EXPLAINING if page.startswith("docs/design/")])
def test_a_page_of_the_design_has_a_problem_decisions_rejected_alternatives_and_tests(page):
    heads = re.findall(r"^## (.*)$", text_of(page), re.MULTILINE)
    assert heads == ["The problem", "Decisions", "Rejected alternatives", "Tests"]
    assert len(list(named_tests(page))) >= 10


def test_each_guarantee_has_a_test():
    rows = [line for line in text_of("docs/guarantees.md").splitlines() if line.startswith("| ")]
    promises = [line for line in rows if not line.startswith("| promise |")]
    assert len(promises) > 30
    for line in promises:
        assert re.search(r"`tests/[\w/]+\.py::test_\w+`", line), f"no test: {line}"


def anchors_of(path):
    """The anchors of a page's headlines, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", without_fences(path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", without_fences(text_of(page))):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (REPOSITORY / page).parent / name if name else REPOSITORY / page
        assert target.exists(), f"{page} links to {link}"
        if anchor:
            assert anchor in anchors_of(target), f"{page} links to {link}, a headline that isn't there"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if re.fullmatch(r"docs/((howto|coming-from)/)?[\w-]+\.md", page)]
)
def test_a_page_for_users_leads_on_to_another(page):
    if page in ("docs/guarantees.md", "docs/troubleshooting.md"):
        return  # tables to look up a line in
    last = text_of(page).rstrip().rpartition("\n\n")[2]
    assert ABSENT or re.search(r"\]\([^):]+\.md", last), f"{page} ends without a link to another page"


def test_the_hooks_before_a_commit_run_what_make_lint_runs():
    config = yaml.safe_load(text_of(".pre-commit-config.yaml"))
    entries = [hook["entry"] for repository in config["repos"] for hook in repository["hooks"]]
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", text_of("Makefile"), re.MULTILINE)[1]
    lines = [line.strip().replace("$(BIN)", ".venv/bin").removesuffix(" .") for line in recipe.splitlines()]
    assert entries == lines


@functools.cache
def messages_of_the_code():
    """Each text in the package; what stands in braces of f-strings is a NUL."""
    found = set()
    for path in (REPOSITORY / "logloom").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
                found.add("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def quoted_messages():
    """The messages on the page on troubleshooting: the first column of its tables of messages."""
    is_of_messages = False
    for line in text_of("docs/troubleshooting.md").splitlines():
        if not line.startswith("|"):
            is_of_messages = False
        elif line.startswith("| message |"):
            is_of_messages = True
        elif is_of_messages and not line.startswith("|---"):
            quoted = re.match(r"\| (`+)(.*?)\1 \| ", line)
            assert quoted, f"docs/troubleshooting.md quotes no message in {line}"
            yield quoted[2]


@pytest.mark.parametrize("message", list(quoted_messages()))
def test_messages_that_the_page_on_troubleshooting_quotes_are_those_of_the_code(message):
    pattern = re.compile(".*".join(re.escape(part) for part in message.split("…")), re.DOTALL)
    assert ABSENT or any(pattern.search(text) for text in messages_of_the_code())


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_whole(page):
    """A row of a table stands below another one, or below its head: a blank line ends a table."""
    lines = without_fences(text_of(page)).splitlines()
    for number, line in enumerate(lines):
        if line.startswith("|") and not lines[number - 1].startswith("|"):
            assert re.fullmatch(r"\|([ :-]+\|)+", lines[number + 1]), (
                f"{page}: a table without a head: {line}"
            )


def lists_run_together(text):
    """Lines with an item that no list shows: it follows a sentence, or a paragraph without a blank line."""
    above = ""
    for line in without_fences(text).splitlines():
        if re.search(r"[.:;] \* \S", CODE.sub("code", line)) or (
            re.match(r"([*+-]|\d+\.) ", line) and re.match(r"[^\s*+#-](?!\d*\. )", above)
        ):
            yield line
        above = line


@pytest.mark.parametrize("page", PAGES)
def test_each_item_of_a_list_has_a_line_of_its_own(page):
    assert list(lists_run_together(text_of(page))) == []


def test_lists_that_run_together_are_found():
    ends = ["* one. * Two", "so:\n* one", "so:\n1. one", "* one;\n  more; * `two`"]
    assert [len(list(lists_run_together(text))) for text in ends] == [1, 1, 1, 1]
    whole = ["* one\n* two\n  * three", "so:\n\n* one", "1. one\n2. two", "* a\n  b\n* c", "`a; * b`"]
    assert [list(lists_run_together(text)) for text in whole] == [[]] * 5


# In prose programs, files and values report, contain, accept and return; they don't say, hold, take or give.
OWN_WORDS = re.compile(
    r"""\b(?:
    says|tells|lies|stands|holds|gives|takes|knows|said|told|stood|held|gave|took
    | (?:to|can|can't|cannot|may|must|will|would|should|doesn't|don't|didn't|not|that|which|they|it)
      \ (?:say|tell|lie|stand|hold|give|take)
    | (?:doesn't|don't|can't|not|that|which|they)\ know
    | what\ (?:is|was|are|were)
    | likewise|whoever|of\ before
    )\b""",
    re.VERBOSE,
)
# Work may take time.
OF_TIME = re.compile(
    r"\b(?:takes?|took)(?: about| some| up to| at most| almost| less than)* "
    r"(?:\d|an? |two|three|ten|seconds|minutes|hours|days|longer|as long|too long|no time|time|effect)\b"
)


def prose_of(text):
    """The sentences of a page, in one line: without code, comments and targets of links."""
    text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->|\]\([^)]*\)", "", CODE.sub("code", text), flags=re.DOTALL)
    return OF_TIME.sub("", " ".join(text.split()))


def words_around(text):
    return [text[max(0, found.start() - 40) : found.end() + 40] for found in OWN_WORDS.finditer(text)]


USER_PAGES = [page.relative_to(REPOSITORY).as_posix() for page in (REPOSITORY / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", ["README.md", *sorted(USER_PAGES)])
def test_pages_are_in_plain_english(page):
    assert words_around(prose_of(text_of(page))) == []


def test_words_that_no_page_uses_are_found_in_prose_alone():
    for text in ("It says so.", "as logs hold them: they\nhold", "what is in it", "a file that\nlies there"):
        assert words_around(prose_of(text)), text
    for text in ("It takes 3 minutes.", "`it says`", "```text\nit says\n```", "[x](what is)", "take two"):
        assert not words_around(prose_of(text)), text


def test_all_pages_together_have_at_most_50_000_words():
    """Bars of tables, bullets and signs alone are no words."""
    counts = {page: len(re.findall(r"\S*\w\S*", text_of(page))) for page in USER_PAGES}
    longest = sorted(counts.items(), key=lambda one: -one[1])[:20]
    assert sum(counts.values()) <= 50_000, longest
