"""A first look at it all: `demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from logloom.cli.common import app, examples, print_message


@app.command(epilog=examples("logloom demo", "logloom demo --to /tmp/demo --seconds 60"))
def demo(
    to: Annotated[str, typer.Option("--to", help="New or empty folder.")] = "demo",
    seconds: Annotated[float, typer.Option(min=1, help="Length of each synthetic drive in seconds.")] = 20.0,
) -> None:
    """Make a synthetic drive, build datasets from it, verify them against the logs, and show what to try."""
    from logloom.pipelines.demo import run_demo

    run_demo(to, seconds=seconds, on_message=print_message)
