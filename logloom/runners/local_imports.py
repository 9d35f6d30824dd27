"""Importing of Beam what a run on this machine needs, and no more.

Beam imports whatever optional packages are installed: the clients of Google's and Amazon's clouds, MongoDB's,
pandas. A local run uses none of them, and they are two thirds of the time of `import apache_beam`. Here they
look as if they weren't installed while Beam is imported, which Beam provides for. For processes that run one
local job and end: the command, and the workers that it starts.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

# Of Beam's own modules those that it can do without, else the packages themselves.
LEFT_OUT = frozenset(
    {
        "apache_beam.io.aws.s3filesystem",
        "apache_beam.io.azure.blobstoragefilesystem",
        "apache_beam.io.gcp.bigquery",
        "apache_beam.io.gcp.gcsfilesystem",
        "apache_beam.io.hadoopfilesystem",
        "apitools",
        "bson",
        "google.cloud.dataflow",
        "pandas",
    }
)


class _LeaveOut(importlib.abc.MetaPathFinder):
    """Finds nothing; says so of what is left out, unless it was imported before. For one thread.

    Attributes:
        asked: what was asked for, and left out.
    """

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self._thread = threading.get_ident()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname in LEFT_OUT and threading.get_ident() == self._thread:
            self.asked.add(fullname)
            raise ModuleNotFoundError(f"{fullname} is left out: a local run needs none", name=fullname)


@contextlib.contextmanager
def local_imports() -> Iterator[set[str]]:
    """Imports of Beam in the block leave out what a local run doesn't need; those of other threads don't.

    Afterwards all can be imported; only names that Beam takes over (`beam.io.ReadFromBigQuery`) stay away.

    Yields:
        What was left out so far.
    """
    finder = _LeaveOut()
    beams = logging.getLogger("apache_beam")
    level = beams.level
    beams.setLevel(logging.ERROR)  # it warns of packages that it doesn't find
    sys.meta_path.insert(0, finder)
    try:
        yield finder.asked
    finally:
        sys.meta_path.remove(finder)
        beams.setLevel(level)
