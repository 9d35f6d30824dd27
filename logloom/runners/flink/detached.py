"""How jobs on Flink are that go on without a command."""

from __future__ import annotations

import re

from logloom.errors import LogloomError
from logloom.runners.detached_jobs import OVER, DetachedState, first_line
from logloom.runners.flink.rest import FORGOTTEN, FlinkCluster

_FLINK = re.compile(r"http://((?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5})/#/job/([0-9a-f]{32})")


def look_at(place: str) -> DetachedState | None:
    """How the job at a place is; None for a place of another engine."""
    found = _FLINK.fullmatch(place)
    if found is None:
        return None
    address, job_id = found.groups()
    cluster = FlinkCluster(address)
    try:
        job = cluster.job(job_id)
        if job is None:
            return DetachedState("failed", f"{cluster.url} knows nothing of the job: {FORGOTTEN}")
        state = OVER.get(job.state.lower(), "running")
        why = cluster.why_failed(job) if state == "failed" else ""
    except LogloomError as error:
        return DetachedState("unknown", f"the cluster doesn't answer: {error}")
    return DetachedState(
        state, f"job {job_id} {job.state.lower()}{first_line(why)}" if state != "running" else ""
    )
