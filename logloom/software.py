"""Which software makes a dataset's bytes."""

from __future__ import annotations

import functools
from importlib.metadata import version

_PACKAGES = ("numpy", "numcodecs", "pyarrow", "pillow", "zarr")


@functools.cache
def software() -> dict[str, str]:
    """Versions of what turns logs into bytes; stands in units' entries and in manifests, for people."""
    from logloom import __version__

    return {"logloom": __version__, **{name: version(name) for name in _PACKAGES}}
