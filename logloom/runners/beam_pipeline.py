"""Pipelines of Beam's without the folders that Beam makes for them under /tmp and leaves there."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import environments

_ONE_AT_A_TIME = threading.Lock()


def new_pipeline(runner: Any, options: PipelineOptions) -> Pipeline:
    """A pipeline without a folder of its own, which only steps in other languages would use."""
    pipeline = Pipeline(runner, options=options)
    pathlib.Path(pipeline.local_tempdir).rmdir()
    return pipeline


@contextlib.contextmanager
def dependencies_in(folder: pathlib.Path) -> Iterator[None]:
    """Lets Beam keep in this folder what jobs that are described while the block runs stage for workers."""
    with _ONE_AT_A_TIME:
        before = environments.python_sdk_dependencies
        environments.python_sdk_dependencies = functools.partial(before, tmp_dir=str(folder))
        try:
            yield
        finally:
            environments.python_sdk_dependencies = before
