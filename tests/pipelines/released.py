"""A small root in every output, with its logs and recipe: what releases promise to read.

Until the first release it is made again when bytes change, by `python -m tests.pipelines.released`; from then
on it stays as it is. All of it lies under memory://released, since the URIs of logs are part of identities.
"""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import tarfile
import tempfile
from collections.abc import Iterator

import fsspec
import numpy as np
from blake3 import blake3

import logloom.datasets
from logloom.demo import TOPICS
from logloom.demo.recorder import drives, record
from logloom.io.catalog.tags import change_tags
from logloom.io.formats.registry import format_named, format_names
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe

ARCHIVE = pathlib.Path(__file__).with_name("released.tar.xz")
ROOT = "memory://released/root"
RECIPE = """
name: released
logs: ["memory://released/logs/*.mcap"]
clock: {rate: 10}
columns:
  ego.position: {topic: /odom, field: pose.pose.position, resample: linear, unit: m}
  ego.rotation: {topic: /odom, field: pose.pose.orientation, resample: slerp, as: rotation_matrix}
  ego.speed: {topic: /odom, field: twist.twist.linear.x, resample: mean, window: [-500ms, 0ms], unit: m s-1}
  imu: {topic: /imu, field: [angular_velocity, linear_acceleration], resample: window, window: [-100ms, 0ms]}
  camera.front: {topic: /cam/front/compressed, field: data, resample: nearest, tolerance: 1s}
  objects: {topic: /tracks, field: objects, strings: 16, resample: nearest}
  lights: {topic: /lights, field: lights, strings: 16, resample: nearest}
rows: {require: [ego.position, ego.rotation, camera.front]}
partition: {rows: 10}
split: {train: 0.3, val: 0.7, by: log_id}
outputs:
  annotations:
    file: "annotations/{split}.json"
    images: {img_path: camera.front}
    instances: {from: objects, bbox_label: class}
    metainfo: {classes: [car, cyclist, pedestrian]}
  bags: {types: {camera.front: jpg}}
  l5kit:
    host: demo
    translation: ego.position
    rotation: ego.rotation
    agents:
      column: objects
      label_probabilities:
        from: class
        map:
          car: PERCEPTION_LABEL_CAR
          cyclist: PERCEPTION_LABEL_CYCLIST
          pedestrian: PERCEPTION_LABEL_PEDESTRIAN
    tl_faces: lights
  lance: {columns: [ego.*, camera.front]}
  lerobot: {fps: 10, features: {observation.state: ego.position, action: ego.speed}}
  parquet: {columns: [ego.*, camera.front]}
  table: {index: [ego.speed]}
  tar: {ext: {camera.front: jpg}}
  zarr: {rows_per_chunk: 16}
"""


def make() -> None:
    """Write the archive again."""
    memory = fsspec.filesystem("memory")
    with tempfile.TemporaryDirectory() as scratch:
        slow = {"/cam/front/compressed": 2, "/imu": 20, "/odom": 20}
        topics = [dataclasses.replace(one, rate=slow.get(one.name, one.rate)) for one in TOPICS]
        topics = [one for one in topics if one.name != "/lidar/top"]
        for path in (record(scratch, drive, topics) for drive in drives(1.6, 2, 0)):
            memory.pipe_file(f"/released/logs/{path.name}", path.read_bytes())
    memory.pipe_file("/released/recipe.yaml", RECIPE.encode())
    build(plan_build(Recipe.from_yaml(RECIPE), ROOT), view="none")
    change_tags(Store.at(ROOT), lambda tags: {"gold": 1})
    digests = json.dumps(dict(digests_of_rows()), indent=1)
    memory.pipe_file("/released/rows.json", digests.encode())
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for path in sorted(memory.find("/released")):
            name = path.removeprefix("/released/")
            if not name.startswith(("root/runs/", "root/index/")):
                member = tarfile.TarInfo(name)
                member.size = memory.size(path)
                archive.addfile(member, io.BytesIO(memory.cat_file(path)))


def unpack() -> str:
    """Put the archive's files into memory; the text of the recipe."""
    memory = fsspec.filesystem("memory")
    for name, data in files():
        memory.pipe_file(f"/released/{name}", data)
    return memory.cat_file("/released/recipe.yaml").decode()


def files() -> Iterator[tuple[str, bytes]]:
    """The archive's files by name."""
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            yield member.name, file.read()


def digests_of_rows() -> Iterator[tuple[str, list[str]]]:
    """By output that is installed, a digest of each row that it gives."""
    for output in format_names():
        if format_named(output).has_rows:
            rows = logloom.datasets.open(ROOT, output=output)
            yield output, [_digest_of(row) for row in rows]


def _digest_of(row: dict[str, object]) -> str:
    text = blake3()
    for name in sorted(row):
        value = row[name]
        data = value.tobytes() if isinstance(value, np.ndarray | np.generic) else repr(value).encode()
        text.update(f"{name} {len(data)}\n".encode() + data)
    return text.hexdigest(8)


if __name__ == "__main__":
    make()
