"""`logloom drop`: a new version without some logs."""

from __future__ import annotations

from typing import Annotated

import typer

from logloom.cli import terminal
from logloom.cli.options.jobs import View
from logloom.cli.rollback import MakeView, Reason, ResultOnly
from logloom.cpus import available_cpus
from logloom.text import counted, ignore_message, some_of


@terminal.command(
    'logloom drop /data/urban drive-07 drive-09 --reason "the driver asked us to"',
    "logloom drop /data/urban drive-07 --undo",
)
def drop(
    root: terminal.BareRoot,
    log_ids: Annotated[
        list[str], typer.Argument(metavar="LOG_ID...", help="Logs, by their names in the dataset.")
    ],
    reason: Reason = "",
    undo: Annotated[
        bool, typer.Option("--undo", help="Let builds add these logs again, which were dropped before.")
    ] = False,
    allow_empty: terminal.AllowEmpty = False,
    workers: terminal.LocalWorkers = None,
    view: MakeView = View.auto,
    quiet: ResultOnly = False,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Commit a new version without some logs.

    Later builds leave them out, too; earlier versions stay.
    """

    from logloom.io.storage.store import Store
    from logloom.pipelines.build.build import build
    from logloom.pipelines.build.progress import Watch
    from logloom.pipelines.build.result import newest
    from logloom.pipelines.versions.rollback import plan_drop

    store = Store.at(root, terminal.parse_storage_options(storage_option))
    plan = plan_drop(store, log_ids, reason, undo=undo, allow_empty=allow_empty)
    on_message = ignore_message if quiet else terminal.print_message
    if plan.up_to_date:
        built = newest(plan, view=view.value, on_message=on_message)
    else:
        built = build(
            plan,
            num_workers=workers or available_cpus(),
            view=view.value,
            watch=Watch.silent if quiet else Watch,
            on_message=on_message,
        )
    manifest = built.manifest
    named = f"version {manifest.version} of {store.uri}"
    if plan.up_to_date:
        names = some_of(sorted(set(log_ids)))
        how = "doesn't leave out" if undo else "already leaves out"
        on_message(f"nothing to do: {named} {how} {names}")
    else:
        what = "may be added again by the next build" if undo else "left out, from now on"
        on_message(f"{named}: {counted(len(plan.changes), 'log')} {what}")
    if json:
        logs = [record.log_id for record in plan.changes]
        result = {"version": manifest.version, "up_to_date": plan.up_to_date, "reason": manifest.reason}
        terminal.print_json({**result, "view": built.view, "changed": logs, **manifest.counts})
    else:
        print(built.view or store.uri)
