"""`logloom show`: show rows in a viewer, or write them for one."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from logloom.cli import terminal
from logloom.errors import UsageError
from logloom.text import OnMessage, counted

if TYPE_CHECKING:
    from logloom.io.catalog.manifest import Manifest
    from logloom.io.logs.interface import Log
    from logloom.io.storage.store import Store
    from logloom.pipelines.show.show import ShownRows


@terminal.command(
    "logloom show /data/urban@7 drive-07",
    "logloom show /data/urban drive-07 --save drive.rrd",
    "logloom show /data/urban@7 drive-07 --rows 100:400 --with-log --mcap drive.mcap",
    "logloom show /data/urban@7 drive-07 --rows 100:400 --with-log",
    'logloom show /data/urban@7 --where "in(hard_braking)" --mcap braking.mcap',
)
def show(
    root: terminal.Root,
    log: Annotated[
        str | None,
        typer.Argument(metavar="LOG", help="Log to show, by log_id (default: the first with rows)."),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(metavar="FIRST:END", help="Rows of the log, without END (default: all).")
    ] = None,
    where: Annotated[str | None, typer.Option(help="Filter that rows have to pass (default: all).")] = None,
    with_log: Annotated[
        bool,
        typer.Option(
            "--with-log",
            help="Show the log's own messages beside the rows: drawn in Rerun, or with --mcap copied.",
        ),
    ] = False,
    save: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a recording of Rerun (.rrd), and open no viewer."),
    ] = None,
    mcap: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write an MCAP with Foxglove's schemas, and open no viewer."),
    ] = None,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Show rows of a log in Rerun, or in Foxglove by way of a file.

    Exits with code 3 if --with-log found parts of the log damaged, and showed the others.
    """
    from logloom.io.catalog.manifest import open_root, split_root
    from logloom.io.storage.store import Store
    from logloom.pipelines.show.log import log_of

    if save is not None and mcap is not None:
        raise UsageError("give --save or --mcap, one of both")
    _check_suffixes(save, mcap)
    place, version = split_root(root)
    store, manifest = open_root(Store.at(place, terminal.parse_storage_options(storage_option)), version)
    chosen = _chosen(store, manifest, log, rows, where)
    problems: list[str] = []
    source = log_of(store, manifest, chosen.record) if with_log else None
    left_out = _drawn(chosen, source, save, mcap, problems.append)
    if log is None and len(manifest.logs) > 1:
        terminal.print_message(
            f"shows log {chosen.record.log_id}; the version has {counted(len(manifest.logs), 'log')}, "
            "name another one after the root"
        )
    for line in left_out:
        terminal.print_message(line)
    for problem in problems:
        terminal.print_message(problem)
    if file := save or mcap:
        terminal.print_result(file)
    if problems:
        raise typer.Exit(terminal.NOT_WHOLE)


def _drawn(
    rows: ShownRows, source: Log | None, save: str | None, mcap: str | None, on_problem: OnMessage
) -> list[str]:
    """Show rows, and their log if given; report columns and topics that couldn't be drawn."""
    if mcap is not None:
        from logloom.pipelines.show.log import messages_of
        from logloom.pipelines.show.mcap import write_mcap

        raw = messages_of(source, *rows.span, on_problem) if source is not None else ()
        values, messages = write_mcap(rows, pathlib.Path(mcap), raw), {}
    else:
        from logloom.pipelines.show.rerun import open_viewer, save_rrd
        from logloom.pipelines.show.topics import LogTopics

        topics = LogTopics(source, *rows.span, on_problem) if source is not None else None
        values = save_rrd(rows, pathlib.Path(save), topics) if save is not None else open_viewer(rows, topics)
        messages = topics.left_out if topics is not None else {}
    return [
        *(
            f"{name}: left out {counted(n, 'value')} that can't be drawn as the others"
            for name, n in values.items()
        ),
        *(f"{name}: {counted(n, 'message')} not shown: {why}" for name, (n, why) in messages.items()),
    ]


def _check_suffixes(save: str | None, mcap: str | None) -> None:
    """
    Raises:
        UsageError: a file's name doesn't end as viewers want it.
    """
    wanted = {"--save": (save, ".rrd"), "--mcap": (mcap, ".mcap")}
    for option, (file, suffix) in wanted.items():
        if file is None or file.endswith(suffix):
            continue
        other = next((name for name, (_, of) in wanted.items() if file.endswith(of)), "")
        way_out = f"write {other} {file}" if other else f"name it {os.path.splitext(file)[0]}{suffix}"
        raise UsageError(f"{option} {file}: viewers open such files by their suffix {suffix}; {way_out}")


def _chosen(
    store: Store, manifest: Manifest, log: str | None, rows: str | None, where: str | None
) -> ShownRows:
    """Select rows of the log, or of the first with rows, that pass the filter."""
    from logloom import datasets
    from logloom.pipelines.show.show import rows_of

    if where is None:
        return rows_of(store, manifest, log, rows)
    found = datasets.open(store.uri, manifest.version, where=where, storage_options=store.options)
    index = found.index[["log_id", "row"]]
    if log is None:
        if not len(index):
            raise UsageError(f"{store.uri}: version {manifest.version}: no row passes --where {where!r}")
        log = str(index["log_id"].iloc[0])
    return rows_of(store, manifest, log, rows, index["row"][index["log_id"] == log].tolist())
