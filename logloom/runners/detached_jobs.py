"""States of detached jobs, requested from engines at the place that the command recorded.

Places stand in roots, which may be a stranger's: only what has the form of a place of ours is asked, and of
the answer only a state and a reason are taken.
Here: `look_at`, and `place_on_dataflow`, which such a place is made by.
Elsewhere: jobs that a command watches (a module for each engine).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from logloom.errors import LogloomError
from logloom.runners.flink.rest import FORGOTTEN, FlinkCluster

_FLINK = re.compile(r"http://((?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5})/#/job/([0-9a-f]{32})")
_DATAFLOW = re.compile(
    r"https://console\.cloud\.google\.com/dataflow/jobs/([a-z0-9-]{1,40})/([\w-]{1,100})"
    r"\?project=([a-z0-9][a-z0-9.:-]{0,80})"
)
_DATAFLOW_NAMED = re.compile(
    r"https://console\.cloud\.google\.com/dataflow/jobs\?project=([a-z0-9][a-z0-9.:-]{0,80})"
    r"&region=([a-z0-9-]{1,40})&name=([a-z][a-z0-9-]{0,200})"
)
_SECONDS = 10.0
_MAX_LISTED = 50  # jobs of one name
# Of both engines; all other states are of a job that still runs.
_OVER = {"finished": "done", "done": "done", "drained": "done", "failed": "failed"}
_OVER |= {"canceled": "stopped", "cancelled": "stopped", "updated": "stopped"}


@dataclass(frozen=True)
class DetachedState:
    """State of a detached job.

    Attributes:
        state: "running", "done", "failed", "stopped" (it was cancelled), or "unknown" if the engine doesn't
            answer.
        why: the engine's message; "" if there is none.
    """

    state: str
    why: str = ""


def look_at(place: str) -> DetachedState | None:
    """Return the state of the job at a place; None if no engine can be asked."""
    requests: tuple[tuple[re.Pattern[str], Callable[..., DetachedState]], ...] = (
        (_FLINK, _on_flink),
        (_DATAFLOW, _on_dataflow),
        (_DATAFLOW_NAMED, _on_dataflow_by_name),
    )
    for pattern, request in requests:
        if found := pattern.fullmatch(place):
            return request(*found.groups())
    return None


def _on_flink(address: str, job_id: str) -> DetachedState:
    cluster = FlinkCluster(address)
    try:
        job = cluster.job(job_id)
        if job is None:
            return DetachedState("failed", f"{cluster.url} knows nothing of the job: {FORGOTTEN}")
        state = _OVER.get(job.state.lower(), "running")
        why = cluster.why_failed(job) if state == "failed" else ""
    except LogloomError as error:
        return DetachedState("unknown", f"the cluster doesn't answer: {error}")
    return DetachedState(
        state, f"job {job_id} {job.state.lower()}{_first_line(why)}" if state != "running" else ""
    )


def place_on_dataflow(project: str, region: str, *, job_id: str = "", name: str = "") -> str:
    """The page of a job; of one whose id isn't known, that of all jobs, with its name."""
    pages = "https://console.cloud.google.com/dataflow/jobs"
    if job_id:
        return f"{pages}/{region}/{job_id}?project={project}"
    return f"{pages}?project={project}&region={region}&name={name}"


def _on_dataflow(region: str, job_id: str, project: str) -> DetachedState:
    def call(dataflow: Any) -> Any:
        request = dataflow.GetJobRequest(project_id=project, job_id=job_id, location=region)
        return _dataflow_client().get_job(request, timeout=_SECONDS)

    return _request_dataflow(call, f"job {job_id}")


def _on_dataflow_by_name(project: str, region: str, name: str) -> DetachedState:
    """How the last job of a name is, which the launcher of a flex template gives without knowing its id."""

    def call(dataflow: Any) -> Any:
        request = dataflow.ListJobsRequest(
            project_id=project, location=region, name=name, page_size=_MAX_LISTED
        )
        listed = _dataflow_client().list_jobs(request, timeout=_SECONDS)
        jobs = itertools.islice(listed, _MAX_LISTED)
        return max((job for job in jobs if job.name == name), key=lambda job: job.create_time, default=None)

    return _request_dataflow(call, f"job {name}")


def _request_dataflow(call: Callable[[Any], Any], what: str) -> DetachedState:
    try:
        from google.api_core.exceptions import GoogleAPIError, NotFound
        from google.auth.exceptions import GoogleAuthError
        from google.cloud import dataflow
    except ImportError:
        return DetachedState(
            "unknown", "Dataflow can't be asked: its client is not installed; logloom[gcp] brings it"
        )
    try:
        found = call(dataflow)
    except NotFound:
        found = None
    except (GoogleAPIError, GoogleAuthError, OSError) as error:
        return DetachedState(
            "unknown", f"Dataflow doesn't answer: {type(error).__name__}{_first_line(str(error))}"
        )
    if found is None:
        return DetachedState("failed", f"Dataflow knows nothing of {what}")
    name = found.current_state.name.removeprefix("JOB_STATE_").lower()
    state = _OVER.get(name, "running")
    return DetachedState(state, f"{what} {name}" if state != "running" else "")


def _dataflow_client() -> Any:
    from google.cloud import dataflow

    return dataflow.JobsV1Beta3Client()


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0][:300]
    return f": {line}" if line else ""
