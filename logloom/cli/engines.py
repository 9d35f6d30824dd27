"""The options that say which engine runs a job, and how; docs/engines.md tells their story."""

from __future__ import annotations

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
RunnerName = Annotated[
    str,
    typer.Option(
        "--runner",
        metavar="auto|direct|prism|flink|dataflow",
        help="Engine to run on, see docs/engines.md; auto is this machine, or Flink if it is named.",
        rich_help_panel=_ENGINE,
    ),
]
RunnerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--runner-option",
        metavar="KEY=VALUE",
        help="Option of Beam (parallelism=4) or, where the name has a dot, of the engine "
        "(restart-strategy.type=fixed-delay). May be repeated.",
        rich_help_panel=_ENGINE,
    ),
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach",
        help="Return once the engine has accepted the job, which goes on without this command.",
        rich_help_panel=_ENGINE,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Print the job for Dataflow as JSON; submit nothing.", rich_help_panel=_DATAFLOW
    ),
]
EngineLogs = Annotated[
    str,
    typer.Option(
        metavar="FOLDER",
        help="Folder to keep the logs of the engine's local processes in (default: not kept).",
        rich_help_panel=_ENGINE,
    ),
]
FlinkMaster = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Address of a running Flink cluster.", rich_help_panel=_FLINK)
]
FlinkJar = Annotated[
    str,
    typer.Option(
        metavar="JAR",
        help="Beam's job server for Flink as one jar (default: fetched with Maven).",
        rich_help_panel=_FLINK,
    ),
]
JobEndpoint = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="Address of a running Beam job server.", rich_help_panel=_FLINK),
]
EnvironmentKind = Annotated[
    str,
    typer.Option(
        metavar="local|external|process|docker",
        help="Where workers run: on this machine, in running pools (external), as processes or containers "
        "that task managers start.",
        rich_help_panel=_FLINK,
    ),
]
EnvironmentConfig = Annotated[
    str,
    typer.Option(
        metavar="CONFIG",
        help="The pool's host:port (external), a command as JSON (process), or an image (docker).",
        rich_help_panel=_FLINK,
    ),
]
Project = Annotated[str, typer.Option(metavar="ID", help="Google Cloud project.", rich_help_panel=_DATAFLOW)]
Region = Annotated[
    str, typer.Option(help="Google Cloud region, e.g. europe-west4.", rich_help_panel=_DATAFLOW)
]
Staging = Annotated[
    str,
    typer.Option(
        metavar="GS-URI", help="Folder of a bucket for the files of the job.", rich_help_panel=_DATAFLOW
    ),
]
Image = Annotated[
    str,
    typer.Option(
        "--sdk-container-image",
        metavar="IMAGE",
        help="Container image of the workers, with logloom installed.",
        rich_help_panel=_DATAFLOW,
    ),
]
ServiceAccount = Annotated[
    str, typer.Option(metavar="EMAIL", help="Service account of the workers.", rich_help_panel=_DATAFLOW)
]
MachineType = Annotated[
    str,
    typer.Option(
        metavar="TYPE", help="Machine type of the workers, e.g. n2-standard-8.", rich_help_panel=_DATAFLOW
    ),
]


def with_dataflow(
    options: RunnerOptions,
    *,
    project: str,
    region: str,
    staging: str,
    sdk_container_image: str,
    service_account: str,
    machine_type: str,
) -> RunnerOptions:
    """The options with what Dataflow is told by name; what is empty is left to `--runner-option`."""
    import dataclasses

    given = {
        "project": project,
        "region": region,
        "staging": staging,
        "sdk_container_image": sdk_container_image,
        "service_account_email": service_account,
        "machine_type": machine_type,
    }
    named = {name: value for name, value in given.items() if value}
    return dataclasses.replace(options, settings={**options.settings, **named})
