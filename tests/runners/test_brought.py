"""What the user brings: job servers that are up or lie in one jar, and programs that start workers."""

import json
import pathlib
import signal
import subprocess
import sys
import zipfile

import pytest

from logloom.cli.terminal import TERMINATED
from logloom.runners.flink.engine import _DRIVER, job_server
from logloom.runners.flink.jars import class_path
from logloom.runners.scratch import engine_folders
from tests.pipelines.conftest import digests
from tests.runners.breaking import BuildCommand
from tests.runners.conftest import build_on

pytestmark = pytest.mark.engines


@pytest.fixture
def worker(tmp_path) -> dict[str, str]:
    """Options for workers that Flink starts, by a script of one line."""
    script = tmp_path / "worker"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m logloom.runners.worker "$@"\n')
    script.chmod(0o755)
    return {"environment": "process", "environment_config": json.dumps({"command": str(script)})}


def one_jar(path: pathlib.Path) -> pathlib.Path:
    """A jar that is started like a shaded one: it names its main class, and the jars that it stands for."""
    jars = sorted(pathlib.Path(class_path()).parent.glob("*.jar"))
    text = f"Class-Path: {' '.join(jar.as_uri() for jar in jars)}"
    folded = "\n ".join([text[:70], *(text[at : at + 69] for at in range(70, len(text), 69))])
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nMain-Class: {_DRIVER}\n{folded}\n\n")
    return path


def test_a_job_server_in_one_jar_starts_workers_as_processes_of_its_own(worker, drive, expected, tmp_path):
    jar = one_jar(tmp_path / "job-server.jar")
    built = build_on(drive, tmp_path / "root", flink_job_server_jar=str(jar), workers=2, **worker)
    assert built.counters["partitions"] >= 10
    assert digests(tmp_path / "root") == expected


def test_a_job_server_that_is_up_hands_jobs_to_its_cluster(cluster, drive, expected, tmp_path):
    with engine_folders() as folders, job_server(folders, {}, master=cluster.address) as endpoint:
        build_on(drive, tmp_path / "root", job_endpoint=endpoint, workers=2)
    assert digests(tmp_path / "root") == expected


def test_a_conversion_runs_on_a_cluster_too(cluster, drive, tmp_path):
    build_on(drive, tmp_path / "root", runner="direct", workers=1)

    def converted(name: str, *options: str) -> dict[str, str]:
        command = [sys.executable, "-m", "logloom", "convert", str(tmp_path / "root"), str(tmp_path / name)]
        done = subprocess.run(
            [*command, "--format", "zarr", "--columns", "ego.*", *options], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return digests(tmp_path / name)

    there = converted("there", "--flink-master", cluster.address)
    assert len(there) > 3
    assert there == converted("here")


@pytest.mark.parametrize("engine", ["direct", "flink"])
def test_sigterm_ends_the_build_and_all_that_it_started(engine, worker, slow, tmp_path):
    options = ["--runner", engine, "--workers", "2"]
    if engine == "flink":  # whose processes, too, end with it
        options += ["--environment", "process", "--environment-config", worker["environment_config"]]
    building = BuildCommand(slow, tmp_path / "root", *options)
    building.wait_for_units(3)
    code, said = building.end_by(signal.SIGTERM)
    assert code == TERMINATED
    assert "build again to go on" in said
    assert "Traceback" not in said
    building.wait_for_descendants()
    assert building.left_behind() == []
