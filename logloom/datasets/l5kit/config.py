"""L5Kit's configuration: its file, its settings (checked), the folder of maps.

Elsewhere: what the settings do (sampling, rasterizers).
"""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from logloom.errors import UsageError
from logloom.io.storage.store import Store
from logloom.values import dataclass

DATA_FOLDER_VARIABLE = "L5KIT_DATA_FOLDER"


def load_config_data(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a YAML configuration.

    Args:
        path: of the file, or any fsspec URI.

    Returns:
        The configuration, as `build_rasterizer` and the datasets take it.

    Raises:
        UsageError: there is no such file, or it holds something else than YAML sections.
    """
    import yaml

    store, name = _place(path)
    try:
        value = yaml.safe_load(store.read(name))
    except OSError as error:
        raise UsageError(f"{path}: can't read this configuration: {error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not YAML: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path}: a configuration has sections such as model_params, found {type(value)}")
    return value


def save_config_data(data: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes a configuration as YAML, so that `load_config_data` gives it back.

    Args:
        data: plain values, lists and dicts.
        path: of the file, or any fsspec URI; replaces what is there.

    Raises:
        UsageError: a value is none that YAML knows: a number, text, a list or a section.
    """
    import yaml

    try:
        text = yaml.safe_dump(dict(data))
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: can't write this configuration: {error}") from error
    store, name = _place(path)
    store.replace(name, text.encode())


def _place(path: str | os.PathLike[str]) -> tuple[Store, str]:
    """The folder of a file, and its name there."""
    folder, _, name = os.fspath(path).rpartition("/")
    return Store.at(folder or ("/" if os.fspath(path).startswith("/") else ".")), name


class LocalDataManager:
    """Finds files of a data folder by their name within it."""

    def __init__(self, local_data_folder: str | os.PathLike[str] | None = None):
        """Names the folder.

        Args:
            local_data_folder: None for the one that the environment variable L5KIT_DATA_FOLDER names.

        Raises:
            ValueError: neither names one.
        """
        folder = local_data_folder if local_data_folder is not None else os.environ.get(DATA_FOLDER_VARIABLE)
        if folder is None:
            raise ValueError(f"no data folder: pass one, or set {DATA_FOLDER_VARIABLE}")
        self.root_folder = pathlib.Path(folder)

    def require(self, key: str) -> str:
        """The path of a file of the folder.

        Args:
            key: its name within the folder.

        Raises:
            FileNotFoundError: it doesn't exist.
        """
        path = self.root_folder / key
        if not path.exists():
            raise FileNotFoundError(f"{key} is not in the data folder {self.root_folder}")
        return str(path)


@dataclass(frozen=True)
class SampleSettings:
    """Settings of samples.

    Attributes:
        history_num_frames: steps before the current frame.
        future_num_frames: steps after it.
        step_time: seconds from frame to frame.
        filter_agents_threshold: agents whose probability to be one is at or below this are no agents.
        disable_traffic_light_faces: whether rasterizers see no lights.
    """

    history_num_frames: int
    future_num_frames: int
    step_time: float
    filter_agents_threshold: float
    disable_traffic_light_faces: bool = False

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> SampleSettings:
        """Reads them.

        Raises:
            UsageError: one is missing or out of its range; named.
        """
        step_time = number(cfg, "model_params", "step_time")
        if step_time <= 0:
            raise UsageError(f"model_params.step_time is {step_time}, it has to be above 0 s")
        return cls(
            count(cfg, "model_params", "history_num_frames"),
            count(cfg, "model_params", "future_num_frames"),
            step_time,
            number(cfg, "raster_params", "filter_agents_threshold"),
            bool(cfg["raster_params"].get("disable_traffic_light_faces", False)),
        )


def setting(cfg: Mapping[str, Any], section: str, key: str) -> Any:
    """One setting of a configuration.

    Raises:
        UsageError: it is missing.
    """
    values = cfg.get(section) if isinstance(cfg, Mapping) else None
    if not isinstance(values, Mapping) or key not in values:
        raise UsageError(f"the configuration has no {section}.{key}; add it")
    return values[key]


def number(cfg: Mapping[str, Any], section: str, key: str) -> float:
    """A finite number of a configuration."""
    value = setting(cfg, section, key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{section}.{key} is {value!r}, it has to be a number")
    return value


def count(cfg: Mapping[str, Any], section: str, key: str) -> int:
    """A number of frames, at least 0."""
    value = setting(cfg, section, key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"{section}.{key} is {value!r}, it has to be a whole number, at least 0")
    return value


def pair(cfg: Mapping[str, Any], section: str, key: str) -> tuple[float, float]:
    """Two finite numbers, of x and of y."""
    value = setting(cfg, section, key)
    try:
        x, y = (float(v) for v in value)
    except (TypeError, ValueError):
        raise UsageError(f"{section}.{key} is {value!r}, it has to be two numbers") from None
    if not (math.isfinite(x) and math.isfinite(y)):
        raise UsageError(f"{section}.{key} is {value!r}, its numbers have to be finite")
    return x, y
