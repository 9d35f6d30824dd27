"""Areas of a root for files that no record names: expiry, and names of logs.

Here: `AREAS`, where a new kind of such files is registered; gc and purge handle all of them. Views and
intervals of versions, and unfinished work on a local disk, are removed as whole folders
(logloom.pipelines.gc.gc).
Elsewhere: files that records name (logloom.io.catalog.artifacts).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from logloom.io.catalog.artifacts import Holdings
from logloom.pipelines.stats.totals import MERGED
from logloom.values import dataclass


@dataclass(frozen=True)
class Aging:
    """The facts that decide which old files are no longer needed.

    Attributes:
        needed: by versions that stay, or wait.
        versions: that stay, or wait.
        newest: the last version that stays; 0 for none.
        kept_runs: what became of builds of so many of the newest versions is kept.
    """

    needed: Holdings
    versions: frozenset[int]
    newest: int
    kept_runs: int


@dataclass(frozen=True)
class Area:
    """Files in a folder of a root that no record names.

    Attributes:
        kind: under which gc counts them.
        folder: of the root.
        pattern: of their names within that folder.
        expired: whether files are no longer needed, for many names at once; young ones stay even so.
        logs: how they say something of logs: "plain", so that a purge finds those that name its logs;
            "hidden", so that it removes all; "" where they don't, or it handles them otherwise.
    """

    kind: str
    folder: str
    pattern: re.Pattern[str]
    expired: Callable[[Aging, Sequence[str]], Sequence[bool]]
    logs: Literal["plain", "hidden", ""]


def never(aging: Aging, names: Sequence[str]) -> Sequence[bool]:
    """Keeps all."""
    return [False] * len(names)


def _of_no_log(aging: Aging, names: Sequence[str]) -> Sequence[bool]:
    if not aging.needed.knows_logs:
        return never(aging, names)
    expired: list[bool] = (~aging.needed.has([name.partition(".")[0] for name in names])).tolist()
    return expired


def _of_no_version(aging: Aging, names: Sequence[str]) -> Sequence[bool]:
    return [int(name.split("-")[1]) not in aging.versions for name in names]


def _of_old_build(aging: Aging, names: Sequence[str]) -> Sequence[bool]:
    return [int(name[:8]) <= aging.newest - aging.kept_runs for name in names]


def _of_committed_build(aging: Aging, names: Sequence[str]) -> Sequence[bool]:
    # A build that is to be a later version may be about to read what an earlier one left.
    return [int(name[:8]) <= aging.newest for name in names]


_OUTCOMES = r"\d{8}/([0-9a-z]{1,32}(\.running)?\.json|[0-9a-z]{1,32}\.failures-[0-9a-f]+\.jsonl)"
_SIDECARS = r"[0-9a-f]{32,64}\..*(index|times|video)"
AREAS = {
    "sidecars": Area("index", "index", re.compile(_SIDECARS), _of_no_log, "hidden"),
    "indices": Area("index", "index", re.compile("listing|duplicates|units"), never, "hidden"),
    "totals": Area("index", "index", MERGED, _of_no_version, "hidden"),
    "outcomes": Area("runs", "runs", re.compile(_OUTCOMES), _of_old_build, "plain"),
    "records of builds": Area(
        "runs", "runs", re.compile(r"\d{8}/(.+/)?[0-9a-f]+\.(parquet|tasks)"), _of_committed_build, "hidden"
    ),
    "progress of builds": Area(
        "runs",
        "runs",
        re.compile(r"\d{8}/(listing-[0-9a-f]{8}.*|(attempts|read)/.+)"),
        _of_committed_build,
        "plain",
    ),
    "removals": Area("runs", "runs", re.compile("removing/.+"), never, ""),
}


def area_of(file: str) -> Area | None:
    """The area that a file of the root belongs to."""
    for area in AREAS.values():
        if file.startswith(f"{area.folder}/") and area.pattern.fullmatch(file, len(area.folder) + 1):
            return area
    return None


def area_folders() -> list[str]:
    """The folders of a root that have areas."""
    return list(dict.fromkeys(area.folder for area in AREAS.values()))
