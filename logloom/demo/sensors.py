"""What the camera and the lidar of the synthetic drives see of their world.

Both sit above the car's origin and look along it, unless a mount says otherwise. Camera: a pinhole over flat
ground, RGB. Lidar: beams in a fan of elevations all around, meeting the ground and the boxes of others; in
`lidar_points` at one moment, in `sweep` one after the other while the car drives.
"""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logloom.demo.motion import Agent, Light, Mount, Pose, World

HEIGHT, WIDTH, FOCAL = 240, 320, 220.0  # pixels
CAMERA_ABOVE_GROUND, LIDAR_ABOVE_GROUND = 1.5, 1.8
HALF_ROAD = 4.5
LIDAR_RANGE, NOWHERE = 70.0, 1e6  # what is further off than the range is not seen
LIDAR_ELEVATIONS = np.radians(np.linspace(-24, 2, 16))
LIDAR_AZIMUTHS = np.arange(320) * (2 * math.pi / 320)
SWEEP, FIRINGS = 0.1, 64  # seconds of a turn; moments in it, at each of which some azimuths are measured
POINT = np.dtype([(name, "<f4") for name in ("x", "y", "z", "intensity")])
SKY, GRASS, ASPHALT, PAINT = (150, 190, 230), (95, 140, 70), (90, 90, 95), (235, 235, 225)
COLOURS = {
    "car": (40, 70, 160),
    "cyclist": (200, 120, 30),
    "pedestrian": (160, 40, 60),
    "red": (230, 40, 40),
    "yellow": (240, 200, 40),
    "green": (50, 200, 80),
    "house": (170, 120, 95),
}
NEAREST = 2.0  # metres; what is closer to the camera is not drawn


def camera_jpeg(world: World, t: float) -> bytes:
    """The picture at time t: (HEIGHT, WIDTH, 3) as JPEG."""
    import PIL.Image

    image = picture(world, t)
    buffer = io.BytesIO()
    PIL.Image.fromarray(image).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def picture(world: World, t: float, mount: Mount | None = None) -> NDArray[np.uint8]:
    """The picture at time t: (HEIGHT, WIDTH, 3) RGB.

    Args:
        mount: of the camera, whose height is CAMERA_ABOVE_GROUND.
    """
    pose = world.ego(t) if mount is None else mount.on(world.ego(t))
    image = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    image[: HEIGHT // 2] = SKY
    image[HEIGHT // 2 :] = _ground_colours(world, pose)
    for light in world.lights(t):
        if light.status[0] > 0.5:
            _draw_light(image, world, pose, light)
    agents = [*world.agents(t), *world.houses]
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


def lidar_points(world: World, t: float, rng: np.random.Generator) -> NDArray[np.void]:
    """(N,) POINT of what the beams meet, all at time t; N varies. In the car's frame, z above ground."""
    pose = world.ego(t)
    boxes = [(_box_entry(pose, agent), agent) for agent in world.agents(t)]
    return _points(boxes, rng)[0]


def sweep(
    world: World, t: float, mount: Mount, rng: np.random.Generator
) -> tuple[NDArray[np.void], NDArray[np.float64]]:
    """What a lidar measures in a turn that ends at time t, while it moves.

    Returns:
        (N,) POINT, each in the lidar's frame at its own time; and (N,) these times, in seconds from t.
    """
    firings = (np.arange(FIRINGS, dtype=np.float64) - (FIRINGS - 1)) * (SWEEP / FIRINGS)
    beams = np.repeat(np.arange(FIRINGS), len(LIDAR_AZIMUTHS) // FIRINGS)
    times = (t + firings).tolist()
    poses = [mount.on(world.ego(time)) for time in times]
    here = np.array([pose.position for pose in poses])[beams].T
    look = LIDAR_AZIMUTHS + np.array([pose.yaw for pose in poses])[beams]
    boxes = []
    everyone = zip(*(world.agents(time, within=math.inf) for time in times), strict=True)
    for moments in (*everyone, *((house,) * FIRINGS for house in world.houses)):
        if math.dist(moments[-1].centroid, poses[-1].position) < LIDAR_RANGE + 20:  # else no beam gets there
            centre = np.array([agent.centroid for agent in moments])[beams].T
            yaw = np.array([agent.yaw for agent in moments])[beams]
            boxes.append((_entry(here - centre, look, yaw, moments[-1].extent), moments[-1]))
    points, columns = _points(boxes, rng)
    points["z"] -= np.float32(LIDAR_ABOVE_GROUND)
    return points, firings[beams][columns]


def _points(
    boxes: Sequence[tuple[NDArray[np.float64], Agent]], rng: np.random.Generator
) -> tuple[NDArray[np.void], NDArray[np.intp]]:
    """(N,) POINT of what beams from above the origin meet, z above ground; and (N,) their azimuths' numbers.

    Args:
        boxes: how far along each azimuth each of them begins.
    """
    steep = np.tan(LIDAR_ELEVATIONS)[:, None]
    ground = np.where(steep < 0, LIDAR_ABOVE_GROUND / -steep, NOWHERE)
    reach = np.broadcast_to(ground, (len(LIDAR_ELEVATIONS), len(LIDAR_AZIMUTHS))).copy()
    intensity = np.full(reach.shape, 0.2)
    for entry, agent in boxes:
        height = LIDAR_ABOVE_GROUND + entry * steep
        hit = (entry < reach) & (height >= 0) & (height <= agent.extent[2])
        reach = np.where(hit, entry, reach)
        intensity[hit] = 0.5 if agent.label == "house" else 0.8
    reach = reach + rng.normal(0, 0.01, reach.shape)
    keep = reach < LIDAR_RANGE
    elevation = np.broadcast_to(steep, reach.shape)[keep]
    azimuth = np.broadcast_to(LIDAR_AZIMUTHS, reach.shape)[keep]
    far = reach[keep]
    z = LIDAR_ABOVE_GROUND + far * elevation
    points = np.stack([far * np.cos(azimuth), far * np.sin(azimuth), z, intensity[keep]], axis=1)
    return points.astype("<f4").view(POINT)[:, 0], np.nonzero(keep)[1]


def _box_entry(pose: Pose, agent: Agent) -> NDArray[np.float64]:
    """How far along each azimuth the agent's outline begins, seen from above; NOWHERE if it isn't met."""
    ahead, left = _seen_from(pose, [agent])
    turn = agent.yaw - pose.yaw
    cos, sin = math.cos(turn), math.sin(turn)
    start = np.array([-cos * ahead[0] - sin * left[0], sin * ahead[0] - cos * left[0]])
    return _entry_from(start[:, None], LIDAR_AZIMUTHS - turn, agent.extent)


def _entry(
    start: NDArray[np.float64],
    look: NDArray[np.float64],
    yaw: NDArray[np.float64],
    extent: tuple[float, float, float],
) -> NDArray[np.float64]:
    """How far along each of N rays a box begins, seen from above; NOWHERE if it isn't met.

    Args:
        start: (2, N) where rays begin, from the box's centre; look: (N,) the angles that they go.
        yaw: (N,) of the box when each ray is measured.
    """
    cos, sin = np.cos(yaw), np.sin(yaw)
    turned = np.stack([cos * start[0] + sin * start[1], cos * start[1] - sin * start[0]])
    return _entry_from(turned, look - yaw, extent)


def _entry_from(
    start: NDArray[np.float64], angles: NDArray[np.floating[Any]], extent: tuple[float, float, float]
) -> NDArray[np.float64]:
    """`_entry` of an axis-aligned box; start: (2, N) or (2, 1)."""
    step = np.stack([np.cos(angles), np.sin(angles)])
    half = np.array(extent[:2]) / 2
    with np.errstate(divide="ignore"):
        sides = (np.stack([-half, half])[:, :, None] - start) / step
    entry, leave = sides.min(axis=0).max(axis=0), sides.max(axis=0).min(axis=0)
    return np.where((entry > 0) & (entry <= leave), entry, NOWHERE)
