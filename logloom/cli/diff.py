"""`logloom diff`: compare two versions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logloom.cli import terminal
from logloom.errors import UsageError
from logloom.text import counted

if TYPE_CHECKING:
    from logloom.io.catalog.manifest import Manifest
    from logloom.io.storage.store import Store
    from logloom.pipelines.versions.diff import VersionComparison

_MOST_RANGES = 10  # that are shown without --all

Since = Annotated[
    str,
    typer.Option(
        metavar="DATE|VERSION",
        help="Compare one version with an earlier one: the last of a day (UTC, 2026-11-24), or this one.",
    ),
]


@terminal.command(
    "logloom diff /data/urban@6 /data/urban@7",
    "logloom diff /data/urban gold 7 --md",
    "logloom diff /data/urban --since 2026-11-24",
    "logloom diff gs://datasets/urban /data/urban --json",
)
def diff(
    versions: Annotated[
        list[str],
        typer.Argument(
            metavar="ROOT A B | ROOT@A ROOT@B | ROOT[@B]",
            help="Two versions of a root, or of two roots; one version is compared with its parent.",
            autocompletion=terminal.complete_version,
        ),
    ],
    since: Since = "",
    logs: Annotated[
        int, typer.Option("--logs", min=0, help="Name at most this many logs of each kind; all are counted.")
    ] = 20,
    statistics: Annotated[
        bool,
        typer.Option(
            "--statistics",
            help="Compare statistics of any number of logs (default: of up to 1,000, or merged ones).",
        ),
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Show all that differs in statistics, and totals that don't.")
    ] = False,
    md: Annotated[bool, typer.Option("--md", help="Print Markdown, for a review.")] = False,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Show what differs between two versions: logs, rows, recipes."""
    from logloom.pipelines.stats.stats import MAX_LOGS, changed_statistics
    from logloom.pipelines.versions.diff import compare, without_purged

    if md and json:
        raise UsageError("give --md or --json, one of both")
    storage = terminal.parse_storage_options(storage_option)
    stores, found = _chosen(versions, since, storage)
    names = [f"{store.uri}@{manifest.version}" for store, manifest in zip(stores, found, strict=True)]
    compared = compare((names[0], names[1]), found[0], found[1], logs)
    compared = without_purged(compared, stores[0], found[0], found[1])
    changed = changed_statistics(
        (stores[0], stores[1]), (found[0], found[1]), None if statistics else MAX_LOGS
    )
    compared = dataclasses.replace(compared, statistics=changed)
    if json:
        terminal.print_json(compared.to_json())
    else:
        terminal.print_result("\n".join((_markdown if md else _text)(compared, every)))


def _chosen(
    versions: list[str], since: str, storage: dict[str, dict[str, Any]]
) -> tuple[list[Store], list[Manifest]]:
    """The roots and manifests of the two versions, the earlier first."""
    from logloom.io.catalog.manifest import read_manifest, split_root
    from logloom.io.storage.store import Store

    if len(versions) == 2 and _is_version(versions[1], Store.at(versions[0], storage)):
        raise UsageError(
            f"{versions[0]}: {versions[1]} is one version, and a comparison needs two; "
            f"name another one, or write {versions[0]}@{versions[1]} to compare it with its parent"
        )
    if since and len(versions) > 1:
        raise UsageError("--since is compared with one version: give ROOT or ROOT@VERSION")
    chosen = [split_root(one) for one in _named(versions)]
    if since:
        chosen.insert(0, (chosen[0][0], since))
    stores = [Store.at(root, storage) for root, _ in chosen]
    found = [read_manifest(store, version) for store, (_, version) in zip(stores, chosen, strict=True)]
    if len(found) == 1:
        (store,), (manifest,) = stores, found
        if manifest.parent is None:
            raise UsageError(f"{store.uri}: version {manifest.version} has no parent; name two versions")
        stores, found = [store, store], [read_manifest(store, manifest.parent), manifest]
    return stores, found


def _is_version(text: str, store: Store) -> bool:
    """Return whether a text is a version rather than a root."""
    from logloom.io.catalog.commit_times import is_day
    from logloom.io.catalog.tags import read_tags
    from logloom.io.storage.store import Store

    is_named = re.fullmatch("v?[0-9]+|latest", text) or is_day(text) or text in read_tags(store)
    return bool(is_named) and not Store.at(text).names()


def _named(versions: list[str]) -> list[str]:
    """Return one or two texts as ROOT@VERSION."""
    terminal.given_root(versions[0])
    if len(versions) == 3:
        root, *both = versions
        return [f"{root}@{version}" for version in both]
    if len(versions) < 3:
        return versions
    raise UsageError("give ROOT A B, or ROOT@A ROOT@B; not more")


def _text(compared: VersionComparison, every: bool) -> Iterator[str]:
    """Return lines for a terminal."""
    before, after = compared.names
    yield f"{before} -> {after}{': the same' if compared.is_same else ''}"
    for heading, lines in _sections(compared, every=every):
        yield f"\n{heading}"
        yield from (f"  {line}" for line in lines)


def _markdown(compared: VersionComparison, every: bool) -> Iterator[str]:
    """Return lines of Markdown; text from a dataset is in code blocks."""
    before, after = compared.names
    yield f"### `{before}` → `{after}`{': the same' if compared.is_same else ''}"
    for heading, lines in _sections(compared, every=every):
        fence = "`" * max(3, *(1 + _longest_run(line) for line in lines))
        yield f"\n**{heading}**\n\n{fence}{'diff' if heading == 'recipe' else ''}"
        yield from lines
        yield fence


def _longest_run(line: str) -> int:
    """Return the length of the longest run of backticks."""
    return max(map(len, "".join(c if c == "`" else " " for c in line).split()), default=0)


def _sections(compared: VersionComparison, *, every: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield headings, and at least one line below each; what matters most comes first.

    Args:
        every: whether to show all, not the first of what matters most.
    """
    availability, ranges, others = compared.statistics_in_words("->")
    yield from _some("columns", list(_pairs(compared.columns)))
    yield from _some("less available", _lines(availability))
    totals = compared.totals.items()
    yield from _some("totals", [_total(name, *pair) for name, pair in totals if every or pair[0] != pair[1]])
    yield from _some("splits", _lines(compared.splits_in_words()))
    if any(compared.logs.counts.values()):
        counts = ", ".join(f"{count:,} {what}" for what, count in compared.logs.counts.items() if count)
        yield f"logs: {counts}", list(_log_lines(compared))
    shown = _lines(ranges if every else ranges[:_MOST_RANGES])
    if len(ranges) > len(shown):
        shown.append(f"… and {len(ranges) - len(shown):,} more; --all shows them")
    yield from _some("values beyond the range before", shown)
    for heading in ("outputs", "software", "dependencies"):
        yield from _some(heading, list(_pairs(getattr(compared, heading))))
    yield from _some("recipe", list(compared.recipe))
    if others:
        hint = [f"{counted(len(others), 'line')} on other numbers; --all shows them"]
        yield "statistics", _lines(others) if every else hint


def _some(heading: str, lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    if lines:
        yield heading, lines


def _lines(worded: Iterable[tuple[str, str]]) -> list[str]:
    return [f"~ {name}: {how}" for name, how in worded]


def _total(name: str, before: int | None, after: int | None) -> str:
    words = ["unknown" if count is None else f"{count:,}" for count in (before, after)]
    change = "" if before is None or after is None or before == after else f" ({after - before:+,})"
    return f"{name.replace('_', ' ')}: {words[0]} -> {words[1]}{change}"


def _log_lines(compared: VersionComparison) -> Iterator[str]:
    logs = compared.to_json()["logs"]
    for sign, kind in (("+", "added"), ("-", "gone")):
        yield from (f"{sign} {log_id}" for log_id in logs[kind])
    for one in logs["changed"]:
        parts = [f"{name} {old} -> {new}" for name, (old, new) in _changes_of(one).items()]
        yield f"~ {one['log_id']}: {', '.join([*parts, 'differs in ' + ', '.join(one['differs'])])}"
    for kind, count in compared.logs.counts.items():
        if count > len(logs[kind]):
            yield f"… and {count - len(logs[kind]):,} more {kind}; --logs {count} names all"


def _changes_of(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: pair for name, pair in one.items() if name not in ("log_id", "differs")}


def _pairs(differing: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    for name, (before, after) in differing.items():
        if before is None:
            yield f"+ {name}: {after}"
        elif after is None:
            yield f"- {name}: {before}"
        else:
            yield f"~ {name}: {before} -> {after}"
