"""A pool of Beam workers: processes of the same Python, started on request.

python -m logloom.runners.pool --port 50000 [--host ADDRESS]     on each machine of a cluster

Unlike Beam's own pool it starts the Python it runs in, sends the workers' logs to the engine, and listens on
loopback by default: anyone who reaches it can run code as its user.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from logloom.errors import UsageError
from logloom.extras import beam_needed
from logloom.runners.processes import LOOPBACK, end_worker, start_worker
from logloom.runners.scratch import ScratchFolders, engine_folders

with beam_needed():
    import grpc
    from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

_HOST = (
    f"address to listen at ({LOOPBACK}). Anyone who reaches it can run code as you, without a password, so "
    "use an address that only the task managers reach"
)


class WorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """Serves at `endpoint` while the block runs; its workers end with it."""

    def __init__(
        self, folders: ScratchFolders, host: str = LOOPBACK, port: int = 0, log: pathlib.Path | None = None
    ):
        """
        Args:
            folders: for the temporary files of workers.
            port: 0 takes a free one.
            log: file that takes what workers print; our own standard error by default.
        """
        self._address = f"{host}:{port}"
        self._log = log
        self._environment = folders.environment
        self._workers: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(4))

    def __enter__(self) -> Self:
        beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(self, self._server)
        try:
            port = self._server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise UsageError(f"{self._address}: a worker pool can't listen here: {error}") from error
        self.endpoint = f"{self._address.rpartition(':')[0]}:{port}"
        self._server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stop(0).wait()
        with self._lock:
            for worker in self._workers:
                worker.terminate()
            for worker in self._workers:
                end_worker(worker)
            self._workers = []

    def StartWorker(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Starts a worker for an engine."""
        names = ("control", "logging", "artifact", "provision")
        endpoints = {name: getattr(request, f"{name}_endpoint").url for name in names}
        try:
            with contextlib.ExitStack() as stack:
                printed = stack.enter_context(self._log.open("ab")) if self._log else None
                worker = start_worker(
                    request.worker_id, endpoints, temporary=self._environment, printed=printed
                )
        except OSError as error:
            return beam_fn_api_pb2.StartWorkerResponse(error=str(error))
        with self._lock:
            self._forget_ended()
            self._workers.append(worker)
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Does nothing: a worker ends by itself when its engine lets go of it.

        Task managers number their workers alike, so a request may be meant for one of several.
        """
        with self._lock:
            self._forget_ended()
        return beam_fn_api_pb2.StopWorkerResponse()

    def _forget_ended(self) -> None:
        for worker in [worker for worker in self._workers if worker.poll() is not None]:
            end_worker(worker)
            self._workers.remove(worker)


def main() -> None:
    """Serves until it is interrupted or terminated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--port", type=int, default=50000)
    parser.add_argument("--host", default=LOOPBACK, help=_HOST)
    arguments = parser.parse_args()
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with engine_folders() as folders, WorkerPool(folders, arguments.host, arguments.port) as pool:
        print(f"worker pool at {pool.endpoint}", flush=True)
        over.wait()
    os._exit(0)  # gRPC's threads can hang the interpreter's own way out


if __name__ == "__main__":
    main()
