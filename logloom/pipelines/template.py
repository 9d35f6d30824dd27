"""A build as a Dataflow flex template: what its launcher runs, in the image that workers run in.

python -m logloom.pipelines.template --recipe gs://.../recipe.yaml --to gs://... --runner=DataflowRunner ...

The launcher adds Beam's flags (project, staging, job name and so on); this constructs the job and submits it.
The template's parameters for users stand in logloom/runners/dataflow/template.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from logloom.extras import beam_needed
from logloom.io.filesystems import folder_of
from logloom.pipelines.build import construct
from logloom.pipelines.plan import plan_build
from logloom.recipe import Recipe

with beam_needed():
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions


def parser() -> argparse.ArgumentParser:
    """The template's own parameters."""
    found = argparse.ArgumentParser(
        prog="logloom.pipelines.template",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,  # what is left over is Beam's
    )
    found.add_argument("--recipe", required=True, help="URI of the recipe")
    found.add_argument("--to", required=True, help="URI of the dataset")
    found.add_argument("--verify", default="new", help="new, all, sample:SHARE or none")
    found.add_argument("--storage_options", type=json.loads, default={}, help="JSON: fsspec's, by protocol")
    found.add_argument(
        "--allow_derive",
        type=str.split,
        default=[],
        help="packages that `derive` may import, with spaces between",
    )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Plans the build that the arguments ask for, and submits it; an up-to-date one submits nothing."""
    own, beams = parser().parse_known_args(arguments)
    recipe = Recipe.load(own.recipe, own.storage_options)
    base = folder_of(own.recipe)
    plan = plan_build(
        recipe,
        own.to,
        base=base,
        storage_options=own.storage_options,
        verify=own.verify,
        allow_derive=own.allow_derive,
    )
    if plan.up_to_date:
        print(f"up to date: version {plan.job.parent} of {own.to}", file=sys.stderr)
        return
    pipeline = beam.Pipeline(options=PipelineOptions(beams, save_main_session=False))
    construct(pipeline, plan)
    pipeline.run()


if __name__ == "__main__":
    main()
