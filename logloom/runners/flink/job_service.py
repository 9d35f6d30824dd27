"""Jobs on an engine behind Beam's job service: submit, watch, count, cancel.

Elsewhere: starting the job server (engine), and the workers (logloom.runners.pool).
"""

from __future__ import annotations

import collections
import contextlib
import pathlib
import threading
import time
from collections.abc import Iterable
from typing import Any

import grpc
from apache_beam.metrics.execution import MetricKey
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability import portable_metrics
from apache_beam.runners.portability.portable_runner import JobServiceHandle, PortableRunner

from logloom.errors import UsageError
from logloom.runners.beam_pipeline import dependencies_in, new_pipeline, refuse_unknown
from logloom.runners.engine import Construct, EngineLostError, JobFailedError, retried
from logloom.runners.options import Finished, Spread, spreads_of
from logloom.text import OnMessage

_State = beam_job_api_pb2.JobState
_ENDED = {_State.DONE, _State.DRAINED, _State.FAILED, _State.CANCELLED}
_LOOK_EVERY = 0.25  # seconds
_LOST_AFTER = 10.0  # seconds without an answer
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class JobServer:
    """A job service that is up."""

    def __init__(self, endpoint: str, temporary: pathlib.Path):
        """
        Args:
            temporary: folder for what a job stages.

        Raises:
            UsageError: nothing answers there.
        """
        self.endpoint = endpoint
        self._temporary = temporary
        self._channel = grpc.insecure_channel(endpoint, options=_UNLIMITED)
        try:
            grpc.channel_ready_future(self._channel).result(timeout=15)
        except grpc.FutureTimeoutError:
            self._channel.close()
            raise UsageError(
                f"{endpoint}: no Beam job server answers here; start one, or leave it out: then the command "
                "starts its own"
            ) from None
        self._stub = beam_job_api_pb2_grpc.JobServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def submit(self, construct: Construct, name: str, flags: Iterable[str]) -> PortableJob:
        """Submits a pipeline.

        Args:
            flags: of Beam's; those that only the engine knows, too.

        Raises:
            UsageError: one of them is unknown.
        """
        flags = list(flags)
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        described = self._stub.DescribePipelineOptions(request, timeout=60).options
        refuse_unknown(flags, [option.name for option in described])
        if not any(flag.startswith("--requirements_") for flag in flags):
            flags.append("--requirements_cache=skip")  # else Beam makes a folder for it
        options = PipelineOptions([f"--job_name={name}", *flags], save_main_session=False)
        pipeline = new_pipeline(PortableRunner(), options)
        construct(pipeline)
        with dependencies_in(self._temporary):
            proto = PortableRunner.get_proto_pipeline(pipeline, options)
        handle = JobServiceHandle(self._stub, options, retain_unknown_options=True)
        job_id, messages, _ = handle.submit(proto)
        return PortableJob(self._stub, self.endpoint, job_id, messages)


class PortableJob:
    """A job of a job service."""

    def __init__(self, stub: Any, endpoint: str, job_id: str, messages: Iterable[Any]):
        self.job_id = job_id
        self._stub = stub
        self._endpoint = endpoint
        self._errors: collections.deque[str] = collections.deque(maxlen=50)
        self._listener = threading.Thread(target=self._listen, args=(messages,), daemon=True)
        self._listener.start()

    def _listen(self, messages: Iterable[Any]) -> None:
        with contextlib.suppress(grpc.RpcError):  # the end of the stream, or of the server
            for message in messages:
                response = message.message_response
                if response.importance == beam_job_api_pb2.JobMessage.JOB_MESSAGE_ERROR:
                    self._errors.append(response.message_text)

    def wait(self, on_message: OnMessage) -> Finished:
        """Wait for the end; report every change of state.

        Raises:
            EngineLostError: the job server doesn't answer any more.
            JobFailedError: the job failed; holds all that the engine said.
        """
        before = None
        while (state := self._state()) not in _ENDED:
            if state != before:
                on_message(f"job {self.job_id}: {_State.Enum.Name(state).lower()}")
                before = state
            time.sleep(_LOOK_EVERY)
        on_message(f"job {self.job_id}: {_State.Enum.Name(state).lower()}")
        self._raise_failed(state)
        counters, spreads = self._metrics()
        return Finished(self.job_id, counters, spreads)

    def raise_if_failed(self) -> None:
        """Raises what `wait` would, if the job has failed by now."""
        state = self._state()
        if state in _ENDED:
            self._raise_failed(state)

    def _raise_failed(self, state: int) -> None:
        if state == _State.DONE:
            return
        self._listener.join(5)
        reasons = "\n".join(self._errors) or "the engine returned no reason; see its log"
        raise JobFailedError(f"job {self.job_id} {_State.Enum.Name(state).lower()}: {reasons}")

    def cancel(self) -> None:
        """Asks the engine to stop the job, and waits until it has."""
        with contextlib.suppress(grpc.RpcError, EngineLostError):
            request = beam_job_api_pb2.CancelJobRequest(job_id=self.job_id)
            self._stub.Cancel(request, timeout=_LOST_AFTER)
            until = time.monotonic() + 2 * _LOST_AFTER
            while self._state() not in _ENDED and time.monotonic() < until:
                time.sleep(_LOOK_EVERY)

    def _state(self) -> int:
        """The state; retried where the server is too busy to answer."""
        request = beam_job_api_pb2.GetJobStateRequest(job_id=self.job_id)
        return retried(
            lambda: int(self._stub.GetState(request, timeout=_LOST_AFTER).state),
            (grpc.RpcError,),
            f"job {self.job_id}: the job server at {self._endpoint}",
            within=_LOST_AFTER,
            why=lambda error: str(error.code().name.lower()),
        )

    def _metrics(self) -> tuple[dict[str, int], dict[str, Spread]]:
        """logloom's counters and distributions by name, over all steps; none where the engine keeps none."""
        try:
            request = beam_job_api_pb2.GetJobMetricsRequest(job_id=self.job_id)
            metrics = self._stub.GetJobMetrics(request, timeout=_LOST_AFTER).metrics
        except grpc.RpcError:
            return {}, {}
        sums: dict[str, int] = {}
        counters: dict[MetricKey, Any] = {}
        noted: dict[MetricKey, Any] = {}
        for infos in (metrics.attempted, metrics.committed):  # what is committed is the better figure
            found = portable_metrics.from_monitoring_infos(infos)
            counters.update(found[0])
            noted.update(found[1])
        for key, value in counters.items():
            if key.metric.namespace == "logloom":
                sums[key.metric.name] = sums.get(key.metric.name, 0) + int(value)
        return sums, spreads_of(noted.items())
