"""Packages that are not installed: one line says which extra brings them."""

import subprocess
import sys

import pytest

from logloom.demo import make_drives

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


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return make_drives(tmp_path_factory.mktemp("logs"), seconds=1)[0]


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("apache_beam", "build", ["build", "LOG", "--to", "ROOT"]),
        ("apache_beam,grpc", "build", ["build", "LOG", "--to", "ROOT", "--runner", "flink"]),
        ("apache_beam", "build", ["build", "LOG", "--to", "gs://b/r", "--dry-run", "--runner", "dataflow"]),
        ("apache_beam", "build", ["demo", "--to", "ROOT"]),
        ("mcap,mcap.writer", "build", ["demo", "--to", "ROOT"]),
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
    done = logloom_without(package, *(names.get(word, word) for word in command))
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"pip install 'logloom[{extra}]'")
    assert line.startswith("logloom: ")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_conversion_without_beam_says_so(log, tmp_path):
    subprocess.run(
        [sys.executable, "-m", "logloom", "build", log, "--to", tmp_path / "root", "-q"], check=True
    )
    done = logloom_without("apache_beam", "convert", tmp_path / "root", tmp_path / "new", "--format", "tar")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("pip install 'logloom[build]'")


def test_a_recipe_with_mistakes_is_refused_before_beam_is_wanted(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("name: x\nlogs: [a.mcap]\nclock: {rate: 10}\ncolums: {}\n")
    for command in ("build", "plan"):
        done = logloom_without("apache_beam", command, recipe, "--to", tmp_path / "root")
        assert done.returncode == 2
        assert "colums" in done.stderr
        assert "Beam" not in done.stderr


def test_a_build_without_google_s_clients_says_nothing_of_them(log, tmp_path):
    done = logloom_without(
        "apitools,google.cloud", "build", log, "--to", tmp_path / "root", "--workers", "2", "-q"
    )
    assert done.returncode == 0
    assert "apitools" not in done.stderr
    assert "WARNING" not in done.stderr


@pytest.mark.parametrize(
    "module", ["logloom.pipelines.build", "logloom.pipelines.convert", "logloom.pipelines.demo"]
)
def test_the_pipelines_say_so_too(module):
    code = f"import sys; sys.modules['apache_beam'] = None\nimport {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith("pip install 'logloom[build]'")
