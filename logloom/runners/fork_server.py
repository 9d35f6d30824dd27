"""Worker processes forked in milliseconds from a server with all imports done.

The server is a process of its own: it imports and forks, and has no thread of Python's, with which a fork
would not be safe. Its workers share the memory of what was imported. It ends with the process that
started it, and its workers end with it, even by `kill -9`.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import itertools
import multiprocessing
import os
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, NoReturn

from logloom.extras import spare_pandas, without_collection
from logloom.interpreter import connected_process
from logloom.runners.local_workers import work
from logloom.runners.worker import end_after

_LOOK_EVERY = 0.2  # seconds
_early: contextvars.ContextVar[ForkServer | None] = contextvars.ContextVar("early", default=None)


class _Fork(NamedTuple):
    """Asks for a worker; its end of a pair of sockets follows."""

    worker_id: int
    environment: Mapping[str, str]


class _Kill(NamedTuple):
    """Asks for the end of a worker."""

    worker_id: int


class _Ended(NamedTuple):
    """Reports the end of a worker, with its exit code, or the negative number of a signal."""

    worker_id: int
    code: int


class Forked(NamedTuple):
    """A worker.

    Attributes:
        connection: to the worker; broken once it has ended.
        end: gives the code that it ends with.
    """

    worker_id: int
    connection: Connection
    end: Future[int]


class ForkServer:
    """The server, as seen by who starts it; it imports while the constructor returns."""

    def __init__(self, modules: Sequence[str] = ()):
        """
        Args:
            modules: to import beside what of logloom is imported here.
        """
        self._ends: dict[int, Future[int]] = {}
        self._numbers = itertools.count()
        self._code: int | None = None  # of the server, once it has ended
        self._lock = threading.Lock()
        # A session of its own, since Ctrl-C is for this process alone.
        self._process, self._connection = connected_process(__name__, start_new_session=True)
        loaded = list(sys.modules)  # other threads may import meanwhile
        self._send(sorted({*modules, *filter(_is_shared, loaded)}))
        threading.Thread(target=self._listen, name="logloom-forks", daemon=True).start()

    @property
    def pid(self) -> int:
        """Of the server's process."""
        return self._process.pid

    def fork(self, environment: Mapping[str, str]) -> Forked:
        """Starts a worker, which does what it is asked for by its connection.

        Args:
            environment: variables that name the folder of its temporary files.
        """
        ours, theirs = multiprocessing.Pipe()
        with theirs, self._lock:
            worker = Forked(next(self._numbers), ours, Future())
            if self._code is not None:
                worker.end.set_result(self._code)
            else:
                self._ends[worker.worker_id] = worker.end
                self._send(_Fork(worker.worker_id, dict(environment)), theirs.fileno())
        return worker

    def kill(self, worker: Forked) -> None:
        """Ends a worker, as a crash would."""
        with self._lock:
            self._send(_Kill(worker.worker_id))

    def close(self) -> None:
        """Ends the server and all its workers."""
        self._process.kill()
        self._process.wait()

    def _send(self, message: Any, *descriptors: int) -> None:
        with contextlib.suppress(OSError):  # it is gone, which `_listen` tells
            self._connection.send(message)
            if descriptors:
                with socket.fromfd(self._connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as channel:
                    socket.send_fds(channel, [b"\0"], descriptors)

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
    """Whether workers need what is imported here."""
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
    workers: dict[int, BaseProcess] = {}
    with contextlib.suppress(EOFError, OSError):
        _import(driver.recv())
        while True:
            _serve(driver, workers)
    for worker in workers.values():
        worker.kill()
    os._exit(0)


def _import(modules: Sequence[str]) -> None:
    with without_collection():  # which would write to pages that workers share, too
        if "pandas" not in modules:
            spare_pandas()
        for name in modules:
            with contextlib.suppress(Exception):  # the worker that needs it will report it
                importlib.import_module(name)


def _serve(driver: Connection, workers: dict[int, BaseProcess]) -> None:
    """Do what the driver asks for next, and report workers that ended."""
    # What a worker started may hold its sentinel open, so that is not all that is looked at.
    ready = wait([driver, *(worker.sentinel for worker in workers.values())], _LOOK_EVERY)
    if driver in ready:
        request: _Fork | _Kill = driver.recv()
        if isinstance(request, _Fork):
            with _received(driver) as connection:
                _start(driver, request, connection, workers)
        elif request.worker_id in workers:
            workers[request.worker_id].kill()
    for worker_id, worker in list(workers.items()):
        if worker.exitcode is not None:
            del workers[worker_id]
            driver.send(_Ended(worker_id, worker.exitcode))


def _received(driver: Connection) -> Connection:
    """A worker's end of its pair of sockets."""
    with socket.fromfd(driver.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        _, descriptors, *_ = socket.recv_fds(channel, 1, 1)
    if not descriptors:
        raise EOFError
    return Connection(descriptors[0])


def _start(driver: Connection, order: _Fork, connection: Connection, workers: dict[int, BaseProcess]) -> None:
    fork = multiprocessing.get_context("fork").Process
    forked = fork(target=_work, args=(driver, order.environment, connection))
    try:
        forked.start()
    except OSError as error:  # there are as many processes as may be
        print(f"logloom: no worker can be forked: {error}", file=sys.stderr, flush=True)
        driver.send(_Ended(order.worker_id, os.EX_OSERR))
    else:
        workers[order.worker_id] = forked


def _work(driver: Connection, environment: Mapping[str, str], connection: Connection) -> NoReturn:
    """What a worker does."""
    driver.close()
    server = multiprocessing.parent_process()
    assert server is not None
    end_after(server.join)
    os.environ |= environment
    tempfile.tempdir = None  # it may have been looked up before
    code = 1
    try:
        work(connection)
        code = 0
    except BaseException:  # it isn't reported elsewhere
        traceback.print_exc()
    finally:
        os._exit(code)  # threads of numerical libraries and stores need not end first


if __name__ == "__main__":
    from logloom.runners import fork_server as this  # under the name that messages know it by

    this.main()
