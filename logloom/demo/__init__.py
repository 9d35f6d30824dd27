"""Synthetic drives for trying logloom: logs with realistic faults, and recipes.

Here: what each topic of the plain drives holds, and when.
Elsewhere: drives of a whole car (car), episodes of an arm (arm), recording them (recorder), the world
(motion), its sensors (sensors), the messages (messages), the command that builds datasets from them
(logloom.pipelines.demo).
"""

from __future__ import annotations

import os
import pathlib

from logloom.demo import messages, sensors
from logloom.demo.arm import make_arm_episodes
from logloom.demo.car import make_car_drives
from logloom.demo.recipe import car_recipe, demo_recipe
from logloom.demo.recorder import DemoTopic, drives, record

__all__ = ["car_recipe", "demo_recipe", "make_arm_episodes", "make_car_drives", "make_drives"]

TOPICS = (
    DemoTopic(
        "/cam/front/camera_info",
        "sensor_msgs/msg/CameraInfo",
        0,
        (0, 0),
        lambda world, stamp, t, rng: messages.camera_info(
            stamp, sensors.HEIGHT, sensors.WIDTH, sensors.FOCAL
        ),
    ),
    DemoTopic(
        "/cam/front/compressed",
        "sensor_msgs/msg/CompressedImage",
        15,
        (0.4, 0.8),
        lambda world, stamp, t, rng: messages.compressed_image(stamp, sensors.camera_jpeg(world, t)),
    ),
    DemoTopic(
        "/lidar/top",
        "sensor_msgs/msg/PointCloud2",
        10,
        (0.7, 0.5),
        lambda world, stamp, t, rng: messages.point_cloud(stamp, sensors.lidar_points(world, t, rng)),
    ),
    DemoTopic(
        "/imu",
        "sensor_msgs/msg/Imu",
        100,
        (0.2, 0.3),
        lambda world, stamp, t, rng: messages.imu(stamp, world.ego(t), rng.normal(0, 0.02, 6)),
    ),
    DemoTopic(
        "/odom",
        "nav_msgs/msg/Odometry",
        50,
        (0, 0),
        lambda world, stamp, t, rng: messages.odometry(stamp, world.ego(t)),
    ),
    DemoTopic(
        "/tracks",
        "demo_msgs/msg/TrackArray",
        10,
        (0, 0),
        lambda world, stamp, t, rng: messages.tracks(stamp, world.agents(t)),
    ),
    DemoTopic(
        "/lights",
        "demo_msgs/msg/LightArray",
        10,
        (0, 0),
        lambda world, stamp, t, rng: messages.lights(stamp, world.lights(t)),
    ),
)


def make_drives(
    folder: str | os.PathLike[str], *, seconds: float = 20.0, logs: int = 2, seed: int = 0
) -> list[pathlib.Path]:
    """Writes synthetic drives, as a ROS 2 recorder would: MCAP files drive-00.mcap, drive-01.mcap, …

    Messages come late by up to 40 ms and out of order, jitter, get lost or arrive twice, and camera, lidar
    and IMU drop out for a while. Equal arguments give equal bytes. Needs the extra `build`.

    Args:
        folder: created if missing; drives of these names in it are replaced.
        seconds: of each drive.
        logs: how many.
    """
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    return [record(folder, drive, TOPICS) for drive in drives(seconds, logs, seed)]
