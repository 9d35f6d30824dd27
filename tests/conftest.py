"""Fixtures that every test may use."""

import importlib.util
import os
import pathlib

import pytest

if importlib.util.find_spec("hypothesis"):  # which the environment with torch does without
    from hypothesis import settings

    # A change doesn't fail by an example that it has nothing to do with: .ci/run asks for this one.
    settings.register_profile("same-examples", derandomize=True)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

REPOSITORY = pathlib.Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """Real logs and what the original clients made of them; not part of the project."""
    path = pathlib.Path(os.environ.get("LOGLOOM_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"the real logs are not here ({path}); set LOGLOOM_TEST_DATA to their folder")
    return path
