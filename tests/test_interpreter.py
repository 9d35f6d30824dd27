"""Further processes of this Python, and what they import."""

import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

FORKED = """
from logloom.runners.fork_server import ForkServer
server = ForkServer()
worker = server.fork({})
worker.connection.close()
assert worker.end.result() == 0
server.close()
"""
APART = """
from logloom.transforms.build.quarantine import _in_child
assert _in_child(None, []) == ([], "")
"""
HELPER = """
import os
from logloom.io.formats.lance.helper import helped
assert helped(os.getpid, (), {}) != os.getpid()
"""
BEAM = """
import grpc
from concurrent.futures import ThreadPoolExecutor
from logloom.runners.processes import start_worker
engine = grpc.server(ThreadPoolExecutor(1))  # answers, so that the worker doesn't wait for it, and refuses
endpoint = f"127.0.0.1:{engine.add_insecure_port('127.0.0.1:0')}"
engine.start()
worker = start_worker("1", {"control": endpoint}, {"PIPELINE_OPTIONS": "{}"}, open("printed", "wb"))
assert worker.wait() != 0
assert "control" in open("printed").read().lower()
engine.stop(None)
"""
POOL = """
import os
from logloom.interpreter import process_pool
with process_pool(1) as pool:
    assert pool.submit(os.getpid).result() != os.getpid()
assert "PYTHONSAFEPATH" not in os.environ
"""
OF_HERE = """
from logloom.io.formats.lance.helper import helped
from of_here import told
assert helped(told, (), {}) == "of here"
"""


def run(folder, code, *options):
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("code", [FORKED, APART, HELPER, BEAM, POOL])
def test_no_process_that_is_started_runs_a_module_of_the_current_folder(tmp_path, code):
    for name in ("struct", "signal", "apache_beam"):
        (tmp_path / f"{name}.py").write_text("import os\nopen('ran', 'w').close()\nos._exit(7)\n")
    done = run(tmp_path, code, "-P")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_process_finds_modules_of_the_current_folder_where_its_parent_does(tmp_path):
    (tmp_path / "of_here.py").write_text("def told():\n    return 'of here'\n")
    done = run(tmp_path, OF_HERE)
    assert done.returncode == 0, done.stderr
