"""A worker process of Beam's local runner: python -m logloom.runners.local_worker.

Beam prints the traceback of whatever a step raises to the terminal, and hands it to the job too, where it
becomes one message of logloom's.
"""

from __future__ import annotations

import sys

from apache_beam.runners.worker import sdk_worker, sdk_worker_main

if __name__ == "__main__":
    sdk_worker.print = lambda *values, **where: None
    sdk_worker_main.main(sys.argv)
