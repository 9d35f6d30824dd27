"""A Beam worker process: python -m logloom.runners.worker --id=... .

Takes the arguments of Beam's container contract, so an engine's PROCESS environment can start it too. Its
logs go to the engine, each line with its logger's name.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from logloom.extras import beam_needed


def main() -> None:
    """Works until the engine lets go of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("id", "control_endpoint", "logging_endpoint", "artifact_endpoint", "provision_endpoint"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--with_parent", action="store_true", help="end when standard input does")
    arguments, _ = parser.parse_known_args()
    if arguments.with_parent:
        end_after(sys.stdin.buffer.read)
    os.environ["WORKER_ID"] = arguments.id  # before Beam is imported, which reads it then
    names = ("control", "logging", "provision")
    os.environ |= described(arguments.id, {name: getattr(arguments, f"{name}_endpoint") for name in names})
    work()


def work() -> NoReturn:
    """Works until the engine lets go of this process, then ends it."""
    with beam_needed():
        from apache_beam.runners.worker import sdk_worker_main

    _name_loggers()
    code = 1
    try:
        sdk_worker_main.main(None)
        code = 0
    finally:
        os._exit(code)  # gRPC's threads can hang the interpreter's own way out


def end_after(wait: Callable[[], Any]) -> None:
    """Ends this process once `wait` returns, in a thread of its own."""

    def end() -> None:
        wait()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def described(worker_id: str, endpoints: Mapping[str, str]) -> dict[str, str]:
    """What the engine says of the job, as the environment that Beam's worker reads.

    Args:
        endpoints: host:port of Beam's services, "" where there is none: "control", "logging", "provision".
    """
    import grpc
    from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
    from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor
    from google.protobuf import json_format

    control, logs = endpoints["control"], endpoints.get("logging")
    environment = {"WORKER_ID": worker_id}
    if provision := endpoints.get("provision"):
        with grpc.insecure_channel(provision) as channel:
            stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(
                grpc.intercept_channel(channel, WorkerIdInterceptor(worker_id))
            )
            request = beam_provision_api_pb2.GetProvisionInfoRequest()
            info = stub.GetProvisionInfo(request, timeout=60, wait_for_ready=True).info
        control = control or info.control_endpoint.url
        logs = logs or info.logging_endpoint.url
        environment["PIPELINE_OPTIONS"] = json_format.MessageToJson(info.pipeline_options)
        environment["RUNNER_CAPABILITIES"] = " ".join(info.runner_capabilities)
    environment["CONTROL_API_SERVICE_DESCRIPTOR"] = f'url: "{control}"'
    if logs:
        environment["LOGGING_API_SERVICE_DESCRIPTOR"] = f'url: "{logs}"'
    return environment


def _name_loggers() -> None:
    """Engines show where a line was logged as a file; the logger's name says more."""
    from apache_beam.runners.worker.log_handler import FnApiLogRecordHandler

    with_name = logging.Formatter("%(name)s: %(message)s")
    FnApiLogRecordHandler.format = lambda handler, record: with_name.format(record)


if __name__ == "__main__":
    main()
