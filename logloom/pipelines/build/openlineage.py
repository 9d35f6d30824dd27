"""Events of builds for collectors of lineage, in the format of OpenLineage 2-0-2.

Here: the START, COMPLETE and FAIL events of a build, and sending them to a file or a URL. A collector that
can't be reached never makes a build fail.
Elsewhere: lineage of single values (logloom.pipelines.head.why).
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.client
import json
import os
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from logloom.errors import UsageError, after_commit
from logloom.io.catalog.manifest import Manifest, read_manifest
from logloom.io.catalog.version_files import version_file
from logloom.io.storage.filesystems import absolute_uri
from logloom.io.storage.remote.retries import WAITS
from logloom.pipelines.plan.build_plan import BuildPlan
from logloom.schema import Schema
from logloom.software import software
from logloom.text import OnMessage, why_ended
from logloom.uris import is_local, shown

_SPEC = "https://openlineage.io/spec"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_MAX_INPUTS = 100
_TIMEOUT_S = 10.0
TOKEN = "OPENLINEAGE_API_KEY"  # as for OpenLineage's own client
USER = "LOGLOOM_OPENLINEAGE_USER"  # "name:password"


@contextlib.contextmanager
def announced(plan: BuildPlan, target: str | None, on_message: OnMessage) -> Iterator[None]:
    """Sends START before a build, and COMPLETE or FAIL after it.

    Args:
        target: a URL, to which each event is posted, or a file, to which it is added as a line of JSON; None
            for nowhere. What can't be sent is a message.

    Raises:
        UsageError: the target is neither.
    """
    if target is None:
        yield
        return
    if not (is_local(target) or target.startswith(("http://", "https://"))):
        raise UsageError(f"--openlineage {shown(target)}: expected an http:// or https:// URL, or a file")
    _send(target, event(plan, "START"), on_message)
    try:
        yield
    except BaseException as error:
        _send(target, event(plan, "FAIL", problem=why_ended(error)), on_message)
        raise
    with after_commit(f"the version of {plan.job.store.uri}", "No COMPLETE event was sent"):
        is_unchanged = plan.job.if_changed and not plan.job.store.exists(version_file(plan.job.number))
        manifest = read_manifest(plan.job.store, "latest" if is_unchanged else _number(plan))
        _send(target, event(plan, "COMPLETE", manifest), on_message)


def event(plan: BuildPlan, kind: str, manifest: Manifest | None = None, problem: str = "") -> dict[str, Any]:
    """A RunEvent.

    Args:
        kind: "START", "COMPLETE" or "FAIL".
        manifest: of the version that was made.
        problem: why none was.
    """
    job = plan.job
    run = uuid.uuid5(uuid.NAMESPACE_URL, f"{job.store.uri}@{job.number}#{job.run}")
    facets = {
        "processing_engine": _facet("1-1-1/ProcessingEngineRunFacet", name="logloom", version=_version())
    }
    if problem:
        body = {"message": shown(problem), "programmingLanguage": "PYTHON"}
        facets["errorMessage"] = _facet("1-0-1/ErrorMessageRunFacet", **body)
    return {
        "eventType": kind,
        "eventTime": datetime.datetime.now(datetime.UTC).isoformat(),
        "producer": _producer(),
        "schemaURL": _EVENT,
        "run": {"runId": str(run), "facets": facets},
        "job": {
            "namespace": _named(job.store.uri)["namespace"],
            "name": f"logloom.build.{job.name}",
            "facets": {},
        },
        "inputs": [{**_named(uri), "facets": {}} for uri in plan.sources[:_MAX_INPUTS]],
        "outputs": [_output(plan, manifest)],
    }


def _number(plan: BuildPlan) -> int:
    """The version that a build makes, or that says all that it would."""
    return plan.job.parent if plan.up_to_date and plan.job.parent is not None else plan.job.number


def _version() -> str:
    return software()["logloom"]


def _producer() -> str:
    """The software that says all this, as a package URL (ECMA-427) of no registry."""
    return f"pkg:generic/logloom@{_version()}"


def _output(plan: BuildPlan, manifest: Manifest | None) -> dict[str, Any]:
    schema: Schema = plan.job.schema
    fields = [
        {
            "name": name,
            "type": str(ctype),
            **({"description": ctype.description} if ctype.description else {}),
        }
        for name, ctype in schema.columns.items()
    ]
    number = _number(plan) if manifest is None else manifest.version
    facets = {
        "schema": _facet("1-2-0/SchemaDatasetFacet", fields=fields),
        "version": _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=str(number)),
    }
    statistics = {}
    if manifest is not None:
        rows = manifest.counts["rows"]
        statistics["outputStatistics"] = _facet("1-0-2/OutputStatisticsOutputDatasetFacet", rowCount=rows)
    return {**_named(plan.job.store.uri), "facets": facets, "outputFacets": statistics}


def _facet(schema: str, **fields: Any) -> dict[str, Any]:
    name = schema.rpartition("/")[2]
    return {"_producer": _producer(), "_schemaURL": f"{_SPEC}/facets/{schema}.json#/$defs/{name}", **fields}


def _named(uri: str) -> dict[str, str]:
    """A dataset as OpenLineage names it: gs://bucket and path; file and path."""
    if is_local(uri):
        return {"namespace": "file", "name": absolute_uri(uri)}
    scheme, _, rest = uri.partition("://")
    bucket, _, name = rest.partition("/")
    return {"namespace": f"{scheme}://{bucket}", "name": name or "/"}


def _send(target: str, body: Mapping[str, Any], on_message: OnMessage) -> None:
    data = json.dumps(body).encode()
    try:
        if is_local(target):
            with open(absolute_uri(target), "ab") as file:
                file.write(data + b"\n")
        else:
            _post(target, data)
    except (OSError, ValueError, http.client.HTTPException) as error:
        on_message(f"warning: no OpenLineage event could be sent to {shown(target)}: {shown(str(error))}")


def _authorization() -> dict[str, str]:
    """Who sends events, by the environment: a token, or else a user with a password; nothing without both."""
    if token := os.environ.get(TOKEN, ""):
        return {"Authorization": f"Bearer {token}"}
    if user := os.environ.get(USER, ""):
        return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}
    return {}


def _post(url: str, data: bytes) -> None:
    """Posts an event, a few times where that may help.

    Raises:
        OSError, HTTPException: it was refused, or there was no answer.
    """
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method="POST")
    for name, value in _authorization().items():
        request.add_unredirected_header(name, value)  # a redirection may lead to another's server
    for wait in (*WAITS, None):
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S):
                return
        except OSError as error:
            code = getattr(error, "code", None)
            if wait is None or (isinstance(code, int) and code < 500 and code != 429):
                raise
            time.sleep(wait)
