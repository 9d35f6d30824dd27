"""The engine Google Cloud Dataflow: jobs submitted by Beam's client and watched.

What workers run in is an image that holds logloom (the Dockerfile beside this module). How a job is described
before it is submitted: `describe`. Elsewhere: the flex template, docs/howto/dataflow.md.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Set
from typing import Any, Self, TypeVar

from logloom.errors import LogloomError, UsageError
from logloom.extras import beam_needed, needed
from logloom.runners.dataflow.detached_job import place_of
from logloom.runners.engine import Construct, EngineLostError, JobFailedError, retried
from logloom.runners.options import Finished, RunnerOptions, Size, Submitted
from logloom.text import OnMessage

T = TypeVar("T")

_LOOK_EVERY = 2.0  # seconds; a look is three requests
_EXPLAINED_WITHIN = 30.0  # seconds after its end until a failed job says why
_CANCELLED_WITHIN = 60.0
# Of each process; a machine has one for each core. They share one memory for rows: while one computes, others
# wait for the store, and more than a few would only wait for memory.
_THREADS = 4
_FOLDER = re.compile(r"gs://[a-z0-9][-_.a-z0-9]+[a-z0-9]/[^\r\n]*")
_WAY_OUT = {
    "project": "--project",
    "region": "--region",
    "staging": "--staging gs://BUCKET/FOLDER",
    "sdk_container_image": "--sdk-container-image IMAGE (it contains logloom; see docs/howto/dataflow.md)",
}


class Dataflow:
    """Submits to Dataflow; nothing is started here."""

    def __init__(self, options: RunnerOptions, size: Size):
        settings = dict(options.settings)
        missing = [how for name, how in _WAY_OUT.items() if not settings.get(name)]
        if missing:
            raise UsageError(f"Dataflow needs {', '.join(missing)}")
        staging = str(settings.pop("staging")).rstrip("/")
        for name in ("staging_location", "temp_location"):
            settings.setdefault(name, f"{staging}/{name.removesuffix('_location')}")
            _check_folder(str(settings[name]), name if name in options.settings else "--staging")
        settings.setdefault("sdk_location", "container")
        settings.setdefault("number_of_worker_harness_threads", str(_THREADS))
        if options.workers is not None:
            settings.setdefault("max_num_workers", str(options.workers))
        self._settings = RunnerOptions("dataflow", settings=settings)
        with beam_needed():
            from logloom.runners.beam_pipeline import refuse_ignored
        refuse_ignored(options.beam_flags(), "dataflow")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing was started."""

    def submit(self, construct: Construct, name: str) -> DataflowJob:
        result = self._run(construct, name, [])
        return DataflowJob(result._runner.dataflow_client, result.job_id(), self._place(result.job_id()))

    def describe(self, construct: Construct, name: str) -> dict[str, Any]:
        """What would be submitted: the job's options, steps, image and the files that would be staged.

        Requests nothing, neither of Dataflow nor credentials; so packages that a requirements file names,
        which Beam would download and stage, are not among the files.
        """
        own = {"dry_run": "True"}
        if "requirements_cache" not in self._settings.settings:
            own["requirements_cache"] = "skip"
        job = self._run(construct, name, [f"--{option}={value}" for option, value in own.items()]).job
        return _described(job, {*own, "job_name"})

    def _run(self, construct: Construct, name: str, more: list[str]) -> Any:
        from apache_beam.options.pipeline_options import PipelineOptions

        from logloom.runners.beam_pipeline import dependencies_in, new_pipeline, refuse_unknown

        with needed("Dataflow's client", "gcp"):
            from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
            from google.cloud import dataflow  # noqa: F401
        labels = [f"--labels={label}" for label in own_labels(name)]
        flags = [f"--job_name={name}", *more, *labels, *self._settings.beam_flags()]
        refuse_unknown(flags)
        try:
            options = PipelineOptions(flags, save_main_session=False)
            pipeline = new_pipeline(DataflowRunner(), options)
        except (SystemExit, ValueError) as error:  # Beam's parser has said on stderr which option it refuses
            raise UsageError(f"Beam refuses an option for Dataflow: {error}") from None
        construct(pipeline)
        with tempfile.TemporaryDirectory() as staged, dependencies_in(pathlib.Path(staged)), _explained():
            return pipeline.run()

    def _place(self, job_id: str) -> str:
        settings = self._settings.settings
        return place_of(str(settings["project"]), str(settings["region"]), job_id=job_id)


def own_labels(name: str) -> list[str]:
    """Labels that every job gets, to find and bill jobs by: `logloom-dataset=urban`, `logloom-version=7`.

    Args:
        name: of the job, as logloom.pipelines.build.build makes it.
    """
    found = re.fullmatch(r"logloom-(.+)-v(\d+)-[^-]+", name)
    if found is None:
        return [f"logloom-job={name[:63]}"]
    return [f"logloom-dataset={found[1][:63]}", f"logloom-version={found[2]}"]


def _check_folder(uri: str, option: str) -> None:
    """Beam would stage in a bucket that it makes, and say nothing."""
    if not _FOLDER.fullmatch(uri):
        raise UsageError(f"{option}: {uri!r} is no folder of a bucket; expected gs://BUCKET/FOLDER")


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Google's refusals as errors that say what was refused."""
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except GoogleAuthError as error:
        raise LogloomError(f"Dataflow: no credentials: {error}") from error
    except _refusals() as error:
        raise LogloomError(f"Dataflow refused: {type(error).__name__}: {error}") from error


def _refusals() -> tuple[type[Exception], ...]:
    """What Google's client raises where it gets no answer, or none that it likes."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    return (GoogleAPIError, GoogleAuthError, OSError)


class DataflowJob:
    """A job on Dataflow."""

    def __init__(self, client: Any, job_id: str, place: str):
        self.job_id = job_id
        self._client = client
        self._place = place
        self._seen: set[str] = set()  # ids of messages
        self._errors: list[str] = []

    def wait(self, on_message: OnMessage) -> Finished:
        """Wait for the end; report every change of state, and warnings.

        Raises:
            EngineLostError: Dataflow doesn't say how the job is.
            JobFailedError: the job failed or was cancelled; holds what Dataflow says of it.
        """
        on_message(f"job {self.job_id}: {self._place}")
        before = ""
        while (state := self._state()) not in _ENDED:
            if state != before:
                on_message(f"job {self.job_id}: {state}")
                before = state
            self._listen(on_message)
            time.sleep(_LOOK_EVERY)
        on_message(f"job {self.job_id}: {state}")
        if state != "done":
            raise JobFailedError(f"job {self.job_id} {state}: {self._reasons(state, on_message)}")
        return Finished(self.job_id, self._counters())

    def _reasons(self, state: str, on_message: OnMessage) -> str:
        until = time.monotonic() + _EXPLAINED_WITHIN
        self._listen(on_message)
        while state == "failed" and not self._errors and time.monotonic() < until:
            time.sleep(_LOOK_EVERY)
            self._listen(on_message)
        return "\n".join(self._errors) or f"see {self._place}"

    def detached(self) -> Submitted:
        return Submitted(self.job_id, self.job_id, self._place)

    def cancel(self) -> None:
        """Asks Dataflow to stop the job, and waits until it has."""
        with contextlib.suppress(Exception):  # the error that made us cancel says more
            if self._state() in _ENDED:
                return
            self._retried(lambda: self._client.modify_job_state(self.job_id, "JOB_STATE_CANCELLED"))
            until = time.monotonic() + _CANCELLED_WITHIN
            while self._state() not in _ENDED and time.monotonic() < until:
                time.sleep(_LOOK_EVERY)

    def _retried(self, look: Callable[[], T]) -> T:
        return retried(look, _refusals(), f"{self._place}: Dataflow")

    def _state(self) -> str:
        """The state as one word in small letters."""
        state = self._retried(lambda: self._client.get_job(self.job_id)).current_state
        return "unknown" if state is None else str(state.name).removeprefix("JOB_STATE_").lower()

    def _listen(self, on_message: OnMessage) -> None:
        """Takes what is new among the messages; without an answer the next look brings it."""
        with contextlib.suppress(*_refusals()):
            self._take_messages(on_message)

    def _take_messages(self, on_message: OnMessage) -> None:
        token = None
        while True:
            messages, token = self._client.list_messages(
                self.job_id, page_token=token, minimum_importance="JOB_MESSAGE_WARNING"
            )
            for message in messages:
                if message.id in self._seen:
                    continue
                self._seen.add(message.id)
                if message.message_importance.name == "JOB_MESSAGE_ERROR":
                    self._errors.append(message.message_text)
                else:
                    on_message(f"job {self.job_id}: {message.message_text}")
            if not token:
                return

    def _counters(self) -> dict[str, int]:
        """logloom's counters by name, over all steps; empty where Dataflow doesn't say."""
        sums: Counter[str] = Counter()
        try:
            metrics = self._retried(lambda: self._client.get_job_metrics(self.job_id)).metrics
        except EngineLostError:
            return {}
        for metric in metrics:
            context = dict(metric.name.context)
            if context.get("namespace") == "logloom" and "tentative" not in context:
                sums[metric.name.name] += int(metric.scalar)
        return dict(sums)


_ENDED = {"done", "failed", "cancelled", "drained", "updated", "stopped"}


def _described(job: Any, hidden: Set[str]) -> dict[str, Any]:
    from apache_beam.portability.api import beam_runner_api_pb2

    components = job.proto_pipeline.components
    environments = components.environments.values()
    payloads = [beam_runner_api_pb2.DockerPayload.FromString(e.payload) for e in environments]
    google = job.google_cloud_options
    return {
        "job": google.job_name,
        "project": google.project,
        "region": google.region,
        "staging_location": google.staging_location,
        "temp_location": google.temp_location,
        "images": sorted({payload.container_image for payload in payloads}),
        "staged": sorted(_staged_name(dep) for e in environments for dep in e.dependencies),
        "options": {
            name: value
            for name, value in sorted(job.options.get_all_options(drop_default=True).items())
            if name not in hidden
        },
        "steps": sorted(
            {t.unique_name.split("/", 1)[0] for t in components.transforms.values() if t.unique_name}
        ),
        "graph_bytes": job.proto_pipeline.ByteSize(),
    }


def _staged_name(dependency: Any) -> str:
    from apache_beam.portability.api import beam_runner_api_pb2

    payload = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(dependency.role_payload)
    return str(payload.staged_name)
