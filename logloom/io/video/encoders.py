"""Opening encoders of video without what they do to the process.

Elsewhere: encoding (logloom.io.formats.lerobot.video_encoder, logloom.io.formats.bags.codecs), decoding
(frames).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import Any

_TASKS = pathlib.Path("/proc/self/task")  # Linux: a folder for each thread of this process


def open_encoder(context: Any) -> None:
    """Opens an encoder of PyAV, and leaves all threads with the scheduling policy that this one has.

    SVT-AV1, run by root, makes the thread that opens it real-time, with the highest priority, and so its own
    threads and all that this process starts later: whatever else runs on the machine would get next to none
    of the processor.

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
