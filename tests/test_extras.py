"""Packages that are not installed: one line says which extra brings them."""

import os
import subprocess
import sys

import pytest

from logloom.demo import make_drives
from tests.forking import module

HIDING = """\
import sys
if __name__ == "__main__":
    for name in sys.argv.pop(1).split(","):
        sys.modules[name] = None
    from logloom.cli import main
    main()
"""


def logloom_without(package, *arguments):
    command = [sys.executable, "-c", HIDING, package, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def forked_without(package, folder, *arguments):
    """The same in a fork, for packages that nothing in it has imported."""
    (folder / "hiding.py").write_text(HIDING)
    return module("hiding", package, *arguments, env={**os.environ, "PYTHONPATH": str(folder)})


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return make_drives(tmp_path_factory.mktemp("logs"), seconds=1)[0]


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("apache_beam,grpc", "build", ["build", "LOG", "--to", "ROOT", "--runner", "flink"]),
        ("apache_beam", "build", ["build", "LOG", "--to", "gs://b/r", "--dry-run", "--runner", "dataflow"]),
        ("mcap,mcap.writer", "build", ["demo", "--to", "ROOT"]),
        ("av", "video", ["demo", "--car", "--to", "ROOT"]),
        ("s3fs", "s3", ["head", "s3://bucket/root"]),
        ("s3fs", "s3", ["build", "s3://bucket/log.mcap", "--to", "ROOT"]),
        ("gcsfs", "gcp", ["info", "gs://bucket/log.mcap"]),
    ],
)
def test_a_missing_package_is_said_in_one_line_that_names_its_extra(package, extra, command, log, tmp_path):
    names = {"LOG": log, "ROOT": tmp_path / "root"}
    if "gs://b/r" in command:
        pytest.importorskip("gcsfs")
        names["gs://b/r"] = tmp_path / "root"
    words = [names.get(word, word) for word in command]
    if "mcap" in package:  # which forks have
        done = logloom_without(package, *words)
    else:
        done = forked_without(package, tmp_path, *words)
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"pip install 'logloom[{extra}]'"), line
    assert line.startswith("logloom: ")
    assert (done.returncode, done.stdout) == (2, "")


def test_this_machine_wants_no_beam(log, tmp_path):
    root, new = tmp_path / "root", tmp_path / "new"
    for words in (
        ["build", log, "--to", root, "--workers", "2"],
        ["convert", root, new, "--format", "tar", "--workers", "1"],
        ["verify", new],
    ):
        done = logloom_without("apache_beam", *words)
        assert done.returncode == 0, done.stderr


SPARED = """\
import sys
from logloom.extras import spare_pandas
spare_pandas()
import pyarrow as pa
pa.array([1.0])
print("pandas" in sys.modules)
frame = pa.table({"a": [1.0, None]}).to_pandas()
print(pa.array(frame["a"]).null_count)
"""


def test_pyarrow_does_without_pandas_until_somebody_asks_for_it():
    done = subprocess.run([sys.executable, "-c", SPARED], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n1\n", "")


SHOWN = """\
import sys
from logloom.extras import spare_pandas
spare_pandas()
before = len(sys.meta_path)
import pandas
import pyarrow as pa
print(pa.array(pandas.Series([1.0, float("nan")])).null_count, before - len(sys.meta_path))
"""


def test_what_pyarrow_makes_of_a_series_does_not_depend_on_who_imports_pandas_first():
    """Else a function that columns are derived by would give other values in some of the processes."""
    done = subprocess.run([sys.executable, "-c", SHOWN], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1 1\n", "")


def test_info_imports_no_pandas(log):
    command = [sys.executable, "-X", "importtime", "-m", "logloom", "info", str(log)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "| pyarrow.lib" in done.stderr.replace("  ", " ").replace("  ", " ")
    assert "pandas.core" not in done.stderr
