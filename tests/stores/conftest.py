"""The stores that these tests run against, and the drive of the pipelines' tests."""

import itertools

import pytest

from tests.pipelines.conftest import built  # noqa: F401
from tests.pipelines.conftest import long_drive as drive  # noqa: F401
from tests.pipelines.verbs import two_versions  # noqa: F401
from tests.runners.conftest import engines_cache, quick_java  # noqa: F401
from tests.stores.servers import ObjectStore, gcs_emulator, s3_emulator

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def gcs():
    with gcs_emulator() as store:
        yield store


@pytest.fixture(scope="session")
def s3():
    with s3_emulator() as store:
        yield store


@pytest.fixture(params=["gcs", "s3"])
def store(request) -> ObjectStore:
    found = request.getfixturevalue(request.param)
    yield found
    found.faults.meet()


@pytest.fixture
def bucket(store) -> str:
    return store.bucket(f"bucket-{next(_NUMBERS)}")
