"""Lance tables with a row for each row of a dataset; they need pylance.

`LanceWriter` writes them, `LanceReader` reads them.
"""

from typing import TYPE_CHECKING

from logloom.extras import imported_on_use
from logloom.io.formats.lance.reader import LanceReader
from logloom.io.formats.lance.writer import LanceWriter

if TYPE_CHECKING:
    from logloom.io.formats.lance.beam import ReadFromLance
    from logloom.io.formats.lance.format import FORMAT

__all__ = ["FORMAT", "LanceReader", "LanceWriter", "ReadFromLance"]

_LAZY = {".beam": ["ReadFromLance"], ".format": ["FORMAT"]}

__getattr__ = imported_on_use(__name__, _LAZY)
