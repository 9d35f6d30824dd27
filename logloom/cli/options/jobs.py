"""Options of the commands that run a job: `build` and `convert`.

Here: `EngineOptions`, explained in docs/engines.md, `JobOptions`, and `run_job`.
Elsewhere: planning (recipes, logloom.cli.convert).
"""

from __future__ import annotations

import contextlib
import enum
import pathlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from logloom.cli.options.groups import ENGINE_PANELS
from logloom.cli.terminal import Json, StorageOption, Verify, print_json, print_logs, print_message
from logloom.errors import UsageError
from logloom.extras import without_collection
from logloom.io.storage.step_times import step
from logloom.text import OnMessage, counted, human_bytes, ignore_message
from logloom.values import dataclass

if TYPE_CHECKING:
    from logloom.pipelines.build.result import Built
    from logloom.pipelines.plan.build_plan import Plan
    from logloom.runners import RunnerOptions, Size, Submitted
    from logloom.transforms.build.settings import BuildSettings


# Options of one panel of `--help` each.
_engine = partial(typer.Option, rich_help_panel="Engine")
_flink = partial(typer.Option, rich_help_panel=ENGINE_PANELS["flink"])
_dataflow = partial(typer.Option, rich_help_panel=ENGINE_PANELS["dataflow"])

Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, help="Number of worker processes (default: follows from the size of the job)."
    ),
]


@dataclass(frozen=True)
class EngineOptions:
    """The engine of a job, and its options."""

    runner: Annotated[
        str,
        _engine(
            metavar="ENGINE",
            help="Engine to run on: {engines} (see docs/engines.md), or auto: {auto}.",
        ),
    ] = "auto"
    runner_option: Annotated[
        list[str] | None,
        _engine(
            metavar="KEY=VALUE",
            help="Option of Beam (parallelism=4) or, where the name has a dot, of the engine "
            "(restart-strategy.type=fixed-delay). May be repeated.",
        ),
    ] = None
    flink_master: Annotated[str, _flink(metavar="HOST:PORT", help="Address of a running Flink cluster.")] = ""
    flink_job_server_jar: Annotated[
        str,
        _flink(metavar="JAR", help="Beam's job server for Flink as one jar (default: fetched with Maven)."),
    ] = ""
    job_endpoint: Annotated[
        str, _flink(metavar="HOST:PORT", help="Address of a running Beam job server.")
    ] = ""
    environment: Annotated[
        str,
        _flink(
            metavar="local|external|process|docker",
            help="Where workers run: on this machine, in worker pools that are up (external), as processes "
            "or containers that task managers start.",
        ),
    ] = "local"
    environment_config: Annotated[
        str,
        _flink(
            metavar="CONFIG",
            help="The pool's host:port (external), a command as JSON (process), or an image (docker).",
        ),
    ] = ""
    detach: Annotated[
        bool,
        _engine(
            "--detach",
            help="Return once the engine has accepted the job, which goes on without this command.",
        ),
    ] = False
    engine_logs: Annotated[
        str,
        _engine(
            metavar="FOLDER",
            help="Folder to keep the logs of the engine's local processes in (default: not kept).",
        ),
    ] = ""
    project: Annotated[str, _dataflow(metavar="ID", help="Google Cloud project.")] = ""
    region: Annotated[str, _dataflow(help="Google Cloud region, e.g. europe-west4.")] = ""
    staging: Annotated[
        str, _dataflow(metavar="GS-URI", help="Folder of a bucket for the files of the job.")
    ] = ""
    sdk_container_image: Annotated[
        str, _dataflow(metavar="IMAGE", help="Container image of the workers, with logloom installed.")
    ] = ""
    service_account: Annotated[str, _dataflow(metavar="EMAIL", help="Service account of the workers.")] = ""
    machine_type: Annotated[
        str, _dataflow(metavar="TYPE", help="Machine type of the workers, e.g. n2-standard-8.")
    ] = ""
    dry_run: Annotated[
        bool, _dataflow("--dry-run", help="Print the job for Dataflow as JSON; submit nothing.")
    ] = False

    def with_workers(self, workers: int | None) -> RunnerOptions:
        """Return the options for runners; empty ones of Dataflow are left to `--runner-option`.

        Raises:
            UsageError: an option is invalid, or has no effect.
        """
        from logloom.runners import RunnerOptions
        from logloom.runners.options import DATAFLOW_OPTIONS, parse_settings

        dataflow = {
            setting: getattr(self, option.removeprefix("--").replace("-", "_"))
            for setting, option in DATAFLOW_OPTIONS.items()
        }
        given = {setting: value for setting, value in dataflow.items() if value}
        return RunnerOptions(
            runner=self.runner,
            workers=workers,
            job_endpoint=self.job_endpoint,
            flink_master=self.flink_master,
            flink_job_server_jar=self.flink_job_server_jar,
            environment=self.environment,
            environment_config=self.environment_config,
            detach=self.detach,
            log_folder=self.engine_logs,
            settings={**parse_settings(self.runner_option or []), **given},
        )


@contextlib.contextmanager
def started(job: str, runner: RunnerOptions, size: Size | None, *, quiet: bool) -> Iterator[Any]:
    """As `logloom.runners.beam_import.started`, with progress; mistakes in options don't wait for it."""
    from logloom.pipelines.build.progress import steps
    from logloom.runners import beam_import

    with contextlib.ExitStack() as stack:
        with steps("starting", quiet=quiet), step("import Beam"):
            module = stack.enter_context(beam_import.started(job, runner, size))
        yield module


AnyPlan = TypeVar("AnyPlan", bound="Plan")


class View(enum.StrEnum):
    auto = "auto"
    link = "link"
    copy = "copy"
    none = "none"


@dataclass(frozen=True)
class JobOptions:
    """Options of a job."""

    workers: Workers = None
    verify: Verify = "new"
    view: Annotated[
        View,
        typer.Option(
            help="Where to make plain folders of the version: on disks, for up to 100 000 units (auto); on "
            "disks, for any number (link); also in object stores (copy); nowhere (none)."
        ),
    ] = View.auto
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="If another build of the same version runs, wait for its end, then continue from it "
            "(default: fail).",
        ),
    ] = False
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--labels",
            metavar="KEY=VALUE",
            help="Label of this build, shown by `logloom status`, and of its job on engines with labels. "
            "May be repeated.",
        ),
    ] = None
    profile: Annotated[
        pathlib.Path | None,
        typer.Option(
            "--profile",
            metavar="FILE",
            help="Show where the time went, and write a file for https://www.speedscope.app.",
        ),
    ] = None
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="Show no progress, and of a success only the result, warnings and logs that were skipped or "
            "salvaged.",
        ),
    ] = False
    json: Json = False
    storage_option: StorageOption = None

    @property
    def on_message(self) -> OnMessage:
        """Prints a message that isn't a warning, unless --quiet is given."""
        return ignore_message if self.quiet else print_message

    @property
    def settings(self) -> BuildSettings:
        """Return the settings that workers need.

        Raises:
            UsageError: a value is invalid.
        """
        from logloom.runners.options import parse_labels
        from logloom.transforms.build.settings import BuildSettings

        return BuildSettings(verify=self.verify, labels=parse_labels(self.labels or ()))


def run_job(
    make_plan: Callable[[], AnyPlan],
    options: JobOptions,
    engine: EngineOptions,
    runner: RunnerOptions,
    view: View,
    around: Callable[[AnyPlan], AbstractContextManager[object]] = nullcontext,
) -> tuple[AnyPlan, Built | None]:
    """Plan a job and run it; `--wait` decides what happens beside another build of the version.

    Args:
        make_plan: plans it, once more where another job was waited for.
        around: entered while it runs.

    Returns:
        The plan, and what was built; None where it was handed to an engine, or only described.
    """
    from logloom.pipelines.build.profile import profiled

    with without_collection():
        from logloom.pipelines.build.result import plan_and_run

    if options.profile is not None:
        _check_profile(runner, engine.dry_run)
    with profiled(options.profile, print_message) as steps:
        return plan_and_run(
            make_plan,
            lambda plan: _run_planned(plan, options, engine, runner, view, around, steps),
            wait=options.wait,
            on_message=options.on_message,
            looks=not engine.dry_run,
        )


def _check_profile(runner: RunnerOptions, dry_run: bool) -> None:
    """Refuse to profile a job that this command doesn't wait for; warn if workers are on other machines."""
    if dry_run or runner.detach:
        raise UsageError("--profile: a job that this command doesn't wait for can't be profiled")
    if not runner.is_near:
        print_message(
            "--profile: workers on other machines can't record steps; the profile has this command's own, "
            "seconds and bytes of partitions are the engine's metrics, shown at the end"
        )


def _run_planned(
    plan: AnyPlan,
    options: JobOptions,
    engine: EngineOptions,
    runner: RunnerOptions,
    view: View,
    around: Callable[[AnyPlan], AbstractContextManager[object]],
    steps: str,
) -> tuple[AnyPlan, Built | None]:
    from logloom.pipelines.build.result import has_nothing_to_build, newest

    quiet, on_message = options.quiet, options.on_message
    if has_nothing_to_build(plan) and not engine.dry_run:
        with around(plan), step("make the view"):  # no engine is imported for that
            return plan, newest(plan, view=view.value, on_message=on_message)
    from logloom.pipelines.build.progress import Watch

    size = None if plan.up_to_date or engine.dry_run else plan.size
    with started("logloom.pipelines.build.build", runner, size, quiet=quiet) as job:
        if engine.dry_run:
            print_json(job.dry_run(plan, runner))
            if plan.up_to_date:
                root = plan.job.store.uri
                on_message(f"up to date: version {plan.job.parent} of {root}; nothing to submit")
            return plan, None
        if not quiet:
            print_logs("logloom.runners")
        if engine.detach and not plan.up_to_date:
            _report_submitted(job.submit(plan, runner, on_message, looked=True), plan, options)
            return plan, None
        watch = Watch.silent if quiet else Watch
        how = {"view": view.value, "watch": watch, "on_message": on_message, "steps": steps, "looked": True}
        with around(plan), step("run the job"):
            built = job.build(plan, runner=runner, **how)
    return plan, built


def _report_submitted(job: Submitted, plan: Plan, options: JobOptions) -> None:
    root, number = plan.job.store.uri, plan.job.number
    options.on_message(
        f"job {job.job_id} builds and commits version {number} of {root} without this command"
        f"{f'; it is at {job.place}' if job.place else ''}. Run the same build again to see how it "
        "went: it is up to date and makes the view, or goes on with finished units"
    )
    if options.json:
        from logloom.pipelines.plan.summary import plan_notices

        about = {"version": number, "job_id": job.job_id, "engine_id": job.engine_id, "place": job.place}
        print_json({**about, "notices": [notice.to_json() for notice in plan_notices(plan)]})
    else:
        print(job.engine_id or job.job_id)


def work_of(built: Built) -> dict[str, Any]:
    """Return a summary of a job as JSON."""
    units = {"units_built": built.built, "units_reused": built.reused}
    retries = {"storage_retries": built.counters.get("storage_retries", 0)}
    return {**units, **retries, "counters": dict(sorted(built.counters.items()))}


def print_work(built: Built, on_message: OnMessage) -> None:
    """Report times and sizes of partitions, and retried requests."""
    if (times := built.spreads.get("partition_milliseconds")) and (
        sizes := built.spreads.get("partition_bytes")
    ):
        on_message(
            f"{counted(times.count, 'partition')}: {times.sum / times.count / 1000:.1f} s and "
            f"{human_bytes(sizes.sum / sizes.count)} on average, {times.max / 1000:.1f} s and "
            f"{human_bytes(sizes.max)} at most"
        )
    if retries := built.counters.get("storage_retries"):
        on_message(f"{counted(retries, 'request')} to the object store had to be retried: refused or lost")
