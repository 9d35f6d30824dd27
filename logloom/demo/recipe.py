"""The recipe of the demo."""

from __future__ import annotations

import json
import os

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
  # All that the IMU said since the row before: some ten measurements of six numbers.
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


def demo_recipe(folder: str | os.PathLike[str] = ".") -> str:
    """The text of a recipe over the drives of `make_drives`.

    Args:
        folder: where they lie; a relative one is taken from where the recipe is kept.
    """
    return _RECIPE.replace("LOGS", json.dumps(os.path.join(folder, "*.mcap"), ensure_ascii=False))
