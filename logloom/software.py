"""Versions of the software that makes a dataset's bytes."""

from __future__ import annotations

import functools
from importlib.metadata import version

_PACKAGES = ("numpy", "numcodecs", "pyarrow", "pillow", "zarr")


@functools.cache
def software() -> dict[str, str]:
    """Return versions of packages that affect bytes, for units' entries and manifests."""
    from logloom import __version__

    return {"logloom": __version__, **{name: version(name) for name in _PACKAGES}}
