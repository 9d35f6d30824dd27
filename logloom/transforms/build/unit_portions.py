"""Portions of units, which survive a change to the rest of the recipe, such as a table's column groups.

Here: the identity of a portion, finding finished ones, and publishing new ones.
Elsewhere: portions in formats (logloom.io.formats.capabilities), building units
(logloom.transforms.build.partition).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace

from logloom.digests import digest_of
from logloom.io.catalog.entries import Entry, publish_unit, unit_folder
from logloom.io.formats.capabilities import Portion, PortionedFormat
from logloom.io.formats.registry import format_named
from logloom.io.rows.log_ranges import LogRange
from logloom.query.where import parse
from logloom.transforms.build.job import Job, LogJob, LogTask, place_of, plain
from logloom.transforms.build.reuse import taken_unit
from logloom.transforms.rows.plan.row_plan import RowPlan, Span


def plan_part(plan: RowPlan, names: Iterable[str]) -> RowPlan:
    """What the values of some columns depend on: these, what they derive from, and what chooses rows.

    Args:
        names: columns, ages and availabilities among them.
    """
    filtered = parse(plan.where).columns if plan.where else ()
    inputs = {column.name: column.inputs for column in plan.derived}
    inputs |= {column.name: (column.at,) for column in plan.transforms if column.at}
    wanted: set[str] = set()
    waiting = [*names, *plan.require, *filtered]
    while waiting:
        name = waiting.pop()
        base, _, last = name.rpartition(".")
        column = base if last in ("age", "available") else name
        if column not in wanted:
            wanted.add(column)
            waiting += inputs.get(column, ())
    return replace(
        plan,
        columns=tuple(column for column in plan.columns if column.name in wanted),
        derived=tuple(column for column in plan.derived if column.name in wanted),
        transforms=tuple(column for column in plan.transforms if column.name in wanted),
        labels=tuple(column for column in plan.labels if column.name in wanted),
        order=tuple(name for name in plan.order if name in wanted),
    )


def portion_identities(job: Job, output: str, log: LogTask, span: Span | LogRange) -> dict[str, str]:
    """The names of the portions of one partition's unit of one output.

    There are none where the format has no such, nor in conversions: there is no recipe to change.
    """
    form = format_named(output)
    if not (isinstance(form, PortionedFormat) and isinstance(job, LogJob) and isinstance(span, Span)):
        return {}
    reading = job.reading_identity
    writing = [output, form.semantics, job.references.get(output, "")]
    found = {}
    for name, (columns, options) in form.portions(job.outputs[output], job.schema).items():
        part = plan_part(job.plan, columns)
        where = place_of(part, log, span, job.open_options)
        inputs = ["portion", name, reading, plain(part), writing, options, where]
        found[name] = digest_of(inputs)[:32]
    return found


def open_portions(
    job: Job,
    output: str,
    log: LogTask,
    span: Span | LogRange,
    scratch: contextlib.ExitStack,
    *,
    anew: bool = False,
) -> dict[str, Portion]:
    """The portions of a unit that is to be written: finished ones, and folders for the others.

    Args:
        anew: write those that are finished, too.
    """
    opened = {}
    unit = job.blank_entry(output, log, span)
    for name, identity in portion_identities(job, output, log, span).items():
        found = None if anew else taken_unit(job, replace(unit, identity=identity))
        folder = scratch.enter_context(job.store.scratch()) if found is None else None
        opened[name] = Portion(identity, job.store.uri_of(unit_folder(output, identity)), folder, found)
    return opened


def publish_portion(job: Job, unit: Entry, name: str, portion: Portion) -> None:
    """Publishes a portion, unless it was there before the unit of which `unit` is the entry."""
    if portion.scratch is None:
        return
    files = tuple(replace(file, portion="") for file in unit.files if file.portion == portion.identity)
    own = {"identity": portion.identity, "files": files, "unit": unit.unit["portions"][name]}
    entry = replace(unit, **own, columns={}, tally={}, statistics="")  # what rows hold, the unit says
    publish_unit(job.store, portion.scratch, entry)
