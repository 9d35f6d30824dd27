"""The logs of a recipe: their files, names and splits.

Elsewhere: finding files, and templates of names (logloom.io.logs.match); what logs give a recipe's columns
(logloom.transforms.rows.plan.resolve).
"""

from __future__ import annotations

import functools
import glob
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from logloom.digests import share_of
from logloom.errors import LogReadError, UsageError
from logloom.io.catalog.log_tables import catalogued
from logloom.io.logs import match
from logloom.io.logs.folders import Folders
from logloom.io.logs.interface import Alternatives, OpenOptions, Redactions
from logloom.io.logs.listings import MAGIC
from logloom.io.logs.log_list import LogList
from logloom.io.logs.match import FoundLog
from logloom.io.logs.passes import pass_named
from logloom.io.logs.table_dialects import KEY, TableDialect, dialect_for
from logloom.io.logs.table_files.name_times import time_in
from logloom.io.storage.filesystems import file_name_of
from logloom.io.storage.metadata import canonical
from logloom.recipe.mistakes import Mistake
from logloom.recipe.model import Recipe
from logloom.recipe.patterns import named_groups
from logloom.recipe.sections import TEMPLATE_NAMES, LogName, LogTable, name_problem
from logloom.row_splits import listing_split, with_names
from logloom.text import near_to

_SHOWN = 20  # problems of a catalogue


def expand_logs(
    recipe: Recipe,
    base: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    folders: Folders | None = None,
) -> LogList:
    """Find the logs of a recipe, in the order of their log_ids.

    Args:
        base: URI of the folder that relative URIs are resolved against; the working folder by default.
        storage_options: for fsspec, by protocol.
        folders: lists them; None for a new one.

    Raises:
        RecipeError: files that are missing, globs that match nothing, log_ids that can't be; all of them. Or
            patterns of `time.name` that no file fits.
    """
    listed = isinstance(recipe.logs, LogTable)
    logs = (_listed_logs if listed else _globbed_logs)(recipe, base, storage_options, folders)
    _check_names(recipe, logs)
    _check_passes(recipe, logs)
    _check_tables(recipe, logs)
    return logs


def open_options(
    recipe: Recipe,
    storage_options: Mapping[str, Any],
    sidecars: str | None = None,
    redactions: Redactions = MappingProxyType({}),
) -> OpenOptions:
    """Return the `OpenOptions` for the logs of a recipe."""
    return OpenOptions(
        recipe.on_error_mode,
        storage_options,
        sidecars,
        hash=recipe.hash,
        redactions=redactions,
        time_names=recipe.time.name,
        extent=(recipe.time.from_, recipe.time.to),
        set_back=recipe.time.set_back or "",
        tables=table_dialects(recipe),
        alternatives=Alternatives(recipe.alternatives.topics, recipe.alternatives.fields),
    )


def table_dialects(recipe: Recipe) -> tuple[TableDialect, ...]:
    """Return how a recipe states that tables are written."""
    places = recipe.places
    return tuple(
        TableDialect.from_data(
            entry.model_dump(mode="json"), places.sentence(Mistake((KEY, i), "")).removesuffix(": ")
        )
        for i, entry in enumerate(recipe.tables)
    )


def _check_names(recipe: Recipe, logs: LogList) -> None:
    """Raise a RecipeError for each pattern of `time.name` that matches no file."""
    mistakes = []
    for number, pattern in enumerate(recipe.time.name):
        if not any(_fits(uri, pattern) for log in logs for uri in log.uris):
            shown = file_name_of(logs[0].uris[-1]) if len(logs) else "none at all"
            text = f"no file of these logs matches {pattern!r}; there is {shown}"
            mistakes.append(Mistake(("time", "name", number), text))
    if mistakes:
        raise recipe.places.error(mistakes)


def _check_tables(recipe: Recipe, logs: LogList) -> None:
    """Raise a RecipeError for each key of `tables` that its files, which aren't CSV, don't have."""
    mistakes = []
    for number, how in enumerate(table_dialects(recipe)):
        keys, files = how.of_text, [uri for log in logs for uri in log.uris if how.fits(uri)]
        if keys and files and not any(file_name_of(uri).endswith(".csv") for uri in files):
            text = f"is for CSV; {file_name_of(files[0])} has types of its own. Leave it out"
            mistakes.append(Mistake((KEY, number, keys[0]), text))
    if mistakes:
        raise recipe.places.error(mistakes)


def unused_tables(recipe: Recipe, logs: LogList) -> list[str]:
    """Return notes on entries of `tables` that are those of no file."""
    dialects = table_dialects(recipe)
    used = {dialect_for(uri, dialects) for log in logs for uri in log.uris} if dialects else set()
    return [
        f"{how.where}: no table of these logs is {how.files!r}, or an entry before it is that of all such"
        for how in dialects
        if how not in used
    ]


def check_listed_splits(recipe: Recipe, logs: LogList, before: Collection[str] = ()) -> None:
    """Raise a RecipeError for each name in a list of `split` that no log has.

    Args:
        before: names that had a log in the latest version, or before it.
    """
    if recipe.split is None or ("logs",) in recipe.places.options:  # a trial on other logs
        return
    named = {log: (split, i) for split, names in recipe.split.listed.items() for i, log in enumerate(names)}
    missing = [log for log, row in zip(named, logs.rows_of(list(named)), strict=True) if row < 0]
    missing = [log for log in missing if not (MAGIC.search(log) or log in before)]
    if missing:
        known = logs.ids.to_pylist()
        raise recipe.places.error(
            Mistake(("split", *named[log]), f"no log has the log_id {log!r}{near_to(log, known)}")
            for log in missing[:_SHOWN]
        )


def with_listed_names(recipe: Recipe, logs: LogList, had: Collection[str], before: Collection[str]) -> Recipe:
    """Return the recipe with names in lists of `split` that aren't patterns, though they look like it.

    Each stays what it was in the latest version, so that logs stay in their splits.

    Args:
        had: names of logs of the latest version.
        before: names in the lists of its recipe.
    """
    if recipe.split is None:
        return recipe
    odd = [log for listed in recipe.split.listed.values() for log in listed if MAGIC.search(log)]
    there = {log for log, row in zip(odd, logs.rows_of(odd), strict=True) if row >= 0} | {*had}
    names = {log for log in odd if glob.escape(log) in before or (log in there and log not in before)}
    if not names:
        return recipe
    split = recipe.split.model_copy(update=with_names(recipe.split.listed, names))
    return recipe.model_copy(update={"split": split})


def _check_passes(recipe: Recipe, logs: LogList) -> None:
    """Raise a RecipeError if a log has the name that splitting by passes gives to another."""
    if recipe.time.set_back != "split":
        return
    taken = [log_id for log_id in logs.ids.to_pylist() if pass_named(log_id).number > 1]
    mistakes = []
    for log in logs.at(logs.rows_of(taken)):
        whole, number = pass_named(log.log_id)
        others = [
            other.uris[0] for other in logs.at([row for row in logs.rows_of([whole]).tolist() if row >= 0])
        ]
        of = "".join(f" ({uri})" for uri in others)
        text = (
            f"{log.uris[0]}: its log_id {log.log_id!r} is that of pass {number} of log {whole!r}{of} with "
            f"`time: {{set_back: split}}`; rename the file, or give it another log_id"
        )
        mistakes.append(Mistake(("log_id",), text))
    if mistakes:
        raise recipe.places.error(mistakes[:_SHOWN])


def _fits(uri: str, pattern: str) -> bool:
    try:
        return time_in(uri, [pattern]) is not None
    except LogReadError:
        return True  # opening the log reports it


def _globbed_logs(
    recipe: Recipe, base: str | None, storage_options: Mapping[str, Any] | None, folders: Folders | None
) -> LogList:
    """`expand_logs` for files, folders and globs."""
    assert not isinstance(recipe.logs, LogTable)
    numbers = [i for i, uri in enumerate(recipe.logs) if not uri.startswith(match.NOT)]
    results = match.find_all([recipe.logs[i] for i in numbers], base, storage_options, folders)
    numbered = zip(numbers, results, strict=True)
    mistakes = [Mistake(("logs", i), result) for i, result in numbered if isinstance(result, str)]
    if not numbers:
        mistakes.append(Mistake(("logs",), f"contains only exclusions ({match.NOT}…), and no logs"))
    found = match.leaving_out(
        (item for result in results if not isinstance(result, str) for item in result),
        [uri.removeprefix(match.NOT) for uri in recipe.logs if uri.startswith(match.NOT)],
        base,
    )
    if isinstance(recipe.log_id, str):  # an expression names each file
        found = match.with_splits(found)
    try:
        logs = match.named(found, functools.partial(log_id_of, template=recipe.log_id))
    except UsageError as error:
        mistakes.append(Mistake(("log_id",), str(error)))
    if mistakes:
        raise recipe.places.error(mistakes)
    return logs


def _listed_logs(
    recipe: Recipe, base: str | None, storage_options: Mapping[str, Any] | None, folders: Folders | None
) -> LogList:
    """`expand_logs` for a catalogue."""
    from logloom.recipe.log_table import ListedLog, read_catalogue

    table = recipe.logs
    assert isinstance(table, LogTable)
    problems: list[str] = []
    found: dict[str, FoundLog] = {}
    rows: dict[str, ListedLog] = {}  # by the URI of the file or folder
    try:
        listed = read_catalogue(table, base, storage_options)
    except UsageError as error:
        key = "where" if table.where and " where: " in str(error) else "table"
        raise recipe.places.error([Mistake(("logs", key), str(error))]) from error
    results = match.find_all([row.uri for row in listed], None, storage_options, folders)
    for row, result in zip(listed, results, strict=True):
        if isinstance(result, str):
            problems.append(result)
            continue
        for item in result:
            if rows.setdefault(item.uri, row)[1:] != row[1:]:
                problems.append(f"{item.uri}: is in two rows that differ in other columns")
            found[item.uri] = item

    def name_of(uri: str) -> str:
        own = rows[uri].log_id
        return match.checked_log_id(own, uri) if own else log_id_of(uri, recipe.log_id)

    try:
        logs = match.named(found.values() if not problems else (), name_of)
    except UsageError as error:
        problems.append(str(error))
    of_log: dict[str, ListedLog] = {}
    for item in found.values() if not problems else ():
        row, log_id = rows[item.uri], name_of(item.uri)
        first = of_log.setdefault(log_id, row)
        if (table.split and name_problem(row.split)) or first.split != row.split:
            problems.append(
                f"{item.uri}: split {row.split!r} is not a name, or differs from that of the log's other "
                "files"
            )
        elif first.catalogue != row.catalogue:
            problems.append(f"{item.uri}: its host or index differ from those of the log's other files")
    if problems:
        more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise recipe.places.error([Mistake(("logs", "table"), text) for text in problems[:_SHOWN] + more])
    given = ((log, of_log[log.log_id]) for log in logs)
    return LogList.of(log._replace(split=row.split, catalogue=row.catalogue) for log, row in given)


def log_id_of(uri: str, template: str | LogName) -> str:
    """Return the log_id of a file or a bag's folder.

    Raises:
        UsageError: the expression doesn't match, or the result isn't a valid name.
    """
    if isinstance(template, str):
        return match.log_id_of(uri, template)
    groups = named_groups(template.match, uri)
    if groups is None:
        raise UsageError(f"{uri}: doesn't match '{template.match}'")
    return match.log_id_of(uri, template.as_, groups)


def split_of(recipe: Recipe, log_id: str, uris: Sequence[str], listed: str = "", catalogue: str = "") -> str:
    """Return the split of a log's rows; "all" for a recipe without splits, or with splits of single rows.

    All passes of a log have the same one.

    Args:
        uris: of the log's files; templates use the first.
        listed: the split from the current or an earlier catalogue.
        catalogue: its values for outputs, see `logloom.io.catalog.log_tables`.
    """
    if isinstance(recipe.logs, LogTable) and recipe.logs.split:
        return listed
    if recipe.split is None or recipe.split.of_rows is not None:
        return "all"
    by = recipe.split.by
    assert isinstance(by, str)
    value = log_id = pass_named(log_id).log_id if recipe.time.set_back == "split" else log_id
    if (own := listing_split(log_id, recipe.split.listed)) is not None:
        return own
    if by != "log_id":
        index = catalogued(catalogue).index
        # {path} is that of the URI, even if the table has a column of that name.
        known = {name: _word(given) for name, given in index if name not in TEMPLATE_NAMES}
        value = match.fill_template(by, uris[0], {**known, "log_id": log_id})
    return share_of(value, recipe.split.shares)


def _word(value: bool | int | float | str | None) -> str:
    """Format a catalogue's value for templates: text as it is, all else as JSON."""
    return value if isinstance(value, str) else canonical(value).decode()
