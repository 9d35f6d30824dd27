"""Rows of a log in Rerun: `logloom show`, in its viewer or with `--save` as a recording.

Here: `save_rrd` and `open_viewer`. An entity for each column, such as /camera/front, and for each age,
/camera/front/age, on the time line `tick`. Where a row has no usable message of a column, its entity is
cleared.
Elsewhere: which rows (show), MCAP files (show_mcap).

Only what has been stable in Rerun is called: `log`, `set_time`, and a few archetypes. Rerun gives each row a
random id, so the same rows don't give the same bytes.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from logloom.errors import UsageError
from logloom.extras import needed
from logloom.pipelines.report_samples import points_of
from logloom.pipelines.show import ShownColumn, ShownRows, encoding_of, pose_of
from logloom.pipelines.show_foxglove import json_value, to_json
from logloom.pipelines.show_mcap import new_file

TIMELINE = "tick"
_LINES = 64  # numbers that are drawn as lines over time; more are a tensor


def save_rrd(rows: ShownRows, path: pathlib.Path) -> dict[str, int]:
    """Writes rows of a log to a new recording of Rerun; it appears whole or not at all.

    Returns:
        By column, how many values were left out because nothing can be drawn of them.

    Raises:
        UsageError: Rerun isn't installed; the file is there already, or can't be there.
        DatasetError: what is stored is damaged.
    """
    recording = _recording(rows)
    with new_file(path) as partial:
        recording.save(partial)
        left_out = _log(rows, recording)
        recording.flush()
        recording.disconnect()
    return left_out


def open_viewer(rows: ShownRows) -> dict[str, int]:
    """Opens Rerun's viewer on rows of a log, and returns when it is closed. It listens on loopback alone.

    Returns:
        See `save_rrd`.

    Raises:
        UsageError: Rerun isn't installed, or its viewer doesn't open here.
        DatasetError: what is stored is damaged.
    """
    viewer = pathlib.Path(sys.executable).with_name("rerun")  # PATH may not lead to this environment
    with tempfile.TemporaryDirectory(prefix="logloom-") as folder:
        recording = pathlib.Path(folder) / "rows.rrd"
        left_out = save_rrd(rows, recording)
        command = [viewer if viewer.exists() else "rerun", "--bind", "127.0.0.1", "--port", "auto", recording]
        try:
            subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
            raise UsageError(
                f"Rerun's viewer doesn't open here ({lines[-1]}); write a file: --save FILE"
            ) from error
    return left_out


def _recording(rows: ShownRows) -> Any:
    with needed("Rerun", "view"):
        import rerun

    name = f"{rows.name}@{rows.version} {rows.record.log_id} {rows.title}"
    return rerun.RecordingStream(rows.name, recording_id=name, send_properties=False)


def _log(rows: ShownRows, recording: Any) -> dict[str, int]:
    import rerun

    left_out: dict[str, int] = {}
    drawn: dict[str, str] = {}  # the columns that the last row had, and their entities
    for number, values in zip(rows.numbers, rows, strict=True):
        recording.set_time(TIMELINE, timestamp=np.datetime64(int(values["timestamp"]), "ns"))
        recording.log("meta", rerun.AnyValues(row=[number]))
        before, drawn = drawn, {}
        for column in rows.usable(values):
            found = list(archetypes(column, values))
            if not found:
                left_out[column.name] = left_out.get(column.name, 0) + 1
                continue
            entity = drawn[column.name] = str(rerun.new_entity_path(column.name.split(".")))
            recording.log(entity, *found)
        for name, entity in before.items():
            if name not in drawn:
                recording.log(entity, rerun.Clear(recursive=False))
    return left_out


def archetypes(column: ShownColumn, values: Mapping[str, Any]) -> Iterator[Any]:
    """What stands for a value; nothing where it can't be drawn as what its column is."""
    import rerun

    value = values[column.name]
    if column.kind == "image":
        yield from _image(value)
    elif column.kind == "cloud":
        points = points_of(value)
        yield rerun.Points3D(np.pad(points, ((0, 0), (0, 3 - points.shape[1]))))
        if more := _beside_places(column, value):
            yield rerun.AnyValues(**more)
    elif column.kind in ("place", "pose"):
        if pose := pose_of(column, values):
            yield rerun.Transform3D(translation=pose[0], quaternion=rerun.Quaternion(xyzw=pose[1]))
            yield rerun.Scalars(np.ravel(value))  # exactly, where Rerun's places are float32
    elif isinstance(value, str):
        yield rerun.TextDocument(value)
    elif column.ctype.kind == "bytes" or column.ctype.dtype.kind not in "biuf":
        yield rerun.TextDocument(to_json(json_value(value)).decode(), media_type="application/json")
    elif np.size(value) <= _LINES:
        yield rerun.Scalars(np.ravel(value).astype(np.float64))
    else:
        yield rerun.Tensor(value)


def _image(value: Any) -> Iterator[Any]:
    import rerun

    if isinstance(value, bytes):
        if kind := encoding_of(value):
            yield rerun.EncodedImage(contents=value, media_type=f"image/{kind}")
    elif value.size and (value.ndim == 2 or value.shape[2] in (1, 3, 4)):
        yield rerun.Image(value.squeeze(axis=2) if value.shape[2:] == (1,) else value)


def _beside_places(column: ShownColumn, value: Any) -> dict[str, Any]:
    """What a point holds beside x, y and z, where it is numbers."""
    if value.dtype.names:
        names = [name for name in value.dtype.names if value.dtype[name].kind in "biuf"]
        return {name: value[name] for name in names if name not in ("x", "y", "z")}
    return {name: value[:, at] for at, name in enumerate(column.axes) if at >= 3}
