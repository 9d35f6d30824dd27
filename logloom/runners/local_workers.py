"""Worker processes of Beam's local runner, and the servers that it talks to them by.

Beam's own servers listen on all interfaces, and whoever reaches them may hand work to a build: here they
listen on loopback. Its own workers outlive a job that was cancelled; these end when their handler is closed,
and when this process is gone.
"""

from __future__ import annotations

import contextlib
import pathlib
import signal
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from logloom.runners.fork_server import ForkServer
from logloom.runners.processes import LOOPBACK

_URN = "logloom:environment:local_worker:v1"
_ANSWER_EVERY = 0.2  # seconds
_ENDS_WITHIN = 5.0
_run = threading.local()  # of the run in this thread: .workers, and the .server that forks them


class LocalEnvironment(SubprocessSDKEnvironment):
    """Worker processes of this Python, with their temporary files in one folder."""

    def __init__(self, temporary: pathlib.Path):
        super().__init__(str(temporary))

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        return _URN, self.command_string.encode()


@worker_handlers.WorkerHandler.register_environment(_URN, bytes)
class LocalWorker(worker_handlers.GrpcWorkerHandler):
    """One worker process, as Beam's runner handles it.

    Attributes:
        code: with which it ended before its work did; None as long as it didn't.
    """

    def __init__(self, temporary: bytes, state: Any, provision_info: Any, grpc_server: Any):
        super().__init__(state, provision_info, grpc_server)
        self._temporary = temporary.decode()
        self._closing = False
        self.code: int | None = None

    def host_from_worker(self) -> str:
        return LOOPBACK

    def start_worker(self) -> None:
        temporary = {"TMPDIR": self._temporary}
        self._server = _run.server
        self._end = self._server.fork(self.worker_id, {"control": self.control_address}, temporary)
        _run.workers.append(self)
        threading.Thread(target=self._watch, name="logloom-worker", daemon=True).start()

    def _watch(self) -> None:
        """Answers in the name of a worker that is gone, one that never asked for work included."""
        code = self._end.result()
        if not self._closing:
            self.code = code
        while not self._closing:
            for name, future in list(self.control_conn._futures_by_id.items()):
                future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=name, error=how_ended(code)))
            time.sleep(_ANSWER_EVERY)

    def stop_worker(self) -> None:
        """Does nothing: `close` has ended it."""

    def close(self) -> None:
        """Ends the worker. It has no work, or nobody waits for it any more: the job failed or was stopped."""
        self._closing = True
        self._server.kill(self.worker_id)
        with contextlib.suppress(TimeoutError):  # the server's own end is its end, too
            self._end.result(_ENDS_WITHIN)
        with contextlib.suppress(Exception):  # that its channels broke
            super().close()


def how_ended(code: int) -> str:
    """The end of a worker process in words."""
    if code >= 0:
        return f"ended with code {code}"
    if -code == signal.SIGKILL:
        return "was killed, perhaps because memory ran out; fewer --workers need less"
    return f"was ended by {signal.Signals(-code).name}"


@contextlib.contextmanager
def on_loopback(server: ForkServer | None) -> Iterator[list[LocalWorker]]:
    """Runs of Beam's local runner in this thread listen on loopback alone while the block runs.

    Args:
        server: gives the workers that they start, if they start any.

    Yields:
        These workers; ended with the block.
    """
    workers: list[LocalWorker] = []
    _run.workers, _run.server = workers, server
    try:
        yield workers
    finally:
        del _run.workers, _run.server
        for worker in workers:
            worker.close()


def _server(*arguments: Any, **options: Any) -> Any:
    server = grpc.server(*arguments, **options)
    if hasattr(_run, "workers"):
        listen = server.add_insecure_port
        server.add_insecure_port = lambda address: listen(address.replace("[::]", LOOPBACK))
    return server


# Beam's handlers look up `grpc.server` here, and offer no other way to say where it listens.
worker_handlers.grpc = types.SimpleNamespace(**{**vars(grpc), "server": _server})
