"""What the camera and the lidar of the synthetic drives see of their world.

Both sit above the car's origin and look along it. Camera: a pinhole over flat ground, RGB. Lidar: beams in a
fan of elevations all around, meeting the ground and the boxes of others.
"""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from logloom.demo.motion import Agent, Light, Pose, World

HEIGHT, WIDTH, FOCAL = 240, 320, 220.0  # pixels
CAMERA_ABOVE_GROUND, LIDAR_ABOVE_GROUND = 1.5, 1.8
HALF_ROAD = 4.5
LIDAR_RANGE, NOWHERE = 70.0, 1e6  # what is further off than the range is not seen
LIDAR_ELEVATIONS = np.radians(np.linspace(-24, 2, 16))
LIDAR_AZIMUTHS = np.arange(320) * (2 * math.pi / 320)
SKY, GRASS, ASPHALT, PAINT = (150, 190, 230), (95, 140, 70), (90, 90, 95), (235, 235, 225)
COLOURS = {
    "car": (40, 70, 160),
    "cyclist": (200, 120, 30),
    "pedestrian": (160, 40, 60),
    "red": (230, 40, 40),
    "yellow": (240, 200, 40),
    "green": (50, 200, 80),
}
NEAREST = 2.0  # metres; what is closer to the camera is not drawn


def camera_jpeg(world: World, t: float) -> bytes:
    """The picture at time t: (HEIGHT, WIDTH, 3) as JPEG."""
    import PIL.Image

    image = picture(world, t)
    buffer = io.BytesIO()
    PIL.Image.fromarray(image).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def picture(world: World, t: float) -> NDArray[np.uint8]:
    """The picture at time t: (HEIGHT, WIDTH, 3) RGB."""
    pose = world.ego(t)
    image = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    image[: HEIGHT // 2] = SKY
    image[HEIGHT // 2 :] = _ground_colours(world, pose)
    for light in world.lights(t):
        if light.status[0] > 0.5:
            _draw_light(image, world, pose, light)
    agents = world.agents(t)
    ahead, left = _seen_from(pose, agents)
    for i in np.argsort(-ahead, kind="stable"):  # the nearer hides the farther
        if ahead[i] > NEAREST:
            length, width, height = agents[i].extent
            turn = agents[i].yaw - pose.yaw
            breadth = abs(math.cos(turn)) * width + abs(math.sin(turn)) * length
            _draw_box(image, ahead[i], left[i], breadth, (0.0, height), COLOURS[agents[i].label])
    return image


@functools.cache
def _ground() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where each pixel below the horizon meets the ground: ahead (rows, 1) and left (rows, WIDTH)."""
    rows = np.arange(HEIGHT // 2, dtype=np.float64) + 0.5
    ahead = FOCAL * CAMERA_ABOVE_GROUND / rows[:, None]
    return ahead, (WIDTH / 2 - np.arange(WIDTH) - 0.5) * ahead / FOCAL


def _ground_colours(world: World, pose: Pose) -> NDArray[np.uint8]:
    ahead, left = _ground()
    cos, sin = math.cos(pose.yaw), math.sin(pose.yaw)
    x = pose.position[0] + cos * ahead - sin * left
    aside = np.abs(pose.position[1] + sin * ahead + cos * left - world.road.y(x))
    palette = np.array([GRASS, np.add(GRASS, 12), ASPHALT, PAINT], np.uint8)
    kind = (x % 8 < 4).astype(np.intp)  # mown in stripes, so that motion shows
    kind[aside < HALF_ROAD] = 2
    kind[((aside < 0.12) & (x % 6 < 3)) | (np.abs(aside - HALF_ROAD + 0.3) < 0.1)] = 3
    return palette[kind]


def _seen_from(pose: Pose, agents: Sequence[Agent]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    centres = np.array([agent.centroid for agent in agents]).reshape(-1, 2)
    ahead, left = pose.from_world(centres[:, 0], centres[:, 1])
    return ahead, left


def _draw_light(image: NDArray[np.uint8], world: World, pose: Pose, light: Light) -> None:
    y = world.road.at(light.x)[0] - HALF_ROAD - 1
    ahead, left = pose.from_world(np.array([light.x]), np.array([y]))
    if ahead[0] > NEAREST:
        _draw_box(image, ahead[0], left[0], 0.2, (0.0, 3.0), (60, 60, 60))
        _draw_box(image, ahead[0], left[0], 0.9, (3.0, 3.9), COLOURS[light.colour])


def _draw_box(
    image: NDArray[np.uint8],
    ahead: float,
    left: float,
    width: float,
    heights: tuple[float, float],
    colour: tuple[int, int, int],
) -> None:
    scale = FOCAL / ahead
    u, v = WIDTH / 2 - left * scale, HEIGHT / 2 + CAMERA_ABOVE_GROUND * scale
    columns = [min(max(round(u + side * width / 2 * scale), 0), WIDTH) for side in (-1, 1)]
    rows = [min(max(round(v - height * scale), 0), HEIGHT) for height in heights[::-1]]
    image[slice(*rows), slice(*columns)] = colour


def lidar_points(world: World, t: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """(N, 4) x, y, z (car's frame, z above ground) and intensity of what the beams meet; N varies."""
    pose = world.ego(t)
    steep = np.tan(LIDAR_ELEVATIONS)[:, None]
    ground = np.where(steep < 0, LIDAR_ABOVE_GROUND / -steep, NOWHERE)
    reach = np.broadcast_to(ground, (len(LIDAR_ELEVATIONS), len(LIDAR_AZIMUTHS))).copy()
    intensity = np.full(reach.shape, 0.2)
    for agent in world.agents(t):
        entry = _box_entry(pose, agent)
        height = LIDAR_ABOVE_GROUND + entry * steep
        hit = (entry < reach) & (height >= 0) & (height <= agent.extent[2])
        reach = np.where(hit, entry, reach)
        intensity[hit] = 0.8
    reach = reach + rng.normal(0, 0.01, reach.shape)
    keep = reach < LIDAR_RANGE
    elevation = np.broadcast_to(steep, reach.shape)[keep]
    azimuth = np.broadcast_to(LIDAR_AZIMUTHS, reach.shape)[keep]
    far = reach[keep]
    z = LIDAR_ABOVE_GROUND + far * elevation
    points = np.stack([far * np.cos(azimuth), far * np.sin(azimuth), z, intensity[keep]], axis=1)
    return points.astype("<f4")


def _box_entry(pose: Pose, agent: Agent) -> NDArray[np.float64]:
    """How far along each azimuth the agent's outline begins, seen from above; NOWHERE if it isn't met."""
    ahead, left = _seen_from(pose, [agent])
    turn = agent.yaw - pose.yaw
    cos, sin = math.cos(turn), math.sin(turn)
    start = np.array([-cos * ahead[0] - sin * left[0], sin * ahead[0] - cos * left[0]])
    step = np.stack([np.cos(LIDAR_AZIMUTHS - turn), np.sin(LIDAR_AZIMUTHS - turn)])
    half = np.array(agent.extent[:2]) / 2
    with np.errstate(divide="ignore"):
        sides = (np.stack([-half, half])[:, :, None] - start[:, None]) / step
    entry, leave = sides.min(axis=0).max(axis=0), sides.max(axis=0).min(axis=0)
    return np.where((entry > 0) & (entry <= leave), entry, NOWHERE)
