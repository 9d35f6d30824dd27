"""State of a detached Dataflow job, which outlives the command that submitted it.

Here: `look_at`, which asks Dataflow about the job at a place (the URL of a console page); `place_of`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

from logloom.runners.detached_jobs import OVER, DetachedState, first_line

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


def look_at(place: str) -> DetachedState | None:
    """How the job at a place is; None for a place of another engine."""
    if found := _DATAFLOW.fullmatch(place):
        return _on_dataflow(*found.groups())
    if found := _DATAFLOW_NAMED.fullmatch(place):
        return _on_dataflow_by_name(*found.groups())
    return None


def place_of(project: str, region: str, *, job_id: str = "", name: str = "") -> str:
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
            "unknown", "Dataflow can't be reached: its client is not installed; logloom[gcp] brings it"
        )
    try:
        found = call(dataflow)
    except NotFound:
        found = None
    except (GoogleAPIError, GoogleAuthError, OSError) as error:
        return DetachedState(
            "unknown", f"Dataflow doesn't answer: {type(error).__name__}{first_line(str(error))}"
        )
    if found is None:
        return DetachedState("failed", f"Dataflow has no record of {what}")
    name = found.current_state.name.removeprefix("JOB_STATE_").lower()
    state = OVER.get(name, "running")
    return DetachedState(state, f"{what} {name}" if state != "running" else "")


def _dataflow_client() -> Any:
    from google.cloud import dataflow

    return dataflow.JobsV1Beta3Client()
