"""Formats without Beam: what writes from pipelines says what is missing."""

import importlib
import sys

import pytest

from logloom.errors import UsageError
from tests.absent import present

FORMATS = {"annotations": "Annotations", "bags": "Bags", "l5kit": "L5Kit", "tar": "Tar", "zarr": "Zarr"}


@pytest.mark.parametrize("name", present(*FORMATS))
def test_a_format_s_transform_says_that_beam_is_missing(name, monkeypatch):
    for module in ("logloom.io.beam.read", "logloom.io.beam.write", f"logloom.io.formats.{name}.beam"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    package = importlib.import_module(f"logloom.io.formats.{name}")
    monkeypatch.delitem(vars(package), "beam", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'logloom\[build\]'"):
        getattr(package, f"WriteTo{FORMATS[name]}")
