"""The recipes of the demo."""

from __future__ import annotations

import json
import os
import re

from logloom import parts

_RECIPE = """\
# From two synthetic drives to ten rows a second, as L5Kit arrays and as tar shards.
name: demo
logs: [LOGS]
clock: {rate: 10}

columns:
  # Where the car is: between two messages of the 50 Hz odometry.
  ego.position: {topic: /odom, field: pose.pose.position, resample: linear, unit: m}
  ego.rotation: {topic: /odom, field: pose.pose.orientation, resample: slerp, as: rotation_matrix}
  ego.speed:
    {topic: /odom, field: twist.twist.linear.x, resample: mean, window: [-500ms, 0ms], unit: m s-1}
  # All measurements of the IMU since the row before: some ten measurements of six numbers.
  imu:
    {topic: /imu, field: [angular_velocity, linear_acceleration], resample: window, window: [-100ms, 0ms]}
  # The picture closest in time, as the camera compressed it; none if it is further off than 50 ms.
  camera.front: {topic: /cam/front/compressed, field: data, resample: nearest, tolerance: 50ms}
  intrinsics:   {topic: /cam/front/camera_info, field: k, resample: static}
  lidar.points: {topic: /lidar/top, as: "points[x,y,z,intensity]", resample: nearest, tolerance: 60ms}
  # Lists of others and of lights: as many a row as there are.
  objects:      {topic: /tracks, field: objects, strings: 16, resample: nearest}
  lights:       {topic: /lights, field: lights, strings: 16, resample: nearest}

# A tick without a place, a picture or a scan is no row (sensors start late and drop out); all are counted.
rows: {require: [ego.position, ego.rotation, camera.front, lidar.points]}

outputs:
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
  tar: {ext: {camera.front: jpg, lidar.points: npy}}
"""


_CAR = """\
# A whole car, ten rows a second: three cameras recorded as video, two lidars without the smear of motion,
# frames, calibration, and boxes that people delivered later. `logloom demo --car` makes such drives.
name: car
logs: [LOGS]
clock: {rate: 10}

columns:
  # Where the car is on the map: map, odom and base_link are joined from /tf.
  ego.position: {tf: {from: base_link, to: map}, as: position, unit: m}
  ego.rotation: {tf: {from: base_link, to: map}, as: rotation_matrix}
  ego.speed:
    {topic: /odom, field: twist.twist.linear.x, resample: mean, window: [-500ms, 0ms], unit: m s-1}
  imu:
    {topic: /imu, field: [angular_velocity, linear_acceleration], resample: window, window: [-100ms, 0ms]}
  # Cameras: H.264, H.265 and VP9, each in another type of message.
  camera.front: {topic: /cam/front/video, as: image, encode: jpg, resample: nearest, tolerance: 50ms}
  camera.left: {topic: /cam/left/ffmpeg, as: image, encode: jpg, resample: nearest, tolerance: 50ms}
  camera.right: {topic: /cam/right/compressed, as: image, encode: jpg, resample: nearest, tolerance: 50ms}
  # K, D, model, size and extrinsics of each: calibration.front.k and so on.
  calibration.front: {calibration: {camera: /cam/front/camera_info, frame: base_link}}
  calibration.left: {calibration: {camera: /cam/left/camera_info, frame: base_link}}
  calibration.right: {calibration: {camera: /cam/right/camera_info, frame: base_link}}
  # Points as if all had been measured at the tick; the pose moves them from there onto the map.
  lidar.left.points:
    topic: /lidar/left
    as: "points[x,y,z,intensity]"
    resample: nearest
    tolerance: 60ms
    deskew: {pose: {tf: {from: lidar_left, to: map}}, to: tick}
  lidar.left.pose: {tf: {from: lidar_left, to: map}, as: matrix}
  lidar.right.points:
    topic: /lidar/right
    as: "points[x,y,z,intensity]"
    resample: nearest
    tolerance: 60ms
    deskew: {pose: {tf: {from: lidar_right, to: map}}, to: tick}
  lidar.right.pose: {tf: {from: lidar_right, to: map}, as: matrix}
  # Boxes on the map, of two ticks a second, from labellers. What they add later makes a new version.
  objects:
    {table: LABELS, field: [class, track, center, size, yaw], strings: 16, frame: map}

# A tick without a place, a picture ahead or both scans is no row; all are counted.
rows: {require: [ego.position, camera.front, lidar.left.points, lidar.right.points]}

outputs:
  table: {}
  tar: {ext: {camera.front: jpg, camera.left: jpg, camera.right: jpg}}
"""


def demo_recipe(folder: str | os.PathLike[str] = ".") -> str:
    """The text of a recipe over the drives of `make_drives`.

    Args:
        folder: where they are; a relative one is taken from where the recipe is kept.
    """
    return _with_installed_outputs(_RECIPE.replace("LOGS", _quoted(folder, "*.mcap")))


def car_recipe(folder: str | os.PathLike[str] = ".") -> str:
    """The text of a recipe over the drives and labels of `make_car_drives`.

    Args:
        folder: that was given there; a relative one is taken from where the recipe is kept.
    """
    text = _CAR.replace("LOGS", _quoted(folder, "logs", "*.mcap"))
    return _with_installed_outputs(text.replace("LABELS", _quoted(folder, "labels", "*.parquet")))


def _with_installed_outputs(recipe: str) -> str:
    """Leave out the outputs that no installed part offers."""
    head, outputs = recipe.split("outputs:\n")
    installed = {*parts.names("outputs")}
    blocks = re.split(r"^(?=  \w)", outputs, flags=re.MULTILINE)
    return f"{head}outputs:\n{''.join(b for b in blocks if b.partition(':')[0].strip() in installed)}"


def _quoted(*parts: str | os.PathLike[str]) -> str:
    return json.dumps(os.path.join(*parts), ensure_ascii=False)
