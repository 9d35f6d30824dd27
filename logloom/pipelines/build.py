"""Building a version: the whole job, from a plan to a committed manifest and its view.

Logs are built and datasets are converted alike; where rows come from, the plan and its job know.
The story: each log is cut into partitions; a worker builds each partition's units for every output; another
reads them back; a log is finished once all its partitions are; outputs made of many units are assembled, a
chunk a worker, and read back too; one last step commits. No payload crosses a shuffle, only entries of a few
KB; where a plan has very many small partitions, some neighbours go together (logloom.transforms.bundles).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from blake3 import blake3

from logloom.errors import (
    CommitConflictError,
    DatasetError,
    LogloomError,
    LogReadError,
    PurgedError,
    ReadBackError,
    StorageError,
    UsageError,
)
from logloom.extras import beam_needed
from logloom.io.manifest import Manifest, manifest_at, version_file
from logloom.io.manifest_digest import write_digest
from logloom.io.purged import Purged
from logloom.io.shards import LogRecord
from logloom.io.storage import Store
from logloom.io.stretches import DAMAGE
from logloom.pipelines.plan_logs import save_memory
from logloom.pipelines.planned import Plan
from logloom.pipelines.progress import Watch
from logloom.pipelines.status import sweep_runs
from logloom.pipelines.versions import with_changes
from logloom.pipelines.view import show
from logloom.runners import Finished, RunnerOptions, Submitted
from logloom.runners.options import Spread
from logloom.runners.running import check_describes, describe, run
from logloom.transforms import finish
from logloom.transforms.build_logs import LOG, BuildLogs, CommitVersion
from logloom.transforms.job import Job, LogJob, LogTask, Target
from logloom.transforms.outcomes import GROUP, stage_packed, staged_packed
from logloom.transforms.results import listed
from logloom.transforms.running_note import Announced
from logloom.transforms.spread import SpreadByKey
from logloom.uris import is_local
from logloom.words import OnMessage, counted, ignore_message

with beam_needed():
    import apache_beam as beam

AnyPlan = TypeVar("AnyPlan", bound=Plan)


@dataclass(frozen=True)
class Built:
    """A committed version, and whether everything in it is whole.

    Attributes:
        view: the folder of plain datasets; "" where none was made.
        built, reused: units.
        within_budget: the recipe gives a share of logs that may be skipped, and no more were.
        counters: of all workers, repeated attempts included; empty where the engine keeps none.
        spreads: `partition_milliseconds` and `partition_bytes`, likewise.
    """

    manifest: Manifest
    view: str
    built: int
    reused: int
    copied: bool = False
    within_budget: bool = False
    counters: Mapping[str, int] = field(default_factory=dict)
    spreads: Mapping[str, Spread] = field(default_factory=dict)

    @property
    def dropped(self) -> dict[str, int]:
        """Ticks that are no row, by reason, over all logs."""
        return self.manifest.logs.dropped

    @property
    def is_whole(self) -> bool:
        """Whether nothing was salvaged or skipped, but for what the recipe's budget allows."""
        return finish.is_whole(self.manifest.logs, self.within_budget)

    @property
    def damaged(self) -> tuple[LogRecord, ...]:
        """The logs that lack damaged parts of a source that was converted."""
        logs = self.manifest.logs
        return tuple(one for one in logs if DAMAGE in one.dropped) if DAMAGE in logs.dropped else ()


def construct(pipeline: Any, plan: Plan) -> Any:
    """Adds the build's steps to a pipeline."""
    return (
        pipeline
        | "Logs" >> _Logs(plan)
        | "SpreadLogs" >> SpreadByKey(_name_of)
        | "BuildLogs" >> BuildLogs(plan.job)
        | "CommitVersion" >> CommitVersion(plan.job, plan.log_ids)
    )


@dataclass  # not frozen: Beam sets attributes on its transforms
class _Logs(beam.PTransform):
    """What a plan starts from: from the graph, or from files where it is much."""

    plan: Plan

    def expand(self, pipeline: Any) -> Any:
        if not self.plan.staged:
            return pipeline | beam.Create(list(self.plan.elements), reshuffle=False)
        return (
            pipeline
            | "Shards" >> beam.Create(self.plan.staged, reshuffle=False)
            | "SpreadShards" >> SpreadByKey(str)
            | "Read" >> beam.FlatMap(staged_packed, self.plan.job)
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
) -> Built:
    """Runs a planned build to its end and makes the version's view.

    A plan that is up to date runs nothing; the view of the newest version is made again where it is gone.

    Args:
        num_workers: of Beam's local runner, where no `runner` is given.
        view: "auto" makes the version's view on a disk, by links, unless it has more than 100 000 units;
            "link" then too, "copy" in an object store too, "none" nowhere.
        watch: makes what shows the progress of a plan.
        on_message: called with what the engine does, in words.
        steps: a folder in which workers on this machine record what takes their time (logloom.io.steps).

    Raises:
        LogReadError: logs are damaged; lists all that were found. DatasetError, of a source to convert.
        ReadBackError: something written doesn't read back, or a source reads otherwise than it was written.
        CommitConflictError: another build committed this version first.
        PurgedError: a log was purged since it was planned.
        StorageError: a disk or an object store refused.
        UsageError: the engine's workers don't see what is read or written.
        LogloomError: no rows, too many logs skipped, or the engine was lost.
    """
    plan.job.store.sweep()
    if plan.up_to_date and plan.job.parent is not None:
        return _with_view(prepared(plan).job, plan.job.parent, view, on_message, built=0, reused=0)
    runner = runner or RunnerOptions("direct", workers=num_workers)
    # First, so that nobody takes what it hands on in runs/ for left behind.
    with Announced(plan.job, runner.name, num_units(plan)) as announced:
        plan = prepared(plan)
        job = plan.job
        with watch(plan, sees_workers=runner.is_near or job.store.local is not None) as watching:
            journal = dataclasses.replace(watching.journal, steps=steps if runner.is_near else "")
            watched = dataclasses.replace(plan, job=dataclasses.replace(job, journal=journal))
            try:
                finished = _run(watched, runner, on_message, lambda job_id: announced.say(job_id=job_id))
            except DatasetError as error:  # what it handed on goes once that version is there
                if job.store.exists(version_file(job.number)):
                    raise finish.was_first(job) from error
                raise
    outcome = finish.read_outcome(job)
    raise_outcome(outcome, job)
    assert isinstance(finished, Finished)
    sweep_runs(job.store, job.number)
    made = _with_view(job, job.number, view, on_message, outcome.built, outcome.reused)
    return dataclasses.replace(made, counters=finished.counters, spreads=finished.spreads)


def submit(plan: Plan, runner: RunnerOptions, on_message: OnMessage = ignore_message) -> Submitted:
    """Hands a planned build to an engine that finishes it, commit included, without this process.

    The version's view is made by the next build into the same root, which finds it up to date.

    Args:
        plan: one that is not up to date.
    """
    with Announced(plan.job, runner.name, num_units(plan), detached=True) as announced:
        plan = prepared(plan)
        submitted = _run(plan, dataclasses.replace(runner, detach=True), on_message)
        assert isinstance(submitted, Submitted)
        announced.say(job_id=submitted.engine_id or submitted.job_id, place=submitted.place)
    return submitted


def num_units(plan: Plan) -> int:
    """How many units the logs that are read will have."""
    return plan.num_partitions * len(plan.job.outputs)


def prepared(plan: AnyPlan) -> AnyPlan:
    """A plan that `construct` takes: what it would say at length to workers, it leaves in the root.

    What the next plan may remember lies there from then on, too.
    """
    mend_digest(plan.job)
    _check_purged(plan)
    if plan.job.parent is not None and not plan.up_to_date:
        sweep_runs(plan.job.store, plan.job.parent)  # after one that nobody waited for
    save_memory(plan.memory, plan.job.store)
    job = with_changes(plan.job, plan.changes)
    return dataclasses.replace(plan, job=job, staged=_staged(job, plan))


def _check_purged(plan: Plan) -> None:
    """
    Raises:
        PurgedError: a log was purged since it was planned; a purge doesn't begin once a build is announced.
    """
    purged = Purged(plan.job.store)
    if isinstance(plan.job, LogJob) and plan.job.open_options.redactions != purged.redactions:
        # Also of a log that stays: what is remembered of it says that nothing changed.
        raise PurgedError(
            f"{plan.job.store.uri}: some time of a log was purged since this build was planned; build again"
        )
    for task in dict.fromkeys(task for task, _ in plan.partitions) if len(purged) else ():
        if purged.has_rows_of(task.content_id):
            raise PurgedError(f"{task.log_id}: was purged since this build was planned; build again")


def _staged(job: Target, plan: Plan) -> tuple[str, ...]:
    is_much = any(itertools.islice(plan.elements, GROUP, None))
    return stage_packed(job, plan.elements) if is_much else ()


def mend_digest(job: Target) -> None:
    """Writes the digest of the parent's manifest where it is missing.

    A build of before wrote none, or one was killed right after its commit.
    """
    if job.parent is not None:
        with contextlib.suppress(StorageError):  # a root that nobody may write to can be up to date
            write_digest(job.store, job.parent, job.store.read(version_file(job.parent)))


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
    told = dataclasses.replace(plan, job=dataclasses.replace(plan.job, changes=changes), staged=staged)
    labelled = runner.with_labels(plan.job.labels)
    return describe(lambda pipeline: construct(pipeline, told), labelled, plan.size, name=job_name(plan.job))


def job_name(job: Target) -> str:
    """What engines call the job."""
    return re.sub(r"[^a-z0-9]+", "-", f"logloom-{job.name}-v{job.number}-{job.run}".lower())


def _check_reach(runner: RunnerOptions, plan: Plan) -> None:
    """Refuses files that workers are to read or write and can't: Dataflow's see object stores only.

    Raises:
        UsageError: some lie on a disk of this machine.
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
    runner = runner.with_labels(job.labels)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # what it says of errors stands in the error
    LOG.propagate = not runner.is_near  # Beam shows on stderr what reaches the root logger
    try:
        steps = functools.partial(construct, plan=plan)
        name = job_name(job)
        return run(steps, runner, plan.size, name=name, on_message=on_message, on_submitted=on_submitted)
    finally:
        job.store.sweep()  # after workers that were ended amid their work


def _with_view(job: Target, version: int, view: str, on_message: OnMessage, built: int, reused: int) -> Built:
    manifest = manifest_at(job.store, version)  # which gc may have taken out since, after later ones
    place, copied = show(job.store, manifest, view, on_message)
    return Built(manifest, place, built, reused, copied, job.skip_budget > 0)


def raise_outcome(outcome: finish.Outcome, job: Target) -> None:
    """Raises what kept a version from being committed, all of it in one error."""
    failures = outcome.failures
    if failures:
        all_of_them = f"\nall of them: {', '.join(outcome.failure_files)}" if outcome.failure_files else ""
        count = counted(max(outcome.failed, len(failures)), "partition")
        message = f"nothing was committed, {count} failed:\n{listed(failures, outcome.failed)}{all_of_them}"
        is_read_back = any(failure.kind == "readback" for failure in failures)
        source_error = job.source_error if isinstance(job, Job) else LogReadError
        raise (ReadBackError if is_read_back else source_error)(message)
    if outcome.conflict:
        raise CommitConflictError(outcome.conflict)
    if not outcome.committed:
        raise LogloomError(outcome.problem)
