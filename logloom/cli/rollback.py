"""`logloom rollback`: commit a new version with the content of an earlier one."""

from __future__ import annotations

from typing import Annotated

import typer

from logloom.cli import terminal
from logloom.cli.options.jobs import View
from logloom.errors import UsageError
from logloom.text import ignore_message, some_of

Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the new version.")]
ResultOnly = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the result alone, no progress and messages.")
]
MakeView = Annotated[View, typer.Option(help="Make the version's view of plain folders, as `build` does.")]


@terminal.command(
    'logloom rollback /data/urban@6 --reason "7 has the wrong calibration"',
    "logloom rollback gs://datasets/urban@gold --json",
)
def rollback(
    root: Annotated[
        str,
        typer.Argument(
            metavar="ROOT@VERSION",
            help="The version to go back to, by number or tag.",
            autocompletion=terminal.complete_version,
            callback=terminal.given_root,
        ),
    ],
    to: Annotated[
        str | None, typer.Argument(metavar="[VERSION]", help="The version, where ROOT doesn't name it.")
    ] = None,
    reason: Reason = "",
    view: MakeView = View.auto,
    quiet: ResultOnly = False,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Commit a new version with the content of an earlier one.

    No data is copied, and no version changes.
    """
    from logloom.io.catalog.manifest import resolve_version, split_root
    from logloom.io.storage.store import Store
    from logloom.pipelines.versions.rollback import rollback as run

    where, version = split_root(root)
    if to is not None and version != "latest":
        raise UsageError(f"{root} and {to}: two versions; give one")
    version = version if to is None else to
    store = Store.at(where, terminal.parse_storage_options(storage_option))
    if version == "latest":
        newest = resolve_version(store, version)
        raise UsageError(
            f"{store.uri}: name the version to go back to, as in {store.uri}@{max(1, newest - 1)}"
        )
    on_message = ignore_message if quiet else terminal.print_message
    done = run(store, version, reason, view=view.value, on_message=on_message)
    made = done.manifest
    named = f"version {made.version} of {store.uri}"
    but = f" but for {some_of(done.left_out)}" if done.left_out else ""
    on_message(
        f"nothing to do: {named} has what {version} had{but}"
        if done.up_to_date
        else f"{named}: {made.reason}"
    )
    if json:
        result = {"version": made.version, "up_to_date": done.up_to_date, "reason": made.reason}
        terminal.print_json({**result, "view": done.view, "left_out": done.left_out, **made.counts})
    else:
        print(done.view or store.uri)
