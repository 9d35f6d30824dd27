"""The command and Flink: interrupted, detached, and what the cluster's own pages show."""

import json
import signal
import subprocess

import pytest

from logloom.errors import StorageError, UsageError
from logloom.runners.flink.engine import known_settings, refuse_unknown
from logloom.runners.flink.jars import jars_of_flink
from logloom.runners.flink.rest import FlinkCluster
from tests.pipelines.conftest import digests
from tests.runners.breaking import PATIENCE, BuildCommand, build_command, started_pool, wait_until
from tests.runners.cluster import CONF, MEMORY
from tests.runners.conftest import build_on

pytestmark = pytest.mark.engines


def jobs_of(cluster) -> dict[str, str]:
    jobs = FlinkCluster(cluster.address)._request("/jobs/overview")["jobs"]
    return {job["jid"]: job["state"] for job in jobs}


def test_ctrl_c_cancels_the_job_and_ends_what_was_started(cluster, slow, tmp_path):
    before = jobs_of(cluster)
    building = BuildCommand(slow, tmp_path / "root", "--flink-master", cluster.address)
    building.wait_for_units(3)
    code, said = building.end_by(signal.SIGINT)
    assert code == 130
    assert "build again to go on" in said
    assert "Traceback" not in said
    assert ": running" in said  # the state was shown
    (mine,) = set(jobs_of(cluster)) - set(before)
    assert jobs_of(cluster)[mine] in ("CANCELED", "CANCELLING")
    building.wait_for_descendants()
    assert building.left_behind() == []


def test_a_detached_job_commits_alone_and_the_next_build_makes_the_view(
    cluster,
    slow,
    undisturbed,
    tmp_path,
):
    pool, endpoint = started_pool(tmp_path / "pool.log")
    root = tmp_path / "root"
    workers = ["--environment", "external", "--environment-config", endpoint]
    try:
        detach = build_command(slow, root, "--flink-master", cluster.address, *workers, "--detach", "--json")
        done = subprocess.run(detach, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["version"] == 1
        assert told["engine_id"] in told["place"]
        assert "to see how it went" in done.stderr
        assert not (root / "versions" / "00000001.json").exists()
        wait_until(lambda: jobs_of(cluster)[told["engine_id"]] == "FINISHED", lambda: jobs_of(cluster))
    finally:
        pool.stop()
    assert (root / "versions" / "00000001.json").exists()
    again = subprocess.run(build_command(slow, root), capture_output=True, text=True, timeout=PATIENCE)
    assert again.returncode == 0
    assert "up to date" in again.stderr
    assert digests(root) == undisturbed


def test_logs_and_counters_reach_the_engine_under_plain_names(cluster, drive, tmp_path):
    built = build_on(drive, tmp_path / "root", flink_master=cluster.address)
    assert {"partitions", "rows", "bytes_written"} <= set(built.counters)
    assert "logloom.build: drive-00 " in cluster.logs()


def test_the_settings_of_the_flink_that_is_fetched_are_known():
    known = known_settings(jars_of_flink())
    refuse_unknown(cluster_settings(), known)
    with pytest.raises(UsageError, match=r"did you mean restart-strategy\.type"):
        refuse_unknown(["restart-strategy.typ"], known)


def cluster_settings() -> list[str]:
    """All that the test's cluster is configured with."""
    return [*MEMORY, *(line.partition(":")[0] for line in CONF.splitlines())]


def test_an_error_of_a_worker_is_the_error_of_the_build(drive, tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "parts").write_text("a file where a folder has to be")
    with pytest.raises(StorageError) as caught:
        build_on(
            drive, tmp_path / "root", runner="flink", workers=1, settings={"restart-strategy.type": "none"}
        )
    assert str(tmp_path) in str(caught.value)
    assert "org.apache" not in str(caught.value)
