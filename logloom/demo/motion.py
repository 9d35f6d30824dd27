"""World of the synthetic drives: a road, agents on it, traffic lights, houses.

Everything is a closed formula of time, so that positions, velocities, yaw, turning rate and acceleration
agree exactly, whenever a sensor looks. Lengths are in metres, times in seconds since the drive began, angles
in radians, counter-clockwise from the x axis.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from logloom.values import dataclass

LIGHTS = (("light-1", 90.0, 0.0), ("light-2", 210.0, 4.0))  # id, x, seconds into its cycle
LIGHT_COLOURS = ("red", "yellow", "green")
LIGHT_CYCLE, LIGHT_PERIOD = ((0.0, "red"), (5.0, "green"), (10.0, "yellow")), 12.0  # from when, which is lit
# label: extent (length, width, height), offset from the middle of the road, speed
AGENT_KINDS = {
    "car": ((4.5, 1.9, 1.6), 1.8, 7.0),
    "cyclist": ((1.8, 0.6, 1.7), 3.2, 4.5),
    "pedestrian": ((0.6, 0.6, 1.75), 6.5, 1.3),
}


@dataclass(frozen=True)
class Road:
    """y = width · sin(x / length + phase), with its first two derivatives."""

    width: float
    length: float
    phase: float

    def y(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.width * np.sin(x / self.length + self.phase)

    def at(self, x: float) -> tuple[float, float, float]:
        """y, dy/dx and d²y/dx² at x."""
        angle = x / self.length + self.phase
        bend = self.width / self.length
        return self.width * math.sin(angle), bend * math.cos(angle), -bend / self.length * math.sin(angle)


@dataclass(frozen=True)
class Pose:
    """Where the car is and how it moves; acceleration is along and to the left of the car."""

    position: tuple[float, float]
    velocity: tuple[float, float]
    acceleration: tuple[float, float]
    yaw: float
    yaw_rate: float

    @property
    def speed(self) -> float:
        return math.hypot(*self.velocity)

    @property
    def quaternion(self) -> NDArray[np.float64]:
        """(4,) x, y, z, w."""
        return np.array([0.0, 0.0, math.sin(self.yaw / 2), math.cos(self.yaw / 2)])

    def from_world(
        self, x: NDArray[np.float64], y: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """World points as seen from the car: ahead, to the left."""
        dx, dy = x - self.position[0], y - self.position[1]
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        return cos * dx + sin * dy, cos * dy - sin * dx


@dataclass(frozen=True)
class Mount:
    """Where a sensor sits in the car's frame, whose z is above ground; `yaw` is where it looks."""

    frame: str
    position: tuple[float, float, float]
    yaw: float = 0.0

    def on(self, pose: Pose) -> Pose:
        """The sensor's own pose as the car drives; speeds stay the car's."""
        cos, sin = math.cos(pose.yaw), math.sin(pose.yaw)
        x, y, _ = self.position
        place = (pose.position[0] + cos * x - sin * y, pose.position[1] + sin * x + cos * y)
        return replace(pose, position=place, yaw=pose.yaw + self.yaw)


@dataclass(frozen=True)
class Agent:
    """Someone else on the road, or a house beside it, at one moment."""

    label: str
    track_id: int
    centroid: tuple[float, float]
    extent: tuple[float, float, float]
    yaw: float
    velocity: tuple[float, float]


@dataclass(frozen=True)
class Light:
    """One face (colour) of a traffic light, at one moment."""

    face_id: str
    light_id: str
    status: tuple[float, float, float]
    colour: str
    x: float


@dataclass(frozen=True)
class _Course:
    """How one agent keeps to the road: a constant speed along x, a constant offset from its middle."""

    label: str
    start: float
    speed: float
    offset: float


class World:
    """What happens in one drive; equal seeds give equal worlds.

    Attributes:
        houses: beside the road; they do not move.
    """

    def __init__(self, seed: int, num_agents: int = 14, num_houses: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.road = Road(width=12.0, length=35.0, phase=float(rng.uniform(0, 2 * math.pi)))
        self._speed, self._sway = float(rng.uniform(8, 11)), float(rng.uniform(1.5, 3))
        self._frequency = 2 * math.pi / float(rng.uniform(8, 12))
        labels = rng.choice(list(AGENT_KINDS), num_agents, p=[0.6, 0.15, 0.25])
        starts = np.sort(rng.uniform(-10, 220, num_agents))
        directions = rng.choice([-1, 1], num_agents)
        self._courses = [
            _Course(str(label), float(start), direction * speed, -direction * offset)
            for label, start, direction in zip(labels, starts, directions.tolist(), strict=True)
            for _, offset, speed in [AGENT_KINDS[str(label)]]
        ]
        self.houses = [self._house(number, rng) for number in range(num_houses)]

    def ego(self, t: float) -> Pose:
        """The car: along the road's middle, faster and slower."""
        w, sway = self._frequency, self._sway
        x = self._speed * t + sway / w * (1 - math.cos(w * t))
        vx = self._speed + sway * math.sin(w * t)
        ax = sway * w * math.cos(w * t)
        y, slope, curve = self.road.at(x)
        vy = slope * vx
        ay = slope * ax + curve * vx * vx
        speed = math.hypot(vx, vy)
        along, left = (vx * ax + vy * ay) / speed, (vx * ay - vy * ax) / speed
        return Pose((x, y), (vx, vy), (along, left), math.atan2(vy, vx), left / speed)

    def _house(self, number: int, rng: np.random.Generator) -> Agent:
        """Houses are in pairs, one on each side, some 30 m from pair to pair."""
        x = 30.0 * (number // 2) - 60 + float(rng.uniform(0, 8))
        y, slope, _ = self.road.at(x)
        y += (-1) ** number * float(rng.uniform(14, 19))
        length, width, height = (float(size) for size in rng.uniform((7, 6, 3), (12, 9, 7)))
        return Agent("house", 1000 + number, (x, y), (length, width, height), math.atan(slope), (0.0, 0.0))

    def agents(self, t: float, within: float = 60.0) -> list[Agent]:
        """Who is near the car, in the order of their track ids."""
        here = self.ego(t).position
        near = []
        for track_id, course in enumerate(self._courses, start=1):
            x = course.start + course.speed * t
            y, slope, _ = self.road.at(x)
            y += course.offset
            if math.dist(here, (x, y)) <= within:
                velocity = (course.speed, slope * course.speed)
                yaw = math.atan2(velocity[1], velocity[0])
                extent = AGENT_KINDS[course.label][0]
                near.append(Agent(course.label, track_id, (x, y), extent, yaw, velocity))
        return near

    def lights(self, t: float) -> list[Light]:
        """All faces; one face of each light is active."""
        faces = []
        for light_id, x, lead in LIGHTS:
            since = (t + lead) % LIGHT_PERIOD
            lit = [colour for begin, colour in LIGHT_CYCLE if begin <= since][-1]
            for colour in LIGHT_COLOURS:
                status = (1.0, 0.0, 0.0) if colour == lit else (0.0, 1.0, 0.0)
                faces.append(Light(f"{light_id}-{colour}", light_id, status, colour, x))
        return faces
