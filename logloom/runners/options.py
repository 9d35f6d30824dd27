"""The options of engines, and what comes of a job. Nothing here imports Beam."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from logloom import parts
from logloom.errors import UsageError
from logloom.values import dataclass

ENVIRONMENTS = ("local", "external", "process", "docker")
_CONFIGS = {
    "external": "host:port of a worker pool",
    "process": '{"command": "/path/of/a/program"}',
    "docker": "an image that contains logloom",
}
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_ENDPOINT = re.compile(r"(?:[^\s/:]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
# Settings that are Dataflow's alone, and the options of commands that set them.
DATAFLOW_OPTIONS = {
    "project": "--project",
    "region": "--region",
    "staging": "--staging",
    "sdk_container_image": "--sdk-container-image",
    "service_account_email": "--service-account",
    "machine_type": "--machine-type",
}
ENGINES = {"direct": "the direct runner", "flink": "Flink", "dataflow": "Dataflow"}
# Fields that some engines ignore: the engines that don't, and the value without effect.
_FIELDS: Mapping[str, tuple[Sequence[str], object]] = {
    "job_endpoint": (("flink",), ""),
    "flink_master": (("flink",), ""),
    "flink_job_server_jar": (("flink",), ""),
    "environment": (("flink",), "local"),
    "environment_config": (("flink",), ""),
    "log_folder": (("flink",), ""),
    "detach": (("flink", "dataflow"), False),
}
# The engines that heed the options of a class of Beam's; all heed those of the others.
HEEDED_CLASSES: Mapping[str, Sequence[str]] = {
    "DirectOptions": ("direct",),
    "GoogleCloudOptions": ("dataflow",),
    "WorkerOptions": ("dataflow",),
    "FlinkRunnerOptions": ("flink",),
    "PortableOptions": ("flink",),
    "SetupOptions": ("flink", "dataflow"),
    # Of runners, stores and steps that no pipeline here has.
    "CrossLanguageOptions": (),
    "JobServerOptions": (),
    "KafkaStreamsRunnerOptions": (),
    "PrismRunnerOptions": (),
    "SparkRunnerOptions": (),
    "TestOptions": (),
    "TestDataflowOptions": (),
    "AzureOptions": (),
    "HadoopFileSystemOptions": (),
    "S3Options": (),
}
# The same for single options, where that differs.
HEEDED: Mapping[str, Sequence[str]] = {
    "streaming": ("flink", "dataflow"),
    "resource_hint": ("dataflow",),
    "resource_hints": ("dataflow",),
    "dataflow_job_file": ("dataflow",),
    "number_of_worker_harness_threads": ("dataflow",),
    "default_sdk_harness_log_level": ("flink", "dataflow"),
    "sdk_harness_log_level_overrides": ("flink", "dataflow"),
    "max_cache_memory_usage_mb": ("flink", "dataflow"),
    "element_processing_timeout_minutes": ("flink", "dataflow"),
    "pickle_library": tuple(ENGINES),
    # Others set these for all engines, as --runner, --flink-master and --job-endpoint do.
    **dict.fromkeys(("runner", "no_wait_until_finish", "save_main_session", "no_save_main_session"), ()),
    **dict.fromkeys(("flink_master", "flink_job_server_jar", "flink_submit_uber_jar", "job_endpoint"), ()),
}
_INSTALLED = ("requirements_file", "setup_file", "extra_packages")  # by the image's own start-up program


@dataclass(frozen=True)
class RunnerOptions:
    """Which engine runs a pipeline, and how.

    Attributes:
        runner: an engine that a part offers, or "auto": Flink where a Flink cluster or job server is named,
            "direct", this machine, otherwise.
        workers: number of worker processes; None lets it follow from the size of the job.
        job_endpoint: host:port of a Beam job server that is up; "" starts one where the engine needs one.
        flink_master: host:port of a standing Flink cluster; "" is a cluster within the job server.
        flink_job_server_jar: a shaded job server in place of the jars that Maven fetches.
        environment: where worker processes run: "local" (started here), "external" (by a worker pool on each
            machine of the cluster, at `environment_config`), "process" or "docker" (started by the cluster).
        environment_config: host:port of the worker pool, the process as JSON, or the image.
        detach: return once the job is submitted.
        log_folder: keeps what the processes started here log; "" keeps it only until they end.
        settings: by name; with a dot it is a setting of the engine itself (`restart-strategy.type`), without
            one an option of Beam's (`parallelism`). A list repeats the option.
    """

    runner: str = "auto"
    workers: int | None = None
    job_endpoint: str = ""
    flink_master: str = ""
    flink_job_server_jar: str = ""
    environment: str = "local"
    environment_config: str = ""
    detach: bool = False
    log_folder: str = ""
    settings: Mapping[str, str | list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.runner != "auto" and self.runner not in parts.names("engines"):
            raise UsageError(parts.missing("engines", self.runner))
        if self.environment not in ENVIRONMENTS:
            raise UsageError(f"environment {self.environment!r}, known: {', '.join(ENVIRONMENTS)}")
        wanted = _CONFIGS.get(self.environment)
        if wanted and not self.environment_config:
            raise UsageError(f"environment {self.environment} needs a config: {wanted}")
        if self.environment == "process":
            self.process_command()
        if self.environment == "local" and self.environment_config:
            raise UsageError("--environment-config: set where workers run, like --environment external")
        self._check_engine()
        staged = [name for name in _INSTALLED if self.settings.get(name)]
        if staged and self.environment != "docker" and self.runner != "dataflow":
            raise UsageError(
                f"runner option {staged[0]!r}: these workers run in a Python that is there; install "
                "there what they need. Only workers in containers install it themselves"
            )
        if self.detach and self.environment == "local" and self.runner != "dataflow":
            raise UsageError(
                "a detached job needs workers that outlive this command: give --environment external, "
                "process or docker, and a cluster (--flink-master or --job-endpoint)"
            )
        self._check_endpoints()
        self._check_job_server()
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"{self.workers} workers: at least 1")

    def _check_endpoints(self) -> None:
        pool = self.environment_config if self.environment == "external" else ""
        for what, endpoint, example in (
            ("a Flink cluster", self.flink_master, "flink:8081"),
            ("a job server", self.job_endpoint, "localhost:8099"),
            ("a worker pool", pool, "localhost:50000"),
        ):
            if endpoint and not _ENDPOINT.fullmatch(endpoint):
                raise UsageError(f"{what} at {endpoint!r}: expected host:port, like {example}")

    def _check_job_server(self) -> None:
        """Refuses what would have no effect on a job server that is up."""
        if self.job_endpoint and self.flink_job_server_jar:
            raise UsageError(
                "--flink-job-server-jar: a job server is up at --job-endpoint; leave out one of them"
            )
        if self.job_endpoint and self.environment != "local" and self.log_folder:
            raise UsageError("--engine-logs: no process is started here, so there are no logs; leave it out")

    def _check_engine(self) -> None:
        """Refuses what the engine ignores; what engines of other packages ignore isn't known."""
        if self.name not in ENGINES:
            return
        for name, (having, unset) in _FIELDS.items():
            if getattr(self, name) != unset:
                option = "engine-logs (log_folder)" if name == "log_folder" else name.replace("_", "-")
                refuse_ineffective(f"--{option}", self.name, having)
        for name, option in DATAFLOW_OPTIONS.items():
            if name in self.settings:
                refuse_ineffective(option, self.name, ["dataflow"])
        for name in self.engine_settings():
            refuse_ineffective(f"runner option {name!r}", self.name, ["flink"])

    @property
    def name(self) -> str:
        """The runner's name, "auto" resolved."""
        if self.runner != "auto":
            return self.runner
        named = self.flink_master or self.flink_job_server_jar or self.job_endpoint
        return "flink" if named else "direct"

    @property
    def is_near(self) -> bool:
        """Whether all worker processes run on this machine."""
        return self.name == "direct" or (self.name == "flink" and self.environment == "local")

    def process_command(self) -> str:
        """The program that starts a worker, of environment "process".

        Raises:
            UsageError: the config doesn't name one.
        """
        try:
            command = json.loads(self.environment_config)["command"]
        except (ValueError, TypeError, KeyError):
            command = None
        if not isinstance(command, str):
            raise UsageError(
                f"environment process: {self.environment_config!r} is not of the form {_CONFIGS['process']}"
            )
        return command

    def with_labels(self, labels: Mapping[str, str]) -> RunnerOptions:
        """The same with labels of the job; engines other than Dataflow know none.

        Args:
            labels: of the job: {"team": "perception"}.
        """
        if self.name != "dataflow" or not labels:
            return self
        given = self.settings.get("labels", [])
        own = [*(given if isinstance(given, list) else [given]), *(f"{k}={v}" for k, v in labels.items())]
        return replace(self, settings={**self.settings, "labels": own})

    def beam_flags(self) -> list[str]:
        """The settings that are Beam's, as flags."""
        return [
            f"--{name}" if value == "" else f"--{name}={value}"
            for name, values in self.settings.items()
            if "." not in name
            for value in (values if isinstance(values, list) else [values])
        ]

    def engine_settings(self) -> dict[str, str]:
        """The settings that are the engine's own."""
        return {name: str(value) for name, value in self.settings.items() if "." in name}


def refuse_ineffective(option: str, engine: str, having: Sequence[str]) -> None:
    """Refuse an option that an engine would ignore.

    Args:
        option: as the message names it.
        engine: one of `ENGINES`.
        having: the engines that have it.

    Raises:
        UsageError: the engine isn't one of them.
    """
    if engine in having:
        return
    if not having:
        raise UsageError(
            f"{option}: it has no effect on {ENGINES[engine]}, or any other engine; leave it out"
        )
    others = " and ".join(ENGINES[name] for name in having)
    there = [name for name in having if name in parts.names("engines")]
    remedy = f"use --runner {' or '.join(there)}, or leave it out" if there else "leave it out"
    only = "only " if len(having) == 1 else ""
    raise UsageError(f"{option}: it has no effect on {ENGINES[engine]}, {only}on {others}; {remedy}")


@dataclass(frozen=True)
class Size:
    """The amount of work of a pipeline, for defaults.

    Attributes:
        transcodes: it decodes video, or resizes or encodes images, which takes far longer than to copy them.
    """

    message_bytes: int = 0
    partitions: int = 1
    transcodes: bool = False


@dataclass(frozen=True)
class Spread:
    """Of many whole numbers that workers noted: how many, their sum, the least and the largest."""

    count: int
    sum: int
    min: int
    max: int

    def __add__(self, other: Spread) -> Spread:
        least, most = min(self.min, other.min), max(self.max, other.max)
        return Spread(self.count + other.count, self.sum + other.sum, least, most)


@dataclass(frozen=True)
class Finished:
    """A pipeline that is done.

    Attributes:
        counters: of logloom, by name, over all workers.
        spreads: distributions of logloom, by name; empty if the engine has none.
    """

    job_id: str
    counters: Mapping[str, int]
    spreads: Mapping[str, Spread] = field(default_factory=dict)


def spreads_of(noted: Iterable[tuple[Any, Any]]) -> dict[str, Spread]:
    """Beam's distributions of logloom, by name, over all steps.

    Args:
        noted: pairs of a metric's key and what came of it.
    """
    spreads: dict[str, Spread] = {}
    for key, value in noted:
        if key.metric.namespace == "logloom" and value.count:
            one = Spread(value.count, value.sum, value.min, value.max)
            spreads[key.metric.name] = spreads[key.metric.name] + one if key.metric.name in spreads else one
    return spreads


@dataclass(frozen=True)
class Submitted:
    """A pipeline that runs without us.

    Attributes:
        job_id: Beam's name for it.
        engine_id: the engine's own name, "" where it isn't known.
        place: where to look at it.
    """

    job_id: str
    engine_id: str
    place: str


def engine_of(options: RunnerOptions, size: Size) -> Any:
    """The engine, not yet started: a context manager."""
    return parts.load("engines", options.name)(options, size)


def parse_labels(labels: Iterable[str]) -> dict[str, str]:
    """["team=perception"] as {"team": "perception"}.

    Args:
        labels: KEY=VALUE, or some as a JSON object, as Google writes them.

    Raises:
        UsageError: one that Google Cloud would refuse; a key that comes twice, or is ours.
    """
    found: dict[str, str] = {}
    for label in labels:
        if label.startswith("{"):
            try:
                pairs = [(str(key), str(value)) for key, value in json.loads(label).items()]
            except ValueError as error:
                raise UsageError(f"labels {label!r}: no JSON: {error}") from None
        else:
            key, equals, value = label.partition("=")
            if not equals:
                raise UsageError(f"label {label!r}: expected KEY=VALUE, like team=perception")
            pairs = [(key, value)]
        for key, value in pairs:
            if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
                raise UsageError(
                    f"label {key}={value}: a key begins with a small letter, and key and value have at most "
                    "63 small letters, digits, - and _"
                )
            if key in found or key.startswith("logloom-"):
                why = "is logloom's own" if key not in found else "comes twice"
                raise UsageError(f"label {key}={value}: the key {why}; choose another")
            found[key] = value
    return found


def parse_settings(settings: list[str]) -> dict[str, str | list[str]]:
    """["parallelism=4"] as {"parallelism": "4"}; an option of Beam's that comes again becomes a list.

    Raises:
        UsageError: a setting of another form, or one of the engine's that comes again.
    """
    parsed: dict[str, str | list[str]] = {}
    for setting in settings:
        name, equals, value = setting.removeprefix("--").partition("=")
        if not name:
            raise UsageError(f"runner option {setting!r}: expected KEY=VALUE, like parallelism=4")
        before = parsed.get(name)
        value = value if equals else ""
        if before is None:
            parsed[name] = value
        elif "." in name:
            raise UsageError(f"runner option {name!r}: given as {before} and as {value}; set it once")
        else:
            parsed[name] = [*(before if isinstance(before, list) else [before]), value]
    return parsed
