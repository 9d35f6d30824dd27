"""The command and Flink: interrupted, detached, and what the cluster's own pages show."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from logloom.errors import StorageError
from logloom.runners.flink.rest import FlinkCluster
from tests.pipelines.conftest import digests
from tests.runners.conftest import build_on
from tests.runners.test_faults import marked, plan_at, slow, started_pool, undisturbed  # noqa: F401

pytestmark = pytest.mark.engines


def command(slow, root, *options):  # noqa: F811
    start = [sys.executable, "-m", "logloom", "build", str(slow / "recipe.yaml"), "--to", str(root)]
    return [*start, "--py", str(slow / "slowly.py"), *options]


def jobs_of(cluster) -> dict[str, str]:
    jobs = FlinkCluster(cluster.address)._ask("/jobs/overview")["jobs"]
    return {job["jid"]: job["state"] for job in jobs}


def test_ctrl_c_cancels_the_job_and_ends_what_was_started(cluster, slow, tmp_path):  # noqa: F811
    before = jobs_of(cluster)
    environment = {**os.environ, "LOGLOOM_TEST_MARK": str(tmp_path)}
    process = subprocess.Popen(
        command(slow, tmp_path / "root", "--flink-master", cluster.address),
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # as in a terminal
    )
    plan, until = plan_at(slow, tmp_path / "root"), time.monotonic() + 120
    while plan.finished() < 3:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "build again to go on" in said
    assert "Traceback" not in said
    assert ": running" in said  # the state was shown
    (mine,) = set(jobs_of(cluster)) - set(before)
    assert jobs_of(cluster)[mine] in ("CANCELED", "CANCELLING")
    until = time.monotonic() + 20
    while left := marked(str(tmp_path)):
        assert time.monotonic() < until, left
        time.sleep(0.1)


def test_a_detached_job_commits_alone_and_the_next_build_makes_the_view(
    cluster,
    slow,  # noqa: F811
    undisturbed,  # noqa: F811
    tmp_path,
):
    pool, endpoint = started_pool(tmp_path / "pool.log")
    root = tmp_path / "root"
    workers = ["--environment", "external", "--environment-config", endpoint]
    try:
        detach = command(slow, root, "--flink-master", cluster.address, *workers, "--detach", "--json")
        done = subprocess.run(detach, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["version"] == 1
        assert told["engine_id"] in told["place"]
        assert "says how it went" in done.stderr
        assert not (root / "versions" / "00000001.json").exists()
        until = time.monotonic() + 150
        while jobs_of(cluster)[told["engine_id"]] != "FINISHED":
            assert time.monotonic() < until, jobs_of(cluster)
            time.sleep(0.2)
    finally:
        pool.stop()
    assert (root / "versions" / "00000001.json").exists()
    again = subprocess.run(command(slow, root), capture_output=True, text=True, timeout=120)
    assert again.returncode == 0
    assert "up to date" in again.stderr
    assert digests(root) == undisturbed


def test_logs_and_counters_reach_the_engine_under_plain_names(cluster, drive, tmp_path):
    built = build_on(drive, tmp_path / "root", flink_master=cluster.address)
    assert {"partitions", "rows", "bytes_written"} <= set(built.counters)
    assert "logloom.build: drive-00 " in cluster.logs()


def test_an_error_of_a_worker_is_the_error_of_the_build(drive, tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "parts").write_text("a file where a folder has to be")
    with pytest.raises(StorageError) as caught:
        build_on(
            drive, tmp_path / "root", runner="flink", workers=1, settings={"restart-strategy.type": "none"}
        )
    assert str(tmp_path) in str(caught.value)
    assert "org.apache" not in str(caught.value)
