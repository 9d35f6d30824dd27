"""Functions for the commands `plan`, `build`, `verify` and `convert`.

They are called as `logloom.build(...)`.
Their keyword arguments are the options of the commands, and have the same defaults; docs/commands.md explains
each. They print nothing: warnings and counts are in what they return.
Elsewhere: the steps that these functions call, one by one (logloom.pipelines.plan.plan,
logloom.pipelines.build.build, logloom.pipelines.convert.plan, logloom.pipelines.verify.verify).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from logloom.cpus import available_cpus
from logloom.errors import UsageError
from logloom.io.catalog.manifest import read_manifest, split_root
from logloom.io.logs.log_list import SAMPLE
from logloom.io.rows.sources import RowSource
from logloom.pipelines.build.build import build as run_build
from logloom.pipelines.build.result import Built, plan_and_run
from logloom.pipelines.convert.plain_folder import PlainFolder, can_copy, copy_out
from logloom.pipelines.convert.plan import plan_convert
from logloom.pipelines.convert.sources import VersionSource, open_source
from logloom.pipelines.plan.build_plan import BuildPlan, Plan
from logloom.pipelines.plan.plan import load_recipe, plan_build
from logloom.pipelines.verify.verify import Report
from logloom.pipelines.verify.verify import verify as run_verify
from logloom.recipe import Recipe
from logloom.runners import RunnerOptions
from logloom.text import OnMessage, ignore_message
from logloom.transforms.build.settings import BuildSettings, check_sample

Place = str | os.PathLike[str]
Places = Place | Sequence[Place]
ON_ERROR = ("fail", "skip", "salvage")


def plan(
    recipe: Recipe | Places,
    to: Place,
    *,
    log: Places = (),
    py: Places = (),
    allow_derive: str | Sequence[str] = (),
    limit: int | None = None,
    strict: bool = False,
    on_error: Literal["fail", "skip", "salvage"] | None = None,
    hash: Literal["ends", "full"] | None = None,
    all_logs: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> BuildPlan:
    """Show what a build would do, and write nothing: `logloom plan`.

    Args:
        recipe: a recipe, the URI of its file (.yaml), or URIs of logs to build without one.
        to: folder or URI of the dataset's root.
        log: URIs or globs of logs, instead of the recipe's `logs`.
        py: Python files with functions that columns are derived by.
        allow_derive: modules and packages that columns may be derived by; importing them runs their code.
        limit: use only this many logs, for a trial.
        strict: refuse to commit if a warning names lost or doubtful data.
        on_error, hash: instead of the recipe's.
        all_logs: open all logs, not a sample of many.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

    Returns:
        The plan: `up_to_date`, `logs`, `num_partitions`, `message_bytes`, `warnings`, `notes`, `dropped` ...

    Raises:
        RecipeError, UsageError: the recipe or the call is wrong; lists every mistake.
        LogReadError, InputError: logs are damaged (under `on_error: fail`) or vanished; lists all of them.

    Examples:
        >>> ll.plan("demo/recipe.yaml", to="demo/dataset").up_to_date
        True
        >>> ll.plan("demo/recipe.yaml", to="elsewhere").num_logs
        2
    """
    sample = None if all_logs else SAMPLE
    given: dict[str, Any] = {"limit": limit, "settings": BuildSettings(strict=strict), "sample": sample}
    return _planned(recipe, to, log, on_error, hash, py, allow_derive, storage_options, **given)


def build(
    recipe: Recipe | Places,
    to: Place,
    *,
    log: Places = (),
    py: Places = (),
    allow_derive: str | Sequence[str] = (),
    limit: int | None = None,
    strict: bool = False,
    allow_empty: bool = False,
    on_error: Literal["fail", "skip", "salvage"] | None = None,
    hash: Literal["ends", "full"] | None = None,
    verify: str = "new",
    workers: int | None = None,
    runner: RunnerOptions | None = None,
    view: str = "auto",
    wait: bool = False,
    labels: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_message: OnMessage = ignore_message,
) -> Built:
    """Build a new version of a dataset: `logloom build`.

    Args:
        recipe, to, log, py, allow_derive, limit, strict, on_error, hash, storage_options: as for `plan`.
        allow_empty: commit a version without rows, or a first one with a split without logs.
        verify: units to read back: "new", "all", "none" or "sample:<share>".
        workers: number of worker processes; None chooses by the size of the job.
        runner: the engine (`logloom.runners.RunnerOptions`); None is this machine.
        view: make plain folders: "auto", "link", "copy" (in object stores) or "none".
        wait: wait for another build of the same version, and continue from it.
        labels: of this build, shown by `logloom status`.
        on_message: called with messages of the engine.

    Returns:
        The result: `manifest` (its `version`, `totals`, `outputs` ...), `view`, `built` and `reused` units,
        `warnings`, `messages`, `dropped`, `is_whole`. Of an up-to-date dataset those of its latest version.

    Raises:
        LogloomError: see `logloom.errors`; nothing is committed, except in an AfterCommitError.

    Examples:
        >>> built = ll.build("demo/recipe.yaml", to="one-drive", limit=1)
        >>> built.manifest.version, built.manifest.totals["logs"], sorted(built.manifest.outputs)
        (1, 1, ['l5kit', 'tar'])
    """
    settings = BuildSettings(verify=verify, allow_empty=allow_empty, strict=strict, labels=labels or {})
    given: dict[str, Any] = {"limit": limit, "settings": settings, "compare": False}

    def make_plan() -> BuildPlan:
        return _planned(recipe, to, log, on_error, hash, py, allow_derive, storage_options, **given)

    return _run(make_plan, workers, runner, view, wait, on_message)


def verify(
    root: Place,
    *,
    against_logs: bool = False,
    log: Places = (),
    py: Places = (),
    allow_derive: str | Sequence[str] = (),
    sample: str = "all",
    workers: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Read a version back and compare it with its manifest: `logloom verify`.

    Args:
        root: ROOT or ROOT@VERSION, where VERSION is a number, a tag or "latest" (the default).
        against_logs: derive every row from the logs again, too, and compare.
        log: URIs of the version's logs, with the credentials to read them, which no version keeps.
        py, allow_derive: as for `plan`.
        sample: units to read back: "all" or "sample:<share>".
        workers: number of processes; None is one for each core.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

    Returns:
        The report: `is_proven`, `findings`, and counts of `units`, `rows` and `bytes` that were read.

    Raises:
        UsageError: there is no such version.
        DatasetError: the manifest is damaged.
        LogReadError: `against_logs`, and a log can't be read.

    Examples:
        >>> report = ll.verify("demo/dataset@1", against_logs=True, workers=1)
        >>> report.is_proven, report.rows > 100
        (True, True)
    """
    check_sample(sample)
    where, version = split_root(os.fspath(root))
    return run_verify(
        where,
        version,
        sample=sample,
        against_logs=against_logs,
        num_workers=workers,
        py_files=_listed(py),
        allow_derive=_listed(allow_derive),
        logs=_listed(log),
        storage_options=storage_options,
    )


def convert(
    source: Place,
    destination: Place,
    format: str,
    *,
    plain: bool = False,
    kind: str | None = None,
    output: str | None = None,
    options: Mapping[str, Any] | None = None,
    columns: str | Sequence[str] | None = None,
    limit: int | None = None,
    on_error: Literal["fail", "skip"] = "fail",
    where: str = "",
    verify: str = "new",
    workers: int | None = None,
    runner: RunnerOptions | None = None,
    view: str = "auto",
    wait: bool = False,
    labels: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_message: OnMessage = ignore_message,
) -> Built:
    """Convert a version, or a dataset of another tool, to another format: `logloom convert`.

    Args:
        source: ROOT[@VERSION] of logloom, or a dataset of another tool.
        destination: folder or URI of the new dataset.
        format: the format to write.
        plain: make a plain folder of the format's own files; `view` of the result names it.
        kind: of the source (`--from`); None detects it.
        output: of a version, the one to read; None is one with all columns.
        options: of the format, as in a recipe's `outputs`.
        columns, where: names or globs, and a filter of rows, as "isfinite(wrench)"; by default all.
        on_error: "fail", or "skip" damaged parts of the source (`damaged` of the result lists them).
        limit, verify, workers, runner, view, wait, labels, storage_options, on_message: as for `build`.

    Returns:
        The result, as of `build`; also its errors.

    Examples:
        >>> ll.convert("demo/dataset", "as-zarr", "zarr").manifest.totals["logs"]
        2
    """
    _check(limit, on_error=(on_error, ON_ERROR[:2]))
    names = None if columns is None else _listed(columns)
    which: dict[str, Any] = {"columns": names, "on_error": on_error, "where": where}
    store: dict[str, Any] = {"storage_options": storage_options}
    num_workers = workers or available_cpus()
    rows = open_source(os.fspath(source), kind=kind, output=output, num_workers=num_workers, **which, **store)
    which |= {"options": options, "limit": limit}
    settings = BuildSettings(verify=verify, labels=labels or {})

    def run(root: str, view: str) -> Built:
        make_plan = partial(plan_convert, rows, root, format, settings=settings, **which, **store)
        return _run(make_plan, workers, runner, view, wait, on_message)

    if not plain:
        return run(os.fspath(destination), view)
    folder = PlainFolder.at(os.fspath(destination), storage_options)
    return _as_folder(folder, rows, format, run, copies=can_copy(rows, format, read=output, **which))


def _as_folder(
    folder: PlainFolder, rows: RowSource, format: str, run: Callable[[str, str], Built], *, copies: bool
) -> Built:
    if copies:
        assert isinstance(rows, VersionSource)
        copy_out(rows, folder, format)
        manifest = read_manifest(rows.reading.store, rows.version)
        return Built(manifest, folder.store.uri, built=0, reused=0, copied=True)
    converted = run(folder.work.uri, "link")
    folder.publish(converted.manifest, converted.view, format)
    return replace(converted, view=folder.store.uri)


def _planned(
    recipe: Recipe | Places,
    to: Place,
    log: Places,
    on_error: Literal["fail", "skip", "salvage"] | None,
    hash: Literal["ends", "full"] | None,
    py: Places,
    allow_derive: str | Sequence[str],
    storage_options: Mapping[str, Any] | None,
    **choices: Any,
) -> BuildPlan:
    _check(choices["limit"], on_error=(on_error, ON_ERROR), hash=(hash, ("ends", "full")))
    sources = recipe if isinstance(recipe, Recipe) else _listed(recipe)
    loaded, base = load_recipe(
        sources, storage_options, logs=_listed(log), logs_by="log", on_error=on_error, hash=hash
    )
    return plan_build(
        loaded,
        os.fspath(to),
        base=base,
        py_files=_listed(py),
        allow_derive=_listed(allow_derive),
        storage_options=storage_options,
        **choices,
    )


def _run(
    make_plan: Callable[[], Plan],
    workers: int | None,
    runner: RunnerOptions | None,
    view: str,
    wait: bool,
    on_message: OnMessage,
) -> Built:
    _check(None, view=(view, ("auto", "link", "copy", "none")))
    options = runner or RunnerOptions()
    if workers is not None:
        options = replace(options, workers=workers)
    if options.detach:
        raise UsageError(
            "runner: detach=True doesn't wait; call logloom.pipelines.build.build.submit instead"
        )
    run = partial(run_build, runner=options, view=view, on_message=on_message, looked=True)
    return plan_and_run(make_plan, run, wait=wait, on_message=on_message)


def _check(limit: int | None, **choices: tuple[str | None, Sequence[str]]) -> None:
    """Raise UsageError for a limit below 1, or a value that is not one of those known."""
    if limit is not None and limit < 1:
        raise UsageError(f"limit={limit}: too few logs; pass at least 1")
    for name, (value, known) in choices.items():
        if value is not None and value not in known:
            raise UsageError(f"{name}={value!r}: not a choice; pass one of {', '.join(known)}")


def _listed(given: Places) -> list[str]:
    return [os.fspath(one) for one in ([given] if isinstance(given, str | os.PathLike) else given)]
