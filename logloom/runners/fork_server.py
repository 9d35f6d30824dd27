"""Worker processes that are forked from one that has imported everything: a fork takes milliseconds.

The server is a process of its own: it imports and forks, and has no thread and no channel of gRPC, with which
a fork would not be safe. Its workers share the memory of what was imported. It ends with the process that
started it, and its workers end with it, even by `kill -9`.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, NoReturn

from logloom.extras import without_collection
from logloom.runners.local_imports import local_imports
from logloom.runners.worker import described, end_after, work

_LOOK_EVERY = 0.2  # seconds
_STDERR = 2  # `sys.stderr` may be no file, as in notebooks
_early: contextvars.ContextVar[ForkServer | None] = contextvars.ContextVar("early", default=None)


class _Fork(NamedTuple):
    """Asks for a worker."""

    worker_id: str
    endpoints: Mapping[str, str]
    environment: Mapping[str, str]


class _Kill(NamedTuple):
    """Asks for the end of a worker."""

    worker_id: str


class _Ended(NamedTuple):
    """Tells of the end of a worker; of a signal's number, negative, where one ended it."""

    worker_id: str
    code: int


class ForkServer:
    """The server, as seen by who starts it; it imports while the constructor returns."""

    def __init__(self, modules: Sequence[str] = ()):
        """
        Args:
            modules: to import beside Beam's worker, and what of logloom is imported here.
        """
        self._connection, theirs = multiprocessing.Pipe()
        self._ends: dict[str, Future[int]] = {}
        self._code: int | None = None  # of the server, once it has ended
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=_STDERR,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is for this process alone
            )
        loaded = list(sys.modules)  # other threads may import meanwhile
        self._send(sorted({*modules, *filter(_is_shared, loaded)}))
        threading.Thread(target=self._listen, name="logloom-forks", daemon=True).start()

    @property
    def pid(self) -> int:
        """Of the server's process."""
        return self._process.pid

    def fork(
        self, worker_id: str, endpoints: Mapping[str, str], environment: Mapping[str, str]
    ) -> Future[int]:
        """Starts a Beam worker; gives the code that it will end with.

        Args:
            endpoints: host:port of Beam's services, by name: "control", "logging", ...
            environment: variables that name the folder of its temporary files.
        """
        end: Future[int] = Future()
        with self._lock:
            if self._code is not None:
                end.set_result(self._code)
            else:
                self._ends[worker_id] = end
                self._send(_Fork(worker_id, dict(endpoints), dict(environment)))
        return end

    def kill(self, worker_id: str) -> None:
        """Ends a worker, as a crash would."""
        with self._lock:
            self._send(_Kill(worker_id))

    def close(self) -> None:
        """Ends the server and all its workers."""
        self._process.kill()
        self._process.wait()

    def _send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # it is gone, which `_listen` tells
            self._connection.send(message)

    def _listen(self) -> None:
        """Hands on which workers ended; all of them, once the server is gone."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                ended: _Ended = self._connection.recv()
                with self._lock:
                    self._ends.pop(ended.worker_id).set_result(ended.code)
        code = self._process.wait()
        with self._lock:
            self._code = code
            for end in self._ends.values():
                end.set_result(code)


def _is_shared(module: str) -> bool:
    """Whether workers need what is imported here.

    pandas is imported by pyarrow, with the first array that it makes of a list.
    """
    ours = module.startswith("logloom.") and not module.startswith(("logloom.cli", "logloom.__main__"))
    return ours or module == "pandas"


@contextlib.contextmanager
def started_early(modules: Sequence[str]) -> Iterator[None]:
    """Lets a server import beside what the block does; `fork_server` gives it there.

    Args:
        modules: see `ForkServer`.
    """
    with contextlib.closing(ForkServer(modules)) as server:
        before = _early.set(server)
        try:
            yield
        finally:
            _early.reset(before)


@contextlib.contextmanager
def fork_server() -> Iterator[ForkServer]:
    """The server that was started early, or else one that ends with the block."""
    server = _early.get()
    if server is not None:
        yield server
        return
    with contextlib.closing(ForkServer()) as server:
        yield server


# --- in the server ------------------------------------------------------------------------------------


def main() -> None:
    """Serves the process that started this one until that is gone; then ends all workers."""
    driver = Connection(int(sys.argv[1]))
    workers: dict[str, BaseProcess] = {}
    with contextlib.suppress(EOFError, OSError):
        _import(driver.recv())
        while True:
            _serve(driver, workers)
    for worker in workers.values():
        worker.kill()
    os._exit(0)


def _import(modules: Sequence[str]) -> None:
    with without_collection():  # which would write to pages that workers share, too
        with local_imports():
            _try_import("apache_beam.runners.worker.sdk_worker_main")
        for name in modules:
            _try_import(name)


def _try_import(module: str) -> None:
    with contextlib.suppress(Exception):  # the worker that needs it will say so
        importlib.import_module(module)


def _serve(driver: Connection, workers: dict[str, BaseProcess]) -> None:
    """Does what the driver asks for next, and tells it of the workers that ended."""
    # What a worker started may hold its sentinel open, so that is not all that is looked at.
    ready = wait([driver, *(worker.sentinel for worker in workers.values())], _LOOK_EVERY)
    if driver in ready:
        asked: _Fork | _Kill = driver.recv()
        if isinstance(asked, _Fork):
            _start(driver, asked, workers)
        elif asked.worker_id in workers:
            workers[asked.worker_id].kill()
    for worker_id, worker in list(workers.items()):
        if worker.exitcode is not None:
            del workers[worker_id]
            driver.send(_Ended(worker_id, worker.exitcode))


def _start(driver: Connection, asked: _Fork, workers: dict[str, BaseProcess]) -> None:
    forked = multiprocessing.get_context("fork").Process(target=_work, args=(driver, asked))
    try:
        forked.start()
    except OSError as error:  # there are as many processes as may be
        print(f"logloom: no worker can be forked: {error}", file=sys.stderr, flush=True)
        driver.send(_Ended(asked.worker_id, os.EX_OSERR))
    else:
        workers[asked.worker_id] = forked


def _work(driver: Connection, asked: _Fork) -> NoReturn:
    """What a worker does."""
    from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor

    driver.close()
    server = multiprocessing.parent_process()
    assert server is not None
    end_after(server.join)
    os.environ |= {**asked.environment, **described(asked.worker_id, asked.endpoints)}
    tempfile.tempdir = None  # it may have been looked up before
    WorkerIdInterceptor._worker_id = asked.worker_id  # taken from the environment when it was imported
    work(silent=True)


if __name__ == "__main__":
    from logloom.runners import fork_server as this  # under the name that messages know it by

    this.main()
