"""A worker process of Beam's local runner: python -m logloom.runners.local_worker.

Beam prints the traceback of whatever a step raises to the terminal, and hands it to the job too, where it
becomes one message of logloom's. Ctrl-C reaches the workers, too; that one ends of it is no news either.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Works until the runner lets go of it."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    from apache_beam.runners.worker import sdk_worker, sdk_worker_main

    sdk_worker.print = lambda *values, **where: None
    sdk_worker_main.main(sys.argv)


if __name__ == "__main__":
    main()
