"""Events of builds for collectors of lineage, and what OpenLineage's own client makes of them.

The classes of openlineage.client are generated from OpenLineage's JSON schema, a field for each property. The
schema itself isn't among them: LOGLOOM_OPENLINEAGE_SPEC is the folder `spec` of OpenLineage's repository.
"""

import http.server
import json
import os
import pathlib
import socket
import threading
import uuid
from importlib.metadata import version

import jsonschema
import pytest
import referencing
from openlineage.client import event_v2, facet_v2
from openlineage.client.serde import Serde

from logloom.errors import LogReadError, UsageError
from logloom.pipelines.build import openlineage
from logloom.pipelines.build.build import build
from logloom.pipelines.build.openlineage import announced
from logloom.pipelines.plan.plan import plan_build
from tests.forking import command

FACETS = {
    "processing_engine": facet_v2.processing_engine_run.ProcessingEngineRunFacet,
    "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
    "schema": facet_v2.schema_dataset.SchemaDatasetFacet,
    "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet,
    "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
}


def as_published(event):
    """An event made of the classes of OpenLineage's schema, as they send it.

    Raises:
        TypeError: a property is missing, or isn't in the schema.
        ValueError: the run's id is no UUID, the kind is unknown, or the time isn't one of ISO 8601.
    """

    def facets(said):
        made = {}
        for name, facet in said.items():
            own = {key: value for key, value in facet.items() if key not in ("_producer", "_schemaURL")}
            if name == "schema":
                field = facet_v2.schema_dataset.SchemaDatasetFacetFields
                own["fields"] = [field(**one) for one in own["fields"]]
            made[name] = FACETS[name](**own, producer=facet["_producer"])
        return made

    def dataset(kind, said):
        return kind(**{key: facets(value) if "acets" in key else value for key, value in said.items()})

    told = {key: value for key, value in event.items() if key != "schemaURL"}
    run, job = event["run"], event["job"]
    made = event_v2.RunEvent(
        **told
        | {
            "eventType": event_v2.RunState(event["eventType"]),
            "run": event_v2.Run(run["runId"], facets(run["facets"])),
            "job": event_v2.Job(job["namespace"], job["name"], facets(job["facets"])),
            "inputs": [dataset(event_v2.InputDataset, one) for one in event["inputs"]],
            "outputs": [dataset(event_v2.OutputDataset, one) for one in event["outputs"]],
        }
    )
    return Serde.to_dict(made)


def without_nothing(said):
    """Without what says nothing, which the classes fill in."""
    if isinstance(said, dict):
        return {key: without_nothing(value) for key, value in said.items() if value not in ({}, [])}
    return [without_nothing(one) for one in said] if isinstance(said, list) else said


@pytest.fixture(scope="session")
def drive(quick_drive):
    return quick_drive


@pytest.fixture
def plan(drive, tmp_path):
    return plan_build(drive.recipe(), str(tmp_path / "root"), limit=1)


class Sent(list):
    """Events; `senders` are what each came with as its sender."""


@pytest.fixture
def collector():
    """An address, the events that were posted there, and the answers that it gives first."""
    events, answers, senders = Sent(), [], []
    events.senders = senders

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code = answers.pop(0) if answers else 201
            if code < 300:
                events.append(json.loads(body))
                senders.append(self.headers.get("Authorization"))
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
    producers = {start["producer"], *(facet["_producer"] for facet in start["run"]["facets"].values())}
    assert producers == {f"pkg:generic/logloom@{version('logloom')}"}
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


def test_events_are_what_the_published_schema_has(plan, tmp_path):
    file = tmp_path / "events.jsonl"
    with announced(plan, str(file), print):
        build(plan, view="none")
    with pytest.raises(LogReadError), announced(plan, str(file), print):
        raise LogReadError("torn")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE", "START", "FAIL"]
    for event in events:
        assert without_nothing(as_published(event)) == without_nothing(event)
    with pytest.raises(TypeError, match="colour"):
        as_published(events[0] | {"colour": "red"})
    with pytest.raises(ValueError, match="badly formed"):
        as_published(events[0] | {"run": {"runId": "7", "facets": {}}})


@pytest.fixture(scope="session")
def fits():
    """Checks an event, or a facet, against the schema that it names."""
    folder = os.environ.get("LOGLOOM_OPENLINEAGE_SPEC")
    if folder is None:
        pytest.skip("LOGLOOM_OPENLINEAGE_SPEC isn't set")
    places = [
        pathlib.Path(folder, "OpenLineage.json"),
        *sorted(pathlib.Path(folder, "facets").glob("*.json")),
    ]
    schemas = [json.loads(place.read_text()) for place in places]
    registry = referencing.Registry().with_contents((schema["$id"], schema) for schema in schemas)

    def check(said, schema):
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        jsonschema.Draft202012Validator({"$ref": schema}, registry=registry, format_checker=checker).validate(
            said
        )

    return check


def test_events_fit_the_published_schema(plan, tmp_path, fits):
    file = tmp_path / "events.jsonl"
    with announced(plan, str(file), print):
        build(plan, view="none")
    with pytest.raises(LogReadError), announced(plan, str(file), print):
        raise LogReadError("torn")
    seen = set()
    for event in map(json.loads, file.read_text().splitlines()):
        fits(event, event["schemaURL"])
        datasets = [facets for one in event["outputs"] for facets in (one["facets"], one["outputFacets"])]
        for facets in (event["run"]["facets"], *datasets):
            for name, facet in facets.items():
                fits(facet, facet["_schemaURL"])
                fits({name: facet}, facet["_schemaURL"].partition("#")[0])
            seen |= facets.keys()
        for wrong in ({"eventType": "BEGUN"}, {"run": {"runId": "7"}}, {"outputs": [{"name": "x"}]}):
            with pytest.raises(jsonschema.ValidationError):
                fits(event | wrong, event["schemaURL"])
    assert seen == FACETS.keys()


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
    assert events[-1]["run"]["facets"]["errorMessage"]["message"] == "interrupted"
    assert not said


def test_a_sender_is_known_by_a_token_or_a_user_of_the_environment(collector, monkeypatch):
    url, events, _ = collector
    for name, value in ((None, ""), (openlineage.USER, "ann:secret"), (openlineage.TOKEN, "t0ken")):
        if name:
            monkeypatch.setenv(name, value)
        openlineage._send(url, {"n": 1}, pytest.fail)
    assert events.senders == [None, "Basic YW5uOnNlY3JldA==", "Bearer t0ken"]


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


def test_an_answer_that_is_no_http_is_a_warning(plan):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def babble():
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"220 smtp.example ready\r\n")

        threading.Thread(target=babble, daemon=True).start()
        said = []
        address = f"http://127.0.0.1:{server.getsockname()[1]}/api"
        openlineage._send(address, openlineage.event(plan, "START"), said.append)
    assert [line.split(": ")[0] for line in said] == ["warning"]
    assert address in said[0]


def test_a_sender_s_token_does_not_follow_a_redirection(monkeypatch):
    """Python's client follows one by a GET."""
    monkeypatch.setenv(openlineage.TOKEN, "hunter2")
    followed = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            followed.append(self.headers.get("Authorization"))
            self.send_response(204)
            self.end_headers()

        def do_POST(self):
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_port}/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        openlineage._post(f"http://127.0.0.1:{server.server_port}/", b"{}")
        server.shutdown()
    assert followed == [None]
