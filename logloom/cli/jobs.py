"""What commands that run a job share, `build` and `convert`: their options, and how a plan is run.

Elsewhere: the options of engines (logloom.cli.engines), planning (recipes, convert).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from logloom.cli.common import (
    Json,
    Quiet,
    StorageOption,
    Verify,
    print_json,
    print_logs,
    print_message,
)
from logloom.cli.engines import EngineOptions, Workers, started
from logloom.words import counted, human_bytes

if TYPE_CHECKING:
    from logloom.pipelines.build import Built
    from logloom.pipelines.planned import Plan
    from logloom.pipelines.status import BuildStatus
    from logloom.runners import RunnerOptions, Submitted

AnyPlan = TypeVar("AnyPlan", bound="Plan")


class View(enum.StrEnum):
    auto = "auto"
    link = "link"
    copy = "copy"
    none = "none"


@dataclass(frozen=True)
class JobOptions:
    """How a job runs, wherever its rows come from."""

    workers: Workers = None
    verify: Verify = "new"
    view: Annotated[
        View,
        typer.Option(
            help="Make the version's view of plain folders on disks, unless it has more than 100 000 units "
            "(auto), even then (link), in object stores too (copy), or nowhere (none)."
        ),
    ] = View.auto
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait for a build of the same version that runs, and go on from it (default: refuse to run "
            "beside it).",
        ),
    ] = False
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--labels",
            metavar="KEY=VALUE",
            help="Label of this build, shown by `logloom status`, and by Dataflow as one of the job. May be "
            "repeated.",
        ),
    ] = None
    quiet: Quiet = False
    json: Json = False
    storage_option: StorageOption = None

    @property
    def choices(self) -> dict[str, Any]:
        """What planning a job takes of these.

        Raises:
            UsageError: a label makes no sense.
        """
        from logloom.runners.options import parse_labels

        return {"verify": self.verify, "labels": parse_labels(self.labels or ())}


def run_job(
    make_plan: Callable[[], AnyPlan],
    options: JobOptions,
    engine: EngineOptions,
    runner: RunnerOptions,
    view: View,
    around: Callable[[AnyPlan], AbstractContextManager[object]] = nullcontext,
) -> tuple[AnyPlan, Built | None]:
    """Plans a job and runs it; beside others of the same version only as `--wait` says.

    Args:
        make_plan: plans it, once more where another job was waited for.
        around: entered while it runs.

    Returns:
        The plan, and what was built; None where it was handed to an engine, or only described.
    """
    quiet, plan = options.quiet, make_plan()
    if not (plan.up_to_date or engine.dry_run) and _others_run(plan, options.wait, quiet):
        plan = make_plan()
    from logloom.pipelines.progress import Watch

    size = None if plan.up_to_date or engine.dry_run else plan.size
    with started("logloom.pipelines.build", runner, size, quiet=quiet) as job:
        if engine.dry_run:
            _report_dry_run(job.dry_run(plan, runner), plan)
            return plan, None
        on_message = (lambda _: None) if quiet else print_message
        if not quiet:
            print_logs("logloom.runners")
        if engine.detach and not plan.up_to_date:
            _report_submitted(job.submit(plan, runner, on_message), plan, options.json)
            return plan, None
        watch = Watch.silent if quiet else Watch
        with around(plan):
            built = job.build(plan, runner=runner, view=view.value, watch=watch, on_message=on_message)
    return plan, built


def _report_dry_run(found: dict[str, Any], plan: Plan) -> None:
    print_json(found)
    if plan.up_to_date:
        root = plan.job.store.uri
        print_message(f"up to date: version {plan.job.parent} of {root}; nothing to submit")


def _others_run(plan: Plan, wait: bool, quiet: bool) -> bool:
    """Waits for other builds of the same version where that is asked for; says whether there were any.

    Raises:
        LogloomError: one runs, and nobody asked to wait.
    """
    from logloom.cli.status import in_words
    from logloom.pipelines import status

    store, number = plan.job.store, plan.job.number

    def say(one: BuildStatus, then: str) -> None:
        if not quiet:
            print_message(f"another build: {in_words(one)}; {then}")

    found = [one for one in status.builds(store, {number}) if not one.is_over]
    for one in found:
        if one.state == "detached" or (one.state == "unknown" and not wait):
            say(one, "nobody can tell whether it still runs, so both may go on, and only one commits")
    if not wait:
        watched = partial(say, then="waiting for its next sign of life, for it may have been killed")
        running = status.running_now(store, number, watched) if found else []
        if running:
            raise status.refuse_second(store, number, running[0])
        return False
    waits = ("running", "unknown")
    running = [one for one in found if one.state in waits]
    for one in running:
        say(one, "waiting for its end")
    if running:
        status.wait(store, number, states=waits)
    return bool(running)


def _report_submitted(job: Submitted, plan: Plan, json: bool) -> None:
    root, number = plan.job.store.uri, plan.job.number
    print_message(
        f"job {job.job_id} builds and commits version {number} of {root} without this command"
        f"{f'; it is at {job.place}' if job.place else ''}. Run the same build again to see how it "
        "went: it is up to date and makes the view, or goes on with what is finished"
    )
    if json:
        print_json({"version": number, "job_id": job.job_id, "engine_id": job.engine_id, "place": job.place})
    else:
        print(job.engine_id or job.job_id)


def work_of(built: Built) -> dict[str, Any]:
    """What a job did, as JSON."""
    units = {"units_built": built.built, "units_reused": built.reused}
    retries = {"storage_retries": built.counters.get("storage_retries", 0)}
    return {**units, **retries, "counters": dict(sorted(built.counters.items()))}


def print_work(built: Built) -> None:
    """Says how long partitions took, how large they are, and which requests were sent again."""
    if (times := built.spreads.get("partition_milliseconds")) and (
        sizes := built.spreads.get("partition_bytes")
    ):
        print_message(
            f"{counted(times.count, 'partition')}: {times.sum / times.count / 1000:.1f} s and "
            f"{human_bytes(sizes.sum / sizes.count)} on average, {times.max / 1000:.1f} s and "
            f"{human_bytes(sizes.max)} at most"
        )
    if retries := built.counters.get("storage_retries"):
        print_message(f"{counted(retries, 'request')} to the object store had to be retried: refused or lost")
