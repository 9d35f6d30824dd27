"""Contracts of formats and of kinds of logs, as test classes for your own.

    class TestTar(FormatContract):
        format = TarFormat()
        options = TarFormat.Options(ext={"camera.front": "jpg"})

Here: `FormatContract`, `AssembledContract` and `LogContract`, to be subclassed in a test module; pytest runs
what they inherit. They need pytest, and no Beam.
Elsewhere: what formats and kinds are (logloom.io.formats.interface, logloom.io.logs.opening); docs/extend.md
shows both.
"""

from logloom.errors import UsageError

try:
    import pytest
except ImportError as error:
    raise UsageError("logloom.testing needs pytest: pip install pytest") from error

# Their assertions show values, as those of test modules do.
pytest.register_assert_rewrite(
    *(f"{__name__}.{name}" for name in ("assembled", "formats", "logs", "processes", "rows"))
)

from logloom.testing.assembled_formats import AssembledContract  # noqa: E402
from logloom.testing.formats import FormatContract  # noqa: E402
from logloom.testing.logs import LogContract, Recorded, Recording  # noqa: E402
from logloom.testing.rows import TYPES, random_block  # noqa: E402

__all__ = [
    "TYPES",
    "AssembledContract",
    "FormatContract",
    "LogContract",
    "Recorded",
    "Recording",
    "random_block",
]
