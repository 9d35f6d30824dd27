"""The same job with Ray Data: read_mcap, nearest messages for ten ticks a second, write_webdataset.

Two passes over the file: the IMU comes to the driver, images stay in the object store.

    python extract_ray.py LOG FOLDER
"""

from __future__ import annotations

import os
import pathlib
import struct
import sys

import numpy as np
import ray
from extract import IMAGE_SHAPE, PERIOD, nearest


def stamp_of(data: bytes) -> int:
    seconds, nanoseconds = struct.unpack_from("<iI", data, 4)
    return seconds * 10**9 + nanoseconds


def with_stamp(row: dict) -> dict:
    return {"stamp": stamp_of(row["data"]), "log_time": row["log_time"], "data": row["data"]}


def main(log: str, folder: str) -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    imus = ray.data.read_mcap(log, topics={"/imu/data"}).map(with_stamp).take_all()
    images = ray.data.read_mcap(log, topics={"/camera/image"}).map(with_stamp).materialize()
    seen = images.select_columns(["stamp", "log_time"]).take_all()
    log_times = [row["log_time"] for row in [*imus, *seen]]
    ticks = np.arange(-(-min(log_times) // PERIOD), max(log_times) // PERIOD + 1) * PERIOD
    image_stamps = np.sort([row["stamp"] for row in seen])
    imu_of = nearest(np.array([row["stamp"] for row in imus]), ticks)
    wanted: dict[int, list[tuple[int, np.ndarray]]] = {}
    for tick, image, imu in zip(ticks.tolist(), nearest(image_stamps, ticks), imu_of, strict=True):
        numbers = np.frombuffer(imus[imu]["data"], "<f8", offset=28)
        values = np.concatenate([numbers[13:16], numbers[25:28]])
        wanted.setdefault(int(image_stamps[image]), []).append((tick, values))

    def rows_of(row: dict) -> list[dict]:
        data = row["data"]
        pixels = np.frombuffer(data, np.uint8, offset=len(data) - 640 * 480 * 3).reshape(IMAGE_SHAPE)
        return [
            {"__key__": f"log-{tick}", "image.npy": pixels, "imu.npy": values}
            for tick, values in wanted.get(row["stamp"], [])
        ]

    images.flat_map(rows_of).write_webdataset(folder)
    for path in pathlib.Path(folder).iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


if __name__ == "__main__":
    main(*sys.argv[1:])
