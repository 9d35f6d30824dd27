"""The part `direct`: registers the engine that runs builds on this machine."""

from logloom.parts import Part

PART = Part(engines={"direct": "logloom.runners.direct:Direct"})
