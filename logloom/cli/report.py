"""`logloom report`: write a page that shows a dataset."""

from __future__ import annotations

import pathlib
import re
import sys
from typing import Annotated

import typer

from logloom.cli import terminal
from logloom.cpus import available_cpus
from logloom.errors import UsageError


@terminal.command(
    "logloom report /data/urban",
    "logloom report /data/urban@7 --out urban.html",
    "logloom report /data/urban --card > README.md",
)
def report(
    root: terminal.Root,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File to write (default: NAME-vVERSION.html; with --card or --croissant, stdout).",
        ),
    ] = None,
    card: Annotated[
        bool, typer.Option("--card", help="Write a dataset card (README.md), as Hugging Face's hub reads it.")
    ] = False,
    croissant: Annotated[
        bool, typer.Option("--croissant", help="Write Croissant metadata (JSON-LD), as mlcroissant reads it.")
    ] = False,
    every_log: Annotated[
        bool, typer.Option("--every-log", help="Count all logs, not up to 2,000, and splits of all rows.")
    ] = False,
    workers: terminal.LocalWorkers = None,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Write a page that shows a dataset: samples, columns, changes."""
    from logloom.io.catalog.manifest import open_root, split_root
    from logloom.io.storage.disk import replace_file
    from logloom.io.storage.filesystems import explained
    from logloom.io.storage.store import Store

    if card and croissant:
        raise UsageError("give --card or --croissant, one of both")
    if out not in (None, "-"):
        with explained(out):
            _check_place(out)
    where, version = split_root(root)
    store, manifest = open_root(Store.at(where, terminal.parse_storage_options(storage_option)), version)
    num_workers = workers or available_cpus()
    if card:
        from logloom.pipelines.report.card import card_of

        data = card_of(store, manifest, num_workers=num_workers)
    elif croissant:
        from logloom.pipelines.report.croissant import croissant_of

        beside = pathlib.Path(out).resolve().parent if out else pathlib.Path.cwd()
        data = croissant_of(store, manifest, str(beside))
    else:
        from logloom.pipelines.report.page import page_at

        data = page_at(store, manifest, every_log=every_log, num_workers=num_workers)
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", manifest.name).strip(".-") or "dataset"
        out = out or f"{name}-v{manifest.version}.html"
    if out is None or out == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    with explained(out):
        replace_file(pathlib.Path(out), data)
    terminal.print_result(out)


def _check_place(out: str) -> None:
    """Refuse a place that can't be written to, before the reading, which may be long."""
    place = pathlib.Path(out)
    if place.is_dir():
        raise UsageError(f"{out}: is a folder; --out requires a file")
    if not place.resolve().parent.is_dir():
        raise UsageError(
            f"{out}: its folder doesn't exist; create it, or give --out another file on this machine"
        )
