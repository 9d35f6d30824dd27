"""The commands. Thin: parse, call, print. Results go to stdout, words for people to stderr.

Exit codes: 0 done and whole; 1 failed; 2 bad usage or recipe; 3 done, but something was salvaged, skipped or
found different. Everything heavy is imported inside a command, so that `--help` is quick.
"""

from __future__ import annotations

import contextlib
import enum
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logloom import __version__
from logloom.errors import LogloomError, UsageError

if TYPE_CHECKING:
    from logloom.pipelines.build import Built
    from logloom.pipelines.plan import BuildPlan
    from logloom.recipe import Recipe

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
        help="For a file system, e.g. gs.token=anon. May be repeated; never stored.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


class OnError(enum.StrEnum):
    fail = "fail"
    skip = "skip"
    salvage = "salvage"


def _examples(*lines: str) -> str:
    """Examples for the end of a command's help."""
    return "**Examples**\n\n" + "\n\n".join(f"`{line}`" for line in lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2))


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table, without a header where no column has a name; numbers stand right and are not broken."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    style = {"box": box.SIMPLE_HEAD} if any(columns) else {"box": None, "show_header": False}
    table = Table(title=title or None, title_justify="left", pad_edge=False, **style)
    for position, name in enumerate(columns):
        numeric = position > 0 and all(row[position][:1].isdigit() or not row[position] for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 160
    Console(width=width, markup=False, highlight=False).print(table)


def parse_storage_options(options: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """["gs.token=anon"] as {"gs": {"token": "anon"}}; values are JSON where they parse as such.

    Raises:
        UsageError: an option of another form.
    """
    import json

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


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


# --- looking at logs ------------------------------------------------------------------------------------


@app.command(
    epilog=_examples(
        "logloom info drive.mcap",
        "logloom info 'gs://drives/2026-11-*/*.mcap' --json",
        "logloom info drive.mcap --recipe > recipe.yaml",
    )
)
def info(
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help="Log files, folders, URIs or globs.")],
    recipe: Annotated[
        bool, typer.Option("--recipe", help="Print a recipe that builds as it stands.")
    ] = False,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Show what logs hold by their index: topics, types, counts, rates and times (`doctor` reads all)."""
    from logloom.pipelines import inspect

    options = parse_storage_options(storage_option)
    if recipe:
        print(inspect.suggested_recipe(logs, options), end="")
        return
    described = inspect.describe(logs, options)
    if json:
        _print_json({"logs": [log.to_json() for log in described]})
        return
    for log in described:
        _table(log.headline, inspect.COLUMNS, log.table_rows())


# --- building -------------------------------------------------------------------------------------------

RecipeArgument = Annotated[
    list[str], typer.Argument(metavar="RECIPE|LOG...", help="A recipe (.yaml), or logs to build as they are.")
]
To = Annotated[str, typer.Option("--to", metavar="ROOT", help="The dataset's folder or URI.")]
OtherLogs = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="URI", help="Logs or globs in place of the recipe's; may be repeated."),
]
PyFiles = Annotated[
    list[str] | None,
    typer.Option("--py", metavar="FILE", help="Python with functions for `derive`; may be repeated."),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first logs, for a trial.")]


def _load(sources: list[str], options: dict[str, dict[str, Any]]) -> tuple[Recipe, str | None]:
    """The recipe named on the command line, and the folder that its relative URIs start from."""
    from logloom.io.storage import absolute_uri
    from logloom.recipe import Recipe

    recipes = [source for source in sources if source.endswith((".yaml", ".yml"))]
    if recipes and len(sources) > 1:
        raise UsageError("give one recipe, or logs; not both")
    if recipes:
        uri = absolute_uri(sources[0])
        return Recipe.load(uri, options), uri.rsplit("/", 1)[0]
    from logloom.pipelines import inspect

    return Recipe.from_yaml(inspect.suggested_recipe(sources, options), source="suggested recipe"), None


def _planned(
    sources: list[str],
    to: str,
    storage: list[str] | None,
    on_error: OnError | None,
    logs: list[str] | None,
    **choices: Any,
) -> BuildPlan:
    from logloom.pipelines.plan import plan_build

    options = parse_storage_options(storage)
    recipe, base = _load(sources, options)
    if logs:
        recipe, base = recipe.model_copy(update={"logs": tuple(logs)}), None
    if on_error is not None:
        recipe = recipe.model_copy(update={"on_error": on_error.value})
    plan = plan_build(recipe, to, base=base, storage_options=options, **choices)
    for note in plan.notes:
        _say(f"note: {note}")
    for record in plan.unreadable:
        _say(f"skipped: {record.log_id}: {record.reasons[0]}")
    return plan


@app.command(
    epilog=_examples(
        "logloom build recipe.yaml --to /data/urban",
        "logloom build drive.mcap --to /data/trial --limit 1",
        "logloom build recipe.yaml --to gs://datasets/urban --workers 8 --verify sample:0.05",
    )
)
def build(
    sources: RecipeArgument,
    to: To,
    log: OtherLogs = None,
    py: PyFiles = None,
    limit: Limit = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes; by default as many as pay.")
    ] = None,
    verify: Annotated[
        str, typer.Option(metavar="all|sample:SHARE|none", help="What is read back before the commit.")
    ] = "all",
    on_error: Annotated[OnError | None, typer.Option(help="Overrides the recipe's on_error.")] = None,
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="Commit even without any row.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Build a new version of a dataset: only what is new is made, and read back before it is committed."""
    from logloom.pipelines.build import build as run
    from logloom.pipelines.progress import Watch
    from logloom.runners import direct

    planned = _planned(
        sources,
        to,
        storage_option,
        on_error,
        log,
        limit=limit,
        verify=verify,
        allow_empty=allow_empty,
        py_files=py or (),
    )
    cores = len(os.sched_getaffinity(0))
    number = workers or direct.default_workers(planned.message_bytes, len(planned.partitions), cores)
    built = run(planned, num_workers=number, watch=Watch.silent if quiet else Watch)
    _report_build(built, planned, json)
    if not (built.is_whole or planned.up_to_date):
        raise typer.Exit(NOT_WHOLE)


def _report_build(built: Built, planned: BuildPlan, json: bool) -> None:
    manifest = built.manifest
    if json:
        result = {
            "version": manifest.version,
            "up_to_date": planned.up_to_date,
            "view": built.view,
            **manifest.totals,
        }
        _print_json(result | {"units_built": built.built, "units_reused": built.reused})
    root = planned.job.store.uri
    if planned.up_to_date:
        _say(f"up to date: version {manifest.version} of {root} says all that the logs say")
    else:
        _tell_version(built, root)
    if built.copied:
        _say("this disk has no hard links: the view holds copies")
    if not json:
        print(built.view or root)


def _tell_version(built: Built, root: str) -> None:
    manifest = built.manifest
    totals = manifest.totals
    dropped = totals["ticks_planned"] - totals["rows"]
    _say(
        f"version {manifest.version} of {root}: {totals['rows']:,} rows of {totals['logs']} logs"
        f"{f', {dropped:,} ticks dropped' if dropped else ''}; {built.built} units built, "
        f"{built.reused} found finished; read back: {manifest.verified}"
    )
    for record in manifest.logs:
        if record.status in ("salvaged", "skipped", "empty"):
            reason = f": {record.reasons[0]}" if record.reasons else ""
            _say(f"{record.status}: {record.log_id}{reason}")
    if manifest.verified == "none":
        _say("nothing was read back (--verify none); `logloom verify` does it any time")


# --- looking at datasets --------------------------------------------------------------------------------

Root = Annotated[str, typer.Argument(metavar="ROOT[@VERSION]", help="A dataset; the newest version if none.")]


@app.command(
    epilog=_examples(
        "logloom head /data/urban -n 3",
        "logloom head /data/urban@7 --columns 'ego.*' --why",
    )
)
def head(
    root: Root,
    rows: Annotated[int, typer.Option("-n", "--rows", min=1, help="How many rows.")] = 5,
    skip: Annotated[int, typer.Option(min=0, help="Rows to pass over first.")] = 0,
    columns: Annotated[
        list[str] | None, typer.Option("--columns", "-c", help="Names or globs; may be repeated.")
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Where each value comes from: log, message time, age.")
    ] = False,
    output: Annotated[str | None, typer.Option(help="Which output to read; the first by default.")] = None,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Show rows of a dataset, and with --why their lineage."""
    from logloom.io.manifest import split_root
    from logloom.pipelines import inspect

    where, version = split_root(root)
    shown = inspect.head(
        where,
        version,
        output=output,
        start=skip,
        count=rows,
        columns=columns,
        storage_options=parse_storage_options(storage_option),
    )
    if json:
        _print_json([row.to_json(why) for row in shown])
        return
    for row in shown:
        _table(
            row.headline(why), ("column", "value", *(("message time", "age", "from") * why)), row.lines(why)
        )


@app.command(
    epilog=_examples("logloom verify /data/urban", "logloom verify /data/urban@7 --against-logs --json")
)
def verify(
    root: Root,
    against_logs: Annotated[
        bool, typer.Option("--against-logs", help="Also derive every row from the logs again.")
    ] = False,
    py: PyFiles = None,
    sample: Annotated[str, typer.Option(metavar="all|sample:SHARE", help="Which units to read.")] = "all",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes; one a core by default.")
    ] = None,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Prove that a version holds what its manifest says, and that this is what the logs say."""
    import dataclasses

    from logloom.io.manifest import split_root
    from logloom.pipelines.plan import check_sample
    from logloom.pipelines.progress import human_bytes, steps
    from logloom.pipelines.verify import verify as run

    check_sample(sample)
    where, version = split_root(root)
    with steps("reading back") as on_done:
        report = run(
            where,
            version,
            sample=sample,
            against_logs=against_logs,
            num_workers=workers,
            py_files=py or (),
            storage_options=parse_storage_options(storage_option),
            on_done=on_done,
        )
    if json:
        _print_json(dataclasses.asdict(report))
    for finding in report.findings:
        place = " ".join(part for part in (finding.log_id, finding.partition) if part)
        if not json:
            print(f"{place}: {finding.message}" if place else finding.message)
    proof = "manifest and logs" if against_logs else "manifest"
    verdict = f"{len(report.findings)} findings" if report.findings else f"equal to its {proof}"
    _say(
        f"version {report.version}: {report.units} units, {report.rows:,} rows, {human_bytes(report.bytes)}: "
        f"{verdict}"
    )
    if report.findings:
        raise typer.Exit(NOT_WHOLE)


@app.command(epilog=_examples("logloom demo", "logloom demo --to /tmp/demo --seconds 60"))
def demo(
    to: Annotated[str, typer.Option("--to", help="A new or empty folder.")] = "demo",
    seconds: Annotated[float, typer.Option(min=1, help="Length of each drive.")] = 20.0,
) -> None:
    """Make a synthetic drive, build datasets from it, verify them against the logs, and show what to try."""
    from logloom.pipelines.demo import run_demo

    run_demo(to, seconds=seconds, say=_say)


@app.command(
    epilog=_examples(
        "logloom doctor drive.mcap",
        "logloom doctor 'gs://drives/2026-11-20/*.mcap' --json",
        "logloom doctor drive.mcap > /dev/null || echo 'needs care'",
    )
)
def doctor(
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help="Log files, folders, URIs or globs.")],
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Read logs from end to end; say what is damaged, missing or strangely timed, and the way out."""
    from logloom.pipelines.doctor import examine_all
    from logloom.pipelines.health import COLUMNS

    found = []
    for diagnosis in examine_all(logs, parse_storage_options(storage_option)):
        found.append(diagnosis)
        if json:
            continue
        if diagnosis.is_readable:
            _table(diagnosis.headline, COLUMNS, [topic.table_row() for topic in diagnosis.topics])
        for line in diagnosis.lines():
            print(line)
    if json:
        _print_json({"logs": [diagnosis.to_json() for diagnosis in found]})
    if not all(diagnosis.is_readable for diagnosis in found):
        raise typer.Exit(FAILED)
    if not all(diagnosis.is_healthy for diagnosis in found):
        raise typer.Exit(NOT_WHOLE)


@app.command(
    epilog=_examples(
        "logloom plan recipe.yaml --to /data/urban",
        "logloom plan recipe.yaml --to /data/urban --check || logloom build recipe.yaml --to /data/urban",
    )
)
def plan(
    sources: RecipeArgument,
    to: To,
    log: OtherLogs = None,
    py: PyFiles = None,
    limit: Limit = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with 3 when not up to date.")] = False,
    on_error: Annotated[OnError | None, typer.Option(help="Overrides the recipe's on_error.")] = None,
    json: Json = False,
    storage_option: StorageOption = None,
) -> None:
    """Show what a build would do: logs, partitions, bytes; what is finished already, reused or dropped."""
    from logloom.pipelines.inspect import in_words, plan_summary

    planned = _planned(sources, to, storage_option, on_error, log, limit=limit, py_files=py or ())
    summary = plan_summary(planned)
    if json:
        _print_json(summary)
    else:
        _table(
            "", ("", ""), [(name.replace("_", " "), in_words(name, value)) for name, value in summary.items()]
        )
    if check and not planned.up_to_date:
        raise typer.Exit(NOT_WHOLE)


def main() -> None:
    """The `logloom` command: errors become one message and an exit code."""
    try:
        code = app(standalone_mode=False)
    except LogloomError as error:
        _say(f"logloom: {error}")
        code = BAD_USAGE if isinstance(error, UsageError) else FAILED
    except (typer.Abort, KeyboardInterrupt):
        code = STOPPED
    except BrokenPipeError:
        sys.stderr.close()
        code = FAILED
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's own errors know how to show themselves
            raise
        error.show()  # type: ignore[attr-defined]
        code = getattr(error, "exit_code", BAD_USAGE)
    if code == STOPPED:  # Typer, too, makes a code of Ctrl-C
        _say("logloom: stopped; a build keeps what is finished: build again to go on")
    _leave(code or 0)


def _leave(code: int) -> None:
    """Ends the process with this code."""
    if "grpc" in sys.modules:
        # Threads of gRPC that outlive a pipeline can abort the interpreter's own shutdown after all is done.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
