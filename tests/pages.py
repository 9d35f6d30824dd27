"""Pages of the documentation as readers use them: their fenced blocks, run in order in a fresh folder.

By the language and the title of a block:

    sh                          bash runs it, without the lines that install something or call make
    python                      the page's one interpreter runs it, unless it imports what isn't installed
    any, title="name.suffix"    a file of that name
    any, title="needs ..."      shown only: this machine doesn't have what it needs
    yaml, json, text, ...       shown only

Here: `blocks`, `run_page`. Elsewhere: what tests expect of pages (tests/test_docs.py).
"""

from __future__ import annotations

import ast
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from typing import IO, NamedTuple

from tests.forking import pages_environment

REPOSITORY = pathlib.Path(__file__).parent.parent
PAGES = ["README.md", *sorted(str(path.relative_to(REPOSITORY)) for path in REPOSITORY.glob("docs/**/*.md"))]
FENCED = re.compile(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", re.MULTILINE)
INSTALLING = re.compile(r"^(?:python -m )?(?:pip install|make) (?:.*\\\n)*.*\n", re.MULTILINE)

# Runs blocks that it gets as lines of JSON, all of them as one program, and answers how each of them ended.
INTERPRETER = """
import json, os, sys, traceback, types
answers, main = os.fdopen(os.dup(1), "w"), types.ModuleType("__main__")
os.dup2(2, 1)
sys.modules["__main__"] = main
for line in sys.stdin:
    name, text = json.loads(line)
    try:
        exec(compile(text, name, "exec"), vars(main))
        answer = "done"
    except BaseException:
        traceback.print_exc()
        answer = "failed"
    sys.stdout.flush()
    print(answer, file=answers, flush=True)
"""


class Block(NamedTuple):
    page: str
    line: int  # of its first line of text, from 1
    language: str
    title: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_shown_only(self) -> bool:
        return self.title.startswith("needs ")

    @property
    def is_file(self) -> bool:
        return bool(self.title) and not self.is_shown_only


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page of the repository, in order."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    found = []
    for match in FENCED.finditer(text):
        known = re.fullmatch(r'(\w+)(?: title="([^"]+)")?', match[2])
        language, title = (known[1], known[2] or "") if known else (match[2], "")
        line = text.count("\n", 0, match.start(3)) + 1
        found.append(Block(page, line, language, title, textwrap.dedent(match[3])))
    return found


def names_of(block: Block) -> tuple[set[str], set[str], set[str]]:
    """Return the packages that a block of Python imports, the names that it binds, and those that it uses."""
    imported, bound, used = set(), set(), set()
    for node in ast.walk(ast.parse(block.text, block.place)):
        if isinstance(node, ast.Import):
            imported |= {one.name.partition(".")[0] for one in node.names}
            bound |= {one.asname or one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
            bound |= {one.asname or one.name for one in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
    return imported, bound, used


def run_page(page: str, folder: pathlib.Path, env: Mapping[str, str] | None = None) -> tuple[str, list[str]]:
    """Run a page in an empty folder; return what it printed, and the packages that it needs and lacks.

    A block of Python that imports such a package is left out, as are later ones that use its names.
    """
    with open(folder.parent / f"{folder.name}.printed", "a+") as printed:
        run = PageRun(folder, dict(env or pages_environment()), printed)
        try:
            for block in blocks(page):
                run.block(block)
        finally:
            run.end()
        printed.seek(0)
        return printed.read(), sorted(run.lacking)


class PageRun:
    """The folder, the interpreter and the output of a page that is run."""

    def __init__(self, folder: pathlib.Path, env: dict[str, str], printed: IO[str]):
        self.folder, self.env, self.printed = folder, env, printed
        self.interpreter: subprocess.Popen[str] | None = None
        self.lacking: set[str] = set()
        self.unbound: set[str] = set()  # names that only blocks which were left out define

    def block(self, block: Block) -> None:
        if block.is_file:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.is_shown_only:
            return
        elif block.language == "sh":
            command = ["bash", "-euo", "pipefail", "-c", INSTALLING.sub("", block.text)]
            start = self.printed.seek(0, 2)
            done = subprocess.run(
                command, cwd=self.folder, env=self.env, stdout=self.printed, stderr=subprocess.STDOUT
            )
            assert done.returncode == 0, self.failure(block, start)
        elif block.language == "python":
            self.python(block)

    def python(self, block: Block) -> None:
        imported, bound, used = names_of(block)
        here = {path.stem for path in self.folder.iterdir()}
        lacking = {name for name in imported - here if not importlib.util.find_spec(name)}
        if lacking or (used - bound) & self.unbound:
            self.lacking |= lacking
            self.unbound |= bound
            return
        self.unbound -= bound
        start = self.printed.seek(0, 2)
        if self.interpreter is None:
            self.interpreter = subprocess.Popen(
                [sys.executable, "-u", "-c", INTERPRETER],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.printed,
                text=True,
            )
        assert self.interpreter.stdin
        assert self.interpreter.stdout
        # Lines in front of it, so that a traceback has those of the page.
        request = json.dumps([block.page, "\n" * (block.line - 1) + block.text])
        self.interpreter.stdin.write(f"{request}\n")
        self.interpreter.stdin.flush()
        answer = self.interpreter.stdout.readline()
        assert answer == "done\n", self.failure(block, start)

    def failure(self, block: Block, start: int) -> str:
        self.printed.seek(start)
        return f"{block.place}\n{block.text}\n{self.printed.read()}"

    def end(self) -> None:
        if self.interpreter is not None:
            self.interpreter.communicate()
