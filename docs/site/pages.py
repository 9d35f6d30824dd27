"""Pages of the site that don't lie in docs/: of the project, of the examples, of public modules.

A hook of MkDocs. Links that lead out of docs/ lead to these pages.
"""

from __future__ import annotations

import pathlib
import posixpath
import re
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "tests/model/README.md": "project/model.md",
}
MODULES = [
    "logloom",
    "logloom.datasets",
    "logloom.datasets.l5kit",
    "logloom.datasets.openmmlab",
    "logloom.datasets.tar",
    "logloom.errors",
    "logloom.io.annotations",
    "logloom.io.bags",
    "logloom.io.l5kit",
    "logloom.io.lance",
    "logloom.io.lerobot",
    "logloom.io.parquet",
    "logloom.io.tables",
    "logloom.io.tar",
    "logloom.io.zarr",
    "logloom.runners",
    "logloom.testing",
]
LANGUAGES = {".py": "python", ".yaml": "yaml", ".Dockerfile": "dockerfile"}
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
NESTED = re.compile(r"^  (?=[*-] )", re.MULTILINE)
LINK = re.compile(r"\]\((?P<path>[^)\s:#]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages."""
    pages = {page: (ROOT / source).read_text(encoding="utf-8") for source, page in PROJECT.items()}
    pages["examples.md"] = _examples()
    pages |= {f"reference/{module}.md": f"# {module}\n\n::: {module}\n" for module in MODULES}
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links as the repository has them become links of the site, and its nested lists MkDocs's.

    GitHub nests a list that is indented by two; MkDocs needs four.
    """
    here = page.file.src_uri
    source = next((source for source, name in PROJECT.items() if name == here), f"docs/{here}")

    def link(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match["path"]))
        if path.startswith("examples"):
            target = "examples.md" + ("" if path == "examples" else f"#{_anchor(path)}")
        elif path in PROJECT:
            target = PROJECT[path] + (match["anchor"] or "")
        else:
            target = path.removeprefix("docs/") + (match["anchor"] or "")
        return f"]({posixpath.relpath(target, posixpath.dirname(here) or '.')})"

    parts = FENCED.split(LINK.sub(link, markdown))
    return "".join(part if part.startswith("```") else NESTED.sub("    ", part) for part in parts)


def _examples() -> str:
    """Each file of examples/, whole."""
    found = ["# Examples\n\nEach of these files stands in `examples/`, and is run by a test.\n"]
    for file in sorted((ROOT / "examples").rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            name = file.relative_to(ROOT).as_posix()
            text = file.read_text(encoding="utf-8").rstrip()
            found.append(
                f"## {name} {{#{_anchor(name)}}}\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{text}\n````\n"
            )
    return "\n".join(found)


def _anchor(path: str) -> str:
    return re.sub(r"\W+", "-", path)
