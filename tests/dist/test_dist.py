"""The wheel and the sdist in dist/, tried in environments that hold nothing else; `make dist` runs this.

Dependencies come from the package index, in their newest versions, as users get them.
"""

import pathlib
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest

from tests.conftest import REPOSITORY

WHEELS = sorted((REPOSITORY / "dist").glob("*.whl"))
pytestmark = [
    pytest.mark.skipif(not WHEELS, reason="no wheel in dist/; `make dist` makes it and runs this"),
    pytest.mark.timeout(1200),
]
READ = """\
import sys
import logloom.datasets
rows = logloom.datasets.open(sys.argv[1])
print(len(rows), rows[len(rows) // 2]["ego.position"].shape)
assert "apache_beam" not in sys.modules
"""


def run(*command, code=0, cwd=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def environment(folder, requirement):
    """The `bin` of a new environment that holds `requirement` and what it needs."""
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", requirement)
    return folder / "bin"


@pytest.fixture(scope="module")
def tracked():
    """The package's files, as git knows them."""
    return set(run("git", "ls-files", "logloom", cwd=REPOSITORY).splitlines())


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A dataset that the wheel with its extra `build` made, and proved."""
    folder = tmp_path_factory.mktemp("build")
    programs = environment(folder / "venv", f"{WHEELS[0]}[build]")
    run(programs / "logloom", "demo", "--to", folder / "demo", "--seconds", "2", cwd=folder)
    return folder / "demo/dataset"


def test_the_wheel_holds_the_package_and_nothing_else(tracked):
    with zipfile.ZipFile(WHEELS[0]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == tracked


def test_the_sdist_holds_what_the_wheel_is_made_of(tracked):
    (path,) = (REPOSITORY / "dist").glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {str(pathlib.PurePath(*pathlib.PurePath(name).parts[1:])) for name in sdist.getnames()}
    assert tracked | {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert not [name for name in names if name.startswith(("tests/", ".cache", "benchmarks/"))]


def test_a_training_image_without_extras_reads_what_an_image_with_build_made(root, tmp_path):
    programs = environment(tmp_path / "venv", WHEELS[0])
    count, shape = run(programs / "python", "-c", READ, root, cwd=tmp_path).split(maxsplit=1)
    assert int(count) > 0
    assert shape.strip() == "(3,)"
    assert "ego.position" in run(programs / "logloom", "head", root, cwd=tmp_path)
    run(programs / "logloom", "--help", cwd=tmp_path)


def test_every_extra_can_be_resolved():
    extras = set(
        tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )
    extras -= {"torch"}  # gigabytes
    wanted = f"{WHEELS[0]}[{','.join(sorted(extras))}]"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", wanted)
