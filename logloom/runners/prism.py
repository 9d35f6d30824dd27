"""Prism, Beam's own portable runner: one binary, fetched once with Go, and one worker process beside it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import pathlib
from collections.abc import Iterator
from typing import Self

from logloom.errors import UsageError
from logloom.runners.cache import call, fetched, tool
from logloom.runners.options import RunnerOptions, Size
from logloom.runners.pool import WorkerPool
from logloom.runners.portable import JobServer, PortableJob
from logloom.runners.processes import Child
from logloom.runners.running import Construct
from logloom.runners.scratch import Folders, engine_folders

_MODULE = "github.com/apache/beam/sdks/v2/go/cmd/prism"


def prism_binary() -> pathlib.Path:
    """The binary of the installed Beam's version, fetched and compiled the first time (minutes).

    Raises:
        UsageError: Go is not there to compile it.
        LogloomError: it can't be fetched.
    """
    version = importlib.metadata.version("apache-beam")

    def fetch(folder: pathlib.Path) -> None:
        go = tool("go", "compile Prism, once; install Go, or choose another --runner")
        call([go, "install", f"{_MODULE}@v{version}"], "compiling Prism", GOBIN=str(folder))

    return fetched(f"prism-{version}", fetch) / "prism"


class Prism:
    """Prism and a pool of workers on this machine, or a Prism that is up at `job_endpoint`."""

    def __init__(self, options: RunnerOptions, size: Size):
        if options.detach or options.environment not in ("local", "external"):
            raise UsageError("Prism has local or external workers, and no detached jobs; say --runner flink")
        options.refuse(["flink_master", "flink_job_server_jar"], "Prism knows no Flink; say --runner flink")
        if options.workers not in (None, 1):
            raise UsageError("Prism gives a job one worker process; for more say --runner direct or flink")
        if options.engine_settings():
            raise UsageError(f"Prism has no setting {next(iter(options.engine_settings()))!r}")
        self._options = options

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            folders = stack.enter_context(engine_folders(self._options.log_folder))
            endpoint = self._options.job_endpoint or stack.enter_context(_started(folders))
            workers = self._options.environment_config
            if self._options.environment == "local":
                workers = stack.enter_context(WorkerPool(folders, log=folders.logs / "workers.log")).endpoint
            self._flags = ["--environment_type=EXTERNAL", f"--environment_config={workers}"]
            self._server = JobServer(endpoint, folders.temporary)
            stack.callback(self._server.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def submit(self, construct: Construct, name: str) -> PortableJob:
        return self._server.submit(construct, name, [*self._flags, *self._options.beam_flags()])


@contextlib.contextmanager
def _started(folders: Folders) -> Iterator[str]:
    """Prism on a free port."""
    command = [str(prism_binary()), "-job_port=0", "-serve_http=false", "-log_kind=text"]
    with Child(command, folders.logs / "prism.log", what="Prism", env=folders.environment) as prism:
        yield prism.wait_for(r'Serving JobManagement" endpoint=(\S+)')[1]
