"""The part `dataflow`: registers the engine Dataflow and its job lookup."""

from logloom.parts import Part

PART = Part(
    engines={"dataflow": "logloom.runners.dataflow.engine:Dataflow"},
    jobs={"dataflow": "logloom.runners.dataflow.detached_job:look_at"},
)
