"""Tar shards keep what formats promise."""

from logloom.io.formats.tar.format import TarFormat
from logloom.testing import FormatContract


class TestTar(FormatContract):
    format = TarFormat()
    options = TarFormat.Options(ext={"camera.front": "jpg"})
