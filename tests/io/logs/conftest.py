"""A package with a decoder of its own, as a company would install it."""

import pytest

from logloom import parts
from logloom.io.logs.files.container import CHUNKS


@pytest.fixture
def toy(tmp_path_factory, monkeypatch):
    """Installs `ToyDecoder` for messages encoded as "toy"."""
    site = tmp_path_factory.mktemp("site")
    info = site / "toy_decoder-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-decoder\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[logloom.parts]\ntoy = tests.io.logs.making:TOY_PART\n")
    monkeypatch.syspath_prepend(str(site))
    parts.plugins.cache_clear()
    CHUNKS.clear()
    yield
    parts.plugins.cache_clear()
