"""Tests of logloom, in the same tree as its code."""

import os

if os.environ.get("LOGLOOM_WITHOUT"):
    import tests.absent  # noqa: F401  # so that processes that tests spawn import absent names, too
