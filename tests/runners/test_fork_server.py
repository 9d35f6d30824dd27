"""Worker processes that are forked from one that has imported everything."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from logloom.runners.fork_server import ForkServer, fork_server, started_early

NOWHERE = {"control": "127.0.0.1:1"}  # nobody listens there, so a worker tries and tries


@pytest.fixture(scope="module")
def server():
    with contextlib.closing(ForkServer()) as started:
        yield started


def test_a_worker_that_is_killed_ends_by_that_signal_and_the_others_go_on(server):
    first, second = server.fork("one", NOWHERE, {}), server.fork("two", NOWHERE, {})
    server.kill("one")
    assert first.result(60) == -signal.SIGKILL
    assert not second.done()
    server.kill("two")
    assert second.result(60) == -signal.SIGKILL


def test_to_kill_a_worker_that_has_ended_does_nothing(server):
    end = server.fork("one", NOWHERE, {})
    server.kill("one")
    end.result(60)
    server.kill("one")
    server.kill("one")
    again = server.fork("two", NOWHERE, {})
    server.kill("two")
    assert again.result(60) == -signal.SIGKILL


def test_workers_of_a_server_that_was_killed_have_ended_too():
    with contextlib.closing(ForkServer()) as server:
        end = server.fork("one", NOWHERE, {})
        os.kill(server.pid, signal.SIGKILL)
        assert end.result(60) == -signal.SIGKILL
        assert server.fork("two", NOWHERE, {}).result(60) == -signal.SIGKILL


def test_the_server_that_was_started_early_is_the_one_that_is_used():
    with started_early([]), fork_server() as one, fork_server() as again:
        assert one is again
        seen = []
        other = threading.Thread(target=lambda: seen.append(_pid_of_own()))
        other.start()
        other.join()
    assert seen != [one.pid]
    with fork_server() as later:
        assert later is not one


def _pid_of_own():
    with fork_server() as server:
        return server.pid


def test_a_server_that_cannot_import_a_module_forks_all_the_same():
    with contextlib.closing(ForkServer(["logloom.no_such_module"])) as server:
        end = server.fork("one", NOWHERE, {})
        server.kill("one")
        assert end.result(60) == -signal.SIGKILL


ONE_THREAD = """\
import os, sys
from logloom.runners import fork_server
fork_server._import(["logloom.pipelines.build", "logloom.pipelines.convert", "logloom.io.tar.format"])
import grpc._cython.cygrpc
import threading
assert threading.active_count() == 1, threading.enumerate()
names = {open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")}
assert not any(name.startswith(("grpc", "event_engine", "timer")) for name in names), names
"""


def test_what_is_imported_before_the_forks_starts_no_thread_of_python_or_grpc():
    # Numerical libraries have threads at once, and see to forks themselves.
    subprocess.run([sys.executable, "-c", ONE_THREAD], check=True)
