import pytest

from logloom.io.storage.store import Store


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.at(str(tmp_path / "store"))
