"""`logloom plan`: show what a build would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from logloom.cli import terminal
from logloom.cli.options.groups import takes_groups
from logloom.cli.options.recipes import LogOptions, RecipeOptions, plan_recipe

if TYPE_CHECKING:
    from logloom.pipelines.plan.build_plan import BuildPlan


@terminal.command(
    "logloom plan recipe.yaml --to /data/urban",
    "logloom plan recipe.yaml --to /data/urban --check || logloom build recipe.yaml --to /data/urban",
    "logloom plan recipe.yaml --to /data/urban --strict",
)
@takes_groups()
def plan(
    *,
    recipe: RecipeOptions,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Exit with code 3 if the dataset is not up to date, with 1 if a build would fail."
        ),
    ] = False,
    all_logs: Annotated[
        bool,
        typer.Option("--all", help="Open all logs that would be read; otherwise, of more than 64, a sample."),
    ] = False,
    logs: LogOptions,
    json: terminal.Json = False,
    storage_option: terminal.StorageOption = None,
) -> None:
    """Show what a build would read, make, reuse and drop."""
    from logloom.pipelines.plan.bottleneck import estimated
    from logloom.pipelines.plan.summary import in_words, plan_summary
    from logloom.transforms.build.settings import BuildSettings

    settings = BuildSettings(strict=recipe.strict)
    samples = recipe.strict or not check
    planned = plan_recipe(recipe, logs, storage_option, settings, all_logs=all_logs, samples=samples)
    summary = plan_summary(planned)
    bound = None if check else estimated(planned)  # --check alone doesn't need what this reads
    if json:
        summary["estimate"] = None if bound is None else {"bound_by": bound.name, "seconds": bound.seconds}
        terminal.print_json(summary)
    else:
        for name in ("warnings", "doubtful", "notices", "problem", "sequences"):  # people read them elsewhere
            del summary[name]
        rows = [
            (name.replace("_", " "), in_words(name, value, is_guessed=planned.is_guessed))
            for name, value in summary.items()
            if value not in ([], {})
        ]
        if planned.up_to_date and (lacking := _lacking(planned)):
            rows = [(name, f"yes; {lacking}" if name == "up to date" else text) for name, text in rows]
        rows += [(f"{one.kind}s of {one.output}", str(one)) for one in planned.sequences]
        if bound is not None:
            rows.append(("bound by", str(bound)))
        terminal.print_table("", ("", ""), rows)
    if planned.problem:
        terminal.print_message(f"a build would fail: {planned.problem}")
    if (check or recipe.strict) and planned.problem:
        raise typer.Exit(terminal.FAILED)
    if check and not planned.up_to_date:
        raise typer.Exit(terminal.NOT_WHOLE)


def _lacking(plan: BuildPlan) -> str:
    """Describe what the newest version lacks, although it is up to date."""
    from logloom.io.catalog.manifest import manifest_at
    from logloom.pipelines.versions.log_counts import lacking_in_words

    assert plan.job.parent is not None
    return lacking_in_words(manifest_at(plan.job.store, plan.job.parent).logs)
