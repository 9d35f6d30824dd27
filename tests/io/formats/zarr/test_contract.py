"""zarr keeps what formats promise."""

from logloom.io.formats.zarr.format import ZarrFormat
from logloom.testing import AssembledContract


class TestZarr(AssembledContract):
    format = ZarrFormat()


class TestZarrOfFormat2(AssembledContract):
    format = ZarrFormat()
    options = ZarrFormat.Options(format=2)
