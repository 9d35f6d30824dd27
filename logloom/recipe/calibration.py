"""Calibrations of cameras in a recipe: one entry that expands to several columns.

    front: {calibration: {camera: /cam/front/camera_info, frame: base_link}}

expands to `front.k`, `front.d`, `front.model`, `front.size`, and with a frame `front.extrinsics`. After the
expansion they are ordinary columns; plans and versions don't contain the entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ValidationError

from logloom.recipe.columns import FrameName, RecipePart, Topic, as_list
from logloom.recipe.mistakes import Mistake, from_pydantic
from logloom.recipe.values import LengthOfTime
from logloom.validation import Path

_KEY = "calibration"


class Calibration(RecipePart):
    """`calibration`: a topic of sensor_msgs/CameraInfo or foxglove.CameraCalibration.

    Attributes:
        frame: the parent frame of the camera's pose; None for no extrinsics.
        resample, tolerance: which message is used; by default the topic's last one, for all rows.
        topics, static: with the transforms of the extrinsics, see `FramePair`.
        missing: see `TopicColumn`.
    """

    camera: Topic
    frame: FrameName | None = None
    resample: Literal["static", "previous", "next", "nearest"] = "static"
    tolerance: LengthOfTime | None = None
    topics: Annotated[tuple[Topic, ...], BeforeValidator(as_list)] = ()
    static: Annotated[tuple[Topic, ...], BeforeValidator(as_list)] = ("/tf_static",)
    missing: Literal["fail", "unavailable"] = "unavailable"

    def columns(self) -> dict[str, dict[str, Any]]:
        """Return the columns of this entry as recipe data, by the last part of their names."""
        given = self.model_dump(mode="json", exclude_defaults=True)
        of_topic: dict[str, Any] = {"topic": self.camera, "resample": self.resample}
        of_topic |= {key: given[key] for key in ("tolerance", "missing") if key in given}
        matrix = "focal lengths and principal point, in pixels"
        found: dict[str, dict[str, Any]] = {
            "k": {**of_topic, "as": "camera_matrix", "description": matrix},
            "d": {**of_topic, "as": "distortion", "description": "parameters of the distortion model"},
            "model": {**of_topic, "field": "distortion_model"},
            "size": {**of_topic, "field": ["height", "width"], "description": "height and width, in pixels"},
        }
        if self.frame is not None:
            tf: dict[str, Any] = {"from": {"topic": self.camera}, "to": self.frame}
            transforms = {"topics": list(self.topics), "static": list(self.static)}
            of_camera = f"p_{self.frame} = M p_camera" if self.frame.isidentifier() else ""
            found["extrinsics"] = {"tf": tf | transforms, "as": "matrix", "description": of_camera}
        return found


def expanded(columns: Any) -> tuple[Any, dict[Path, Path], list[Mistake]]:
    """Expand the calibrations among a recipe's columns.

    Returns:
        The columns; the original key of each key of an expanded column; mistakes.
    """
    if not isinstance(columns, Mapping):
        return columns, {}, []
    made: dict[Any, Any] = {}
    origins: dict[Path, Path] = {}
    mistakes: list[Mistake] = []
    for name, column in columns.items():
        if not (isinstance(column, Mapping) and _KEY in column):
            made[name] = column
            continue
        path: Path = ("columns", str(name), _KEY)
        beside = (key for key in column if key != _KEY)
        mistakes += [
            Mistake(("columns", str(name), str(key)), f"has no meaning with `{_KEY}`") for key in beside
        ]
        try:
            calibration = Calibration.model_validate(column[_KEY], by_alias=True, by_name=False)
        except ValidationError as error:
            mistakes += from_pydantic(error.errors(), Calibration, path)
            continue
        for part, keys in calibration.columns().items():
            own = f"{name}.{part}"
            if own in columns:
                mistakes.append(Mistake(path, f"expands to {own}, which the recipe also defines"))
            made[own] = keys
            of_own: Path = ("columns", own)
            origins |= {of_own: path, (*of_own, "topic"): (*path, "camera"), (*of_own, "tf"): path}
            origins |= {(*of_own, "tf", "from"): (*path, "camera"), (*of_own, "tf", "to"): (*path, "frame")}
    return made, origins, mistakes
