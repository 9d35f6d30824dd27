"""Events of builds for collectors of lineage."""

import http.server
import json
import threading
import uuid

import pytest

from logloom.errors import LogReadError, UsageError
from logloom.pipelines import openlineage
from logloom.pipelines.build import build
from logloom.pipelines.openlineage import announced
from logloom.pipelines.plan import plan_build
from tests.pipelines.conftest import command


@pytest.fixture
def plan(drive, tmp_path):
    return plan_build(drive.recipe(), str(tmp_path / "root"), limit=1)


@pytest.fixture
def collector():
    """An address, the events that were posted there, and the answers that it gives first."""
    events, answers = [], []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code = answers.pop(0) if answers else 201
            if code < 300:
                events.append(json.loads(body))
            self.send_response(code)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/api/v1/lineage", events, answers
        server.shutdown()
        thread.join()


def test_a_build_adds_its_start_and_its_end_to_a_file(plan, tmp_path, drive):
    file, said = tmp_path / "events.jsonl", []
    with announced(plan, str(file), said.append):
        built = build(plan, view="none")
    start, end = map(json.loads, file.read_text().splitlines())
    assert not said
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"] == str(uuid.UUID(start["run"]["runId"]))
    assert start["schemaURL"] == "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
    (pattern,) = start["inputs"]
    assert pattern == {"namespace": "file", "name": plan.sources[0], "facets": {}}
    assert pattern["name"].startswith(str(drive.logs[0].parent))
    (output,) = end["outputs"]
    assert (output["namespace"], output["name"]) == ("file", str(tmp_path / "root"))
    names = [field["name"] for field in output["facets"]["schema"]["fields"]]
    assert names == list(plan.job.schema.columns)
    assert output["facets"]["version"]["datasetVersion"] == "1"
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == built.manifest.totals["rows"]
    assert "outputStatistics" not in start["outputs"][0]["outputFacets"]
    with announced(plan_build(drive.recipe(), str(tmp_path / "root"), limit=1), str(file), said.append):
        pass
    *_, again, done = map(json.loads, file.read_text().splitlines())
    assert (again["eventType"], done["eventType"]) == ("START", "COMPLETE")
    assert done["run"]["runId"] == again["run"]["runId"] != end["run"]["runId"]
    assert done["outputs"] == end["outputs"]  # the version that says all that a new one would


def test_a_build_that_fails_says_so_and_why(plan, tmp_path):
    file = tmp_path / "events.jsonl"
    with pytest.raises(LogReadError), announced(plan, str(file), print):
        raise LogReadError("torn; see https://me:secret@host/x")
    last = json.loads(file.read_text().splitlines()[-1])
    assert last["eventType"] == "FAIL"
    assert last["run"]["facets"]["errorMessage"]["message"] == "LogReadError: torn; see https://host/x"


def test_events_are_posted_again_where_the_collector_was_busy(plan, collector, monkeypatch):
    url, events, answers = collector
    monkeypatch.setattr(openlineage, "WAITS", (0.0, 0.0))
    answers += [503, 429]
    said = []
    with pytest.raises(KeyboardInterrupt), announced(plan, url, said.append):
        raise KeyboardInterrupt
    assert [event["eventType"] for event in events] == ["START", "FAIL"]
    assert not said


def test_a_collector_that_refuses_or_is_not_there_is_a_warning(plan, collector, tmp_path, monkeypatch):
    url, events, answers = collector
    monkeypatch.setattr(openlineage, "WAITS", (0.0,))
    answers += [400, 500, 500]
    said = []
    for target in (url, url, "http://127.0.0.1:9/none", str(tmp_path / "no" / "such" / "folder")):
        openlineage._send(target, {}, said.append)
    assert len(said) == 4
    assert all("no OpenLineage event could be sent" in warning for warning in said)
    assert not events
    with pytest.raises(UsageError, match="expected an http"), announced(plan, "gs://bucket/x", said.append):
        pass


def test_buckets_are_namespaces():
    assert openlineage._named("gs://bucket/a/b") == {"namespace": "gs://bucket", "name": "a/b"}
    assert openlineage._named("/data/urban") == {"namespace": "file", "name": "/data/urban"}


def test_the_command_sends_them(drive, tmp_path):
    (tmp_path / "drive.yaml").write_text(drive.text)
    file = tmp_path / "events.jsonl"
    arguments = ("build", str(tmp_path / "drive.yaml"), "--to", str(tmp_path / "root"), "--limit", "1")
    assert command(*arguments, "--openlineage", str(file), "--verify", "none").returncode == 0
    assert len(file.read_text().splitlines()) == 2
