"""The result of a build, and steps around it that need neither engine nor Beam.

Here: planning again where another build ends first (`plan_and_run`); the result if there is nothing to build
(`newest`); checks and a repair before any build
(`check_purged`, `mend_digest`); the view after the commit (`with_view`).
Elsewhere: running a build (logloom.pipelines.build.build).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TypeVar

from logloom.errors import BesideError, OvertakenError, PurgedError, StorageError
from logloom.io.catalog.manifest import Manifest, manifest_at
from logloom.io.catalog.manifest_digest import write_digest
from logloom.io.catalog.pages import LogRecord
from logloom.io.catalog.tombstones import Purged
from logloom.io.catalog.version_files import version_file
from logloom.io.rows.log_ranges import DAMAGE
from logloom.io.storage.step_times import step
from logloom.pipelines.plan.build_plan import Plan
from logloom.pipelines.plan.logs import save_memory
from logloom.pipelines.view import show
from logloom.runners.options import Spread
from logloom.text import OnMessage, ignore_message
from logloom.transforms.build.job import LogJob, Target
from logloom.transforms.rows.notices import BuildWarning
from logloom.transforms.rows.sequences import SequenceCounts
from logloom.values import dataclass

AnyPlan = TypeVar("AnyPlan", bound=Plan)
Ran = TypeVar("Ran")


@dataclass(frozen=True)
class Built:
    """A committed version, and whether everything in it is whole.

    Attributes:
        view: the folder of plain datasets; "" where none was made.
        built, reused: units.
        within_budget: the recipe gives a share of logs that may be skipped, and no more were.
        counters: of all workers, repeated attempts included; empty where the engine keeps none.
        spreads: `partition_milliseconds` and `partition_bytes`; empty if the engine keeps none.
        warnings: those of the plan, and of logs that were built.
        sequences: the episodes or scenes of logs that were built, of outputs that have such.
    """

    manifest: Manifest
    view: str
    built: int
    reused: int
    copied: bool = False
    within_budget: bool = False
    counters: Mapping[str, int] = field(default_factory=dict)
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    warnings: tuple[BuildWarning, ...] = ()
    sequences: tuple[SequenceCounts, ...] = ()

    @property
    def messages(self) -> dict[str, int] | None:
        """What became of the messages of the logs that were built, once for each column of their topic.

        Of each: `used` in a row, `not_chosen`, `refused`; together all in the logs but purged ones. None
        where the engine keeps no counters, or nothing was built.
        """
        prefix = "column_messages_"
        kinds = ("used", "not_chosen", "refused")
        found = {kind: self.counters.get(f"{prefix}{kind}", 0) for kind in kinds}
        return found if any(found.values()) else None

    @property
    def dropped(self) -> dict[str, int]:
        """Ticks that are no row, by reason, over all logs."""
        return self.manifest.logs.dropped

    @property
    def is_whole(self) -> bool:
        """Whether nothing was salvaged or skipped, but for what the recipe's budget allows."""
        return self.manifest.logs.are_whole(within_budget=self.within_budget)

    @property
    def damaged(self) -> tuple[LogRecord, ...]:
        """The logs that lack damaged parts of a source that was converted."""
        logs = self.manifest.logs
        return tuple(one for one in logs if DAMAGE in one.dropped) if DAMAGE in logs.dropped else ()


def plan_and_run(
    make_plan: Callable[[], AnyPlan],
    run: Callable[[AnyPlan], Ran],
    *,
    wait: bool,
    on_message: OnMessage,
    looks: bool = True,
) -> Ran:
    """Plan a job and run it; plan again where another build of the version ends first.

    Args:
        make_plan: makes the plan.
        run: runs it.
        wait: wait for the end of another build of the version.
        on_message: called with other builds that run, or may.
        looks: look for other builds, before Beam is imported and the start is announced.

    Raises:
        BesideError: another build runs, and this one isn't to wait.
    """
    while True:
        with step("plan"):
            plan = make_plan()
        try:
            if looks and not plan.up_to_date:
                from logloom.pipelines.build.concurrent_builds import refuse_second, wait_for_others

                if not wait:
                    refuse_second(plan.job, on_message)
                elif wait_for_others(plan.job, on_message):
                    continue
            return run(plan)
        except OvertakenError:  # by one that ended between planning and the announcement
            pass
        except BesideError:  # both were announced at once, and the other one goes on
            if not wait:
                raise


def has_nothing_to_build(plan: Plan) -> bool:
    """Whether the newest version says all that a new one would, so that no engine is needed."""
    return plan.up_to_date and plan.job.parent is not None


def newest(plan: Plan, *, view: str = "auto", on_message: OnMessage = ignore_message) -> Built:
    """The newest version of a plan that has nothing to build; its view is made again where it is gone.

    Args:
        view: see `logloom.pipelines.build.build.build`.

    Raises:
        PurgedError: a log was purged since it was planned.
        StorageError: a disk or an object store refused.
    """
    job = plan.job
    assert job.parent is not None
    job.store.sweep()
    mend_digest(job)
    check_purged(plan)
    save_memory(plan.memory, plan.wholes, job.store)
    made = with_view(job, job.parent, view, on_message, built=0, reused=0)
    return replace(made, warnings=plan.warnings)


def mend_digest(job: Target) -> None:
    """Writes the digest of the parent's manifest where it is missing.

    It is missing if a build was killed right after its commit.
    """
    if job.parent is not None:
        with contextlib.suppress(StorageError):  # a root that nobody may write to can be up to date
            write_digest(job.store, job.parent, job.store.read(version_file(job.parent)))


def check_purged(plan: Plan) -> None:
    """
    Raises:
        PurgedError: a log was purged since it was planned; a purge doesn't begin once a build is announced.
    """
    purged = Purged(plan.job.store)
    if isinstance(plan.job, LogJob) and plan.job.open_options.redactions != purged.redactions:
        # Also of a log that stays: what is remembered of it says that nothing changed.
        raise PurgedError(
            f"{plan.job.store.uri}: some time of a log was purged since this build was planned; build again"
        )
    for task in dict.fromkeys(task for task, _ in plan.partitions) if len(purged) else ():
        if purged.has_rows_of(task.content_id):
            raise PurgedError(f"{task.log_id}: was purged since this build was planned; build again")
    for record in plan.changes if len(purged) else ():  # of a rollback, those of an earlier version
        if record.part in purged.parts:
            raise PurgedError(f"{record.log_id}: was purged since this build was planned; build again")


def with_view(job: Target, version: int, view: str, on_message: OnMessage, built: int, reused: int) -> Built:
    """A version that is there, and its view."""
    manifest = manifest_at(job.store, version)  # which gc may have taken out since, after later ones
    place, copied = show(job.store, manifest, view, on_message)
    return Built(manifest, place, built, reused, copied, job.skip_budget > 0)
