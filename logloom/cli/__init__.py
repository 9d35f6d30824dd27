"""The `logloom` command. Thin: parse, call, print; a file for each group of commands.

Exit codes: 0 done and whole; 1 failed; 2 bad usage or recipe; 3 done, but something was salvaged, skipped or
found different; 130 and 143 stopped by SIGINT and SIGTERM. Everything heavy is imported inside a command, so
that `--help` is quick.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from typing import Annotated, Any

import typer

from logloom import __version__
from logloom.cli.common import BAD_USAGE, FAILED, STOPPED, TERMINATED, app, say
from logloom.errors import LogloomError, UsageError
from logloom.uris import shown

# Each adds its commands to the app, so this is the order of `--help`.
# isort: off
from logloom.cli import logs  # noqa: F401
from logloom.cli import building  # noqa: F401
from logloom.cli import datasets  # noqa: F401
from logloom.cli import converting  # noqa: F401
from logloom.cli import tour  # noqa: F401
# isort: on

_ENDS_WITHIN = 45.0  # seconds; a job on a cluster that is busy takes most of it to cancel


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    """The `logloom` command: errors become one message and an exit code."""
    terminated = threading.Event()

    def terminate(*_: Any) -> None:
        terminated.set()
        # Whatever holds the way out up, a scheduler that asked for the end gets it.
        over = threading.Timer(_ENDS_WITHIN, os._exit, (TERMINATED,))
        over.daemon = True
        over.start()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminate)
    try:
        code = app(prog_name="logloom", standalone_mode=False)
    except LogloomError as error:
        say(f"logloom: {error}")
        code = BAD_USAGE if isinstance(error, UsageError) else FAILED
    except (typer.Abort, KeyboardInterrupt):
        code = STOPPED
    except BrokenPipeError:
        sys.stderr.close()
        code = FAILED
    except Exception as error:
        if hasattr(error, "format_message"):  # click's own errors know how to show themselves
            error.show()  # type: ignore[attr-defined]
            code = getattr(error, "exit_code", BAD_USAGE)
        else:
            say(shown(traceback.format_exc().rstrip()))
            code = FAILED
    if code == STOPPED:  # Typer, too, makes a code of Ctrl-C
        say("logloom: stopped; a build keeps what is finished: build again to go on")
        code = TERMINATED if terminated.is_set() else STOPPED
    _leave(code or 0)


def _leave(code: int) -> None:
    """Ends the process with this code."""
    if "grpc" in sys.modules:
        # Threads of gRPC that outlive a pipeline can abort the interpreter's own shutdown after all is done.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
