"""Builds on Dataflow, up to the wire and behind it: Google's client submits, the graph it staged is run."""

import json
import pathlib
import re
import time

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud.dataflow import JobsV1Beta3Client, JobType

from logloom.errors import LogloomError, UsageError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage.store import Store
from logloom.pipelines import status
from logloom.pipelines.build import build as job
from logloom.pipelines.dataflow import template
from logloom.pipelines.plan.plan import plan_build
from logloom.runners import RunnerOptions, Size, dataflow, engine
from logloom.runners.dataflow import detached_job
from logloom.transforms.build.settings import BuildSettings
from tests.pipelines.conftest import digests
from tests.stores.dataflow import dataflow_stand_in, image_of

pytestmark = pytest.mark.engines

FOLDER = pathlib.Path(dataflow.__file__).parent
IMAGE = "europe-docker.pkg.dev/p/logloom/worker:1"


@pytest.fixture
def bucket(gcs):
    return gcs.bucket(f"dataflow-{len(gcs.fs.ls(''))}")


@pytest.fixture
def service(gcs, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.options["endpoint_url"])
    with dataflow_stand_in(gcs.fs.cat_file) as stand_in:
        yield stand_in


@pytest.fixture
def source(drive, gcs, bucket):
    """The drive with its logs in the bucket."""
    for log in drive.logs:
        gcs.fs.put_file(str(log), f"{bucket}/logs/{log.name}")
    return type(drive)(drive.logs, drive.text.replace(str(drive.logs[0].parent), f"{bucket}/logs"))


def options(bucket, service, **changes):
    settings = {
        "project": "p",
        "region": "europe-west4",
        "staging": f"{bucket}/staging/",
        "sdk_container_image": IMAGE,
        "machine_type": "n2-standard-8",
        "service_account_email": "weaver@p.iam.gserviceaccount.com",
        "dataflow_endpoint": service.endpoint,
        "no_auth": "",
    }
    return RunnerOptions("dataflow", workers=50, settings=settings | changes)


def ended(served):
    """The state of a job once it has ended."""
    until = time.monotonic() + 60
    while served.state in ("JOB_STATE_PENDING", "JOB_STATE_RUNNING") and time.monotonic() < until:
        time.sleep(0.1)
    return served.state


def plan(source, gcs, bucket, **choices):
    return plan_build(source.recipe(), f"{bucket}/root", storage_options=gcs.storage_options, **choices)


def test_a_detached_job_commits_without_this_process(source, gcs, bucket, service):
    service.hold.clear()
    submitted = job.submit(plan(source, gcs, bucket), options(bucket, service))
    assert submitted.engine_id in service.jobs
    assert submitted.place.endswith(f"{submitted.engine_id}?project=p")
    service.hold.set()
    served = service.jobs[submitted.engine_id]
    assert ended(served) == "JOB_STATE_DONE"
    assert read_manifest(Store.at(f"{bucket}/root", gcs.storage_options)).version == 1


def test_the_graph_that_was_staged_builds_the_bytes_of_a_local_build(source, gcs, bucket, service, tmp_path):
    told = []
    done = job.build(plan(source, gcs, bucket), runner=options(bucket, service), on_message=told.append)
    assert done.manifest.version == 1
    assert done.counters["rows"] == done.manifest.totals["rows"]
    (job_id,) = service.jobs
    assert told[0].startswith(
        f"job {job_id}: https://console.cloud.google.com/dataflow/jobs/europe-west4/{job_id}"
    )
    assert f"job {job_id}: a worker was slow to start" in told
    assert told[-1] == f"job {job_id}: done"
    job.build(plan_build(source.recipe(), str(tmp_path / "root"), storage_options=gcs.storage_options))
    here = {name for name in digests(tmp_path / "root") if not name.startswith("v0")}
    there = gcs.objects(f"{bucket}/root")
    own = {name for name in there if not name.startswith(("runs/", "index/")) and ".times." not in name}
    assert own == here
    assert all((tmp_path / "root" / name).read_bytes() == there[name] for name in here)


def test_the_job_says_what_was_asked_for_and_stages_what_workers_need(source, gcs, bucket, service):
    job.build(plan(source, gcs, bucket), runner=options(bucket, service))
    (served,) = service.jobs.values()
    assert (served.project, served.region) == ("p", "europe-west4")
    assert served.sent["name"].startswith("logloom-demo-v1-")
    assert served.sent["type"] == JobType.JOB_TYPE_BATCH
    (pool,) = served.sent["environment"]["workerPools"]
    assert pool["machineType"] == "n2-standard-8"
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 50
    assert served.sent["environment"]["serviceAccountEmail"] == "weaver@p.iam.gserviceaccount.com"
    environments = served.graph.components.environments.values()
    assert {image_of(environment) for environment in environments} == {IMAGE}
    steps = {transform.unique_name for transform in served.graph.components.transforms.values()}
    assert {"BuildLogs/BuildPartition", "BuildLogs/ReadBack", "CommitVersion/Commit"} <= steps
    staged = [name for name in gcs.objects(bucket) if name.startswith("staging/staging/")]
    assert any(name.endswith("/pipeline.pb") for name in staged)
    assert not any("main_session" in name for name in staged)


def test_a_failure_on_a_worker_is_the_error_of_a_local_build(source, gcs, bucket, service):
    planned = plan(source, gcs, bucket)
    damaged = f"{bucket}/logs/{source.logs[0].name}"
    data = bytearray(gcs.fs.cat_file(damaged))
    data[len(data) // 2] ^= 0xFF
    gcs.fs.pipe_file(damaged, bytes(data))
    with pytest.raises(Exception, match=source.logs[0].name) as error:
        job.build(planned, runner=options(bucket, service))
    assert type(error.value).__module__ == "logloom.errors"
    assert not Store.at(f"{bucket}/root", gcs.storage_options).names("versions")


def test_a_look_at_a_busy_dataflow_is_retried(source, gcs, bucket, service, monkeypatch):
    monkeypatch.setattr(engine, "RETRY_EVERY", 0.1)
    service.busy = 3
    done = job.build(plan(source, gcs, bucket), runner=options(bucket, service))
    assert done.manifest.version == 1
    (served,) = service.jobs.values()
    assert (served.state, service.busy) == ("JOB_STATE_DONE", 0)


def test_interrupting_the_wait_cancels_the_job(source, gcs, bucket, service):
    service.hold.clear()

    def interrupt(text):
        if text.endswith(": running"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.build(plan(source, gcs, bucket), runner=options(bucket, service), on_message=interrupt)
    (served,) = service.jobs.values()
    assert served.state == "JOB_STATE_CANCELLED"


def test_a_job_that_somebody_cancels_is_an_error_with_the_way_out(source, gcs, bucket, service):
    service.hold.clear()

    def cancel(text):
        if text.endswith(": running"):
            (served,) = service.jobs.values()
            served.state = "JOB_STATE_CANCELLED"

    words = r"cancelled: see https://.*\nBuild again: finished units are kept"
    with pytest.raises(LogloomError, match=words):
        job.build(plan(source, gcs, bucket), runner=options(bucket, service), on_message=cancel)


def test_a_requirements_file_is_staged_for_the_workers(source, gcs, bucket, service, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("einops==0.8.0\n")
    chosen = options(bucket, service, requirements_file=str(file), requirements_cache="skip")
    assert "requirements.txt" in job.dry_run(plan(source, gcs, bucket), chosen)["staged"]
    submitted = job.submit(plan(source, gcs, bucket), chosen)
    staged = [data for name, data in gcs.objects(bucket).items() if name.endswith("/requirements.txt")]
    assert staged == [file.read_bytes()]
    assert ended(service.jobs[submitted.engine_id]) == "JOB_STATE_DONE"


@pytest.fixture
def asked(service, monkeypatch):
    """Detached jobs are asked of at the stand-in."""
    monkeypatch.setattr(
        detached_job,
        "_dataflow_client",
        lambda: JobsV1Beta3Client(
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": service.endpoint},
            transport="rest",
        ),
    )


@pytest.mark.usefixtures("asked")
def test_a_detached_job_is_asked_of_and_has_its_labels(source, gcs, bucket, service):
    service.hold.clear()
    planned = plan(source, gcs, bucket, settings=BuildSettings(labels={"team": "perception"}))
    submitted = job.submit(planned, options(bucket, service))
    served = service.jobs[submitted.engine_id]
    assert served.sent["labels"] == {
        "team": "perception",
        "logloom-dataset": "demo",
        "logloom-version": "1",
    }

    def told():
        (one,) = status.builds(planned.job.store)
        assert one.labels == {"team": "perception"}
        return one.state, one.problem

    assert told() == ("running", "")
    service.busy = 1000
    assert told()[0] == "unknown"
    service.busy = 0
    served.state = "JOB_STATE_CANCELLED"
    assert told() == ("stopped", f"job {submitted.engine_id} cancelled; it committed nothing. Build again")
    service.jobs.clear()
    assert told()[0] == "failed"


def test_a_dry_run_shows_the_job_and_submits_nothing(source, gcs, bucket, service):
    shown = job.dry_run(plan(source, gcs, bucket), options(bucket, service))
    assert (shown["project"], shown["region"], shown["images"]) == ("p", "europe-west4", [IMAGE])
    assert shown["staging_location"].startswith(f"{bucket}/staging/staging")
    assert shown["options"]["machine_type"] == "n2-standard-8"
    assert {"BuildLogs", "CommitVersion"} <= set(shown["steps"])
    assert service.jobs == {}
    assert not gcs.fs.exists(f"{bucket}/staging")
    json.dumps(shown)


def test_what_dataflow_needs_is_asked_for_at_once():
    with pytest.raises(UsageError, match=r"needs --project, --staging gs://.*, --sdk-container-image IMAGE"):
        job.run(lambda pipeline: None, RunnerOptions("dataflow", settings={"region": "r"}), Size(), name="x")


def test_a_local_root_or_log_is_refused_before_anything_is_submitted(drive, gcs, bucket, service):
    with pytest.raises(UsageError, match="Dataflow's workers don't see this disk; copy it to gs://"):
        job.build(plan(drive, gcs, bucket), runner=options(bucket, service))
    assert service.jobs == {}


def test_a_flex_template_s_launcher_submits_the_same_job(source, gcs, bucket, service):
    gcs.fs.pipe_file(f"{bucket}/recipe.yaml", source.text.encode())
    asked = {"recipe": f"{bucket}/recipe.yaml", "to": f"{bucket}/root", "verify": "none"}
    asked |= {"allow_derive": "labels", "limit": "1", "on_error": "salvage", "hash": "full"}
    asked |= {"log": f"{bucket}/logs/*", "allow_empty": "true", "strict": "true", "py": "/opt/mine/labels.py"}
    asked["storage_options"] = json.dumps(gcs.storage_options)
    asked["labels"] = "team=perception night=2026-11-22"
    parameters = json.loads((FOLDER / "template.json").read_text())["parameters"]
    assert {parameter["name"] for parameter in parameters} == set(asked)
    assert all(re.search(parameter["regexes"][0], asked[parameter["name"]]) for parameter in parameters)
    del asked["py"]  # which is in no image here
    flags = [f"--{name}={value}" for name, value in asked.items()] + ["--runner=DataflowRunner"]
    flags += ["--job_name=weave", f"--staging_location={bucket}/s", f"--temp_location={bucket}/t"]
    flags += ["--project=p", "--region=r", "--no_auth", f"--dataflow_endpoint={service.endpoint}"]
    template.main([*flags, f"--sdk_container_image={IMAGE}", "--sdk_location=container"])
    (served,) = service.jobs.values()
    assert served.sent["name"] == "weave"
    assert served.sent["labels"] == {"team": "perception", "night": "2026-11-22"}
    assert ended(served) == "JOB_STATE_DONE"
    manifest = read_manifest(Store.at(f"{bucket}/root", gcs.storage_options))
    assert manifest.verified == "none"
    assert len(manifest.logs) == 1


@pytest.fixture
def launched(source, gcs, bucket, service):
    """The arguments of a launch of the template."""
    gcs.fs.pipe_file(f"{bucket}/recipe.yaml", source.text.encode())
    flags = [f"--recipe={bucket}/recipe.yaml", f"--to={bucket}/root", "--runner=DataflowRunner"]
    flags += [f"--storage_options={json.dumps(gcs.storage_options)}", "--job_name=weave", "--project=p"]
    flags += [f"--staging_location={bucket}/s", f"--temp_location={bucket}/t", "--region=r", "--no_auth"]
    flags += [f"--dataflow_endpoint={service.endpoint}", f"--sdk_container_image={IMAGE}"]
    return [*flags, "--sdk_location=container", "--allow_derive=labels"]


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("is_named", [False, True])
def test_while_a_job_of_the_template_runs_another_is_refused(is_named, launched, gcs, bucket, service):
    """On Dataflow a launcher writes the job down and never learns its id."""
    service.hold.clear()
    template.main([*launched, *([f"--template_location={bucket}/job"] if is_named else [])])
    if is_named:
        service.create("p", "r", json.loads(gcs.fs.cat_file(f"{bucket}/job")))
    (job_id,) = service.jobs
    told = f"another build of version 1 runs: on dataflow, job {'weave' if is_named else job_id} at https://"
    with pytest.raises(LogloomError, match=told):
        template.main(launched)
    service.hold.set()
    assert ended(service.jobs[job_id]) == "JOB_STATE_DONE"
    assert [one.state for one in status.builds(Store.at(f"{bucket}/root", gcs.storage_options))] == [
        "committed"
    ]


def test_a_launch_of_the_template_that_finds_all_up_to_date_is_a_job_that_succeeds(
    launched, gcs, bucket, service
):
    for number in range(2):
        template.main(launched)
        assert ended(list(service.jobs.values())[number]) == "JOB_STATE_DONE"
    assert [ended(served) for served in service.jobs.values()] == ["JOB_STATE_DONE"] * 2
    first, second = (str(served.sent["name"]) for served in service.jobs.values())
    assert first == second == "weave"
    assert read_manifest(Store.at(f"{bucket}/root", gcs.storage_options)).version == 1


def test_the_image_holds_the_beam_of_the_lock():
    root = FOLDER.parents[2]
    image = (FOLDER / "Dockerfile").read_text()
    (version,) = re.findall(r"^ARG BEAM=(.+)$", image, re.MULTILINE)
    assert f"\napache-beam=={version} " in (root / "requirements.lock").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", image, re.MULTILINE)
    assert all((root / name).exists() for names in copied for name in names.split())
