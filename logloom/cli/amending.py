"""Versions that no new log makes: `rollback` and `drop`."""

from __future__ import annotations

from typing import Annotated

import typer

from logloom.cli.common import (
    BareRoot,
    Json,
    LocalWorkers,
    Quiet,
    StorageOption,
    app,
    complete_version,
    examples,
    given_root,
    parse_storage_options,
    print_json,
    print_message,
)
from logloom.cli.jobs import View
from logloom.errors import UsageError
from logloom.words import counted

Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the new version.")]
MakeView = Annotated[View, typer.Option(help="Make the version's view of plain folders, as `build` does.")]


@app.command(
    epilog=examples(
        'logloom rollback /data/urban@6 --reason "7 has the wrong calibration"',
        "logloom rollback gs://datasets/urban@gold --json",
    )
)
def rollback(
    root: Annotated[
        str,
        typer.Argument(
            metavar="ROOT@VERSION",
            help="The version to go back to, by number or tag.",
            autocompletion=complete_version,
            callback=given_root,
        ),
    ],
    reason: Reason = "",
    view: MakeView = View.auto,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Commit a new version that says what an earlier one does. No data is copied, and no version changes."""
    from logloom.io.manifest import resolve_version, split_root
    from logloom.io.storage import Store
    from logloom.pipelines.amending import rollback as run

    where, version = split_root(root)
    store = Store.at(where, parse_storage_options(storage_option))
    if version == "latest":
        newest = resolve_version(store, version)
        raise UsageError(
            f"{store.uri}: say which version to go back to, as in {store.uri}@{max(1, newest - 1)}"
        )
    made, shown = run(store, version, reason, view=view.value, on_message=print_message)
    print_message(f"version {made.version} of {store.uri}: {made.reason}")
    if json:
        print_json({"version": made.version, "reason": made.reason, "view": shown, **made.totals})
    else:
        print(shown or store.uri)


@app.command(
    epilog=examples(
        'logloom drop /data/urban drive-07 drive-09 --reason "the driver asked us to"',
        "logloom drop /data/urban drive-07 --undo",
    )
)
def drop(
    root: BareRoot,
    log_ids: Annotated[
        list[str], typer.Argument(metavar="LOG_ID...", help="Logs, by their names in the dataset.")
    ],
    reason: Reason = "",
    undo: Annotated[
        bool, typer.Option("--undo", help="Let builds add these logs again, which were dropped before.")
    ] = False,
    workers: LocalWorkers = None,
    view: MakeView = View.auto,
    quiet: Quiet = False,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Commit a new version without some logs, which later builds leave out, too; earlier versions stay."""
    import os

    from logloom.io.storage import Store
    from logloom.pipelines.amending import plan_drop
    from logloom.pipelines.progress import Watch

    store = Store.at(root, parse_storage_options(storage_option))
    plan = plan_drop(store, log_ids, reason, undo=undo)
    from logloom.pipelines.build import build  # with Beam, which wrong names don't wait for

    on_message = (lambda _: None) if quiet else print_message
    built = build(
        plan,
        num_workers=workers or os.cpu_count() or 1,
        view=view.value,
        watch=Watch.silent if quiet else Watch,
        on_message=on_message,
    )
    manifest = built.manifest
    what = "may be added again by the next build" if undo else "left out, from now on"
    print_message(f"version {manifest.version} of {store.uri}: {counted(len(plan.changes), 'log')} {what}")
    if json:
        logs = [record.log_id for record in plan.changes]
        result = {"version": manifest.version, "reason": manifest.reason, "view": built.view, "changed": logs}
        print_json({**result, **manifest.totals})
    else:
        print(built.view or store.uri)
