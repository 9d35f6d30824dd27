"""Options for the engine of a job and its workers, explained in docs/engines.md."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logloom.io.storage.step_times import step
from logloom.values import dataclass

if TYPE_CHECKING:
    from logloom.runners import RunnerOptions, Size

# Options of one panel of `--help` each.
_engine = partial(typer.Option, rich_help_panel="Engine")
_flink = partial(typer.Option, rich_help_panel="Flink and other clusters")
_dataflow = partial(typer.Option, rich_help_panel="Dataflow")

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
            help="Engine to run on: {engines} (see docs/engines.md), or auto: Flink if one of its options is "
            "given, else this machine.",
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
