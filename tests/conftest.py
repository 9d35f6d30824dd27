"""Fixtures that every test may use."""

import gc
import importlib.util
import multiprocessing
import os
import pathlib
import sys

import pytest

import tests.disks  # noqa: F401  # before anybody waits for one
from tests import tier
from tests.absent import (  # noqa: F401  # hooks
    pytest_collection_modifyitems,
    pytest_runtest_makereport,
    pytest_runtest_protocol,
)
from tests.once import again, logs_of, once, root_of  # noqa: F401  # fixtures

if importlib.util.find_spec("hypothesis"):  # which the environment with torch does without
    from hypothesis import HealthCheck, settings

    # However busy the machine is; and fixtures serve all examples.
    patient = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    for name, number in tier.EXAMPLES.items():
        # The same ones in check: no change fails by an example that it has nothing to do with.
        settings.register_profile(
            name,
            deadline=None,
            suppress_health_check=patient,
            max_examples=number,
            derandomize=name == "check",
            print_blob=True,
        )
    settings.load_profile(tier.TIER)

REPOSITORY = pathlib.Path(__file__).parent.parent

# Tests start a thousand processes; those that compile all they import take a third longer. So does this one,
# which rewrites the asserts of all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Worker processes are forked by the hundred, too; so each is spared what it would import. Nothing of `tests`:
# the server may start where another package of that name comes first, which its children would keep then.
multiprocessing.set_forkserver_preload(["logloom.pipelines.build.build", "logloom.pipelines.verify.verify"])


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """Fifteen thousand collected items are never garbage: going through them takes a sixth of quick tests."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure is shown at once, too: a run that is cut short never comes to its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(
            f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext}",
            file=sys.__stderr__,
            flush=True,
        )


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """Real logs and what the original clients made of them; not part of the project."""
    path = pathlib.Path(os.environ.get("LOGLOOM_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"the real logs are not here ({path}); set LOGLOOM_TEST_DATA to their folder")
    return path


@pytest.fixture
def uninstall(monkeypatch):
    """Takes parts of logloom away: `uninstall("tar")`."""
    from logloom import parts
    from logloom.io.formats.registry import format_named
    from logloom.transforms.suggest.recipe import _output

    def without(*names: str) -> None:
        left = {name: part for name, part in parts.installed().items() if name not in names}
        monkeypatch.setattr(parts, "installed", lambda: left)
        monkeypatch.setattr(parts, "plugins", tuple)
        format_named.cache_clear()
        _output.cache_clear()

    yield without
    format_named.cache_clear()
    _output.cache_clear()
