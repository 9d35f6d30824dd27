"""The DAG of examples/deploy, run by a real Airflow; `make deploy` runs this where it is installed."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

pytest.importorskip("airflow", reason="Airflow is not installed here; `make deploy` runs this where it is")

LOGLOOM = REPOSITORY / ".venv/bin/logloom"


@pytest.fixture
def airflow(tmp_path):
    """Runs Airflow's command, with a database of its own and the DAG in its folder; gives what it prints."""
    dags = tmp_path / "airflow/dags"
    dags.mkdir(parents=True)
    shutil.copy(REPOSITORY / "examples/deploy/airflow_dag.py", dags)
    env = {**os.environ, "AIRFLOW_HOME": str(dags.parent), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    env |= {"LOGLOOM": str(LOGLOOM)}

    def run(*arguments, code=0):
        command = [pathlib.Path(sys.executable).parent / "airflow", *arguments]
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    run("db", "migrate")
    return run


@pytest.fixture
def drives(tmp_path):
    subprocess.run([LOGLOOM, "demo"], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path / "demo"


def manifests(root):
    return sorted(path.name for path in root.glob("versions/*[0-9].json"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_that_leaves_damaged_logs_out_fails_at_once_though_its_version_is_there(
    airflow, drives, tmp_path
):
    log = sorted(drives.rglob("*.mcap"))[0]
    data = bytearray(log.read_bytes())
    data[len(data) // 3] ^= 0xFF
    log.write_bytes(data)
    recipe = drives / "recipe.yaml"
    recipe.write_text(f"{recipe.read_text()}\non_error: skip\n")
    airflow("dags", "reserialize")
    conf = {"recipe": str(recipe), "root": str(tmp_path / "root")}
    airflow("dags", "test", "logloom_urban", "--conf", json.dumps(conf), code=1)
    assert manifests(tmp_path / "root") == ["00000001.json"]
    states = airflow("dags", "list-runs", "logloom_urban", "--output", "json")
    assert '"state": "failed"' in states
    assert len(list((tmp_path / "root/runs").glob("*/*.running.json"))) == 1  # and no other try


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_airflow_imports_the_dag_and_a_run_of_it_builds_and_verifies(airflow, drives, tmp_path):
    errors = airflow("dags", "list-import-errors", "--output", "json")
    assert "No data found" in errors or errors.strip().endswith("[]"), errors
    airflow("dags", "reserialize")
    root = tmp_path / "it's a root"
    conf = {"recipe": str(drives / "recipe.yaml"), "root": str(root)}
    airflow("dags", "test", "logloom_urban", "--conf", json.dumps(conf))
    assert manifests(root) == ["00000001.json"]
    states = airflow("dags", "list-runs", "logloom_urban", "--output", "json")
    assert '"state": "success"' in states
