"""The original clients, each in an environment of its own; `make interop` makes these."""

import pathlib
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def zarr2():
    """Runs a script under zarr 2 as the original L5Kit uses it, with arguments; gives its standard output."""
    python = REPOSITORY / ".venv-zarr2" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no zarr 2 here ({python}); `make interop` installs it")

    def run(script: str, *arguments: object) -> str:
        command = [str(python), "-c", script, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
