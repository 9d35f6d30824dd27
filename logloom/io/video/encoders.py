"""Open video encoders without their side effects on the process.

Elsewhere: encoding (formats), decoding
(frames).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import Any

_TASKS = pathlib.Path("/proc/self/task")  # Linux: a folder for each thread of this process


def open_encoder(context: Any) -> None:
    """Open an encoder of PyAV without changing the scheduling policy of threads.

    SVT-AV1, run by root, makes the opening thread real-time with the highest priority, and so its own threads
    and all that this process starts later, which starves all other processes of the machine.

    Args:
        context: an av.CodecContext, made for writing and not opened.

    Raises:
        av.error.FFmpegError, ValueError: the encoder refuses its options.
    """
    if not (hasattr(os, "sched_getscheduler") and _TASKS.is_dir()):
        context.open()
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        context.open()
    finally:
        for task in _TASKS.iterdir():
            with contextlib.suppress(OSError):  # it has ended
                if os.sched_getscheduler(int(task.name)) != policy:
                    os.sched_setscheduler(int(task.name), policy, parameters)
