"""Options of a recipe under `outputs.lerobot`.

Here: `LeRobotOptions`.
Elsewhere: mapping columns to features (features), where episodes end (episodes).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from logloom.errors import UsageError
from logloom.schema import check_column_name
from logloom.validation import Duration, OneOrKeys

MAX_FILE_BYTES = 200_000_000
OWN_FEATURES = ("timestamp", "frame_index", "episode_index", "index", "task_index", "timestamp_ns", "task")


class _LeRobotPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskFrom(_LeRobotPart):
    """The task of each row, from a column of text."""

    column: str


class EpisodeGap(_LeRobotPart):
    """Episodes that end only where rows are further apart than `gap`; shorter gaps don't end one."""

    gap: Duration


class VideoOptions(_LeRobotPart):
    """How images become video.

    Attributes:
        codec: "av1", by SVT-AV1, or "h264", by x264.
        crf: a larger value gives smaller files of lower quality.
        gop: frames from a keyframe to the next; to read one, all since its keyframe are decoded.
        preset: of SVT-AV1; a larger value is faster.
    """

    codec: Literal["av1", "h264"] = "av1"
    crf: int = Field(default=30, ge=0, le=63)
    gop: int = Field(default=2, ge=1, le=1000)
    preset: int = Field(default=8, ge=0, le=13)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class LeRobotOptions(_LeRobotPart):
    """`outputs.lerobot` of a recipe.

    Attributes:
        fps: frames per second, the rate of rows.
        features: which columns fill each feature. Numbers of several columns are concatenated; an
            image (bytes of an image file, or pixels) is a feature of its own.
        task: what the robot does, in words: one text, or a column of texts.
        episodes: "log", a log is an episode, which a gap ends; or the longest gap that doesn't end one.
        robot_type: as meta/info.json has it; "" for none.
        video: how images are encoded; "none" stores them unchanged in the Parquet files.
        file_bytes: the largest size of a file; a larger episode is cut in two.
    """

    fps: int = Field(ge=1, le=1000)
    features: dict[str, Annotated[tuple[str, ...], BeforeValidator(_listed)]]
    task: OneOrKeys[str, TaskFrom] = "drive"
    episodes: OneOrKeys[Literal["log"], EpisodeGap] = "log"
    robot_type: str = ""
    video: OneOrKeys[Literal["none"], VideoOptions] = "none"
    file_bytes: int = Field(default=MAX_FILE_BYTES, ge=1 << 16, le=MAX_FILE_BYTES)

    @field_validator("features")
    @classmethod
    def _named(cls, features: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        if not features:
            raise ValueError("name at least one, such as observation.state: [ego.speed]")
        for key, columns in features.items():
            if key in OWN_FEATURES:
                raise ValueError(f"{key!r} is a feature that LeRobot or this output fills itself")
            try:
                check_column_name(key)
            except UsageError as error:
                raise ValueError(str(error)) from error
            if not columns:
                raise ValueError(f"{key}: of no column")
        return features

    @property
    def references(self) -> tuple[str, ...]:
        """Dependencies of units outside the recipe: the encoder of video, also part of the keys of logs."""
        return () if isinstance(self.video, str) else (self.video.codec,)

    @property
    def step(self) -> float:
        """The time between two frames, in ns."""
        return 1e9 / self.fps

    @property
    def gap(self) -> float:
        """The longest time between two rows of an episode, in ns."""
        at_least = 1.5 * self.step
        return at_least if isinstance(self.episodes, str) else max(at_least, float(self.episodes.gap))
