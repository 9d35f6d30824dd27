"""A stand-in for Dataflow's REST interface: takes jobs as Google's client sends them, and runs their graphs.

A job's graph is fetched from where it was staged, its image replaced by this process, and run by Beam's local
runner; states, messages and metrics are served as the service does.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import traceback
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from google.cloud.dataflow import JobState

_PATH = re.compile(
    r"/v1b3/projects/(?P<project>[^/]+)/locations/(?P<region>[^/]+)/jobs(?:/(?P<job>[^/?]+))?(?:/(?P<what>\w+))?"
)


@dataclass
class ServedJob:
    """A job as it was sent, and what became of it."""

    sent: dict[str, Any]
    project: str
    region: str
    graph: Any = None
    state: str = "JOB_STATE_PENDING"
    messages: list[tuple[str, str]] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class StandIn:
    """Dataflow's interface at `endpoint`.

    Attributes:
        fetch: reads a gs:// URL.
        hold: jobs stay running until it is set.
        busy: so many looks at a job's state are refused.
    """

    fetch: Callable[[str], bytes]
    endpoint: str = ""
    jobs: dict[str, ServedJob] = field(default_factory=dict)
    hold: threading.Event = field(default_factory=threading.Event)
    busy: int = 0

    def create(self, project: str, region: str, sent: dict[str, Any]) -> dict[str, Any]:
        job_id = f"2026-11-21_00_00_0{len(self.jobs)}-1234"
        job = ServedJob(sent, project, region)
        self.jobs[job_id] = job
        threading.Thread(target=self._run, args=(job,), daemon=True).start()
        return {"id": job_id, "projectId": project, "name": sent["name"], "currentState": job.state}

    def _run(self, job: ServedJob) -> None:
        job.state = "JOB_STATE_RUNNING"
        job.messages.append(("JOB_MESSAGE_WARNING", "a worker was slow to start"))
        try:
            url = job.sent["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
            job.graph = beam_runner_api_pb2.Pipeline.FromString(self.fetch(url))
            self.hold.wait(60)
            if job.state != "JOB_STATE_RUNNING":
                return
            result = FnApiRunner().run_via_runner_api(_here(job.graph), PipelineOptions([]))
            result.wait_until_finish()
            job.metrics = [_metric(counter) for counter in result.metrics().query()["counters"]]
            job.state = "JOB_STATE_DONE"
        except Exception:
            job.messages.append(("JOB_MESSAGE_ERROR", traceback.format_exc()))
            job.state = "JOB_STATE_FAILED"

    def answer(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        found = _PATH.match(path)
        assert found, path
        if found["job"] is None and method == "GET":
            (name,) = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)["name"]
            named = [(job_id, job) for job_id, job in self.jobs.items() if job.sent["name"] == name]
            return {
                "jobs": [
                    {"id": i, "name": name, "currentState": job.state, "createTime": f"{i[:10]}T00:00:00Z"}
                    for i, job in named
                ]
            }
        if found["job"] is None:
            assert method == "POST"
            return self.create(found["project"], found["region"], json.loads(body))
        job = self.jobs[found["job"]]
        if found["what"] == "messages":
            return {
                "jobMessages": [
                    {
                        "id": str(n),
                        "time": "2026-11-21T00:00:00Z",
                        "messageText": text,
                        "messageImportance": kind,
                    }
                    for n, (kind, text) in enumerate(job.messages)
                ]
            }
        if found["what"] == "metrics":
            return {"metrics": job.metrics}
        if method == "PUT":
            job.state = JobState(json.loads(body)["requestedState"]).name
        return {"id": found["job"], "currentState": job.state}


def _here(graph: Any) -> Any:
    """The graph with workers in this process."""
    copy = beam_runner_api_pb2.Pipeline.FromString(graph.SerializeToString())
    for environment in copy.components.environments.values():
        environment.urn = "beam:env:embedded_python:v1"
        environment.payload = b""
        del environment.dependencies[:]
    return copy


def _metric(counter: Any) -> dict[str, Any]:
    name = counter.key.metric
    context = {"namespace": name.namespace, "step": counter.key.step}
    return {"name": {"origin": "user", "name": name.name, "context": context}, "scalar": counter.result}


def image_of(environment: Any) -> str:
    assert environment.urn == common_urns.environments.DOCKER.urn
    return beam_runner_api_pb2.DockerPayload.FromString(environment.payload).container_image


@contextlib.contextmanager
def dataflow_stand_in(fetch: Callable[[str], bytes]) -> Iterator[StandIn]:
    stand_in = StandIn(fetch)
    stand_in.hold.set()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = _PATH.match(self.path)
            if found and found["job"] and found["job"] not in stand_in.jobs:
                self.send_response(404)
                data = json.dumps({"error": {"code": 404, "message": "not found"}}).encode()
            elif stand_in.busy and self.command == "GET" and found and not found["what"]:
                stand_in.busy -= 1
                self.send_response(429)
                data = json.dumps({"error": {"code": 429, "message": "slow down"}}).encode()
            else:
                data = json.dumps(stand_in.answer(self.command, self.path, body)).encode()
                self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Keeps quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        # Google's client speaks REST, and without encryption, only to a name with localhost in it.
        stand_in.endpoint = f"http://localhost:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield stand_in
        server.shutdown()
        thread.join()
