"""The command lines of examples/deploy: the real commands take them, and they are run where they can be.

Elsewhere: the manifests against their schemas, and a run of the DAG by a real Airflow (tests/deploy).
"""

import contextlib
import fcntl
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
import yaml

from logloom.demo import demo_recipe, make_drives
from tests.absent import ABSENT, needs, present
from tests.conftest import REPOSITORY
from tests.parsing import parse

DEPLOY = REPOSITORY / "examples/deploy"
LOGLOOM = pathlib.Path(sys.executable).parent / "logloom"


def containers(manifest):
    """All containers anywhere in a manifest."""
    if isinstance(manifest, dict):
        yield from manifest.get("containers", ())
        manifest = list(manifest.values())
    if isinstance(manifest, list):
        for part in manifest:
            yield from containers(part)


def in_manifests():
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text()):
            for container in containers(manifest):
                yield f"{path.name}-{manifest['kind']}", container


def command_of(name):
    (found,) = (container["command"] for place, container in in_manifests() if place == name)
    return found


def cron_line():
    lines = (DEPLOY / "crontab").read_text().splitlines()
    (line,) = (line for line in lines if re.match(r"[\d*]", line))
    return line.split(maxsplit=5)[5]


def command_lines():
    """(where, words behind `logloom`) of every command line."""
    for place, container in in_manifests():
        if container.get("command", [""])[0] == "logloom":
            yield place, container["command"][1:]
    words = shlex.split(cron_line().split(">")[0])
    yield "crontab", words[words.index("/opt/logloom/bin/logloom") + 1 :]
    for job in yaml.safe_load((DEPLOY / "github-workflow.yaml").read_text())["jobs"].values():
        for step in job["steps"]:
            if step.get("run", "").startswith("logloom "):
                yield step["run"], shlex.split(step["run"])[1:]
    for line in re.findall(r"bash_command='(.*)'", (DEPLOY / "airflow_dag.py").read_text()):
        program, *words = shlex.split(line)
        assert program == "$LOGLOOM"
        yield "airflow", words


FOUND = list(command_lines())


def test_every_file_has_a_command_line_that_is_looked_at():
    places = [place for place, _ in FOUND]
    named = present("job.yaml-Job", "cronjob.yaml-CronJob", "flink.yaml-CronJob", "crontab", "airflow")
    assert set(named) <= set(places)
    assert len(places) == 8 or ABSENT


@pytest.mark.parametrize(("place", "words"), FOUND, ids=[place for place, _ in FOUND])
def test_the_command_takes_the_line_as_it_stands(place, words):
    parse(words)


@pytest.fixture
def data(tmp_path):
    needs("tar", "l5kit")
    make_drives(tmp_path / "drives", seconds=1)
    (tmp_path / "recipe.yaml").write_text(demo_recipe("drives"))
    return tmp_path


def versions(root):
    return sorted(path.name for path in root.glob("versions/*[0-9].json"))


@pytest.mark.slow
def test_the_line_of_cron_builds_and_ends_well_while_another_build_holds_the_lock(data):
    line = cron_line()
    places = {"/opt/logloom/bin/logloom": LOGLOOM, "/tmp/logloom-": data, "/data": data}
    assert all(there in line for there in places)
    line = re.sub("|".join(places), lambda there: shlex.quote(f"{places[there[0]]}"), line)
    run = ["sh", "-c", line]
    (lock,) = re.findall(r" (\S+\.lock) ", line)
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert subprocess.run(run, capture_output=True, check=True).stderr == b""
    assert versions(data / "urban") == []
    assert subprocess.run(run, capture_output=True, check=True).stdout == b""
    assert versions(data / "urban") == ["00000001.json"]


@pytest.mark.slow
def test_the_command_of_the_job_builds(data):
    changes = {"logloom": LOGLOOM, "gs://drives/recipe.yaml": data / "recipe.yaml", "8": "1"}
    changes["gs://datasets/urban"] = data / "urban"
    words = command_of("job.yaml-Job")
    assert set(changes) <= set(words)
    subprocess.run([changes.get(word, word) for word in words], check=True, capture_output=True)
    assert versions(data / "urban") == ["00000001.json"]


def test_the_pool_beside_a_task_manager_is_ready_on_loopback_alone():
    needs("flink")
    (pool,) = (container for _, container in in_manifests() if container["name"] == "logloom-pool")
    words = [sys.executable, *pool["command"][1:]]
    port = words[-1]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen([*words[:-1], "0"], stdout=subprocess.PIPE, text=True, env=environment)
    with process, contextlib.ExitStack() as stack:
        stack.callback(process.terminate)
        host, _, free = process.stdout.readline().split()[-1].rpartition(":")
        assert host == "127.0.0.1"
        _, option, program = pool["readinessProbe"]["exec"]["command"]
        assert program.count(port) == 1
        subprocess.run([sys.executable, option, program.replace(port, free)], timeout=60, check=True)


def test_builds_of_manifests_are_tried_again_unless_that_is_in_vain():
    for place, container in in_manifests():
        if container["name"] == "build":
            text = (DEPLOY / "kubernetes" / place.split("-")[0]).read_text()
            assert "operator: In, values: [2, 3]" in text, place
