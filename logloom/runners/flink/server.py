"""Beam's job server for Flink, as a process of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from logloom.runners.flink.jars import checked_jar, class_path, java
from logloom.runners.processes import Child
from logloom.runners.scratch import ScratchFolders

_DRIVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"


@contextlib.contextmanager
def job_server(
    folders: ScratchFolders, settings: Mapping[str, str], *, master: str = "", jar: str = ""
) -> Iterator[str]:
    """Runs a job server while the block runs; gives its host:port.

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
