"""`logloom status`: builds of a dataset, and waiting for their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from logloom.cli import terminal
from logloom.cli.options.groups import refuse_given

if TYPE_CHECKING:
    from logloom.pipelines.status import BuildStatus


@terminal.command(
    "logloom status /data/urban",
    "logloom status gs://datasets/urban --json",
    "logloom status gs://datasets/urban --wait --timeout 3600",
)
def status(
    root: Annotated[
        str,
        typer.Argument(
            metavar="ROOT", help="The folder or URI that builds write to.", callback=terminal.given_root
        ),
    ],
    last: Annotated[
        int | None, typer.Option(min=1, help="Show this many builds, the latest first (default: 10).")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until no build runs; then show those that ran.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="With --wait: fail after this many seconds.")
    ] = None,
    quiet: terminal.Quiet = False,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Show the builds of a dataset, or wait for their end.

    With --wait, exits with 1 if one, or else the latest, committed nothing, code 3: logs weren't whole.
    """
    import dataclasses

    from logloom.io.catalog.manifest import no_version_at
    from logloom.io.catalog.version_files import is_root_name
    from logloom.io.storage.store import Store
    from logloom.pipelines import status as builds

    if wait:
        refuse_given({"--last": last}, "--wait shows the builds that it waits for; leave out one of the two")
    else:
        refuse_given({"--timeout": timeout, "--quiet": quiet}, "it goes with --wait")
    store = Store.at(root, terminal.parse_storage_options(storage_option))
    if not any(map(is_root_name, store.names())):
        raise no_version_at(store)
    noted: set[str] = set()

    def print_status(one: BuildStatus) -> None:
        if not quiet and one.run not in noted:
            noted.add(one.run)
            terminal.print_message(f"waiting for {one.in_words()}")

    waited = builds.wait(store, timeout=timeout, on_status=print_status) if wait else None
    found = builds.builds(store, last=last or 10) if waited is None else waited
    if json:
        terminal.print_json([dataclasses.asdict(one) for one in found])
    else:
        for one in found:
            terminal.print_folded(one.in_words())
        if not found:
            terminal.print_message(f"{store.uri}: no build has started here")
    done = (builds.BuildState.committed, builds.BuildState.unchanged)
    if wait and not all(one.state in done for one in found):
        raise typer.Exit(terminal.FAILED)
    if wait and not all(one.whole for one in found):
        raise typer.Exit(terminal.NOT_WHOLE)
