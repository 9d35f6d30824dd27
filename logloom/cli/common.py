"""What all commands share: options, and how they print. Results go to stdout, words for people to stderr."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from logloom.errors import UsageError

FAILED, BAD_USAGE, NOT_WHOLE, STOPPED = 1, 2, 3, 130

app = typer.Typer(
    name="logloom",
    help="Weave raw drive logs into versioned training datasets, and read them back for training and proof.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="PROTOCOL.KEY=VALUE",
        help="Option of a file system, e.g. gs.token=anon. May be repeated; never stored.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def examples(*lines: str) -> str:
    """Examples for the end of a command's help."""
    return "**Examples**\n\n" + "\n\n".join(f"`{line}`" for line in lines)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Said(logging.Handler):
    """Says what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def say_logs(name: str) -> None:
    """Shows what a part of logloom logs, from now on."""
    logger = logging.getLogger(name)
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, _Said) for handler in logger.handlers):
        logger.addHandler(_Said())


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table below its title, without a header where no column has a name or a title where it is "".

    Numbers stand right and are not broken.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    style = {"box": box.SIMPLE_HEAD} if any(columns) else {"box": None, "show_header": False}
    if title:
        print(title)
    if not rows:
        return
    table = Table(pad_edge=False, **style)
    for position, name in enumerate(columns):
        numeric = position > 0 and all(row[position][:1].isdigit() or not row[position] for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 160
    console = Console(width=width, markup=False, highlight=False)
    with console.capture() as printed:
        console.print(table)
    lines = [line.rstrip() for line in printed.get().rstrip().split("\n")]
    print("\n".join([*lines, *([""] if title else [])]))


def parse_storage_options(options: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """["gs.token=anon"] as {"gs": {"token": "anon"}}; values are JSON where they parse as such.

    Raises:
        UsageError: an option of another form.
    """
    parsed: dict[str, dict[str, Any]] = {}
    for option in options or ():
        name, equals, value = option.partition("=")
        protocol, dot, key = name.partition(".")
        if not (equals and dot and protocol and key):
            raise UsageError(f"--storage-option {option!r}: expected PROTOCOL.KEY=VALUE, like gs.token=anon")
        try:
            parsed.setdefault(protocol, {})[key] = json.loads(value)
        except ValueError:
            parsed.setdefault(protocol, {})[key] = value
    return parsed


Root = Annotated[
    str,
    typer.Argument(metavar="ROOT[@VERSION]", help="A dataset's folder or URI (default: its newest version)."),
]
PyFiles = Annotated[
    list[str] | None,
    typer.Option("--py", metavar="FILE", help="Python file with functions for `derive`. May be repeated."),
]
