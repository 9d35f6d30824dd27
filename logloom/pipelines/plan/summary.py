"""Summary of a plan as names and values: the answer of `logloom plan`.

Elsewhere: the plan itself (logloom.pipelines.plan.plan), printing (logloom.cli).
"""

from __future__ import annotations

from typing import Any

from logloom.pipelines.plan.build_plan import BuildPlan, Plan
from logloom.pipelines.stats import splits
from logloom.pipelines.versions.log_counts import reason_in_words
from logloom.text import counted, human_bytes, some_of
from logloom.transforms.build.build_warnings import as_json
from logloom.transforms.rows.notices import Notice


def plan_summary(plan: BuildPlan) -> dict[str, Any]:
    """Summarize a plan as names and values."""
    units = plan.num_partitions * len(plan.job.outputs)
    finished = plan.finished()
    return {
        "root": plan.job.store.uri,
        "version": plan.job.parent if plan.up_to_date else plan.job.number,
        "up_to_date": plan.up_to_date,
        "problem": plan.problem,
        "logs_to_read": plan.num_logs,
        "files_to_read": plan.num_files,
        "logs_reused": plan.kept.logs,
        "logs_skipped": len(plan.unreadable),
        "logs_gone": len(plan.dropped),
        "logs_kept": len(plan.staying),
        "logs_shortened": len(plan.shortened),
        "logs_left_out": len(plan.left_out),
        **kept_summary(plan),
        "logs_opened": len(plan.opened),
        "recipe_held_to": list(plan.samples),
        "logs_unsettled": plan.num_unsettled,
        "logs_purged": plan.num_purged,
        **duplicates_summary(plan),
        "logs_left_to_workers": len(plan.left) + len(plan.compared),
        "partitions": plan.num_partitions,
        "rows_at_most": plan.num_ticks,
        "units_to_build": units - finished,
        "units_finished": finished,
        "message_bytes": plan.message_bytes,
        "largest_partition_bytes": plan.largest_partition,
        "chunk_reads": plan.chunk_reads,
        "columns": len(plan.job.schema.columns),
        "outputs": list(plan.job.outputs),
        "dependencies": dict(plan.job.dependencies),
        "splits": splits.planned_splits(plan),
        "sequences": [one.to_json() for one in plan.sequences],
        **as_json([*plan.warnings, *splits.planned_warnings(plan)]),
        "notices": [notice.to_json() for notice in plan_notices(plan)],
    }


def plan_notices(plan: Plan) -> list[Notice]:
    """Return all notes and warnings of a plan, and the logs that it skips, in the order of a terminal."""
    if not isinstance(plan, BuildPlan):
        return [*plan.noted, *plan.warnings]
    skipped = [
        Notice(f"{one.log_id}: {reason_in_words(one.reasons, one.uris)}", "skipped", log=one.log_id)
        for one in plan.unreadable
    ]
    return [*plan.noted, *skipped, *dict.fromkeys([*plan.warnings, *splits.planned_warnings(plan)])]


def kept_summary(plan: BuildPlan) -> dict[str, Any]:
    """Summarize the logs that keep rows or labels of the latest version; by column those that lost labels."""
    return {
        "kept_logs": list(plan.staying),
        "shortened_logs": list(plan.shortened),
        "labels_kept": {name: list(logs) for name, logs in plan.labels_kept.items()},
        "labels_gone": {name: list(logs) for name, logs in plan.labels_gone.items()},
    }


def duplicates_summary(plan: BuildPlan) -> dict[str, Any]:
    """Summarize duplicates by log_id: the other log, the split of both, whether they are left out."""
    found = {
        log_id: {"duplicate_of": one.duplicate_of, "split": one.split, "left_out": one.is_left_out}
        for log_id, one in sorted(plan.duplicates.items())
    }
    return {"duplicates": found, "duplicates_left_out": sum(one["left_out"] for one in found.values())}


_ABOUT = ("partitions", "rows_at_most", "units_to_build", "message_bytes", "chunk_reads")
_AT_LEAST = ("units_finished", "largest_partition_bytes")  # those of opened logs


def in_words(name: str, value: Any, *, is_guessed: bool = False) -> str:
    """Format a value of `plan_summary` for people.

    Args:
        is_guessed: see `BuildPlan.is_guessed`.
    """
    if name == "splits":
        return splits.in_words(value, is_guessed=is_guessed)
    if is_guessed and name in _ABOUT + _AT_LEAST:
        return f"{'about' if name in _ABOUT else 'at least'} {in_words(name, value)}"
    if name == "duplicates":
        names = some_of(f"{log_id} of {one['duplicate_of']}" for log_id, one in value.items())
        return f"{counted(len(value), 'log')} ({names})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes"):
        return human_bytes(value)
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(map(str, value)) if isinstance(value, list | dict) else str(value)
