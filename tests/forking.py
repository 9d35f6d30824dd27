"""The `logloom` command as tests run it: forked from a process that has imported it, which takes no time.

What is about a process is tested with one of its own: what it imports, its limits, signals that it gets.

    python tests/forking.py SOCKET ARGUMENT...     the command, by the server that listens there
"""

# Only what starts quickly is imported here: pages run this file as their `logloom`.
from __future__ import annotations

import json
import os
import socket
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

STANDARD = (0, 1, 2)  # input, output, error


def command(
    *arguments: object, cwd: str | os.PathLike[str] | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `logloom`, and gives what it printed."""
    return module("logloom", *arguments, cwd=cwd, env=env)


def module(
    *words: object, cwd: str | os.PathLike[str] | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The same for any module that can be run, by its name and arguments."""
    import subprocess
    import tempfile

    from tests.absent import said

    words = tuple(map(str, words))
    with open(os.devnull, "rb") as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        streams = [stream.fileno() for stream in (given, out, err)]
        code = ask(f"{folder()}/socket", words, streams, cwd or os.getcwd(), env or os.environ)
        for stream in (out, err):
            stream.seek(0)
        done = subprocess.CompletedProcess(words, code, out.read().decode(), err.read().decode())
    said.append(done.stderr)
    return done


def ask(
    server: str,
    words: Sequence[object],
    streams: Sequence[int],
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
) -> int:
    """The exit code of a module, by its name and arguments; negative where a signal ended it."""
    request = json.dumps([words, os.fspath(cwd), dict(env)]).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server)
        socket.send_fds(connection, [len(request).to_bytes(4, "big")], streams)
        connection.sendall(request)
        return int(connection.makefile().read())


def pages_environment() -> dict[str, str]:
    """In which `logloom` is run in the same way by what is started, as by the shell of a page."""
    folders = [folder(), os.path.dirname(sys.executable), os.environ["PATH"]]
    return {**os.environ, "PATH": os.pathsep.join(folders)}


_SERVERS: dict[int, tuple[subprocess.Popen[bytes], str]] = {}  # and folders, by who started them
_STARTING = threading.Lock()


def folder() -> str:
    """The folder of this process' server, which is started once and ends with this process.

    There are its `socket`, and `logloom`, a program that asks it: a folder for PATH.
    """
    with _STARTING:
        if os.getpid() not in _SERVERS:
            _SERVERS[os.getpid()] = _started()
    return _SERVERS[os.getpid()][1]


def _started() -> tuple[subprocess.Popen[bytes], str]:
    import subprocess
    import tempfile

    folder = tempfile.mkdtemp(prefix="logloom-tests-")  # a path of pytest's is too long for a socket
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/socket")
    listener.listen()
    with open(f"{folder}/logloom", "w") as program:
        program.write(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} {folder}/socket logloom "$@"\n')
    os.chmod(program.name, 0o755)
    path = [os.path.dirname(os.path.dirname(os.path.abspath(__file__))), os.environ.get("PYTHONPATH")]
    with listener:
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.forking", str(listener.fileno()), folder],
            stdin=subprocess.PIPE,  # which closes when this process ends, however it does
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    return server, folder


# --- in the server ------------------------------------------------------------------------------------


def serve(listener: socket.socket, folder: str) -> None:
    """Forks a process for each module that is to run, until the one that started this one is gone.

    In those processes it ends as the module does.
    """
    import select
    import shutil
    import signal

    import_all()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
    while STANDARD[0] not in select.select([listener, STANDARD[0]], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            answer(connection)
            return
        connection.close()
    shutil.rmtree(folder)


def import_all() -> None:
    """Imports what commands import when they run, but for Beam and Lance, which most do without."""
    import importlib
    import pkgutil

    import logloom.pipelines
    import tests.disks  # noqa: F401
    from logloom.extras import spare_pandas, without_collection

    with without_collection():  # which would write to pages that all processes share
        spare_pandas()
        importlib.import_module("logloom.cli")
        for module in pkgutil.walk_packages(logloom.pipelines.__path__, "logloom.pipelines."):
            if not module.name.endswith((".template", ".launch")):  # which import Beam
                importlib.import_module(module.name)


def answer(connection: socket.socket) -> None:
    """Runs the module that is asked for in a further process, and says how it ended."""
    import runpy

    head, streams, _, _ = socket.recv_fds(connection, 4, len(STANDARD))
    (name, *arguments), cwd, env = json.loads(
        connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    )
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(str(code).encode())
        os._exit(0)
    connection.close()
    for stream, number in zip(streams, STANDARD, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = [folder for folder in env.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    else:
        code = ask(sys.argv[1], sys.argv[2:], STANDARD, os.getcwd(), os.environ)
        sys.exit(code if code >= 0 else 128 - code)
