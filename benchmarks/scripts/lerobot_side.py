"""lerobot's side of benchmarks.lerobot_datasets.

`python lerobot_side.py CODEC FOLDER ROWS`; see answering.py. Pixels lie in FOLDER/pixels.npy, a dataset of
logloom's in FOLDER/ours/1. Frames are decoded by torchcodec, as lerobot does by itself where there is FFmpeg
(PyAV's wheel has it, under names that are made those that torchcodec looks for), and by PyAV.
"""

import os
import pathlib
import shutil
import sys

import numpy as np
from answering import serve

FOLDER = pathlib.Path(sys.argv[2])
LIBRARIES = FOLDER / "ffmpeg"


def offer_ffmpeg():
    """Starts this program anew, so that the loader of libraries finds those of PyAV."""
    bundled = next(pathlib.Path(sys.prefix).glob("lib/python*/site-packages/av.libs"))
    LIBRARIES.mkdir()
    for path in bundled.glob("lib*-*.so.*"):
        name, _, version = path.name.partition(".so.")
        (LIBRARIES / f"{name.rpartition('-')[0]}.so.{version.partition('.')[0]}").symlink_to(path)
    os.environ["LD_LIBRARY_PATH"] = f"{LIBRARIES}:{bundled}"
    os.execv(sys.executable, [sys.executable, *sys.argv])


EPISODES, FPS = 4, 10
CAMERA = "observation.images.front"


class LeRobot:
    def __init__(self, codec, rows):
        self.folder, self.rows = FOLDER, rows
        self.codec = {"av1": "libsvtav1", "h264": "h264"}[codec]
        from lerobot.datasets.lerobot_dataset import LeRobotDataset

        self.dataset = LeRobotDataset

    def _write(self, **how):
        out = self.folder / "theirs"
        shutil.rmtree(out, ignore_errors=True)
        pixels = np.load(self.folder / "pixels.npy", mmap_mode="r")
        numbers = np.random.default_rng(1).random((self.rows, 7), np.float32)
        vector = {"dtype": "float32", "shape": (7,), "names": [f"n{n}" for n in range(7)]}
        image = {"dtype": "video", "shape": pixels.shape[1:], "names": ["height", "width", "channels"]}
        features = {CAMERA: image, "observation.state": vector, "action": vector}
        os.sync()
        yield
        dataset = self.dataset.create(
            "local/theirs", fps=FPS, features=features, root=out, vcodec=self.codec, **how
        )
        for row in range(self.rows):
            values = {"observation.state": numbers[row], "action": numbers[row], "task": "drive"}
            dataset.add_frame({CAMERA: np.asarray(pixels[row]), **values})
            if (row + 1) % (self.rows // EPISODES) == 0:
                dataset.save_episode()
        dataset.finalize()

    def write(self):
        return self._write()

    def write_by_one_thread(self):
        return self._write(encoder_threads=1)

    def write_streaming(self):
        return self._write(streaming_encoding=True)

    def _read(self, backend):
        dataset = self.dataset("local/ours", root=self.folder / "ours" / "1", video_backend=backend)
        order = np.random.default_rng(0).permutation(self.rows).tolist()
        dataset[order[0]]
        yield
        for row in order:
            dataset[row]

    def read_by_torchcodec(self):
        return self._read("torchcodec")

    def read_by_pyav(self):
        return self._read("pyav")

    def close(self):
        pass


if __name__ == "__main__":
    if not LIBRARIES.exists():
        offer_ffmpeg()
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": f"{FOLDER}/hub", "SVT_LOG": "1"}
    serve(LeRobot(sys.argv[1], int(sys.argv[3])))
