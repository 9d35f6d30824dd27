"""Versions that follow the newest one of a root: what plans of builds and of conversions share."""

from __future__ import annotations

import uuid
from typing import Any

from logloom.errors import UsageError
from logloom.io.manifest import Manifest, digest_of_manifest, read_manifest, version_numbers
from logloom.io.storage import Store
from logloom.transforms.job import Target


def next_version(store: Store) -> tuple[Manifest | None, dict[str, Any]]:
    """The newest version, None in a new root; and what the `Target` that follows it says of both."""
    run = uuid.uuid4().hex[:12]
    numbers = version_numbers(store)
    if not numbers:
        return None, {"number": 1, "parent": None, "run": run}
    number = numbers[-1]
    newest = read_manifest(store, number)
    return newest, {
        "number": number + 1,
        "parent": number,
        "parent_digest": digest_of_manifest(store, number),
        "assembled": newest.assembled,
        "run": run,
    }


def is_unchanged(job: Target, parent: Manifest) -> bool:
    """Whether a version of the job's kept logs alone would say what its parent says."""
    outputs = {name: options.model_dump(mode="json") for name, options in job.outputs.items()}
    return (
        job.kept == parent.logs
        and parent.plan == job.plan_identity
        and dict(parent.outputs) == outputs
        and parent.name == job.name
    )


def check_verify(verify: str) -> None:
    """Raises UsageError unless `verify` is "new", "all", "none" or "sample:<share between 0 and 1>"."""
    if verify not in ("new", "none"):
        check_sample(verify, "new, all, none")


def check_sample(sample: str, others: str = "all") -> None:
    """Raises UsageError unless `sample` is "all" or "sample:<share between 0 and 1>"."""
    if sample == "all":
        return
    try:
        share = float(sample.removeprefix("sample:")) if sample.startswith("sample:") else -1.0
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise UsageError(f"{sample!r}: expected {others}, or sample:0.05 (a share of the units)")
