"""Options for recipes and logs of `plan`, `build`, `verify` and `repair`."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from logloom.cli import terminal
from logloom.extras import without_collection
from logloom.values import dataclass

if TYPE_CHECKING:
    from logloom.pipelines.plan.build_plan import BuildPlan
    from logloom.transforms.build.settings import BuildSettings


class Hash(enum.StrEnum):
    ends = "ends"
    full = "full"


@dataclass(frozen=True)
class RecipeOptions:
    """The recipe and the root of a build."""

    sources: Annotated[
        list[str],
        typer.Argument(metavar="RECIPE|LOG...", help="A recipe (.yaml), or logs to build without one."),
    ]
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="ROOT", help="Folder or URI of the dataset.", callback=terminal.given_root
        ),
    ]
    log: Annotated[
        list[str] | None,
        typer.Option(
            "--log", metavar="URI", help="Log or glob to use instead of the recipe's `logs`. May be repeated."
        ),
    ] = None
    py: terminal.PyFiles = None
    allow_derive: terminal.AllowDerive = None
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Use only this many logs, for a trial.")
    ] = None
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Refuse to commit (exit code 1) if a warning names lost or doubtful data. Damaged logs that "
            "--on-error skips or salvages are no such warnings.",
        ),
    ] = False


@dataclass(frozen=True)
class LogOptions:
    """How logs are read; None leaves it to the recipe."""

    on_error: Annotated[
        terminal.OnError | None,
        typer.Option(
            help="Damaged logs: fail, skip them, or salvage undamaged messages (default: as in the recipe)."
        ),
    ] = None
    hash: Annotated[
        Hash | None,
        typer.Option(
            "--hash",
            help="How to notice that a log changed: ends compares its size and its first and last MiB; full "
            "compares all bytes, which is slower. A change of --hash builds every log again (default: as "
            "in the recipe).",
        ),
    ] = None


@dataclass(frozen=True)
class DeriveOptions:
    """Inputs for deriving the rows of a version from its logs again, beside the version itself."""

    py: terminal.PyFiles = None
    allow_derive: terminal.AllowDerive = None
    log: Annotated[
        list[str] | None,
        typer.Option(
            "--log",
            metavar="URI",
            help="URI of one of the version's logs, with the credentials to read it. May be repeated.",
        ),
    ] = None

    def arguments(self) -> dict[str, Sequence[str]]:
        """Return the arguments for functions of pipelines."""
        return {"py_files": self.py or (), "allow_derive": self.allow_derive or (), "logs": self.log or ()}


def plan_recipe(
    options: RecipeOptions,
    logs: LogOptions,
    storage_option: list[str] | None,
    settings: BuildSettings,
    *,
    all_logs: bool = False,
    compare: bool = True,
    quiet: bool = False,
    samples: bool = False,
) -> BuildPlan:
    """Plan the build that options ask for; print its warnings and notes.

    Args:
        all_logs: open all logs, not a sample of them.
        compare: see `plan_build`.
        quiet: hide progress and notes.
        samples: look for warnings in messages of some logs, too.
    """
    with without_collection():
        from logloom.io.logs.log_list import SAMPLE
        from logloom.pipelines.plan.plan import load_recipe, plan_build
    from logloom.pipelines.build.progress import steps
    from logloom.pipelines.plan.summary import plan_notices
    from logloom.transforms.rows.notices import Notice

    topics = list[str]()
    storage = terminal.parse_storage_options(storage_option)
    recipe, base = load_recipe(
        options.sources,
        storage,
        logs=options.log or (),
        logs_by="--log",
        on_error=None if logs.on_error is None else logs.on_error.value,
        hash=None if logs.hash is None else logs.hash.value,
        on_left_out=topics.append,
    )
    left_out = [Notice(text, "left out", kind="topic" * text.startswith("topic ")) for text in topics]
    terminal.print_notices(left_out)
    with steps("opening logs", quiet=quiet) as on_opened:
        plan = plan_build(
            recipe,
            options.to,
            base=base,
            limit=options.limit,
            settings=settings,
            py_files=options.py or (),
            allow_derive=options.allow_derive or (),
            storage_options=storage,
            sample=None if all_logs else SAMPLE,
            compare=compare,
            on_opened=on_opened,
        )
    if samples:
        from logloom.pipelines.plan.column_warnings import with_sample

        plan = with_sample(plan)
    terminal.print_notices(plan_notices(plan), quiet=quiet)
    return replace(plan, noted=(*left_out, *plan.noted))
