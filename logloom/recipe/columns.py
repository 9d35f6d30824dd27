"""Columns of a recipe: from topics, frame transforms, label tables, or derived.

Here: the keys under `columns.<name>` and their valid combinations; the names of resample policies.
Elsewhere: checks that the logs have such topics and fields (logloom.transforms.rows.plan.resolve).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_serializer,
    field_validator,
    model_validator,
)

from logloom.errors import UsageError
from logloom.recipe.values import Duration, LengthOfTime, duration_text
from logloom.resample.policies import POLICIES
from logloom.schema import check_column_name
from logloom.text import MAX_DURATION, near_to
from logloom.validation import OneOrKeys

DTYPES = (
    *("bool", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64))),
    *("float16", "float32", "float64"),
)
ADAPTERS = (
    *("image", "points", "scan", "navsat", "rotation_matrix", "transforms", "file"),
    *("packets", "keyframe", "camera_matrix", "distortion", "joints"),
)

_OF_MANY = ("image", "points", "scan")  # adapters whose values are of very many measurements

TEXT = "string"  # the dtype of text, for messages that don't declare it

_ADAPTER = re.compile(r"([a-z_]\w*)(?:\[ *(\w+(?: *, *\w+)*) *\])?", re.ASCII)
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def text_check(problem_of: Callable[[str], str | None]) -> BeforeValidator:
    """Validate text by a function that describes what is wrong with it, or returns None."""

    def validate(value: Any) -> Any:
        problem = problem_of(value) if isinstance(value, str) else None
        if problem:
            raise ValueError(problem)
        return value

    return BeforeValidator(validate)


def _name_problem(name: str) -> str | None:
    try:
        check_column_name(name)
    except UsageError as error:
        return str(error).partition(": ")[2]
    return None


def _adapter_problem(adapter: str) -> str | None:
    match = _ADAPTER.fullmatch(adapter)
    name = match[1] if match else re.split(r"\W", adapter)[0]
    if name not in ADAPTERS:
        return f"no such adapter as {adapter!r}{near_to(name, ADAPTERS)}"
    if match is None or (name != "points" and match[2] is not None):
        return "write points, or points[x,y,z]" if name == "points" else f"write {name} alone"
    return None


def _policy(value: Any) -> Any:
    if value in list(POLICIES):  # not in the table itself, whose values may be anything
        return value
    from logloom import familiar_names

    hint = familiar_names.ours(str(value), familiar_names.POLICIES) or near_to(str(value), list(POLICIES))
    raise ValueError(f"no such policy as {value!r}{hint}"[:300])


def _dtype_problem(dtype: str, known: tuple[str, ...]) -> str | None:
    return None if dtype in known else f"no such dtype as {dtype!r}{near_to(dtype, known)}"


def struct_dtype(fields: Mapping[str, Any], strings: int) -> np.dtype[Any]:
    """Return the type of structs: {id: uint64, at: {x: float32, y: float32}, size: [float32, 3]}.

    Args:
        fields: to each name a number type, "string", a mapping of fields, or a list of one of these and
            lengths.
        strings: characters kept of text.

    Raises:
        ValueError: no such type, with the names that lead to it.
    """
    members: list[Any] = []
    for name, given in fields.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", str(name)):
            raise ValueError(f"{name!r} is no name of a field; write a word")
        kind, *lengths = given if isinstance(given, list | tuple) and given else [given]
        if isinstance(kind, Mapping) and kind:
            try:
                dtype = struct_dtype(kind, strings)
            except ValueError as error:
                raise ValueError(f"{name}.{error}") from error
        elif not isinstance(kind, str):
            raise ValueError(f"{name}: write a dtype, {{<field>: <dtype>}}, or [<dtype>, <length>]")
        elif problem := _dtype_problem(kind, (*DTYPES, TEXT)):
            raise ValueError(f"{name}: {problem}")
        else:
            dtype = np.dtype(f"<U{strings}" if kind == TEXT else kind)
        if any(type(length) is not int or length < 1 for length in lengths):
            raise ValueError(f"{name}: lengths of a field are whole numbers from 1, got {lengths}")
        members.append((name, dtype, tuple(lengths)))
    return np.dtype(members)


def _in_pairs(kind: Any) -> Any:
    """Return a type of structs with lists of [name, type] for mappings; `_from_pairs` is the inverse.

    >>> _in_pairs({"b": "bool", "a": [{"y": "int8"}, 2]})
    [['b', 'bool'], ['a', [[['y', 'int8']], 2]]]
    """
    if isinstance(kind, Mapping):
        return [[name, _in_pairs(inner)] for name, inner in kind.items()]
    return [_in_pairs(part) for part in kind] if isinstance(kind, list | tuple) else kind


def _from_pairs(kind: Any) -> Any:
    if isinstance(kind, Mapping):
        return {name: _from_pairs(inner) for name, inner in kind.items()}
    if not isinstance(kind, list | tuple):
        return kind
    # Not those of [<dtype>, <length>], whose last is a number.
    if kind and all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in kind
    ):
        names = [pair[0] for pair in kind]
        if len(set(names)) < len(names):
            raise ValueError(f"a field is there twice: {', '.join(names)}")
        return {name: _from_pairs(inner) for name, inner in kind}
    return [_from_pairs(part) for part in kind]


def _tolerance(value: Any) -> Any:
    if value in ("inf", "unlimited"):
        raise ValueError(f"{value} is no length of time; write `tolerance: none`, or a duration like 50ms")
    return duration_text(MAX_DURATION) if value == "none" else value


def _function_problem(name: str) -> str | None:
    if _FUNCTION.fullmatch(name):
        return None
    return f"{name!r} is not of the form module:function; write it like mypkg.labels:count"


Topic = Annotated[
    str, text_check(lambda name: None if name.strip() else "expected the name of a topic, like /imu")
]
ColumnName = Annotated[str, text_check(_name_problem)]
Positive = Annotated[int, Field(strict=True, ge=1, le=1 << 31)]
Line = Annotated[
    str, text_check(lambda text: None if text.isprintable() else "must be one line of printable text")
]
FrameName = Annotated[
    str,
    text_check(lambda name: None if name.strip("/") else "expected the name of a frame, like base_link"),
    BeforeValidator(lambda v: v.removeprefix("/") if isinstance(v, str) else v),
]
FieldPath = Annotated[str, Field(min_length=1)]


class RecipePart(BaseModel):
    """Base of all parts of a recipe: immutable, and without unknown keys.

    Validators are made on first use: most commands need only that of the whole recipe.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True, defer_build=True
    )


class FrameOf(RecipePart):
    """`from: {topic: /lidar/top}`: the frame in the header of a topic's last message."""

    topic: Topic


Frame = OneOrKeys[FrameName, FrameOf]


class Extrapolate(RecipePart):
    """`extrapolate: {hold: 100ms}` or `{linear: 50ms}`: how far to go beyond a frame's first and last
    transform.
    """

    hold: LengthOfTime | None = None
    linear: LengthOfTime | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.hold is None) == (self.linear is None):
            raise ValueError("write {hold: 100ms} or {linear: 50ms}, not both")
        return self


class FramePair(RecipePart):
    """`tf`: a frame, the frame to express it in, and the topics of the transforms.

    Attributes:
        from_, to: p_to = pose(p_from); names of frames, or topics whose frames they are.
        topics, static: of transforms; those of `static` apply to the whole log.
        cache: ns; the largest distance of a transform from the time that is looked up.
    """

    from_: Frame = Field(alias="from")
    to: Frame
    topics: Annotated[tuple[Topic, ...], BeforeValidator(as_list)] = ("/tf",)
    static: Annotated[tuple[Topic, ...], BeforeValidator(as_list)] = ("/tf_static",)
    cache: LengthOfTime = 10 * 10**9
    extrapolate: OneOrKeys[Literal["none"], Extrapolate] = "none"

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.from_ == self.to:
            raise ValueError("`from` and `to` are the same frame; its pose in itself is the identity")
        if both := sorted({*self.topics} & {*self.static}):
            raise ValueError(f"{both[0]} is in `topics` and in `static`; leave out one of the two")
        if not (self.topics or self.static):
            raise ValueError("no topics of transforms; name some in `topics` or `static`")
        if self.limit > self.cache:
            raise ValueError("`extrapolate` reaches beyond `cache`")
        return self

    @property
    def named_by(self) -> dict[str, str]:
        """Return the topics that define the frames, by the keys that name them."""
        frames = {"from": self.from_, "to": self.to}
        return {key: frame.topic for key, frame in frames.items() if isinstance(frame, FrameOf)}

    @property
    def words(self) -> tuple[str, str]:
        """Describe `from_` and `to` in words."""
        named = (f if isinstance(f, str) else f"the frame of {f.topic}" for f in (self.from_, self.to))
        source, target = named
        return source, target

    @property
    def kind(self) -> Literal["none", "hold", "linear"]:
        """What to do beyond a frame's last transform: hold or linear."""
        if isinstance(self.extrapolate, str):
            return "none"
        return "linear" if self.extrapolate.hold is None else "hold"

    @property
    def limit(self) -> int:
        """How far beyond, in ns."""
        if isinstance(self.extrapolate, str):
            return 0
        return self.extrapolate.hold or self.extrapolate.linear or 0


class MotionSource(RecipePart):
    """`pose` of `deskew`: the transforms that describe a lidar's motion, or a topic of nav_msgs/Odometry."""

    tf: FramePair | None = None
    topic: Topic | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.tf is None) == (self.topic is None):
            raise ValueError("write {tf: {from: lidar_top, to: map}} or {topic: /odom}, not both")
        return self


class Deskew(RecipePart):
    """`deskew`: move the points of a cloud to where they would be if measured at one time.

    Attributes:
        time: the field of the points' times; None for the first field with a usual name.
        unit: of that field; None to infer it from the duration of a cloud.
        to: the time: the row's tick, or that of the cloud's first or last point.
        within: ns; the largest distance of points' times from the cloud's message time.
    """

    pose: MotionSource
    time: Annotated[str, Field(min_length=1)] | None = None
    unit: Literal["s", "ms", "us", "ns"] | None = None
    to: Literal["tick", "start", "end"] = "tick"
    within: LengthOfTime = 10**9

    def pair(self, topic: str) -> FramePair:
        """Return the frames whose poses to look up for clouds of a topic."""
        if self.pose.tf is not None:
            return self.pose.tf
        odometry = self.pose.topic or ""
        frames = {"from": {"topic": topic}, "to": {"topic": odometry}}
        return FramePair.model_validate({**frames, "topics": [odometry]})


class TopicColumn(RecipePart):
    """A column of a topic's messages.

    Attributes:
        field: dotted paths into the message; several are concatenated.
        as_: an adapter: image, points, points[x,y,z], scan, navsat, rotation_matrix, transforms, file,
            packets, keyframe, camera_matrix, distortion, joints.
        names: of joints, in the order of a row's values.
        partial: whether messages may have some of the joints only; each joint is then resampled alone.
        tolerance, window, offset: ns; None if left out, as the default depends on the clock. The tolerance
            `none` is `MAX_DURATION`.
        strings: characters kept for text inside arrays of sub-messages.
        shape: that all messages have: (h, w, c) of images, or that of a list of numbers.
        resize: (height, width) of images.
        dtype: of a row's numbers; "string" for text of JSON without a schema.
        missing: how to treat a log without the topic.
        nan: whether a message whose value has NaN has that value, or none.
        deskew: how to move points to where they would be if measured at one time.
        frame: the frame of the values of rows, for viewers.
    """

    topic: Topic
    field: Annotated[tuple[FieldPath, ...], BeforeValidator(as_list)] = ()
    as_: Annotated[str, text_check(_adapter_problem)] | None = Field(None, alias="as")
    names: Annotated[tuple[FieldPath, ...], BeforeValidator(as_list)] = ()
    partial: Annotated[bool, Field(strict=True)] = False
    resample: Annotated[str, BeforeValidator(_policy)] = "previous"
    tolerance: Annotated[LengthOfTime | None, BeforeValidator(_tolerance)] = None
    window: tuple[Duration, Duration] | None = None
    offset: Duration = 0
    unit: Line = ""
    description: Line = ""
    dtype: Annotated[str, text_check(lambda dtype: _dtype_problem(dtype, (*DTYPES, TEXT)))] | None = None
    strings: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] = 32
    shape: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=8)] | None = None
    resize: tuple[Positive, Positive] | None = None
    encode: Literal["jpg", "png"] | None = None
    missing: Literal["fail", "unavailable"] = "unavailable"
    nan: Literal["keep", "unavailable"] = "keep"
    deskew: Deskew | None = None
    frame: FrameName | None = None

    @property
    def adapter(self) -> str | None:
        """Return `as` without spaces, the form that readers of logs take."""
        return self.as_.replace(" ", "") if self.as_ else None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = list(self._problems())
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        policy, rules = self.resample, POLICIES[self.resample]
        if not self.field and self.as_ is None:
            yield "needs a `field` or an adapter (`as`)"
        if self.tolerance is not None and not rules.tolerates:
            yield f"`tolerance` has no meaning with resample: {policy}"
        if self.window is not None and rules.uses != "window":
            yield f"`window` has no meaning with resample: {policy}"
        if self.window is not None and self.window[0] >= self.window[1]:
            yield "`window` must start before it ends"
        if self.offset and rules.by_clock:
            line = f"time: {{topics: {{{self.topic}: {{offset: {duration_text(self.offset)}}}}}}}"
            yield f"`offset` would come after the clock has matched messages; write `{line}` instead"
        elif self.offset and rules.uses == "topic":
            yield f"`offset` has no meaning with resample: {policy}"
        if self.as_ == "rotation_matrix":
            if len(self.field) != 1:
                yield "`as: rotation_matrix` needs one `field`, of a quaternion"
            if not rules.keeps_rotations:
                yield f"resample: {policy} of rotations returns no rotation; use slerp or nearest"
        if self.nan == "unavailable" and ((self.as_ or "").startswith(_OF_MANY) or self.deskew):
            yield (
                "`nan: unavailable` would leave out a whole cloud, scan or picture for one NaN; leave it "
                "out, and drop single points or pixels in training"
            )
        yield from self._joint_problems()
        yield from self._deskew_problems()
        if self.shape is not None:
            if self.as_ not in (None, "image"):
                yield "`shape` is for images (`as: image`) and for lists of numbers"
            elif self.as_ == "image" and len(self.shape) != 3:
                yield "`shape` of an image has three numbers: height, width and channels"
        for key in ("resize", "encode"):
            if getattr(self, key) is not None and self.as_ != "image":
                yield f"`{key}` needs `as: image`"

    def _joint_problems(self) -> Iterator[str]:
        if self.as_ != "joints":
            for key in ("names", "partial"):
                if getattr(self, key):
                    yield f"`{key}` needs `as: joints`"
            return
        if not self.names:
            yield "`as: joints` needs `names`, those of the joints in the order of a row's values"
        if len(self.field) != 1:
            yield "`as: joints` needs one `field`, such as position"
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            yield f"`names` has {twice[0]!r} twice"
        rules = POLICIES[self.resample]
        makes_one = not rules.gathers and not rules.by_clock and rules.takes != "nothing"
        if self.partial and not (makes_one and rules.uses != "topic"):
            yield (
                f"`partial` has no meaning with resample: {self.resample}, as each joint has messages of its "
                "own; write linear, nearest or previous"
            )

    def _deskew_problems(self) -> Iterator[str]:
        if self.deskew is None:
            return
        match = _ADAPTER.fullmatch(self.as_ or "")
        words = [word.strip() for word in (match[2] or "x,y,z").split(",")] if match else []
        named = [path.rpartition("[].") for path in self.field]
        are_elements = self.as_ is None and (
            len(named) == 1 or (len({n[0] for n in named}) == 1 and {"x", "y", "z"} <= {n[2] for n in named})
        )
        is_cloud = match is not None and match[1] == "points" and {"x", "y", "z"} <= {*words}
        if not (is_cloud or are_elements):
            yield (
                "`deskew` moves x, y and z of points: write `as: points` or `as: points[x,y,z]`, or of an "
                'array of points `field: rows` or `field: ["rows[].x", "rows[].y", "rows[].z"]`'
            )
        odometry = self.deskew.pose.topic
        if odometry in (self.topic, *FramePair.model_fields["static"].default):
            yield f"`deskew` can't use its pose from {odometry}; name a topic of nav_msgs/Odometry"
        if POLICIES[self.resample].uses != "one" or POLICIES[self.resample].takes == "nothing":
            yield f"`deskew` has no meaning with resample: {self.resample}; write nearest or previous"
        if self.dtype is not None and not self.dtype.startswith("float"):
            yield f"`deskew` has no meaning with dtype: {self.dtype}"


class DerivedColumn(RecipePart):
    """A column computed from others by a function marked `@logloom.derive`.

    Attributes:
        derive: "module:function".
        from_: the input columns, including ages and availabilities.
        dtype: a number type, "string" or "bytes"; or a type for each field of structs, see `struct_dtype`.
            JSON has these as a list of [name, type], for objects are stored with their keys in another order.
        shape: of a row; null (first) for lengths that differ by row; "lists" for lists of lists.
        strings: characters kept for text in structs.
    """

    derive: Annotated[str, text_check(_function_problem)]
    from_: Annotated[tuple[str, ...], BeforeValidator(as_list), Field(min_length=1)] = Field(alias="from")
    dtype: OneOrKeys[
        Annotated[str, text_check(lambda dtype: _dtype_problem(dtype, (*DTYPES, TEXT, "bytes")))],
        Annotated[dict[str, Any], Field(min_length=1)],
    ]
    shape: tuple[Positive | None, ...] | Literal["lists"] = ()
    strings: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] = 32
    unit: Line = ""
    description: Line = ""

    @field_validator("dtype", mode="before")
    @classmethod
    def _as_mapping(cls, value: Any) -> Any:
        return _from_pairs(value)

    @field_validator("shape", mode="before")
    @classmethod
    def _is_a_shape(cls, value: Any) -> Any:
        are_lengths = isinstance(value, list | tuple) and all(
            length is None or (type(length) is int and length > 0) for length in value
        )
        if not (are_lengths or value == "lists"):
            raise ValueError(
                "write the lengths of a row, such as [3], [null] or [null, 4]; or `lists` for lists of lists"
            )
        return value

    @field_serializer("dtype", when_used="json")
    def _in_order(self, value: str | dict[str, Any]) -> Any:
        return _in_pairs(value)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.dtype in ("string", "bytes") and self.shape:
            several = "; of several texts write `dtype: {text: string}, shape: [null]`, and return dicts"
            raise ValueError(
                f"shape: a column of {self.dtype} has none{several if self.dtype == 'string' else ''}"
            )
        ragged = sum(length is None for length in self.shape)
        if self.shape != "lists" and None in self.shape[ragged:]:
            raise ValueError("shape: lengths that differ by row (null) must come first")
        if self.strings != type(self).model_fields["strings"].default and isinstance(self.dtype, str):
            raise ValueError("strings: is for text in structs, as in dtype: {id: int64, label: string}")
        if not isinstance(self.dtype, str):
            try:
                struct_dtype(self.dtype, self.strings)
            except ValueError as error:
                raise ValueError(f"dtype: {error}") from error
        return self


class TransformColumn(RecipePart):
    """A column of poses of one frame in another.

    Attributes:
        at: the column whose messages' times to look up; None for the tick.
        as_: which representation of the pose rows contain.
    """

    tf: FramePair
    at: str | None = None
    as_: Literal["pose", "matrix", "position", "quaternion", "rotation_matrix"] = Field("pose", alias="as")
    unit: Line = ""
    description: Line = ""


class LabelColumn(RecipePart):
    """A column of labels from tables that are delivered separately from the logs.

    Attributes:
        table: URI or glob of Parquet, Feather or CSV files with a row for each label.
        on: the columns with a label's log and time.
        tolerance: ns; the largest distance of labels from their tick.
        field: columns of a label; by default all that aren't keys.
        expect: whether rows contain all labels of one time, or exactly one, with unique keys.
        strings: characters kept for text if a label has several columns.
        frame: see `TopicColumn`.
    """

    table: Annotated[str, Field(min_length=1)]
    on: tuple[Annotated[str, Field(min_length=1)], Annotated[str, Field(min_length=1)]] = (
        "log_id",
        "timestamp",
    )
    tolerance: LengthOfTime = 0
    field: Annotated[tuple[FieldPath, ...], BeforeValidator(as_list)] = ()
    expect: Literal["many", "one"] = "many"
    strings: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] = 32
    unit: Line = ""
    description: Line = ""
    frame: FrameName | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.on[0] == self.on[1]:
            raise ValueError(f"on: {self.on[0]} can't be both the log and the time")
        if both := sorted({*self.on} & {*self.field}):
            raise ValueError(f"field: {both[0]} is a key, which rows have already")
        return self


_KINDS = (
    (DerivedColumn, "derive", "<other>"),
    (TransformColumn, "tf", "<third>"),
    (LabelColumn, "table", "<fourth>"),
)


def _kind_of_column(value: Any) -> str:
    for model, key, kind in _KINDS:
        if isinstance(value, model) or (isinstance(value, dict) and key in value):
            return kind
    return "<one>"


Column = Annotated[
    Annotated[TopicColumn, Tag("<one>")]
    | Annotated[DerivedColumn, Tag("<other>")]
    | Annotated[TransformColumn, Tag("<third>")]
    | Annotated[LabelColumn, Tag("<fourth>")],
    Discriminator(_kind_of_column),
]
