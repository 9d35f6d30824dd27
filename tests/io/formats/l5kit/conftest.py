import pathlib

import pytest

from logloom.io.storage.store import Store


@pytest.fixture
def real_scene(shared_data) -> pathlib.Path:
    """One real scene as the original wrote it: 248 frames, 20 802 agents, 3 216 lights."""
    return shared_data / "l5kit" / "single_scene.zarr"


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.at(str(tmp_path))
