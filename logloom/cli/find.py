"""`logloom find`: find the times at which a condition on rows is true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from logloom.cli import terminal
from logloom.errors import UsageError

if TYPE_CHECKING:
    from logloom.datasets.search.find import FoundIntervals

_SHOWN = 50


@terminal.command(
    'logloom find /data/urban "accel.x < -3 for 300ms"',
    "logloom find /data/urban \"delta(ego.speed, 1s) < -3 and count(objects, class == 'pedestrian', "
    'distance < 15) > 0" --before 5s --after 5s --save hard_braking',
    'logloom find /data/urban "in(hard_braking) and ego.speed > 10"',
    "logloom find /data/urban",
)
def find(
    root: terminal.Root,
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="WHERE",
            help="Condition, in the language of open(where=...); a comparison with an unavailable value is "
            "unknown (default: list the intervals that were saved with the version).",
        ),
    ] = None,
    before: Annotated[
        str, typer.Option(metavar="DURATION", help="By how much intervals begin earlier, e.g. 5s.")
    ] = "0s",
    after: Annotated[
        str, typer.Option(metavar="DURATION", help="By how much intervals end later, e.g. 5s.")
    ] = "0s",
    save: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Save the intervals with the version, for in(NAME) in filters."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --save: replace other intervals of that name.")
    ] = False,
    output: Annotated[
        str | None, typer.Option(help="Output to read (default: the one that is read quickest).")
    ] = None,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Find the times at which a condition on rows is true."""
    from logloom.datasets.search.find import find as run

    options = terminal.parse_storage_options(storage_option)
    if where is None:
        if save is not None:
            raise UsageError(f"--save {save}: give the filter whose intervals are to be saved")
        _list_saved(root, options, json)
        return
    found = run(
        root,
        where,
        output=output,
        before=before,
        after=after,
        save=save,
        replace=replace,
        storage_options=options,
    )
    if json:
        terminal.print_json(found.to_json())
    else:
        _show(root, found)
    if found.saved:
        terminal.print_message(f"saved: {found.saved}; filters on this version call it in({save})")


def _show(root: str, found: FoundIntervals) -> None:
    from logloom.text import counted, human_duration, human_time

    lines = [
        (
            one.log_id,
            human_time(one.start),
            human_duration(one.stop - one.start, digits=6),
            f"{one.rows:,}",
            str(one.start),
        )
        for one in found.intervals[:_SHOWN]
    ]
    version = "" if found.version is None else f", version {found.version}"
    terminal.print_table(f"{root}{version}", ("log", "start", "length", "rows", "start in ns"), lines)
    if len(found.intervals) > _SHOWN:
        terminal.print_result(f"and {len(found.intervals) - _SHOWN:,} more intervals; --json shows all")
    unknown = f"; unknown for {counted(found.unknown, 'row')}" if found.unknown else ""
    terminal.print_result(
        f"{counted(len(found.intervals), 'interval')} in {counted(found.logs, 'log')} with "
        f"{counted(found.rows, 'row')}; it is true for {found.matches:,} of "
        f"{counted(found.looked_at, 'row')}{unknown}"
    )


def _list_saved(root: str, options: dict[str, dict[str, Any]], json: bool) -> None:
    from logloom.io.catalog.intervals import intervals_file, intervals_of, read_intervals_file
    from logloom.io.catalog.manifest import open_root, split_root
    from logloom.io.storage.store import Store
    from logloom.text import human_duration

    place, version = split_root(root)
    store, manifest = open_root(Store.at(place, options), version)
    names = intervals_of(store, manifest.version)
    saved = [(name, read_intervals_file(store, intervals_file(manifest.version, name))) for name in names]
    if json:
        terminal.print_json(
            [{"name": name, "intervals": len(one), **one.search.__dict__} for name, one in saved]
        )
        return
    lines = [
        (
            name,
            f"{len(one):,}",
            human_duration(one.search.before),
            human_duration(one.search.after),
            one.search.where,
        )
        for name, one in saved
    ]
    title = f"{place}, version {manifest.version}" if saved else ""
    terminal.print_table(title, ("name", "intervals", "before", "after", "where"), lines)
    if not saved:
        terminal.print_message(f"{place}: version {manifest.version} has no saved intervals (--save NAME)")
