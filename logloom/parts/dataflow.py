"""The part `dataflow`: registers the engine Google Cloud Dataflow, and the lookup of its detached jobs."""

from logloom.parts import Part

PART = Part(
    engines={"dataflow": "logloom.runners.dataflow.engine:Dataflow"},
    jobs={"dataflow": "logloom.runners.dataflow.detached:look_at"},
)
