"""Worker processes that are forked from one that has imported everything."""

import contextlib
import errno
import io
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from logloom.runners.fork_server import ForkServer, _Fork, _serve, fork_server, started_early
from tests.runners.breaking import marked, wait_until


@pytest.fixture(scope="module")
def server():
    with contextlib.closing(ForkServer()) as started:
        yield started


def test_a_worker_that_is_killed_ends_by_that_signal_and_the_others_go_on(server):
    first, second = server.fork({}), server.fork({})
    server.kill(first)
    assert first.end.result(60) == -signal.SIGKILL
    with pytest.raises(EOFError):
        first.connection.recv()
    assert not second.end.done()
    server.kill(second)
    assert second.end.result(60) == -signal.SIGKILL


def test_a_worker_ends_when_its_connection_is_closed(server):
    worker = server.fork({})
    worker.connection.close()
    assert worker.end.result(60) == 0


def test_to_kill_a_worker_that_has_ended_does_nothing(server):
    worker = server.fork({})
    for _ in range(3):
        server.kill(worker)
        worker.end.result(60)
    again = server.fork({})
    server.kill(again)
    assert again.end.result(60) == -signal.SIGKILL


def test_workers_of_a_server_that_was_killed_end_too(tmp_path, monkeypatch):
    mark = str(tmp_path)
    monkeypatch.setenv("LOGLOOM_TEST_MARK", mark)
    with contextlib.closing(ForkServer()) as server:
        workers = [server.fork({}) for _ in range(3)]
        wait_until(lambda: len(marked(mark)) == 4)
        os.kill(server.pid, signal.SIGKILL)
        assert [worker.end.result(60) for worker in workers] == [-signal.SIGKILL] * 3
        assert server.fork({}).end.result(60) == -signal.SIGKILL
        wait_until(lambda: not marked(mark), lambda: marked(mark), 60)


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
        worker = server.fork({})
        server.kill(worker)
        assert worker.end.result(60) == -signal.SIGKILL


def test_a_worker_that_cannot_be_forked_has_ended_and_the_server_goes_on(monkeypatch, capfd):
    def refuse():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs, socket.fromfd(ours.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        ours.send(_Fork(1, {}))
        socket.send_fds(channel, [b"\0"], [0])
        _serve(theirs, {})
        assert ours.recv() == (1, os.EX_OSERR)
    assert "no worker can be forked: [Errno 11] Resource temporarily unavailable" in capfd.readouterr().err


def test_a_server_imports_from_where_its_starter_does(tmp_path, monkeypatch):
    folder = tmp_path / "mes données, 数据"
    folder.mkdir()
    (folder / "only_here.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(folder)
    with contextlib.closing(ForkServer(["only_here"])):
        wait_until((tmp_path / "imported").exists)


def test_a_server_starts_where_standard_error_was_replaced():
    with contextlib.redirect_stderr(io.StringIO()), contextlib.closing(ForkServer()) as server:
        worker = server.fork({})
        server.kill(worker)
        assert worker.end.result(60) == -signal.SIGKILL


ONE_THREAD = """\
import os, sys
from logloom.runners import fork_server
fork_server._import(["logloom.pipelines.build.build", "logloom.pipelines.convert.convert"])
fork_server._import(["logloom.io.formats.tar.format"])
import threading
assert threading.active_count() == 1, threading.enumerate()
assert not {"apache_beam", "grpc", "pandas"} & set(sys.modules)
"""


def test_what_is_imported_before_the_forks_starts_no_thread_and_is_no_beam():
    # Numerical libraries have threads at once, and see to forks themselves.
    subprocess.run([sys.executable, "-c", ONE_THREAD], check=True)
