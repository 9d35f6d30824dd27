"""Prism, Beam's own portable runner: one binary, fetched once with Go, and one worker process beside it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Self

from logloom.errors import LogloomError, UsageError
from logloom.runners.engine import Construct
from logloom.runners.engine_cache import call, fetched, tool
from logloom.runners.options import RunnerOptions, Size
from logloom.runners.pool import WorkerPool
from logloom.runners.portable import JobServer, PortableJob
from logloom.runners.processes import LOOPBACK, Child
from logloom.runners.scratch import ScratchFolders, engine_folders

_MODULE = "github.com/apache/beam/sdks/v2"
# Prism listens on all interfaces, asks for no password, and has no option for it.
_SERVER = "go/pkg/beam/runners/prism/internal/jobservices/server.go"
_EVERYWHERE, _HERE = 'net.Listen("tcp", fmt.Sprintf(":%d"', f'net.Listen("tcp", fmt.Sprintf("{LOOPBACK}:%d"'


def prism_binary() -> pathlib.Path:
    """The binary of the installed Beam's version, fetched and compiled the first time (minutes).

    Raises:
        UsageError: Go is not there to compile it.
        LogloomError: it can't be fetched.
    """
    version = importlib.metadata.version("apache-beam")

    def fetch(folder: pathlib.Path) -> None:
        go = tool("go", "compile Prism, once; install Go, or choose another --runner")
        call([go, "mod", "download", f"{_MODULE}@v{version}"], "fetching Prism")
        modules = call([go, "env", "GOMODCACHE"], "asking Go for its modules").strip()
        with tempfile.TemporaryDirectory(dir=folder) as work:
            source = pathlib.Path(work) / "beam"
            _copy_source(pathlib.Path(modules) / f"{_MODULE}@v{version}", source)
            _listen_here(source / _SERVER)
            call(
                [go, "build", "-C", str(source), "-o", str(folder / "prism"), "./go/cmd/prism"],
                "compiling Prism",
            )

    return fetched(f"prism-{version}-loopback", fetch) / "prism"


def _copy_source(module: pathlib.Path, source: pathlib.Path) -> None:
    """Copies a module of Go's cache, where all is read-only."""
    for path in [module / "go.mod", module / "go.sum", *sorted((module / "go").rglob("*"))]:
        if path.is_file():
            copy = source / path.relative_to(module)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def _listen_here(server: pathlib.Path) -> None:
    text = server.read_text(encoding="utf-8")
    if _EVERYWHERE not in text:
        raise LogloomError(
            f"{_SERVER} of this Prism listens in another way than is known; choose another --runner"
        )
    server.write_text(text.replace(_EVERYWHERE, _HERE), encoding="utf-8")


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
def _started(folders: ScratchFolders) -> Iterator[str]:
    """Prism on a free port."""
    command = [str(prism_binary()), "-job_port=0", "-serve_http=false", "-log_kind=text"]
    with Child(command, folders.logs / "prism.log", what="Prism", env=folders.environment) as prism:
        yield prism.wait_for(r'Serving JobManagement" endpoint=(\S+)')[1]
