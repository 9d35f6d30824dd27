"""Options that many commands share, and printing to stdout and stderr.

Results go to stdout, messages to stderr.
"""

from __future__ import annotations

import enum
import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from logloom.errors import LogloomError, UsageError
from logloom.text import counted, printable, printable_lines

if TYPE_CHECKING:
    from logloom.io.catalog.manifest import Manifest
    from logloom.transforms.rows.notices import Notice

Command = TypeVar("Command", bound=Callable[..., Any])
FAILED, BAD_USAGE, NOT_WHOLE, AFTER_COMMIT, STOPPED, TERMINATED = 1, 2, 3, 4, 130, 143
PIPE_WIDTH = 160  # of a table, where there is no terminal

app = typer.Typer(
    name="logloom",
    help="Weave raw drive logs into versioned training datasets, and read them back for training and proof.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


class OnError(enum.StrEnum):
    fail = "fail"
    skip = "skip"
    salvage = "salvage"


StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="PROTOCOL.KEY=VALUE",
        help="Option of a file system, e.g. gs.token=anon. May be repeated; never stored.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        "-c",
        metavar="NAMES",
        help="Columns, by name or glob: ego.speed,camera.* (default: all). May be repeated.",
        callback=lambda given: [name for each in given for name in each.split(",")] if given else given,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
LocalWorkers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Number of worker processes (default: one per core).")
]
LogsArgument = Annotated[
    list[str], typer.Argument(metavar="LOG...", help="Log files, folders, URIs or globs.")
]
Verify = Annotated[
    str,
    typer.Option(
        metavar="new|all|sample:SHARE|none",
        help="What to read back before the commit: new units, everything (also logs of earlier versions), "
        "a share of new units (at least one of each output), or nothing.",
    ),
]
AllowDerive = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-derive",
        metavar="PACKAGE",
        help="Package that the recipe's `derive` may import, which runs its code. May be repeated.",
    ),
]


AllowEmpty = Annotated[bool, typer.Option("--allow-empty", help="Commit a version even if it has no rows.")]


def complete_version(incomplete: str) -> list[str]:
    """Complete ROOT@7 and ROOT@gold; nothing for roots that aren't on this machine's disks."""
    from logloom.io.catalog.tags import read_tags
    from logloom.io.catalog.version_files import version_numbers
    from logloom.io.storage.store import Store

    root, at, _ = incomplete.rpartition("@")
    try:
        store = Store.at(root)
        if not at or store.local is None:
            return []
        names = [*sorted(read_tags(store)), *map(str, reversed(version_numbers(store)))]
    except (LogloomError, OSError):
        return []
    return [f"{root}@{name}" for name in names]


def given_root(text: str) -> str:
    """Return a root as given, see `check_named`."""
    from logloom.io.storage.filesystems import check_named

    check_named(text)
    return text


Root = Annotated[
    str,
    typer.Argument(
        metavar="ROOT[@VERSION]",
        help="A dataset's folder or URI (default: its newest version).",
        autocompletion=complete_version,
        callback=given_root,
    ),
]
BareRoot = Annotated[
    str, typer.Argument(metavar="ROOT", help="A dataset's folder or URI.", callback=given_root)
]
PyFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--py",
        metavar="FILE",
        help="Python file with functions that the recipe's `derive` names. May be repeated.",
    ),
]


def command(*examples: str, app: typer.Typer = app, **options: Any) -> Callable[[Command], Command]:
    """Add a function as a command, whose help ends with these examples.

    Args:
        options: of Typer's `command`.
    """
    epilog = "**Examples**\n\n" + "\n\n".join(f"`{line}`" for line in examples)
    return app.command(epilog=epilog, **options)


def mode_of(on_error: OnError | None) -> Literal["fail", "skip", "salvage"]:
    """Return the value of an option, "fail" if it isn't given."""
    return (on_error or OnError.fail).value


def print_message(text: str) -> None:
    """Print a message for people to stderr; names in it can't steer the terminal."""
    print(printable_lines(text), file=sys.stderr, flush=True)


def print_notices(notices: Iterable[Notice], *, quiet: bool = False) -> None:
    """Print notes and warnings to stderr, a line each; `--quiet` hides notes."""
    for notice in notices:
        if not (quiet and notice.is_quieted):
            print_message(notice.printed)


def print_folded(text: str) -> None:
    """Print a line for people to stdout, broken between words where the terminal is narrower."""
    from logloom.cli.terminal.alignment import folded

    print("\n".join(folded(printable(text), _width())))


def print_result(text: str) -> None:
    """Print a result for people to stdout; names in it can't steer the terminal."""
    print(printable_lines(text))


class _PrintingHandler(logging.Handler):
    """Prints what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        print_message(record.getMessage())


def print_logs(name: str) -> None:
    """Print what a part of logloom logs, from now on."""
    logger = logging.getLogger(name)
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, _PrintingHandler) for handler in logger.handlers):
        logger.addHandler(_PrintingHandler())


def print_json(value: Any) -> None:
    """Print a result for machines: exact, in ASCII."""
    print(json.dumps(value, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table below its title; see `table_lines`. A title of "" is none."""
    from logloom.cli.terminal.alignment import table_lines

    if title:
        print_result(title)
    if not rows:
        return
    cells = [[printable(cell) for cell in row] for row in rows]
    lines = list(table_lines(columns, cells, _width()))
    print("\n".join([*([""] if title else []), *lines, *([""] if title else [])]))


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH


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


def read_in_words(manifest: Manifest) -> str:
    """Describe what a build read back, and what it reused from the version before without reading."""
    words = {"new": "all new units", "all": "all", "none": "nothing"}
    nouns = {"logs": "log", "assembled": "assembled output", "portions": "portion"}
    kept_counts = {what: count for what, count in manifest.trusted.items() if count}
    kept = " and ".join(counted(count, nouns.get(what, what)) for what, count in kept_counts.items())
    read = f"read back: {words.get(manifest.verified, manifest.verified)}"
    return f"{read}; not read again, as an earlier build read them: {kept}" if kept else read


def up_to_date_in_words(manifest: Manifest, root: str) -> str:
    """Describe that there is nothing to do, and what the newest version still lacks."""
    from logloom.pipelines.versions.log_counts import lacking_in_words

    lacking = lacking_in_words(manifest.logs)
    return f"up to date: version {manifest.version} of {root}{f'; {lacking}' if lacking else ''}"
