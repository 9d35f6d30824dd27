"""Calls in threads, in a forked process, or in a process that can't import Beam."""

from __future__ import annotations

import atexit
import functools
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_SECONDS = 240  # a machine may be busy with much else
_WITHOUT_BEAM = """
import os, pickle, sys
sys.modules["apache_beam"] = None
sys.path[:] = pickle.load(sys.stdin.buffer)
import traceback
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what functions print is no answer
while True:
    try:
        function, *arguments = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    try:
        answer = pickle.dumps((True, function(*arguments)))
    except Exception:
        answer = pickle.dumps((False, traceback.format_exc()))
    answers.write(answer)
    answers.flush()
"""


def in_threads(function: Callable[[int], Any], count: int) -> list[Any]:
    """What calls with 0, 1, … give that many threads make at the same time."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(function, range(count)))


def in_fork(function: Callable[[], Any]) -> Any:
    """What a call gives in a process that is forked for it.

    Raises:
        AssertionError: the call failed there, or never ended.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:  # nothing of pytest may run here
        code = 1
        try:
            os.close(ours)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # kills a process that waits for ever
            signal.alarm(_SECONDS)
            try:
                answer: Any = (True, function())
            except BaseException as error:
                answer = (False, f"{type(error).__name__}: {error}")
            with os.fdopen(theirs, "wb") as pipe:
                pickle.dump(answer, pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert data, f"a forked process died, or never ended (status {status})"
    is_done, found = pickle.loads(data)
    assert is_done, f"in a forked process: {found}"
    return found


@functools.cache
def _process_without_beam() -> subprocess.Popen[bytes]:
    """A process that calls functions one after the other, for as long as this one runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WITHOUT_BEAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": "4711"},
    )
    assert process.stdin
    pickle.dump([os.path.abspath(folder) for folder in sys.path], process.stdin)
    atexit.register(process.wait)
    atexit.register(process.stdin.close)  # what ends it
    return process


def without_beam(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call gives in another process, which can't import Beam and hashes texts by another seed.

    Args:
        function: of an importable module, as are the classes of `arguments`.

    Raises:
        AssertionError: the call failed there, or never ended.
    """
    process = _process_without_beam()
    assert process.stdin
    assert process.stdout
    watch = threading.Timer(_SECONDS, process.kill)
    watch.start()
    try:
        process.stdin.write(pickle.dumps((function, *arguments)))
        process.stdin.flush()
        is_done, found = pickle.load(process.stdout)
    except (EOFError, OSError, pickle.UnpicklingError) as error:
        _process_without_beam.cache_clear()
        raise AssertionError("a process without Beam died, or never answered") from error
    finally:
        watch.cancel()
    assert is_done, f"in a process without Beam: {found}"
    return found
