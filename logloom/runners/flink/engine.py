"""Jobs on Flink: on a cluster within a job server of ours, or on a standing one.

Here: the engine, its job server, and the names of Flink's settings.
Elsewhere: the jars (jars), a cluster's REST interface (rest), Beam's job service (job_service).

Workers are, by default, processes started here, of the same Python. What is started here ends here, but for
detached jobs on standing clusters, which need nothing from here.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import socket
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar

from logloom.cpus import available_cpus
from logloom.errors import LogloomError, UsageError
from logloom.runners.beam_pipeline import refuse_ignored
from logloom.runners.engine import Construct, EngineLostError, JobFailedError, retried
from logloom.runners.flink.jars import checked_jar, class_path, jars_of_flink, java, version_of_flink
from logloom.runners.flink.job_service import JobServer, PortableJob
from logloom.runners.flink.rest import ENDED, FORGOTTEN, FlinkCluster
from logloom.runners.options import Finished, RunnerOptions, Size, Submitted
from logloom.runners.pool import WorkerPool
from logloom.runners.processes import Child
from logloom.runners.scratch import ScratchFolders, engine_folders
from logloom.text import OnMessage, near_to

T = TypeVar("T")

_LOOK_EVERY = 1.0  # seconds
_CANCELLED_WITHIN = 10.0
_KEPT_FOR = 4  # seconds; else the workers of one stage end before the next starts its own
_STARTS_WITHIN = 120.0  # seconds from submission to Flink's taking the job
_UNREACHED = "java.net.ConnectException"  # as Flink says it
_NOT_STARTED = ("INITIALIZING", "CREATED")
_NOT_FOUND = "FlinkJobNotFoundException"
_DRIVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"
_DECLARE = re.compile(r"org/apache/flink/.*(?:Options|ConfigConstants)\.class")
# A text among the constants of a class: a tag, its length in two bytes, and the text.
_CONSTANT = re.compile(rb"\x01[\x00-\xff]{2}([a-z][\w-]*(?:\.[\w-]+)+\.?)(?=[\x00-\x1f])")
# Families whose members are not all declared: plugins and file systems add theirs.
_OPEN_FAMILIES = ("fs.", "s3.", "env.", "kubernetes.", "metrics.", "security.")
# Of the cluster within the job server; a standing one has its own, which a batch job of Beam's can't change.
# A lost worker restarts the job; units that are finished are found, so little is done twice.
_RETRIES = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    # Sooner, the next attempt would be given the lost worker again, which is still kept.
    "restart-strategy.fixed-delay.delay": f"{_KEPT_FOR + 1} s",
}
# One task starting again alone is given the lost worker, which the others of its stage still hold.
_FAILOVER = {"jobmanager.execution.failover-strategy": "full"}
_OF_CLUSTERS = ("restart-strategy", "taskmanager.", "jobmanager.")
# Nobody else's business; `localhost` may be an address that Java doesn't bind.
_LOOPBACK = {"jobmanager.bind-host": "127.0.0.1", "taskmanager.bind-host": "127.0.0.1"}


@contextlib.contextmanager
def job_server(
    folders: ScratchFolders, settings: Mapping[str, str], *, master: str = "", jar: str = ""
) -> Iterator[str]:
    """Run Beam's job server for Flink during the block; yields its host:port.

    Args:
        folders: for its log and configuration; for what jobs stage, and what Flink keeps while they run.
        settings: of Flink, for every job: `restart-strategy.type`, `taskmanager.memory.*`, ...
        master: host:port of a standing cluster; "" is one within the job server.
        jar: a shaded job server, in place of the fetched jars.

    Raises:
        UsageError: Java, Maven or the jar is missing.
        LogloomError: it doesn't start; holds the end of its log.
    """
    program = ["-jar", checked_jar(jar)] if jar else ["-cp", class_path(), _DRIVER]
    (folders.logs / "flink-conf.yaml").write_text(
        "".join(f"{name}: {value}\n" for name, value in settings.items()), encoding="utf-8"
    )
    command = [
        *java(),
        f"-Djava.io.tmpdir={folders.temporary}",
        *program,
        "--job-host=127.0.0.1",
        "--job-port=0",
        "--artifact-port=0",
        "--expansion-port=-1",
        f"--flink-master={master or '[local]'}",
        f"--flink-conf-dir={folders.logs}",
        f"--artifacts-dir={folders.temporary / 'artifacts'}",
    ]
    log = folders.logs / "job-server.log"
    with Child(command, log, what="Flink's job server", env=folders.environment) as server:
        yield server.wait_for(r"JobService started on (\S+:\d+)")[1]


def known_settings(jars: Iterable[pathlib.Path]) -> set[str]:
    """Return the names that Flink's classes declare; one that ends in a dot is a prefix.

    Args:
        jars: Flink's own, or one that contains them.
    """
    known: set[str] = set()
    for path in jars:
        with zipfile.ZipFile(path) as jar:
            for name in filter(_DECLARE.fullmatch, jar.namelist()):
                known.update(text.decode() for text in _CONSTANT.findall(jar.read(name)))
    return known


def refuse_unknown(names: Iterable[str], known: set[str]) -> None:
    """Check names of settings: Flink ignores unknown ones, which are mostly typing errors.

    Raises:
        UsageError: Flink doesn't declare the name; names the nearest that there is.
    """
    starts = (*_OPEN_FAMILIES, *(name for name in known if name.endswith(".")))
    for name in names:
        if known and name not in known and not name.startswith(starts):
            hint = near_to(name, sorted(known), most=0)
            raise UsageError(f"runner option {name!r}: Flink has no such setting{hint}")


class Flink:
    """A job server for Flink that is up."""

    def __init__(self, options: RunnerOptions, size: Size):
        _check(options)
        refuse_ignored(options.beam_flags(), "flink")
        self._options = options
        wanted = "" if options.job_endpoint else version_of_flink(options.flink_job_server_jar)
        self._cluster = FlinkCluster(options.flink_master, wanted) if options.flink_master else None
        cores = available_cpus()
        self._parallel = options.workers or max(1, min(cores, size.partitions))
        self._workers_each = self._parallel
        if self._cluster is not None:
            managers, slots = self._cluster.slots()
            if not (slots or options.workers):
                raise UsageError(
                    f"{options.flink_master}: the Flink cluster has no task manager; start one, or say "
                    "--workers if it starts them when they are wanted"
                )
            self._parallel = options.workers or slots
            self._workers_each = -(-min(slots, self._parallel) // managers) if slots else self._parallel

    def __enter__(self) -> Self:
        options = self._options
        with contextlib.ExitStack() as stack:
            folders = stack.enter_context(engine_folders(options.log_folder))
            endpoint = options.job_endpoint or stack.enter_context(
                job_server(
                    folders,
                    self._flink_settings(),
                    master=options.flink_master,
                    jar=options.flink_job_server_jar,
                )
            )
            self._flags = self._environment(stack, folders)
            self._server = JobServer(endpoint, folders.temporary)
            stack.callback(self._server.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _flink_settings(self) -> dict[str, str]:
        """Settings for the job server's configuration.

        Raises:
            UsageError: Flink doesn't know one of them.
        """
        given = self._options.engine_settings()
        if given:
            refuse_unknown(given, known_settings(jars_of_flink(self._options.flink_job_server_jar)))
        if self._options.flink_master:
            return given
        retries = {} if any(name.startswith("restart-strategy") for name in given) else _RETRIES
        return _LOOPBACK | _FAILOVER | retries | given

    def _environment(self, stack: contextlib.ExitStack, folders: ScratchFolders) -> list[str]:
        """Flags that say where workers run."""
        options = self._options
        kind, config = options.environment.upper(), options.environment_config
        if options.environment == "local":
            pool = stack.enter_context(WorkerPool(folders, log=folders.logs / "workers.log"))
            kind, config = "EXTERNAL", pool.endpoint
        return [f"--environment_type={kind}", *([f"--environment_config={config}"] if config else [])]

    def submit(self, construct: Construct, name: str) -> FlinkJob:
        defaults = {
            "parallelism": str(self._parallel),
            "sdk_worker_parallelism": str(self._workers_each),
            "environment_cache_millis": str(1000 * _KEPT_FOR),
            # Stage after stage. Stages that run at once are given the Python workers in turn, whichever asks
            # first: all of a stage's share may fall to one of them.
            "execution_mode_for_batch": "BATCH_FORCED",
        }
        flags = [f"--{key}={value}" for key, value in defaults.items() if key not in self._options.settings]
        job = self._server.submit(construct, name, [*flags, *self._flags, *self._options.beam_flags()])
        brought = self._options.environment == "external"
        return FlinkJob(job, self._cluster, name, self._options.environment_config if brought else "")


def _check(options: RunnerOptions) -> None:
    """Refuses options that would have no effect, or none but a failure much later."""
    standing = options.flink_master or options.job_endpoint
    if options.detach and not standing:
        raise UsageError("a cluster within this command ends with it: --detach needs --flink-master")
    settings = options.engine_settings()
    if options.job_endpoint and settings:
        raise UsageError(
            f"{next(iter(settings))}: Flink's settings are those of the job server that is up; put them there"
        )
    for name in settings if options.flink_master else ():
        if name.startswith(_OF_CLUSTERS):
            raise UsageError(
                f"{name}: a job can't change this on a standing cluster; put it into the configuration of "
                f"{options.flink_master}"
            )
    if options.environment == "local" and standing and not is_here(standing):
        raise UsageError(
            f"{standing} is another machine, which can't reach workers on this one; start a pool of them "
            "beside each task manager and use --environment external (docs/engines.md)"
        )
    if options.environment == "process" and not standing and shutil.which(options.process_command()) is None:
        raise UsageError(f"environment process: {options.process_command()} is no program on this machine")


def is_here(endpoint: str) -> bool:
    """Return whether host:port is an address of this machine; true for unknown names."""
    try:
        found = socket.getaddrinfo(endpoint.rpartition(":")[0].strip("[]"), 0, type=socket.SOCK_STREAM)
    except OSError:
        return True
    return any(_can_listen(family, address) for family, _, _, _, address in found)


def _can_listen(family: int, address: Any) -> bool:
    with socket.socket(family) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
    return True


class FlinkJob:
    """A job on Flink; on a standing cluster it is followed even when its job server is lost."""

    def __init__(self, job: PortableJob, cluster: FlinkCluster | None, name: str, pool: str):
        """
        Args:
            pool: host:port of the worker pools that the user started; "" if there are none.
        """
        self.job_id = getattr(job, "job_id", "")
        self._job = job
        self._pool = pool
        self._cluster = cluster
        self._name = name

    def wait(self, on_message: OnMessage) -> Finished:
        if self._cluster is not None and not self._cluster.restarts_jobs():
            on_message(
                f"{self._cluster.address} restarts no jobs (its restart-strategy.type is not set): if a "
                "worker or a task manager is lost, build again; finished units are kept"
            )
        try:
            return self._job.wait(on_message)
        except JobFailedError as error:
            if self._pool and _UNREACHED in str(error):
                raise JobFailedError(
                    f"{error}\nPerhaps no worker pool is up at {self._pool}, as task managers see it"
                ) from error
            if _NOT_FOUND in str(error):
                raise JobFailedError(f"{error}\nThe cluster has no record of the job: {FORGOTTEN}") from error
            raise
        except EngineLostError as error:
            if self._cluster is None:
                raise
            on_message(f"the job server is gone; following the job at {self._cluster.url}")
            return self._follow(self._cluster, on_message, error)

    def _follow(self, cluster: FlinkCluster, on_message: OnMessage, lost: EngineLostError) -> Finished:
        """Waits for the end of a job that lost its job server."""
        before = ""
        while True:
            job = _retried(cluster, lambda: cluster.job_named(self._name))
            if job is None:
                raise EngineLostError(
                    f"{cluster.url} answers and has no record of the job: {FORGOTTEN}. Build again: "
                    "finished units are kept, and a version that the job committed is found"
                ) from lost
            if job.state != before:
                on_message(f"job {job.id}: {job.state.lower()}")
                before = job.state
            if job.state in ENDED:
                break
            time.sleep(_LOOK_EVERY)
        if job.state != "FINISHED":
            reason = _retried(cluster, lambda: cluster.why_failed(job))
            raise JobFailedError(f"job {job.id} {job.state.lower()}: {reason}")
        return Finished(self._job.job_id, {})

    def detached(self) -> Submitted:
        """Waits until the cluster has taken the job, and needs the job server no more."""
        cluster = self._cluster
        if cluster is None:
            return Submitted(self._job.job_id, "", "")
        until = time.monotonic() + _STARTS_WITHIN
        while (job := _retried(cluster, lambda: cluster.job_named(self._name))) is None or (
            job.state in _NOT_STARTED
        ):
            self._job.raise_if_failed()
            if time.monotonic() > until:
                raise LogloomError(f"{cluster.url}: the cluster did not accept the job")
            time.sleep(_LOOK_EVERY / 4)
        return Submitted(self._job.job_id, job.id, f"{cluster.url}/#/job/{job.id}")

    def cancel(self) -> None:
        self._job.cancel()
        if self._cluster is not None:
            with contextlib.suppress(EngineLostError):
                _retried(self._cluster, self._cancel_there, within=_CANCELLED_WITHIN)

    def _cancel_there(self) -> None:
        assert self._cluster is not None
        job = self._cluster.job_named(self._name)
        if job is not None and job.state not in ENDED:
            self._cluster.cancel(job)


def _retried(cluster: FlinkCluster, look: Callable[[], T], within: float | None = None) -> T:
    """What the cluster answers; retried where it is too busy to."""
    return retried(look, (LogloomError,), f"the cluster at {cluster.url}", within=within)
