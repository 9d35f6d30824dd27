"""Bags keep what formats promise."""

from logloom.io.formats.bags.format import BagsFormat
from logloom.testing import FormatContract


class TestBags(FormatContract):
    format = BagsFormat()
    options = BagsFormat.Options(types={"camera.front": "jpg"})


class TestBagsOfTheThirdGeneration(FormatContract):
    format = BagsFormat()
    options = BagsFormat.Options(generation=3)
