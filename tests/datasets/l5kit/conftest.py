import pytest

from logloom.datasets.l5kit import ChunkedDataset, load_config_data


@pytest.fixture
def golden(shared_data):
    """The folder of a real scene and of what the original client made of it."""
    return shared_data / "l5kit"


@pytest.fixture
def real_config(golden):
    return load_config_data(golden / "config.yaml")


@pytest.fixture
def real_scene(golden):
    return ChunkedDataset(golden / "single_scene.zarr").open()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """No test leaves anything in the user's cache."""
    monkeypatch.setenv("LOGLOOM_CACHE", str(tmp_path / "cache"))
