"""Program of the Dataflow flex template, which constructs and submits a build.

The template's launcher runs it in the image of the workers:

python -m logloom.pipelines.dataflow.template --recipe gs://.../recipe.yaml --to gs://...
    --runner=DataflowRunner ...

The launcher adds Beam's flags (project, staging, job name and so on); this constructs the job and submits it.
The template's parameters for users are in logloom/runners/dataflow/template.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence

from logloom.extras import beam_needed
from logloom.io.storage.filesystems import folder_of
from logloom.pipelines.build.build import construct, num_units, prepared
from logloom.pipelines.build.concurrent_builds import refuse_second, take_turn
from logloom.pipelines.plan.build_plan import BuildPlan
from logloom.pipelines.plan.plan import load_recipe, plan_build
from logloom.recipe import Recipe
from logloom.runners.dataflow.detached_job import place_of
from logloom.runners.options import parse_labels
from logloom.transforms.build.run_note import Announced
from logloom.transforms.build.settings import BuildSettings

with beam_needed():
    import apache_beam as beam
    from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions


def parser() -> argparse.ArgumentParser:
    """The template's own parameters: those of `logloom build` that a detached job can have."""
    found = argparse.ArgumentParser(
        prog="logloom.pipelines.dataflow.template",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,  # what is left over is Beam's
    )
    found.add_argument("--recipe", required=True, help="URI of the recipe")
    found.add_argument("--to", required=True, help="URI of the dataset")
    found.add_argument(
        "--log", type=str.split, default=[], help="logs or globs to use instead of the recipe's"
    )
    found.add_argument("--limit", type=int, help="use only this many logs, for a trial")
    found.add_argument("--on_error", choices=["fail", "skip", "salvage"], help="what a broken log means")
    found.add_argument("--hash", choices=["ends", "full"], help="how a changed log is recognized")
    found.add_argument("--verify", default="new", help="new, all, sample:SHARE or none")
    found.add_argument("--allow_empty", type=_flag, default=False, help="true: a version may have no rows")
    found.add_argument("--strict", type=_flag, default=False, help="true: refuse lost or doubtful data")
    found.add_argument(
        "--py", type=str.split, default=[], help="files of the image with functions to derive by"
    )
    found.add_argument("--allow_derive", type=str.split, default=[], help="packages that `derive` may import")
    found.add_argument("--storage_options", type=json.loads, default={}, help="JSON: fsspec's, by protocol")
    found.add_argument(
        "--labels", action="append", default=[], help="KEY=VALUE, with spaces between; or a JSON object"
    )
    return found


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r}: true or false")
    return text == "true"


def main(arguments: Sequence[str] | None = None) -> None:
    """Plans the build that the arguments ask for, and submits it; an up-to-date one is a job without work."""
    own, beams = parser().parse_known_args(arguments)
    labels = parse_labels(
        itertools.chain.from_iterable([t] if t.startswith("{") else t.split() for t in own.labels)
    )
    beams += [f"--labels={key}={value}" for key, value in labels.items()]
    recipe = Recipe.load(own.recipe, own.storage_options)
    given = {"logs": own.log, "logs_by": "--log", "on_error": own.on_error, "hash": own.hash}
    plan = plan_build(
        load_recipe(recipe, own.storage_options, **given)[0],
        own.to,
        base=None if own.log else folder_of(own.recipe),
        limit=own.limit,
        settings=BuildSettings(
            verify=own.verify, allow_empty=own.allow_empty, strict=own.strict, labels=labels
        ),
        py_files=own.py,
        allow_derive=own.allow_derive,
        storage_options=own.storage_options,
        compare=False,
    )
    options = PipelineOptions(beams, save_main_session=False)
    if plan.up_to_date:
        prepared(plan)
        message = f"up to date: version {plan.job.parent} of {own.to}"
        print(message, file=sys.stderr)
        # A launch that submits no job counts as failed.
        pipeline = beam.Pipeline(options=options)
        _ = pipeline | "UpToDate" >> beam.Create([message])
        pipeline.run()
    else:
        _submit(plan, options)


def _print_message(text: str) -> None:
    print(text, file=sys.stderr)


def _submit(plan: BuildPlan, options: PipelineOptions) -> None:
    """Hands a build to the runner of the options, and says in the root that it runs there.

    Raises:
        LogloomError: another build of the version is known to run.
    """
    refuse_second(plan.job, _print_message)
    google = options.view_as(GoogleCloudOptions)
    with Announced(plan.job, "dataflow", num_units(plan), detached=True, takes_turn=True) as announced:
        take_turn(plan.job, announced, _print_message)
        pipeline = beam.Pipeline(options=options)
        construct(pipeline, prepared(plan))
        submitted = pipeline.run()
        # A launcher on Dataflow writes the job down, and its service submits it: then only its name is known.
        job_id = submitted.job_id() if getattr(submitted, "has_job", False) else ""
        if google.project and google.region and (job_id or google.job_name):
            known = {"job_id": job_id, "name": google.job_name or ""}
            place = place_of(google.project, google.region, **known)
            announced.update(job_id=job_id or google.job_name, place=place)


if __name__ == "__main__":
    main()
