import os
import pathlib

import pytest

from logloom.io.video.encoders import open_encoder

av = pytest.importorskip("av")
TASKS = pathlib.Path("/proc/self/task")


@pytest.mark.skipif(not TASKS.is_dir(), reason="this system doesn't tell of threads' scheduling policies")
@pytest.mark.parametrize("codec", ["libsvtav1", "libx264", "libx265", "libvpx-vp9"])
def test_opening_an_encoder_leaves_all_threads_with_the_policy_of_before(codec):
    before = os.sched_getscheduler(0)
    encoder = av.CodecContext.create(codec, "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.framerate = 96, 64, "yuv420p", 20
    open_encoder(encoder)
    assert encoder.is_open
    assert {os.sched_getscheduler(int(task.name)) for task in TASKS.iterdir()} == {before}
