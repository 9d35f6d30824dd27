"""Annotations keep what formats promise."""

import dataclasses

from logloom.io.formats.annotations.format import AnnotationsFormat
from logloom.testing import AssembledContract
from tests.io.formats.annotations import making


class TestAnnotations(AssembledContract):
    format = AnnotationsFormat()
    options = making.options()
    schema = making.SCHEMA
    knows_lengths = False  # of the files that infos name

    def make_block(self, schema, rows, seed):
        return dataclasses.replace(making.make_block(rows, seed), partition="p3")
