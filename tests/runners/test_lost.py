"""Looks at a job that its engine doesn't answer. No engine runs here."""

import contextlib
from types import SimpleNamespace

import pytest
from google.api_core import exceptions

from logloom.errors import LogloomError, UsageError
from logloom.runners import Finished, RunnerOptions, Size
from logloom.runners import engine as running
from logloom.runners.dataflow import engine as dataflow
from logloom.runners.engine import EngineLostError, run
from logloom.runners.flink import engine as flink
from logloom.runners.flink.rest import ClusterJob, FlinkCluster

BUSY = [
    exceptions.TooManyRequests("slow down"),
    exceptions.ServiceUnavailable("busy"),
    exceptions.RetryError("timed out", None),
    ConnectionResetError("reset"),
]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(running, "RETRY_EVERY", 0.01)
    monkeypatch.setattr(running, "RETRY_FOR", 0.2)
    monkeypatch.setattr(dataflow, "_LOOK_EVERY", 0.01)
    monkeypatch.setattr(flink, "_LOOK_EVERY", 0.01)


def answering(*answers):
    """A function that gives or raises these, one a call, and the last one ever after."""
    left = list(answers)

    def answer(*_, **__):
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, BaseException):
            raise found
        return found

    return answer


def state(name):
    return SimpleNamespace(current_state=SimpleNamespace(name=f"JOB_STATE_{name}"))


class Client:
    """Google's client for Dataflow; notes what the job is told to become."""

    def __init__(self, *answers, messages=((), None), metrics=SimpleNamespace(metrics=())):  # noqa: B008
        self.asked_for = []
        self.get_job = answering(*answers)
        self.list_messages = answering(messages)
        self.get_job_metrics = answering(metrics)

    def modify_job_state(self, job_id, wanted):
        self.asked_for.append(wanted)
        self.get_job = answering(state("CANCELLED"))


def run_job(job, monkeypatch, **options):
    """Runs what an engine made this job of."""
    engine = contextlib.nullcontext(SimpleNamespace(submit=lambda construct, name: job))
    monkeypatch.setattr(running, "engine_of", lambda options, size: engine)
    return run(lambda pipeline: None, RunnerOptions(**options), Size(), name="x")


def on_dataflow(client):
    return dataflow.DataflowJob(client, "id", "https://console/id")


@pytest.mark.parametrize("failure", BUSY, ids=lambda failure: type(failure).__name__)
def test_a_look_that_dataflow_does_not_answer_is_repeated(failure, monkeypatch):
    client = Client(state("RUNNING"), failure, failure, state("DONE"), messages=failure, metrics=failure)
    assert run_job(on_dataflow(client), monkeypatch) == Finished("id", {})
    assert client.asked_for == []


def test_a_job_that_dataflow_says_nothing_of_is_lost_and_not_cancelled(monkeypatch):
    client = Client(state("RUNNING"), BUSY[0])
    with pytest.raises(EngineLostError, match=r"https://console/id: Dataflow no longer answers .*slow down"):
        run_job(on_dataflow(client), monkeypatch)
    assert client.asked_for == []


def test_an_interrupted_wait_cancels_the_job_though_dataflow_is_busy(monkeypatch):
    client = Client(KeyboardInterrupt(), BUSY[0], state("RUNNING"))
    with pytest.raises(KeyboardInterrupt):
        run_job(on_dataflow(client), monkeypatch)
    assert client.asked_for == ["JOB_STATE_CANCELLED"]


class Orphan:
    """A job whose job server is gone."""

    job_id = "id"

    def wait(self, tell):
        raise EngineLostError("the job server is gone")

    def raise_if_failed(self):
        """It hasn't."""

    def cancel(self):
        """Nobody listens."""


@pytest.fixture
def on_flink(monkeypatch):
    """Makes a job on a standing cluster that gives these answers; and lists what it is asked to cancel."""
    cancelled = []
    monkeypatch.setattr(FlinkCluster, "restarts_jobs", lambda cluster: True)
    monkeypatch.setattr(FlinkCluster, "cancel", lambda cluster, job: cancelled.append(job.id))

    def make(*answers):
        monkeypatch.setattr(FlinkCluster, "job_named", answering(*answers))
        return flink.FlinkJob(Orphan(), FlinkCluster("flink:8081"), "x", "")

    make.cancelled = cancelled
    return make


REFUSED = LogloomError("http://flink:8081/jobs/overview: HTTP Error 503")
RUNNING, FINISHED = (ClusterJob("id", "x", state) for state in ("RUNNING", "FINISHED"))


def test_a_look_that_a_cluster_does_not_answer_is_repeated(on_flink, monkeypatch):
    assert run_job(on_flink(RUNNING, REFUSED, REFUSED, FINISHED), monkeypatch) == Finished("id", {})
    options = {"flink_master": "flink:8081", "environment": "external", "environment_config": "a:1"}
    submitted = run_job(on_flink(REFUSED, REFUSED, RUNNING), monkeypatch, detach=True, **options)
    assert submitted.engine_id == "id"
    assert on_flink.cancelled == []


@pytest.mark.parametrize("detach", [False, True])
def test_a_job_that_a_cluster_says_nothing_of_is_lost_and_not_cancelled(detach, on_flink, monkeypatch):
    options = {"flink_master": "flink:8081", "environment": "external", "environment_config": "a:1"}
    job = on_flink(*([] if detach else [RUNNING]), *[REFUSED] * 8, RUNNING)
    monkeypatch.setattr(running, "RETRY_FOR", 0.0)
    with pytest.raises(EngineLostError, match=r"the cluster at http://flink:8081 no longer answers .*503"):
        run_job(job, monkeypatch, detach=detach, **options)
    assert on_flink.cancelled == []


def test_an_interrupted_wait_cancels_the_job_though_the_cluster_is_busy(on_flink, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        run_job(on_flink(KeyboardInterrupt(), REFUSED, RUNNING), monkeypatch)
    assert on_flink.cancelled == ["id"]


def test_a_cluster_that_forgot_its_jobs_is_said_to_lack_high_availability(on_flink, monkeypatch):
    with pytest.raises(EngineLostError, match=r"has no record of the job: .* without high availability"):
        run_job(on_flink(RUNNING, None), monkeypatch)
    assert on_flink.cancelled == []


def test_a_cluster_of_another_flink_is_refused_with_both_versions(monkeypatch):
    overview = {"taskmanagers": 1, "slots-total": 2, "flink-version": "1.20.1"}
    monkeypatch.setattr(FlinkCluster, "_request", lambda cluster, path: overview)
    with pytest.raises(UsageError, match=r"is Flink 1\.20\.1, the job server is for Flink 1\.19"):
        flink.Flink(RunnerOptions(flink_master="localhost:8081"), Size())
    overview["flink-version"] = "1.19.3"
    flink.Flink(RunnerOptions(flink_master="localhost:8081"), Size())


def test_jobs_of_dataflow_have_labels_of_their_own():
    assert dataflow.own_labels("logloom-urban-nights-v7-0a1b2c") == [
        "logloom-dataset=urban-nights",
        "logloom-version=7",
    ]
