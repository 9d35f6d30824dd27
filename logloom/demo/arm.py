"""Synthetic episodes of a robot arm: joints, gripper, commands and camera.

Elsewhere: recording them (recorder), the messages (messages), drives of cars (logloom.demo, car).
"""

from __future__ import annotations

import io
import os
import pathlib

import numpy as np

from logloom.demo import messages
from logloom.demo.motion import World
from logloom.demo.recorder import DemoTopic, drives, record

JOINTS = ("shoulder", "elbow", "wrist")
SIZE = (96, 128)  # height and width of its pictures
LENGTHS = (34, 26, 10)  # of its links, in pixels
DELAY = 0.1  # seconds from a command until the arm is there


def make_arm_episodes(
    folder: str | os.PathLike[str], *, seconds: float = 8.0, episodes: int = 3, seed: int = 0
) -> list[pathlib.Path]:
    """Write synthetic episodes of a robot arm: MCAP files episode-000.mcap, episode-001.mcap, …

    /joint_states and /arm/command list the joints, in an order that changes; /gripper/state has the joint
    `gripper` alone; /cam/wrist/compressed shows the arm. Messages come late and out of order, get lost or
    arrive twice. Equal arguments give equal bytes. Needs the extra `build`.

    Args:
        folder: created if missing; episodes of these names in it are replaced.
        seconds: of each episode.
        episodes: how many.
        seed: of motion and noise.

    Returns:
        The paths of the files.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> [path.name for path in make_arm_episodes(folder, seconds=1, episodes=2)]
        ['episode-000.mcap', 'episode-001.mcap']
    """
    paths = []
    for drive in drives(seconds, episodes, seed):
        path = record(folder, drive, TOPICS)
        paths.append(path.replace(path.with_name(f"episode-{drive.number:03d}.mcap")))
    return paths


def _angles(world: World, t: float) -> list[float]:
    """Angles of the joints at a time, and the opening of the gripper in metres."""
    phase = world.ego(0.0).yaw  # differs by episode
    waves = [0.8 * np.sin((0.5 + 0.2 * number) * t + phase + number) for number in range(len(JOINTS))]
    return [*waves, 0.04 * (1 + np.sin(t + phase))]


def _joints(world: World, stamp: int, t: float, rng: np.random.Generator) -> bytes:
    order = rng.permutation(len(JOINTS))
    angles = _angles(world, t)
    return messages.joint_state(stamp, [JOINTS[i] for i in order], [angles[i] for i in order])


def _picture(world: World, t: float) -> bytes:
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", SIZE[::-1], (214, 210, 204))
    draw = ImageDraw.Draw(picture)
    *angles, opening = _angles(world, t)
    at, heading = np.array([SIZE[1] / 2, SIZE[0] - 6.0]), -np.pi / 2
    for length, angle in zip(LENGTHS, angles, strict=True):
        heading += angle
        end = at + length * np.array([np.cos(heading), np.sin(heading)])
        draw.line([tuple(at), tuple(end)], fill=(60, 90, 150), width=6)
        at = end
    radius = 2 + 60 * opening
    draw.ellipse([*(at - radius), *(at + radius)], outline=(190, 70, 40), width=2)
    file = io.BytesIO()
    picture.save(file, "jpeg", quality=85)
    return file.getvalue()


TOPICS = (
    DemoTopic("/joint_states", "sensor_msgs/msg/JointState", 50, (0, 0), _joints),
    DemoTopic(
        "/gripper/state",
        "sensor_msgs/msg/JointState",
        20,
        (0, 0),
        lambda world, stamp, t, rng: messages.joint_state(stamp, ["gripper"], _angles(world, t)[-1:]),
    ),
    DemoTopic(
        "/arm/command",
        "sensor_msgs/msg/JointState",
        50,
        (0, 0),
        lambda world, stamp, t, rng: messages.joint_state(
            stamp, [*JOINTS, "gripper"], _angles(world, t + DELAY)
        ),
    ),
    DemoTopic(
        "/cam/wrist/compressed",
        "sensor_msgs/msg/CompressedImage",
        20,
        (0.6, 0.5),
        lambda world, stamp, t, rng: messages.compressed_image(stamp, _picture(world, t), "cam_wrist"),
    ),
)
