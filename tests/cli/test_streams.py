"""Commands whose standard streams are closed, full, or read by nobody, as processes of their own."""

import subprocess
import sys

import pytest

from logloom.io.catalog.version_files import version_numbers
from logloom.io.storage.store import Store
from logloom.pipelines.verify.verify import verify
from tests.absent import needs
from tests.forking import command
from tests.transforms.ros2_logs import SPEED, speeds, write_log

RECIPE = """
name: t
logs: ["*.mcap"]
clock: {rate: 10}
columns: {speed: {topic: /can, field: speed}}
outputs: {tar: {}}
"""


@pytest.fixture
def recipe(tmp_path):
    needs("tar")
    write_log(tmp_path / "a.mcap", {"/can": (SPEED, speeds(20))})
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path / "recipe.yaml"


def shell(line: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """What a shell makes of a line; $logloom is the command, $1 and so on are the arguments."""
    script = line.replace("$logloom", f"{sys.executable} -m logloom")
    words = ["bash", "-o", "pipefail", "-c", script, "-", *map(str, arguments)]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "line",
    [
        "$logloom build $1 --to $2 >&-",
        "$logloom build $1 --to $2 --workers 1 2>&-",
        "$logloom build $1 --to $2 --workers 1 <&- >&- 2>&-",
        "$logloom build $1 --to $2 --workers 1 2> >(true)",
        "$logloom build $1 --to $2 --workers 1 | true",
        "$logloom build $1 --to $2 --workers 1 2> /dev/full",
    ],
)
def test_a_build_commits_and_succeeds_whoever_reads_its_streams(line, recipe, tmp_path):
    done = shell(line, recipe, tmp_path / "root")
    assert done.returncode == 0, done.stderr
    assert version_numbers(Store.at(str(tmp_path / "root"))) == [1]
    assert verify(str(tmp_path / "root"), num_workers=1).findings == ()


def test_a_result_that_a_full_disk_refuses_after_the_commit_has_a_code_of_its_own(recipe, tmp_path):
    done = shell("$logloom build $1 --to $2 --quiet --workers 1 > /dev/full", recipe, tmp_path / "root")
    said = "logloom: build is done, but its result can't be written to stdout: No space left on device\n"
    assert (done.returncode, done.stderr) == (4, said)
    assert command("build", recipe, "--to", tmp_path / "root", "--quiet").returncode == 0


def test_a_command_that_only_looks_ends_with_its_reader(recipe, tmp_path):
    assert command("build", recipe, "--to", tmp_path / "root", "--quiet").returncode == 0
    done = shell("$logloom head $1 -n 20 | true", tmp_path / "root")
    assert (done.returncode, done.stderr) in ((0, ""), (1, ""))
    assert shell("$logloom head $1 >&-", tmp_path / "root").returncode == 0
