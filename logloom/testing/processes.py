"""Call functions in several threads, in a forked process, or in a new process that can't import Beam."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_SECONDS = 240  # a machine may be busy with much else
_WITHOUT_BEAM = """
import pickle, sys
sys.modules["apache_beam"] = None
sys.path[:] = pickle.loads(bytes.fromhex(sys.argv[1]))
function, *arguments = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(function(*arguments)))
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


def without_beam(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call gives in a new process that can't import Beam and hashes texts by another seed.

    Args:
        function: of an importable module, as are the classes of `arguments`.

    Raises:
        AssertionError: the call failed there; shows what it printed.
    """
    path = pickle.dumps([os.path.abspath(folder) for folder in sys.path]).hex()
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_BEAM, path],
        input=pickle.dumps((function, *arguments)),
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        timeout=_SECONDS,
    )
    assert done.returncode == 0, f"in a process without Beam: {done.stderr.decode(errors='replace')}"
    return pickle.loads(done.stdout)
