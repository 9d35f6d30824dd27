"""What engines say of jobs that go on without a command, asked at the place that the command noted.

Places stand in roots, which may be a stranger's: only what has the form of a place of ours is asked, and of
the answer only a state and a reason are taken.
Elsewhere: jobs that a command watches (a module for each engine).
"""

from __future__ import annotations

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
_SECONDS = 10.0
# Of both engines; all other states are of a job that still runs.
_OVER = {"finished": "done", "done": "done", "drained": "done", "failed": "failed"}
_OVER |= {"canceled": "stopped", "cancelled": "stopped", "updated": "stopped"}


@dataclass(frozen=True)
class DetachedState:
    """How a detached job is.

    Attributes:
        state: "running", "done", "failed", "stopped" (somebody cancelled it), or "unknown" where the engine
            doesn't answer.
        why: what the engine says of it; "" where it says nothing.
    """

    state: str
    why: str = ""


def look_at(place: str) -> DetachedState | None:
    """How the job at a place is; None where nobody can be asked."""
    asks: tuple[tuple[re.Pattern[str], Callable[..., DetachedState]], ...] = (
        (_FLINK, _on_flink),
        (_DATAFLOW, _on_dataflow),
    )
    for pattern, ask in asks:
        if found := pattern.fullmatch(place):
            return ask(*found.groups())
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


def _on_dataflow(region: str, job_id: str, project: str) -> DetachedState:
    try:
        from google.api_core.exceptions import GoogleAPIError, NotFound
        from google.auth.exceptions import GoogleAuthError
        from google.cloud import dataflow
    except ImportError:
        return DetachedState(
            "unknown", "Dataflow can't be asked: its client is not installed; logloom[gcp] brings it"
        )
    request = dataflow.GetJobRequest(project_id=project, job_id=job_id, location=region)
    try:
        found = _dataflow_client().get_job(request, timeout=_SECONDS)
    except NotFound:
        return DetachedState("failed", f"Dataflow knows nothing of job {job_id}")
    except (GoogleAPIError, GoogleAuthError, OSError) as error:
        return DetachedState(
            "unknown", f"Dataflow doesn't answer: {type(error).__name__}{_first_line(str(error))}"
        )
    name = found.current_state.name.removeprefix("JOB_STATE_").lower()
    state = _OVER.get(name, "running")
    return DetachedState(state, f"job {job_id} {name}" if state != "running" else "")


def _dataflow_client() -> Any:
    from google.cloud import dataflow

    return dataflow.JobsV1Beta3Client()


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0][:300]
    return f": {line}" if line else ""
