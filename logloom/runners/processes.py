"""Processes that never outlive this one, not even when it is killed."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, Self

from logloom.errors import LogloomError
from logloom.interpreter import import_environment, module_command

_MAX_START_S = 120.0
LOOPBACK = "127.0.0.1"  # nothing that is started here listens elsewhere; `localhost` may be another address

# Waits for the child, and ends it when our end of the pipe closes: by `stop`, or by our own death.
_GUARD = (
    'exec 3<&0; "$@" </dev/null 3<&- & child=$!; '
    "{ read -r _ <&3; kill $child 2>/dev/null; sleep 5; kill -9 $child 2>/dev/null; } & guard=$!; exec 3<&-; "
    "wait $child; code=$?; kill $guard 2>/dev/null; exit $code"
)


class Child:
    """A process in a session of its own, so that Ctrl-C reaches us first and we may end it in order."""

    def __init__(
        self, command: Sequence[str], log: pathlib.Path, *, what: str, env: Mapping[str, str] | None = None
    ):
        """
        Args:
            log: file that takes what it prints.
            what: its name in errors.
        """
        self._log = log
        self._what = what
        with log.open("ab") as sink:
            self._begin = sink.tell()  # what an earlier one printed says nothing of this one
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "guard", *command],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=sink,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Of the session that holds the process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Waits until the process prints what matches.

        Raises:
            LogloomError: it ended, or took too long; holds the end of what it printed.
        """
        until = time.monotonic() + _MAX_START_S
        while True:
            running = self.is_running
            found = re.search(pattern, self.printed())
            if found:
                return found
            if not running:
                raise LogloomError(f"{self._what} ended at once:\n{self.tail()}")
            if time.monotonic() > until:
                raise LogloomError(f"{self._what} is not up after {_MAX_START_S:.0f} s:\n{self.tail()}")
            time.sleep(0.05)

    def printed(self) -> str:
        """All that it printed."""
        with self._log.open("rb") as file:
            file.seek(self._begin)
            return file.read().decode("utf-8", errors="replace")

    def tail(self, lines: int = 15) -> str:
        """The last lines that it printed."""
        return "\n".join(self.printed().strip().splitlines()[-lines:])

    def stop(self) -> None:
        """Ends the process, by force after five seconds."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def kill(self) -> None:
        """Ends it as a crash would: with SIGKILL, and no word to anyone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def start_worker(
    worker_id: str,
    endpoints: Mapping[str, str],
    temporary: Mapping[str, str],
    printed: IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a Beam worker of this Python, in a session of its own: Ctrl-C is for this process alone.

    Args:
        endpoints: host:port of Beam's services, by name: "control", "logging", ...
        temporary: variables that name the folder of its temporary files.
        printed: takes what it prints; our own standard error by default.
    """
    command = module_command("logloom.runners.worker", "--with_parent", f"--id={worker_id}")
    return subprocess.Popen(
        [*command, *(f"--{name}_endpoint={url}" for name, url in endpoints.items())],
        stdin=subprocess.PIPE,
        stdout=printed or sys.stderr,
        stderr=printed,
        env={**import_environment(), **temporary},
        start_new_session=True,
    )


def end_worker(worker: subprocess.Popen[bytes]) -> None:
    """Wait for a worker that was asked to end; kill it after five seconds."""
    try:
        worker.wait(5)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
    if worker.stdin is not None:
        worker.stdin.close()
