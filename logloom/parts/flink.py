"""The part `flink`: registers the engine Apache Flink and its job lookup."""

from logloom.parts import Part

PART = Part(
    engines={"flink": "logloom.runners.flink.engine:Flink"},
    jobs={"flink": "logloom.runners.flink.rest:look_at"},
)
