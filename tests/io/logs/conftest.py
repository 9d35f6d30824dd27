"""A package with a decoder of its own, as a company would install it."""

import pytest

from logloom.io.logs import log, opening
from logloom.io.logs.cache import CHUNKS


@pytest.fixture
def toy(tmp_path_factory, monkeypatch):
    """Installs `ToyDecoder` for messages encoded as "toy"."""
    site = tmp_path_factory.mktemp("site")
    info = site / "toy_decoder-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-decoder\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[logloom.decoders]\ntoy = tests.io.logs.making:ToyDecoder\n")
    monkeypatch.syspath_prepend(str(site))
    for cached in (log._installed_decoders, opening.kinds):
        cached.cache_clear()
    CHUNKS.clear()
    yield
    log._installed_decoders.cache_clear()
