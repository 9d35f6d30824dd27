"""L5Kit keeps what formats promise."""

import dataclasses

from logloom.io.formats.l5kit.format import L5KitFormat
from logloom.io.formats.l5kit.mapping import MAPPED_SCHEMA
from logloom.testing import AssembledContract
from tests.io.formats.l5kit.making import OPTIONS, make_rows


class TestL5Kit(AssembledContract):
    format = L5KitFormat()
    options = OPTIONS
    schema = MAPPED_SCHEMA

    def make_block(self, schema, rows, seed):
        return dataclasses.replace(make_rows(rows, seed, log_id="car/drive"), partition="p3")
