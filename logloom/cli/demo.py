"""`logloom demo`: make synthetic drives and a dataset from them."""

from __future__ import annotations

from typing import Annotated

import typer

from logloom.cli import terminal


@terminal.command(
    "logloom demo",
    "logloom demo --car",
    "logloom demo --to /tmp/demo --seconds 60",
)
def demo(
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="New or empty folder, or that of an earlier demo (default: demo; with --car: demo-car).",
            callback=lambda text: text if text is None else terminal.given_root(text),
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help="Length of each synthetic drive in seconds (default: 20; with --car: 8)."),
    ] = None,
    car: Annotated[
        bool,
        typer.Option(
            "--car",
            help="A whole car: cameras as video, lidars in motion, transforms, calibration, late labels.",
        ),
    ] = False,
) -> None:
    """Make two synthetic drives, and build a dataset from them.

    Verifies it, too, and shows what to try.
    """
    from logloom.pipelines.demo import run_demo

    seconds = seconds if seconds is not None else 8.0 if car else 20.0
    run_demo(
        to or ("demo-car" if car else "demo"), seconds=seconds, car=car, on_message=terminal.print_message
    )
