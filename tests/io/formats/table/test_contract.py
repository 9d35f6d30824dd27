"""Tables keep what formats promise."""

from logloom.io.formats.table.format import TableFormat
from logloom.testing import AssembledContract


class TestTable(AssembledContract):
    format = TableFormat()
    options = TableFormat.Options(index=["speed"])
