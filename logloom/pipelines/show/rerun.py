"""Rows of a log in Rerun: in its viewer, or as a recording of `show --save`.

Here: `save_rrd` and `open_viewer`. An entity for each column, such as /camera/front, and for each age,
/camera/front/age, on the time line `tick`. Where a row has no usable message of a column, its entity is
cleared. Beside them, on the same time line, the log's topics and their fields, such as /log/imu.
Elsewhere: which rows (show), which topics (topics), MCAP files (mcap).

Only what has been stable in Rerun is called: `log`, `set_time`, `send_columns`, and a few archetypes. Rerun
gives each row a random id, so the same rows don't give the same bytes.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from logloom.blocks import Ragged
from logloom.errors import UsageError
from logloom.extras import needed
from logloom.io.video.codecs import codec_named
from logloom.pipelines.show.foxglove import json_value, to_json
from logloom.pipelines.show.mcap import new_file
from logloom.pipelines.show.show import ShownColumn, ShownRows, encoding_of, pose_of
from logloom.pipelines.show.topics import LogTopics, ShownValues
from logloom.pipelines.version_rows import points_of
from logloom.schema import BYTES, STRING

TIMELINE = "tick"
_LINES = 64  # numbers that are drawn as lines over time; more are a tensor
_PANIC = re.compile(r".*\.rs:[\d:]+\s*")  # where in Rerun's own source it gave up
_NOTHING = "it isn't what Rerun draws"


def save_rrd(rows: ShownRows, path: pathlib.Path, topics: LogTopics | None = None) -> dict[str, int]:
    """Writes rows of a log to a new recording of Rerun; it appears whole or not at all.

    Args:
        topics: of the log, to be shown beside them; they count themselves what can't be drawn.

    Returns:
        By column, how many values were left out because nothing can be drawn of them.

    Raises:
        UsageError: Rerun isn't installed; the file exists already, or can't be created.
        DatasetError: what is stored is damaged.
    """
    with needed("Rerun", "view"):
        import rerun

    name = f"{rows.name}@{rows.version} {rows.record.log_id} {rows.title}"
    recording = rerun.RecordingStream(rows.name, recording_id=name, send_properties=False)
    with new_file(path) as partial:
        recording.save(partial)
        left_out = _log(rows, recording)
        if topics is not None:
            _log_topics(topics, recording, rows.names)
        recording.flush()
        recording.disconnect()
    return left_out


def open_viewer(rows: ShownRows, topics: LogTopics | None = None) -> dict[str, int]:
    """Opens Rerun's viewer on rows of a log, and returns when it is closed. It listens on loopback alone.

    Args:
        topics: see `save_rrd`.

    Returns:
        See `save_rrd`.

    Raises:
        UsageError: Rerun isn't installed, or its viewer doesn't open here.
        DatasetError: what is stored is damaged.
    """
    viewer = pathlib.Path(sys.executable).with_name("rerun")  # PATH may not lead to this environment
    with tempfile.TemporaryDirectory(prefix="logloom-") as folder:
        recording = pathlib.Path(folder) / "rows.rrd"
        left_out = save_rrd(rows, recording, topics)
        command = [viewer if viewer.exists() else "rerun", "--bind", "127.0.0.1", "--port", "auto", recording]
        try:
            subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            printed = str(getattr(error, "stderr", None) or error)
            raise UsageError(
                f"Rerun's viewer doesn't open here ({last_words(printed)}); write a file: --save FILE.rrd"
            ) from error
    return left_out


def last_words(printed: str) -> str:
    """Why Rerun's viewer ended, of what it printed.

    >>> last_words("INFO started\\nError: winit at /cargo/winit-0.30/mod.rs:765: DISPLAY is not set.\\n")
    'DISPLAY is not set'
    """
    return _PANIC.sub("", printed.strip().rpartition("\n")[2]).removeprefix("Error: ").rstrip(".")


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


def _log_topics(topics: LogTopics, recording: Any, columns: Iterable[str]) -> None:
    import rerun

    entities = _Entities(topics.topics, columns)
    for many in topics:
        topic, name = many.field.topic, many.field.name
        if (found := _columns(many)) is not None:
            times = rerun.TimeColumn(TIMELINE, timestamp=many.times.astype("datetime64[ns]"))
            recording.send_columns(entities.of(topic, name), [times], found)
            continue
        for time, value in zip(many.times, many, strict=True):
            recording.set_time(TIMELINE, timestamp=np.datetime64(int(time), "ns"))
            drawn = list(_of_message(many, value))
            for below, one in drawn:
                recording.log(entities.of(topic, name, below), *one)
            if len(drawn) < (len(value) if many.column.kind == "transforms" else 1):
                topics.leave_out(many.field, _NOTHING)


def _columns(many: ShownValues) -> Any:
    """Text and few numbers of many messages, which Rerun takes at once; None of all else."""
    import rerun

    values, ctype = many.values, many.column.ctype
    if many.column.kind != "plain" or ctype == BYTES or ctype.kind == "lists":
        return None
    if ctype == STRING:
        return rerun.TextDocument.columns(text=list(many))
    sizes = [np.size(value) for value in many]
    if ctype.dtype.kind not in "biuf" or max(sizes) > _LINES:
        return None
    numbers = values.values if isinstance(values, Ragged) else values
    return rerun.Scalars.columns(scalars=np.ravel(numbers).astype(np.float64)).partition(sizes)


def _of_message(many: ShownValues, value: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """Return archetypes of a message, each with the name of its entity below the field's: "" except for
    transforms.
    """
    import rerun

    if many.column.kind == "transforms":
        for step in value:
            place, turn = step["translation"], step["rotation"]
            if np.isfinite(place).all() and np.isfinite(turn).all() and turn.any():
                frames = {"parent_frame": str(step["parent"]), "child_frame": str(step["child"])}
                pose = rerun.Transform3D(translation=place, quaternion=rerun.Quaternion(xyzw=turn), **frames)
                yield frames["child_frame"], [pose]
    elif many.column.kind == "video":
        codec = codec_named(many.field.codec)
        if codec is not None:
            yield "", [rerun.VideoStream(codec=rerun.VideoCodec[codec.name.upper()], sample=value)]
    elif drawn := list(archetypes(many.column, {many.column.name: value})):
        yield "", drawn


class _Entities:
    """The entities of topics and of their fields, below one that no column has. No two share one.

    Args:
        topics: all that may be asked for.
    """

    def __init__(self, topics: Iterable[str], columns: Iterable[str]):
        taken: set[tuple[str, ...]] = {("meta",), *((name.split(".")[0],) for name in columns)}
        self._top = _free(("log",), taken)
        self._taken: set[tuple[str, ...]] = set()
        self._paths: dict[tuple[str, ...], tuple[str, ...]] = {}
        for topic in topics:
            parts = [part for part in topic.split("/") if part] or ["_"]
            self._path((topic,), (*self._top, *parts))

    def of(self, topic: str, *below: str) -> str:
        """The entity of a topic, or of what is below it."""
        import rerun

        key: tuple[str, ...] = (topic,)
        path = self._paths[key]
        for name in below:
            key = (*key, name)
            path = self._path(key, (*path, name)) if name else path
        return str(rerun.new_entity_path(list(path)))

    def _path(self, key: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[str, ...]:
        if key not in self._paths:
            self._paths[key] = _free(wanted, self._taken)
            self._taken.add(self._paths[key])
        return self._paths[key]


def _free(path: tuple[str, ...], taken: set[tuple[str, ...]]) -> tuple[str, ...]:
    """The path, or the first with more underscores at its end that isn't taken."""
    while path in taken:
        path = (*path[:-1], f"{path[-1]}_")
    return path


def archetypes(column: ShownColumn, values: Mapping[str, Any]) -> Iterator[Any]:
    """Return the archetypes of a value; none if it can't be drawn as its column's kind."""
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
    elif column.ctype.kind in ("bytes", "lists") or column.ctype.dtype.kind not in "biuf":
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
