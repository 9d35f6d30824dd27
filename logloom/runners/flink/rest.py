"""REST interface of a standing Flink cluster: its size, and its jobs.

Here: `FlinkCluster`; `look_at`, the state of a detached job (it outlives the command that submitted it).
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from typing import Any

from logloom.errors import LogloomError, UsageError
from logloom.runners.detached_jobs import OVER, DetachedState, first_line
from logloom.values import dataclass

_SECONDS = 10.0
FORGOTTEN = (
    "its job manager was lost, and without high availability (high-availability.type, docs/engines.md) "
    "all jobs with it"
)
_MOST_BYTES = 64 << 20  # of an answer
# A page of a job, where `--detach` leaves it.
_PLACE = re.compile(r"http://((?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5})/#/job/([0-9a-f]{32})")
ENDED = frozenset({"FINISHED", "FAILED", "CANCELED"})


@dataclass(frozen=True)
class ClusterJob:
    """A job as Flink knows it; state is RUNNING, RESTARTING, FINISHED, FAILED, CANCELED, ..."""

    id: str
    name: str
    state: str


@dataclass(frozen=True)
class FlinkCluster:
    """The cluster whose job manager serves REST at `address`, host:port.

    Attributes:
        wanted: Flink's version that jobs are made for; "" where that isn't known.
    """

    address: str
    wanted: str = ""

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def slots(self) -> tuple[int, int]:
        """How many task managers there are, and how many slots they have in all; both may be 0.

        Raises:
            UsageError: no cluster answers, or one of another version than the job server's.
        """
        try:
            overview = self._request("/overview")
            self._check_version(str(overview.get("flink-version", "")))
            managers, slots = int(overview["taskmanagers"]), int(overview["slots-total"])
        except UsageError:
            raise
        except (LogloomError, KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{self.address}: no Flink cluster answers here ({error}); give the address of its page, "
                "which is on port 8081 unless its rest.port is another"
            ) from error
        return managers, slots

    def _check_version(self, version: str) -> None:
        """
        Raises:
            UsageError: jobs made for `wanted` don't run there.
        """
        if self.wanted and version and version.split(".")[:2] != self.wanted.split(".")[:2]:
            raise UsageError(
                f"{self.address}: this cluster is Flink {version}, the job server is for Flink "
                f"{self.wanted}, and jobs of one don't run on another; start a cluster of that version, or "
                "give --flink-job-server-jar for the cluster's"
            )

    def restarts_jobs(self) -> bool:
        """Whether jobs that lose a part of the cluster are started again; true where it doesn't say."""
        try:
            place = f"{self.url}/jobmanager/config"
            with urllib.request.urlopen(place, timeout=_SECONDS) as reply:  # nosec B310 # http
                settings = {item["key"]: item["value"] for item in json.loads(reply.read())}
        except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
            return True
        strategy = settings.get("restart-strategy.type", settings.get("restart-strategy", "none"))
        return strategy not in ("none", "off", "disable")

    def job_named(self, name: str) -> ClusterJob | None:
        """The latest job of this name.

        Raises:
            LogloomError: the cluster doesn't answer.
        """
        jobs = [job for job in self._request("/jobs/overview").get("jobs", ()) if job.get("name") == name]
        if not jobs:
            return None
        latest = max(jobs, key=lambda job: int(job.get("start-time", 0)))
        return ClusterJob(str(latest["jid"]), name, str(latest["state"]))

    def job(self, job_id: str) -> ClusterJob | None:
        """The job of this id; None where the cluster knows none.

        Raises:
            LogloomError: the cluster doesn't answer.
        """
        try:
            found = self._request(f"/jobs/{job_id}")
        except LogloomError as error:
            if isinstance(error.__cause__, urllib.error.HTTPError) and error.__cause__.code == 404:
                return None
            raise
        return ClusterJob(job_id, str(found.get("name", "")), str(found.get("state", "")))

    def why_failed(self, job: ClusterJob) -> str:
        """The exception that ended a job."""
        return str(self._request(f"/jobs/{job.id}/exceptions").get("root-exception", ""))

    def cancel(self, job: ClusterJob) -> None:
        """Asks the cluster to stop a job."""
        self._request(f"/jobs/{job.id}", method="PATCH")

    def _request(self, path: str, method: str = "GET") -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as reply:  # nosec B310 # http
                answer = json.loads(reply.read(_MOST_BYTES) or b"{}")
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise LogloomError(f"{self.url}{path}: {error}") from error
        if not isinstance(answer, dict):
            raise LogloomError(f"{self.url}{path}: not the answer of a Flink cluster")
        return answer


def look_at(place: str) -> DetachedState | None:
    """Return the state of the job at a place; None for a place of another engine."""
    found = _PLACE.fullmatch(place)
    if found is None:
        return None
    address, job_id = found.groups()
    cluster = FlinkCluster(address)
    try:
        job = cluster.job(job_id)
        if job is None:
            return DetachedState("failed", f"{cluster.url} has no record of the job: {FORGOTTEN}")
        state = OVER.get(job.state.lower(), "running")
        why = cluster.why_failed(job) if state == "failed" else ""
    except LogloomError as error:
        return DetachedState("unknown", f"the cluster doesn't answer: {error}")
    return DetachedState(
        state, f"job {job_id} {job.state.lower()}{first_line(why)}" if state != "running" else ""
    )
