"""Functions that a helper process calls in tests; it imports this module, which imports little."""

import os
import signal

from logloom.errors import DatasetError
from logloom.io.formats.lance import pylance


@pylance.anywhere
def pid_of(place):
    return os.getpid()


@pylance.anywhere
def refused(place):
    raise DatasetError(f"{place}: odd")


@pylance.anywhere
def killed(place):
    os.kill(os.getpid(), signal.SIGKILL)


@pylance.anywhere
def crashed(place):
    os.kill(os.getpid(), signal.SIGSEGV)
