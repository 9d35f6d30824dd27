"""The logs of a recipe: which files they are, what they are called, and the split that each falls into.

Elsewhere: finding files, and templates of names (logloom.io.logs.match); what logs give a recipe's columns
(logloom.transforms.resolve).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from blake3 import blake3

from logloom.errors import UsageError
from logloom.io.logs import match
from logloom.io.logs.folders import Folders
from logloom.io.logs.log_list import LogList
from logloom.io.logs.match import FoundLog
from logloom.recipe.catalogue import ListedLog, read_catalogue
from logloom.recipe.mistakes import Mistake
from logloom.recipe.model import LogName, LogTable, Recipe, name_problem
from logloom.recipe.patterns import named_groups

_SHOWN = 20  # problems of a catalogue


def expand_logs(
    recipe: Recipe,
    base: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    folders: Folders | None = None,
) -> LogList:
    """The logs of a recipe, in the order of their log_ids.

    Args:
        base: URI of the folder that relative URIs start from; the working folder by default.
        storage_options: for fsspec, by protocol.
        folders: which lists them, where it is told more than nothing.

    Raises:
        RecipeError: files that are missing, globs that match nothing, log_ids that can't be; all of them.
    """
    if isinstance(recipe.logs, LogTable):
        return _listed_logs(recipe, recipe.logs, base, storage_options, folders)
    results = match.find_all(recipe.logs, base, storage_options, folders)
    mistakes = [Mistake(("logs", i), result) for i, result in enumerate(results) if isinstance(result, str)]
    found = (item for result in results if not isinstance(result, str) for item in result)
    try:
        logs = match.named(found, functools.partial(log_id_of, template=recipe.log_id))
    except UsageError as error:
        mistakes.append(Mistake(("log_id",), str(error)))
    if mistakes:
        raise recipe.places.error(mistakes)
    return logs


def _listed_logs(
    recipe: Recipe,
    table: LogTable,
    base: str | None,
    storage_options: Mapping[str, Any] | None,
    folders: Folders | None,
) -> LogList:
    """As `expand_logs`, of a catalogue."""
    problems: list[str] = []
    found: dict[str, FoundLog] = {}
    rows: dict[str, ListedLog] = {}  # by the URI of the file or folder
    try:
        listed = read_catalogue(table, base, storage_options)
    except UsageError as error:
        raise recipe.places.error([Mistake(("logs", "table"), str(error))]) from error
    results = match.find_all([row.uri for row in listed], None, storage_options, folders)
    for row, result in zip(listed, results, strict=True):
        if isinstance(result, str):
            problems.append(result)
            continue
        for item in result:
            if rows.setdefault(item.uri, row)[1:] != row[1:]:
                problems.append(f"{item.uri}: stands in two rows with other names or splits")
            found[item.uri] = item

    def name_of(uri: str) -> str:
        own = rows[uri].log_id
        return match.checked_log_id(own, uri) if own else log_id_of(uri, recipe.log_id)

    try:
        logs = match.named(found.values() if not problems else (), name_of)
    except UsageError as error:
        problems.append(str(error))
    splits: dict[str, str] = {}
    for item in found.values() if not problems else ():
        split, log_id = rows[item.uri].split, name_of(item.uri)
        if (table.split and name_problem(split)) or splits.setdefault(log_id, split) != split:
            problems.append(
                f"{item.uri}: split {split!r} is no name, or another than the log's other files say"
            )
    if problems:
        more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise recipe.places.error([Mistake(("logs", "table"), text) for text in problems[:_SHOWN] + more])
    return LogList.of(replace(log, split=splits[log.log_id]) for log in logs)


def log_id_of(uri: str, template: str | LogName) -> str:
    """The log_id of a file or a bag's folder.

    Raises:
        UsageError: the expression doesn't match, or the result is no usable name.
    """
    if isinstance(template, str):
        return match.log_id_of(uri, template)
    groups = named_groups(template.match, uri)
    if groups is None:
        raise UsageError(f"{uri}: {template.match!r} is not in it")
    return match.log_id_of(uri, template.as_, groups)


def split_of(recipe: Recipe, log_id: str, uris: Sequence[str], listed: str = "") -> str:
    """The split that a log's rows belong to; "all" for a recipe without.

    u is the first 8 bytes, big-endian, of BLAKE3 of the `by` value; the first split in recipe order whose
    cumulative share · 2⁶⁴ exceeds u takes the log. Exact: shares are decimals.

    Args:
        uris: of the log's files; templates look at the first.
        listed: what a catalogue says, or said.
    """
    if isinstance(recipe.logs, LogTable) and recipe.logs.split:
        return listed
    if recipe.split is None:
        return "all"
    by = recipe.split.by
    value = log_id if by == "log_id" else match.fill_template(by, uris[0], {"log_id": log_id})
    u = int.from_bytes(blake3(value.encode()).digest()[:8], "big")
    shares = [(name, share.as_integer_ratio()) for name, share in recipe.split.shares.items()]
    below, over = 0, 1  # the cumulative share, as a fraction
    for name, (part, whole) in shares:
        below, over = below * whole + part * over, over * whole
        if u * over < below << 64:
            return name
    raise AssertionError("the shares of a split sum to 1")
