"""The options that say which engine runs a job, and how; docs/engines.md tells their story."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from logloom.runners import RunnerOptions

_ENGINE, _FLINK, _DATAFLOW = "Engine", "Flink and other clusters", "Dataflow"

Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, help="Number of worker processes (default: follows from the size of the job)."
    ),
]


@dataclass(frozen=True)
class EngineOptions:
    """Which engine runs a job, and how."""

    runner: Annotated[
        str,
        typer.Option(
            "--runner",
            metavar="auto|direct|prism|flink|dataflow",
            help="Engine to run on, see docs/engines.md; auto is Flink if one of its options is given, "
            "else this machine.",
            rich_help_panel=_ENGINE,
        ),
    ] = "auto"
    runner_option: Annotated[
        list[str] | None,
        typer.Option(
            "--runner-option",
            metavar="KEY=VALUE",
            help="Option of Beam (parallelism=4) or, where the name has a dot, of the engine "
            "(restart-strategy.type=fixed-delay). May be repeated.",
            rich_help_panel=_ENGINE,
        ),
    ] = None
    flink_master: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Address of a running Flink cluster.", rich_help_panel=_FLINK),
    ] = ""
    flink_job_server_jar: Annotated[
        str,
        typer.Option(
            metavar="JAR",
            help="Beam's job server for Flink as one jar (default: fetched with Maven).",
            rich_help_panel=_FLINK,
        ),
    ] = ""
    job_endpoint: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Address of a running Beam job server.", rich_help_panel=_FLINK
        ),
    ] = ""
    environment: Annotated[
        str,
        typer.Option(
            metavar="local|external|process|docker",
            help="Where workers run: on this machine, in worker pools that are up (external), as processes "
            "or containers that task managers start.",
            rich_help_panel=_FLINK,
        ),
    ] = "local"
    environment_config: Annotated[
        str,
        typer.Option(
            metavar="CONFIG",
            help="The pool's host:port (external), a command as JSON (process), or an image (docker).",
            rich_help_panel=_FLINK,
        ),
    ] = ""
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            help="Return once the engine has accepted the job, which goes on without this command.",
            rich_help_panel=_ENGINE,
        ),
    ] = False
    engine_logs: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Folder to keep the logs of the engine's local processes in (default: not kept).",
            rich_help_panel=_ENGINE,
        ),
    ] = ""
    project: Annotated[
        str, typer.Option(metavar="ID", help="Google Cloud project.", rich_help_panel=_DATAFLOW)
    ] = ""
    region: Annotated[
        str, typer.Option(help="Google Cloud region, e.g. europe-west4.", rich_help_panel=_DATAFLOW)
    ] = ""
    staging: Annotated[
        str,
        typer.Option(
            metavar="GS-URI", help="Folder of a bucket for the files of the job.", rich_help_panel=_DATAFLOW
        ),
    ] = ""
    sdk_container_image: Annotated[
        str,
        typer.Option(
            metavar="IMAGE",
            help="Container image of the workers, with logloom installed.",
            rich_help_panel=_DATAFLOW,
        ),
    ] = ""
    service_account: Annotated[
        str,
        typer.Option(metavar="EMAIL", help="Service account of the workers.", rich_help_panel=_DATAFLOW),
    ] = ""
    machine_type: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            help="Machine type of the workers, e.g. n2-standard-8.",
            rich_help_panel=_DATAFLOW,
        ),
    ] = ""
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the job for Dataflow as JSON; submit nothing.",
            rich_help_panel=_DATAFLOW,
        ),
    ] = False

    def with_workers(self, workers: int | None) -> RunnerOptions:
        """The options as runners take them; Dataflow's own that are empty are left to `--runner-option`.

        Raises:
            UsageError: an option makes no sense, or has no effect.
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
