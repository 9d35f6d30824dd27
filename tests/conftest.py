"""Fixtures that every test may use."""

import os
import pathlib

import pytest

REPOSITORY = pathlib.Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """Real logs and what the original clients made of them; not part of the project."""
    path = pathlib.Path(os.environ.get("LOGLOOM_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"the real logs are not here ({path}); set LOGLOOM_TEST_DATA to their folder")
    return path
