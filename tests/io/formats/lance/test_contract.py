"""Lance keeps what formats promise."""

from logloom.io.formats.lance.format import LanceFormat
from logloom.testing import AssembledContract


class TestLance(AssembledContract):
    format = LanceFormat()
    options = LanceFormat.Options(images={"camera.front": "jpg"})
