"""LeRobot datasets beside the original lerobot: writing them, and frames at random of one that we wrote.

    python -m benchmarks.lerobot_datasets [--codec av1] [--rows 600] [--size 480 640] [--rounds 5]

One camera, a state and an action, in four episodes, with the same codec, CRF, GOP and preset. Writing begins
with pixels: logloom's is the command `convert` over a table of them, reading back included, what a table of
two frames an episode takes set aside; lerobot's is `add_frame` and `save_episode` over a memory map, its
imports set aside. Frames at random are read one by one from the same files, each by one process. `make
lerobot` installs the original.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np

import logloom.datasets
import logloom.io.formats.table as tt
from benchmarks.harness import Contender, cache_folder, child, compare, in_process, ratios, spread
from benchmarks.report import Report
from benchmarks.scripts.sides import REPOSITORY, Side

LEROBOT = REPOSITORY / ".venv-lerobot" / "bin" / "python"
CAMERA, STATE, ACTION = "observation.images.front", "observation.state", "action"
EPISODES, FPS = 4, 10
ONE, TWO = "logloom", "logloom, 2 workers"
# As lerobot encodes; its x264 has the encoder's own preset, as ours.
VIDEO = {
    "av1": {"codec": "av1", "crf": 30, "gop": 2, "preset": 12},
    "h264": {"codec": "h264", "crf": 30, "gop": 2},
}


def make_pixels(path: pathlib.Path, rows: int, height: int, width: int) -> None:
    """A drifting pattern with noise; (rows, height, width, 3) uint8."""
    noise = np.random.default_rng(0).normal(0, 8, (height, width, 3))
    y, x = np.mgrid[:height, :width]
    pixels = np.lib.format.open_memmap(path, "w+", np.uint8, (rows, height, width, 3))
    for row in range(rows):
        wave = 127 + 100 * np.sin((x + 3 * row) / 19) * np.cos((y - 2 * row) / 17)
        pixels[row] = np.clip(wave[:, :, None] + np.roll(noise, 7 * row, 1), 0, 255).astype(np.uint8)
    pixels.flush()


def make_table(uri: str, path: pathlib.Path, length: int) -> None:
    """The same pixels as a table, a log for each episode, of so many frames."""
    pixels = np.load(path, mmap_mode="r")[: EPISODES * length]
    numbers = np.random.default_rng(1).random((len(pixels), 7), np.float32)
    rows = (
        {
            "log_id": f"drive{row // length}",
            "timestamp": row % length * 10**9 // FPS,
            CAMERA: pixels[row],
            STATE: numbers[row],
            ACTION: numbers[row],
        }
        for row in range(len(pixels))
    )
    tt.write_table(uri, rows)


def writer(folder: pathlib.Path, codec: str, workers: int, table: str = "table") -> Contender:
    """`logloom convert`, into an empty folder each time."""
    out = folder / ("ours" if table == "table" else "start-up") / str(workers)
    features = {key: key for key in (CAMERA, STATE, ACTION)}
    options = {"fps": FPS, "task": "drive", "features": features, "video": VIDEO[codec]}
    how = ["--format", "lerobot", "--plain", "--options", json.dumps(options), "--workers", str(workers)]
    command = [sys.executable, "-m", "logloom", "convert", str(folder / table), str(out), *how, "--quiet"]
    out.parent.mkdir(exist_ok=True)
    return child(command, prepare=lambda: shutil.rmtree(out, ignore_errors=True))


def frames_at_random(folder: pathlib.Path) -> Contender:
    """All frames of a dataset, each once."""
    rows = logloom.datasets.open(str(folder))
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    return in_process(lambda: [rows[position][CAMERA].shape for position in order])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--codec", choices=sorted(VIDEO), default="av1")
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--size", type=int, nargs=2, default=(480, 640), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    if not LEROBOT.exists():
        print("Nothing is compared: lerobot is not installed; `make lerobot` installs it (gigabytes)")
        return
    rows, (height, width), codec = chosen.rows // EPISODES * EPISODES, chosen.size, chosen.codec
    report = Report(f"LeRobot: {codec}, {width} x {height}, GOP 2")
    with tempfile.TemporaryDirectory(dir=cache_folder()) as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        make_pixels(folder / "pixels.npy", rows, height, width)
        make_table(str(folder / "table"), folder / "pixels.npy", rows // EPISODES)
        make_table(str(folder / "little"), folder / "pixels.npy", 2)
        side = stack.enter_context(Side(LEROBOT, "lerobot_side.py", codec, folder, rows))
        writers = {
            ONE: writer(folder, codec, 1),
            TWO: writer(folder, codec, 2),
            "lerobot": side.task("write"),
            "lerobot, encoder in 1 thread": side.task("write_by_one_thread"),
            "lerobot, streaming_encoding": side.task("write_streaming"),
        }
        little = {name: writer(folder, codec, n, "little") for n, name in ((1, ONE), (2, TWO))}
        # The least, for what a busy machine adds to a start-up mustn't be taken off the work.
        startups = {name: min(s.seconds for s in found) for name, found in compare(little, rounds=3).items()}
        written = compare(writers, rounds=chosen.rounds)
        report.add("write", rows, "frames", written, startup=startups)
        readers = {
            ONE: frames_at_random(folder / "ours/1"),
            "lerobot, torchcodec": side.task("read_by_torchcodec"),
            "lerobot, pyav": side.task("read_by_pyav"),
        }
        report.add("frames at random", rows, "frames", compare(readers, rounds=chosen.rounds))
    report.finish()
    faster = ratios(written[ONE], written[TWO], startups[ONE], startups[TWO])
    print(f"Two workers write {spread(faster)} times as fast as one")


if __name__ == "__main__":
    main()
