"""Engines that run a build: their options, and submitting pipelines.

Here: the options and results of a run, without Beam. `running.run` runs a pipeline; a module for each engine
starts what it needs, submits, watches and ends. None of them knows recipes.
"""

from logloom.runners.options import Finished, RunnerOptions, Size, Submitted

__all__ = ["Finished", "RunnerOptions", "Size", "Submitted"]
