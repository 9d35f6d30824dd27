"""The original clients, each in an environment of its own; `make interop` makes these."""

import pathlib
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def zarr2():
    """Runs a script under zarr 2 as the original L5Kit uses it, with arguments; gives its standard output."""
    return runner(".venv-zarr2", "zarr 2")


@pytest.fixture(scope="session", params=["17", "24"])
def granular(request):
    """Runs a script under granular 0.17 or 0.24, with arguments; has `.version`, "17" or "24"."""
    run = runner(f".venv-granular{request.param}", f"granular 0.{request.param}")
    run.version = request.param
    return run


def runner(environment, what):
    """A function that runs a script in one of the environments of the original clients."""
    python = REPOSITORY / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no {what} here ({python}); `make interop` installs it")

    def run(script: str, *arguments: object) -> str:
        command = [str(python), "-c", script, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
