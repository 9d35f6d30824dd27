"""The options that say which engine runs a job, and how; docs/engines.md tells their story."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from logloom.runners import RunnerOptions

_ENGINE, _FLINK, _DATAFLOW = "Engine", "Flink and other clusters", "Dataflow"

Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="In parallel; by default as many as pay.")
]
RunnerName = Annotated[
    str,
    typer.Option(
        "--runner",
        metavar="auto|direct|prism|flink|dataflow",
        help="The engine; see docs/engines.md.",
        rich_help_panel=_ENGINE,
    ),
]
RunnerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--runner-option",
        metavar="KEY=VALUE",
        help="For Beam (parallelism=4) or, with a dot, the engine (restart-strategy.type=fixed-delay).",
        rich_help_panel=_ENGINE,
    ),
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Return once the engine has the job.", rich_help_panel=_ENGINE)
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Only print what Dataflow would get, as JSON.", rich_help_panel=_DATAFLOW),
]
EngineLogs = Annotated[
    str,
    typer.Option(
        metavar="FOLDER",
        help="Keep the logs of the processes that are started here.",
        rich_help_panel=_ENGINE,
    ),
]
FlinkMaster = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="A standing Flink cluster.", rich_help_panel=_FLINK)
]
FlinkJar = Annotated[
    str,
    typer.Option(
        metavar="JAR", help="A shaded job server, in place of Maven's jars.", rich_help_panel=_FLINK
    ),
]
JobEndpoint = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="A Beam job server that is up.", rich_help_panel=_FLINK)
]
EnvironmentKind = Annotated[
    str,
    typer.Option(
        metavar="local|external|process|docker", help="Where worker processes run.", rich_help_panel=_FLINK
    ),
]
EnvironmentConfig = Annotated[
    str,
    typer.Option(
        metavar="CONFIG",
        help="host:port of a worker pool, a process as JSON, or an image.",
        rich_help_panel=_FLINK,
    ),
]
Project = Annotated[str, typer.Option(metavar="ID", help="Of Google Cloud.", rich_help_panel=_DATAFLOW)]
Region = Annotated[str, typer.Option(help="Like europe-west4.", rich_help_panel=_DATAFLOW)]
Staging = Annotated[
    str,
    typer.Option(metavar="GS-URI", help="Where the job and its files are put.", rich_help_panel=_DATAFLOW),
]
Image = Annotated[
    str,
    typer.Option(
        "--sdk-container-image",
        metavar="IMAGE",
        help="What workers run in; it holds logloom.",
        rich_help_panel=_DATAFLOW,
    ),
]
ServiceAccount = Annotated[
    str, typer.Option(metavar="EMAIL", help="Whom workers act as.", rich_help_panel=_DATAFLOW)
]
MachineType = Annotated[
    str, typer.Option(metavar="TYPE", help="Of workers, like n2-standard-8.", rich_help_panel=_DATAFLOW)
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
