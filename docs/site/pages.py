"""Pages of the site that aren't in docs/: of the project, of the examples, of public modules and names.

A hook of MkDocs. Links that lead out of docs/ lead to these pages.
"""

from __future__ import annotations

import importlib
import pathlib
import posixpath
import re
import sys
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).parent))
json_reference = importlib.import_module("json_reference")
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
    "logloom.io.formats.annotations",
    "logloom.io.formats.bags",
    "logloom.io.formats.l5kit",
    "logloom.io.formats.lance",
    "logloom.io.formats.lerobot",
    "logloom.io.formats.parquet",
    "logloom.io.formats.table",
    "logloom.io.formats.tar",
    "logloom.io.formats.zarr",
    "logloom.recipe",
    "logloom.runners",
    "logloom.testing",
]
# Of these modules only what programs and packages of others use, by what it is for.
NAMES = {
    "commands": (
        "What commands do, as functions",
        "Where a command takes the URI of a root, some of these accept its `Store`.",
        {
            "logloom.pipelines.plan.plan": ["plan_build"],
            "logloom.pipelines.plan.build_plan": ["BuildPlan"],
            "logloom.transforms.build.settings": ["BuildSettings"],
            "logloom.pipelines.build.build": ["build", "submit"],
            "logloom.pipelines.build.result": ["Built"],
            "logloom.pipelines.verify.verify": ["verify", "Report"],
            "logloom.pipelines.convert.sources": ["open_source"],
            "logloom.pipelines.convert.plan": ["plan_convert"],
            "logloom.pipelines.convert.convert": ["convert"],
            "logloom.pipelines.stats.stats": ["column_statistics", "VersionStatistics"],
            "logloom.pipelines.report.report": ["report_of"],
            "logloom.pipelines.report.page": ["page_of"],
            "logloom.pipelines.versions.history": ["versions", "follow"],
            "logloom.pipelines.versions.diff": ["compare"],
            "logloom.pipelines.versions.tag": ["tag", "remove_tags"],
            "logloom.pipelines.status": ["builds", "wait"],
            "logloom.pipelines.gc.gc": ["collect_garbage"],
            "logloom.pipelines.purge.purge": ["purge"],
            "logloom.pipelines.repair.repair": ["repair"],
            "logloom.io.catalog.manifest": ["open_root", "read_manifest", "Manifest"],
            "logloom.io.formats.foreign": ["open_foreign"],
        },
    ),
    "values": (
        "Rows, their types, and stores",
        "What formats, logs and derived columns are made of.",
        {
            "logloom.blocks": ["Block", "Ragged", "concatenate", "take", "empty"],
            "logloom.schema": ["ColumnType", "Schema", "BYTES", "STRING", "TIMESTAMP", "NO_AGE"],
            "logloom.io.storage.store": ["Store"],
            "logloom.io.storage.faults": ["MISSING"],
        },
    ),
    "rows": (
        "The rules of rows, as functions",
        "[How rows are made](../rows.md) shows each at work.",
        {
            "logloom.transforms.rows.ticks": ["tick_range", "rate_ticks"],
            "logloom.transforms.rows.resample": ["choose"],
            "logloom.transforms.rows.plan.row_plan": ["Sampling", "row_type"],
            "logloom.transforms.rows.derive.columns": ["derive"],
            "logloom.resample.sync": ["match"],
            "logloom.query.where": ["parse"],
        },
    ),
    "formats": (
        "For a format of your own",
        "[Extending logloom](../extend.md) has two whole examples.",
        {
            "logloom.parts": ["Part"],
            "logloom.io.formats.interface": [
                *("Format", "UnitContext", "Writer", "AssembledFormat", "AssemblyPlan", "PlannedPortion"),
                *("StagedUnit", "FolderKind"),
            ],
            "logloom.io.rows.sources": ["RowSource", "About"],
            "logloom.io.rows.unit_rows": ["LoadedReader"],
            "logloom.io.formats.stages": ["StageWriter", "StageReader"],
            "logloom.io.formats.assembly": ["by_log", "parts_json"],
            "logloom.io.storage.metadata": ["ChosenColumns"],
        },
    ),
    "logs": (
        "For logs and messages of your own",
        "[Extending logloom](../extend.md) has a whole example.",
        {
            "logloom.io.logs.opening": ["Kind", "open_log"],
            "logloom.io.logs.files.container_log": ["ContainerLog"],
            "logloom.io.logs.files.container": [
                *("Container", "Budget", "Channel", "Chunk", "FileIndex", "IndexBuilder", "every_offset"),
            ],
            "logloom.io.logs.messages.raw_messages": ["Decoder", "Parsed", "RawMessages"],
            "logloom.io.logs.interface": [
                *("Log", "LogSummary", "Messages", "TopicInfo", "TopicRequest", "FieldSpec", "OpenOptions"),
                *("MessagePlace", "Refusal", "MIN_TIME"),
            ],
        },
    ),
    "beam": (
        "In pipelines of Beam",
        "These are transforms of Apache Beam, which must be installed.",
        {
            "logloom.io.beam": [
                *("ReadFrom", "ReadAllFrom", "ReadDataset", "ReadUnits", "GroupRows", "to_rows", "field_of"),
                *("WriteTo", "Written", "ReadFromLogs", "ReadLogs", "IncompleteLog"),
            ]
        },
    ),
}
NAME_OPTIONS = "    options: {show_root_heading: true, heading_level: 3, inherited_members: true}"
LANGUAGES = {".py": "python", ".yaml": "yaml", ".Dockerfile": "dockerfile"}
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
NESTED = re.compile(r"^  (?=[*-] )", re.MULTILINE)
LINK = re.compile(r"\]\((?P<path>[^)\s:#]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages."""
    pages = {page: (ROOT / source).read_text(encoding="utf-8") for source, page in PROJECT.items()}
    pages["examples.md"] = _examples()
    pages |= {f"reference/{name}.md": f"# {name}\n\n::: {name}\n" for name in MODULES if _exists(name)}
    pages |= {f"reference/{page}.md": _names(*about) for page, about in NAMES.items()}
    pages[json_reference.PAGE] = json_reference.page(ROOT)
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
        elif path == json_reference.FILE:
            target = json_reference.PAGE
        elif path in PROJECT:
            target = PROJECT[path] + (match["anchor"] or "")
        else:
            target = path.removeprefix("docs/") + (match["anchor"] or "")
        return f"]({posixpath.relpath(target, posixpath.dirname(here) or '.')})"

    parts = FENCED.split(LINK.sub(link, markdown + (_reference() if here == "reference/index.md" else "")))
    return "".join(part if part.startswith("```") else NESTED.sub("    ", part) for part in parts)


def on_post_build(*, config: Any) -> None:
    """The index of the search, for pages that are opened from a disk, where browsers fetch no JSON."""
    index = pathlib.Path(config.site_dir) / "search" / "search_index.json"
    index.with_suffix(".js").write_text(
        f"var __index = {index.read_text(encoding='utf-8')}", encoding="utf-8"
    )


def _exists(module: str) -> bool:
    """Return whether a module is there: not in a copy without its part."""
    return bool(list(ROOT.glob(f"{module.replace('.', '/')}*")))


def _reference() -> str:
    """Links to all pages of the reference."""
    titles = {page: about[0] for page, about in NAMES.items()}
    titles |= {name: f"`{name}`" for name in MODULES if _exists(name)}
    return "\n" + "".join(f"* [{title}]({page}.md)\n" for page, title in titles.items())


def _names(title: str, about: str, modules: dict[str, list[str]]) -> str:
    """The reference of some names of some modules."""
    found = [f"# {title}\n\n{about}\n"]
    for module, names in modules.items():
        if not _exists(module):
            continue
        shown = "".join(f"::: {module}.{name}\n{NAME_OPTIONS}\n\n" for name in names)
        found.append(f"## {module}\n\n{shown}")
    return "\n".join(found)


def _examples() -> str:
    """Each file of examples/, whole."""
    found = ["# Examples\n\nEach of these files is in `examples/`, and a test runs it.\n"]
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
