"""The engine `direct`: this machine."""

from logloom.parts import Part

PART = Part(engines={"direct": "logloom.runners.direct:Direct"})
