"""Build a version: the whole job, from a plan to a committed manifest and view.

Builds from logs and conversions of datasets run the same steps; the plan and its job know the source of rows.
Each log is cut into partitions; a worker builds each partition's units for every output; another reads them
back; a log is finished once all its partitions are; outputs made of many units are assembled, a chunk per
worker, and read back too; one last step commits. No payload crosses a shuffle, only entries of a few KB;
where a plan has very many small partitions, neighbours are bundled (logloom.transforms.build.bundles).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import itertools
import logging
import re
import tempfile
from collections.abc import Callable
from typing import Any, TypeVar

from blake3 import blake3

from logloom.errors import (
    CommitConflictError,
    DatasetError,
    LogloomError,
    LogReadError,
    ReadBackError,
    StorageError,
    UsageError,
    after_commit,
)
from logloom.extras import beam_needed
from logloom.io.catalog import log_statistics
from logloom.io.catalog.version_files import version_file
from logloom.io.storage.store import Store
from logloom.pipelines.build.concurrent_builds import refuse_second, take_turn
from logloom.pipelines.build.progress import Watch
from logloom.pipelines.build.result import (
    Built,
    check_purged,
    has_nothing_to_build,
    mend_digest,
    newest,
    with_view,
)
from logloom.pipelines.plan.build_plan import BuildPlan, Plan
from logloom.pipelines.plan.logs import save_memory
from logloom.pipelines.plan.next_version import with_changes
from logloom.pipelines.status import sweep_runs
from logloom.runners import Finished, RunnerOptions, Submitted
from logloom.runners.engine import check_describes, describe, run
from logloom.text import OnMessage, counted, ignore_message
from logloom.transforms.beam.build import LOG, build_logs, commit_version
from logloom.transforms.beam.shuffle import composite, spread_by_key
from logloom.transforms.build import commit
from logloom.transforms.build.job import Job, LogTask, Target
from logloom.transforms.build.outcomes import GROUP, stage_packed, staged_packed
from logloom.transforms.build.partition_results import listed
from logloom.transforms.build.run_note import Announced
from logloom.uris import is_local

AnyPlan = TypeVar("AnyPlan", bound=Plan)


def construct(pipeline: Any, plan: Plan, beam: Any = None) -> Any:
    """Adds the build's steps to a pipeline.

    Args:
        beam: makes the steps: None is `apache_beam`, for its pipelines.
    """
    if beam is None:
        with beam_needed():
            beam = importlib.import_module("apache_beam")
    return (
        pipeline
        | "Logs" >> composite(beam, _logs, plan)
        | "SpreadLogs" >> composite(beam, spread_by_key, _name_of)
        | "BuildLogs" >> composite(beam, build_logs, plan.job)
        | "CommitVersion" >> composite(beam, commit_version, plan.job, plan.log_ids)
    )


def _logs(pipeline: Any, plan: Plan, beam: Any) -> Any:
    """What a plan starts from: from the graph, or from files where it is much."""
    if not plan.staged:
        return pipeline | beam.Create(list(plan.elements), reshuffle=False)
    return (
        pipeline
        | "Shards" >> beam.Create(plan.staged, reshuffle=False)
        | "SpreadShards" >> composite(beam, spread_by_key, str)
        | "Read" >> beam.FlatMap(staged_packed, plan.job)
    )


def _name_of(element: LogTask | bytes) -> str:
    return blake3(element).hexdigest() if isinstance(element, bytes) else element.log_id


def build(
    plan: Plan,
    *,
    num_workers: int = 1,
    runner: RunnerOptions | None = None,
    view: str = "auto",
    watch: Callable[..., Watch] = Watch.silent,
    on_message: OnMessage = ignore_message,
    steps: str = "",
    beside: bool = False,
    looked: bool = False,
) -> Built:
    """Runs a planned build to its end and makes the version's view.

    Args:
        plan: of a build or a conversion.
        num_workers: on this machine, where no `runner` is given.
        runner: the engine; None is this machine.
        view: "auto" (links on a disk, up to 100 000 units), "link" (for more), "copy" (in stores) or "none".
        watch: makes what shows the progress of a plan.
        on_message: called with what the engine does, in words.
        steps: a folder in which workers on this machine record their steps (logloom.io.storage.step_times).
        beside: also where another build of the same version is known to run, of which only one commits.
        looked: whether the caller looked for others already (`refuse_second`), and plans again if overtaken.

    Returns:
        The version's manifest, its view, and what was built and counted. If there was nothing to build: those
        of the newest version, whose view is made again where it is gone.

    Raises:
        LogReadError: logs are damaged; lists all that were found. DatasetError, of a source to convert.
        ReadBackError: something written doesn't read back, or a source reads otherwise than it was written.
        CommitConflictError: another build committed this version first.
        PurgedError: a log was purged since it was planned.
        StorageError: a disk or an object store refused.
        UsageError: the engine's workers don't see what is read or written.
        BesideError: another build runs. LogloomError: no rows, too many logs skipped, or a lost engine.

    Examples:
        >>> from logloom.pipelines.plan.plan import plan_build
        >>> from logloom.recipe import Recipe
        >>> built = build(plan_build(Recipe.load("demo/recipe.yaml"), "one-log", base="demo", limit=1))
        >>> built.manifest.version, built.manifest.totals["logs"], sorted(built.manifest.outputs)
        (1, 1, ['l5kit', 'tar'])
    """
    if has_nothing_to_build(plan):
        return newest(plan, view=view, on_message=on_message)
    plan.job.store.sweep()
    if not (beside or looked):
        refuse_second(plan.job, on_message)
    runner = runner or RunnerOptions("direct", workers=num_workers)
    # First, so that nobody takes what it hands on in runs/ for left behind.
    with Announced(plan.job, runner.name, num_units(plan), takes_turn=not beside) as announced:
        take_turn(plan.job, announced, on_message, replans=looked)
        plan = prepared(plan)
        with watch(plan, sees_workers=runner.is_near or plan.job.store.local is not None) as watching:
            journal = dataclasses.replace(watching.journal, steps=steps if runner.is_near else "")
            watched = dataclasses.replace(plan, job=dataclasses.replace(plan.job, journal=journal))
            finished = _run_alone(watched, runner, on_message, announced)
    return _committed(plan, finished, view, num_workers, on_message)


def _committed(plan: Plan, finished: Finished, view: str, num_workers: int, on_message: OnMessage) -> Built:
    """The version that a job has ended with, and its view; raises what kept it from being committed."""
    job = plan.job
    outcome = commit.read_outcome(job)
    raise_outcome(outcome, job)
    number = job.parent if outcome.unchanged and job.parent is not None else job.number
    with after_commit(f"version {number} of {job.store.uri}", "The next build does it"):
        sweep_runs(job.store, job.number)
        made = with_view(job, number, view, on_message, outcome.built, outcome.reused)
        if len(made.manifest.logs) >= log_statistics.MANY_LOGS:  # few builds need what this imports
            merging = importlib.import_module("logloom.pipelines.stats.totals")
            merging.keep_merged(job.store, made.manifest, num_workers, on_message)
    warnings = tuple(dict.fromkeys([*plan.warnings, *outcome.warned]))
    counters, spreads = finished.counters, finished.spreads
    made = dataclasses.replace(made, warnings=warnings, sequences=outcome.sequences)
    return dataclasses.replace(made, counters=counters, spreads=spreads)


def submit(
    plan: Plan, runner: RunnerOptions, on_message: OnMessage = ignore_message, *, looked: bool = False
) -> Submitted:
    """Hands a planned build to an engine that finishes it, commit included, without this process.

    The version's view is made by the next build into the same root, which finds it up to date.

    Args:
        plan: one that is not up to date.
        runner: the engine, one that goes on without this process.
        on_message: called with what the engine does, in words.
        looked: see `build`.

    Returns:
        The job: its ids, and the address of its page.

    Raises:
        LogloomError: as of `build`, or the engine takes no job.
    """
    if not looked:
        refuse_second(plan.job, on_message)
    with Announced(plan.job, runner.name, num_units(plan), detached=True, takes_turn=True) as announced:
        take_turn(plan.job, announced, on_message, replans=looked)
        plan = prepared(plan)
        submitted = _run(plan, dataclasses.replace(runner, detach=True), on_message)
        assert isinstance(submitted, Submitted)
        announced.update(job_id=submitted.engine_id or submitted.job_id, place=submitted.place)
    return submitted


def num_units(plan: Plan) -> int:
    """How many units the logs that are read will have."""
    return plan.num_partitions * len(plan.job.outputs)


def prepared(plan: AnyPlan) -> AnyPlan:
    """A plan that `construct` takes: what it would say at length to workers, it leaves in the root.

    This also saves what the next plan may remember.

    Raises:
        LogloomError: it would commit nothing, as the plan knows already.
    """
    mend_digest(plan.job)
    check_purged(plan)
    if plan.job.parent is not None and not plan.up_to_date:
        sweep_runs(plan.job.store, plan.job.parent)  # after one that nobody waited for
    save_memory(plan.memory, plan.wholes, plan.job.store)
    if plan.problem:
        raise LogloomError(plan.problem)
    if isinstance(plan, BuildPlan) and plan.labels is not None:
        plan.labels.write(plan.job.store, plan.log_ids)
    job = with_changes(plan.job, plan.changes)
    return dataclasses.replace(plan, job=job, staged=_staged(job, plan))


def _staged(job: Target, plan: Plan) -> tuple[str, ...]:
    is_much = any(itertools.islice(plan.elements, GROUP, None))
    return stage_packed(job, plan.elements) if is_much else ()


def dry_run(plan: Plan, runner: RunnerOptions) -> dict[str, Any]:
    """What a build would submit to its engine, as JSON; {"up_to_date": True} where that is nothing.

    Raises:
        UsageError: the engine can't say, or the options don't fit it.
    """
    check_describes(runner)
    if plan.up_to_date:
        return {"up_to_date": True}
    _check_reach(runner, plan)
    # Files have the names that they would have.
    with tempfile.TemporaryDirectory(prefix="logloom-") as scratch:
        elsewhere = dataclasses.replace(plan.job, store=Store.at(scratch))
        changes, staged = with_changes(elsewhere, plan.changes).changes, _staged(elsewhere, plan)
    sent = dataclasses.replace(plan, job=dataclasses.replace(plan.job, changes=changes), staged=staged)
    labelled = runner.with_labels(plan.job.settings.labels)
    return describe(lambda pipeline: construct(pipeline, sent), labelled, plan.size, name=job_name(plan.job))


def job_name(job: Target) -> str:
    """What engines call the job."""
    return re.sub(r"[^a-z0-9]+", "-", f"logloom-{job.name}-v{job.number}-{job.run}".lower())


def _check_reach(runner: RunnerOptions, plan: Plan) -> None:
    """Refuses files that workers are to read or write and can't: Dataflow's see object stores only.

    Raises:
        UsageError: some are on a disk of this machine.
    """
    if runner.name != "dataflow":
        return
    local = [uri for uri in (plan.job.store.uri, *plan.uris) if is_local(uri)]
    if local:
        more = f" (and {len(local) - 1} more)" if len(local) > 1 else ""
        raise UsageError(f"{local[0]}{more}: Dataflow's workers don't see this disk; copy it to gs://")


def _run(
    plan: Plan,
    runner: RunnerOptions,
    on_message: OnMessage,
    on_submitted: Callable[[str], None] = lambda job_id: None,
) -> Finished | Submitted:
    job = plan.job
    _check_reach(runner, plan)
    runner = runner.with_labels(job.settings.labels)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # what it says of errors stands in the error
    LOG.propagate = not runner.is_near  # Beam shows on stderr what reaches the root logger
    try:
        steps = functools.partial(construct, plan=plan)
        name = job_name(job)
        return run(steps, runner, plan.size, name=name, on_message=on_message, on_submitted=on_submitted)
    finally:
        job.store.sweep()  # after workers that were ended amid their work


def _run_alone(plan: Plan, runner: RunnerOptions, on_message: OnMessage, announced: Announced) -> Finished:
    """Runs the job to its end.

    Raises:
        CommitConflictError: another build committed the version, and took away what steps had handed on.
        AfterCommitError: the job failed once the version was committed, by it or by another build.
    """
    try:
        finished = _run(plan, runner, on_message, lambda job_id: announced.update(job_id=job_id))
    except LogloomError as error:
        job = plan.job
        with contextlib.suppress(StorageError):  # which would hide why the job failed
            if commit.committed_before(job) is not None:
                # An engine did a step once more after the commit, when what it reads had been taken away; or
                # it was lost then.
                return Finished("", {})
            if job.store.exists(version_file(job.number)):
                if isinstance(error, DatasetError):
                    raise commit.was_first(job) from error
                version = f"version {job.number} of {job.store.uri}"
                with after_commit(version, "Build again: it is up to date, or finished units are kept"):
                    raise
        raise
    assert isinstance(finished, Finished)
    return finished


def raise_outcome(outcome: commit.Outcome, job: Target) -> None:
    """Raises what kept a version from being committed, all of it in one error."""
    failures = outcome.failures
    if failures:
        files = ", ".join(map(job.store.uri_of, outcome.failure_files))
        all_of_them = f"\nall of them: {files}" if files else ""
        count = counted(max(outcome.failed, len(failures)), "partition")
        message = f"nothing was committed, {count} failed:\n{listed(failures, outcome.failed)}{all_of_them}"
        is_read_back = any(failure.kind == "readback" for failure in failures)
        source_error = job.source_error if isinstance(job, Job) else LogReadError
        raise (ReadBackError if is_read_back else source_error)(message)
    if outcome.conflict:
        raise CommitConflictError(outcome.conflict)
    if not (outcome.committed or outcome.unchanged):
        raise LogloomError(outcome.problem)
