"""The order of training: `order`."""

from __future__ import annotations

from typing import Annotated

import typer

from logloom.cli.terminal.output import (
    Json,
    StorageOption,
    app,
    complete_version,
    examples,
    given_root,
    parse_storage_options,
    print_json,
    print_table,
)


def _given_roots(roots: list[str]) -> list[str]:
    return [given_root(root) for root in roots]


@app.command(
    epilog=examples(
        "logloom order /data/urban@3 --seed 0 --steps 0:100",
        "logloom order /data/urban@3=0.6 /data/highway@gold=0.4 --steps 32000:32032 --json",
    )
)
def order(
    roots: Annotated[
        list[str],
        typer.Argument(
            metavar="ROOT[@VERSION][=WEIGHT]...",
            help="A dataset's folder or URI; several, each with its weight, are a mixture.",
            autocompletion=complete_version,
            callback=_given_roots,
        ),
    ],
    steps: Annotated[str, typer.Option(metavar="START:STOP", help="Positions to show.")] = "0:100",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the Loader.")] = 0,
    mix_seed: Annotated[int, typer.Option(min=0, help="Seed of the mixture.")] = 0,
    shuffle: Annotated[bool, typer.Option(help="Whether the Loader shuffles.")] = True,
    repeat: Annotated[
        bool, typer.Option(help="Whether sources of a mixture begin again after their last row.")
    ] = True,
    split: Annotated[str | None, typer.Option(help="Split that was opened (default: all).")] = None,
    where: Annotated[str | None, typer.Option(help="Filter that rows had to pass.")] = None,
    window: Annotated[
        str | None, typer.Option(metavar="START:STOP", help="Offsets of windows, as in range(START, STOP).")
    ] = None,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Show which rows a training run saw, by the steps that its Loader saved."""
    from logloom.datasets.loader.rows_seen import rows_seen

    found = rows_seen(
        roots,
        steps,
        seed=seed,
        mix_seed=mix_seed,
        shuffle=shuffle,
        repeat=repeat,
        window=window,
        split=split,
        where=where,
        storage_options=parse_storage_options(storage_option),
    )
    if json:
        print_json(found)
        return
    heads = tuple(found[0]) if found else ("step",)
    print_table(f"rows at steps {steps}", heads, [tuple(map(str, row.values())) for row in found])
