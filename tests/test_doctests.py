"""Examples in the docstrings of pure functions do what they say."""

import doctest
import importlib

import pytest

MODULES = [
    "logloom.blocks",
    "logloom.inference",
    "logloom.resample.kernels",
    "logloom.resample.policies",
    "logloom.transforms.ticks",
    "logloom.windows",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_do_what_they_say(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed
