"""The columns of a recipe: from a topic, or derived from other columns.

Here: what may stand under `columns.<name>`, and which of it fits together; the names of resample policies.
Elsewhere: whether the logs have such topics and fields (logloom.transforms.resolve).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from logloom.errors import UsageError
from logloom.recipe.mistakes import nearest
from logloom.recipe.values import Duration, LengthOfTime
from logloom.resample.policies import POLICIES
from logloom.schema import check_column_name

DTYPES = ("bool", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64")
ADAPTERS = ("image", "points", "scan", "navsat", "rotation_matrix", "transforms", "file")

_ADAPTER = re.compile(r"([a-z_]\w*)(?:\[ *(\w+(?: *, *\w+)*) *\])?", re.ASCII)
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def text_check(problem_of: Callable[[str], str | None]) -> BeforeValidator:
    """Validates text by a function that says what is wrong with it, or None."""

    def validate(value: Any) -> Any:
        problem = problem_of(value) if isinstance(value, str) else None
        if problem:
            raise ValueError(problem)
        return value

    return BeforeValidator(validate)


def _topic_problem(topic: str) -> str | None:
    return None if topic.strip() else "a topic has a name, like /imu"


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
        return f"no such adapter as {adapter!r}{nearest(name, ADAPTERS)}"
    if match is None or (name != "points" and match[2] is not None):
        return "write points, or points[x,y,z]" if name == "points" else f"write {name} alone"
    return None


def _policy(value: Any) -> Any:
    if value in list(POLICIES):  # not in the table itself: the value may be anything
        return value
    raise ValueError(f"no such policy as {value!r}{nearest(str(value), list(POLICIES))}"[:300])


def _dtype_problem(dtype: str, known: tuple[str, ...] = DTYPES) -> str | None:
    return None if dtype in known else f"no such dtype as {dtype!r}{nearest(dtype, known)}"


def _derived_dtype_problem(dtype: str) -> str | None:
    return _dtype_problem(dtype, (*DTYPES, "string", "bytes"))


def _function_problem(name: str) -> str | None:
    return None if _FUNCTION.fullmatch(name) else f"{name!r} is no module:function, like mypkg.labels:count"


def _line_problem(text: str) -> str | None:
    return None if text.isprintable() else "must be one line of printable text"


Topic = Annotated[str, text_check(_topic_problem)]
ColumnName = Annotated[str, text_check(_name_problem)]
Positive = Annotated[int, Field(strict=True, ge=1, le=1 << 31)]
Line = Annotated[str, text_check(_line_problem)]
FieldPath = Annotated[str, Field(min_length=1)]


class RecipePart(BaseModel):
    """What all parts of a recipe have in common: unknown keys are mistakes, and nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True)


class TopicColumn(RecipePart):
    """A column that comes from a topic.

    Attributes:
        field: dotted paths into the message; several are laid side by side.
        as_: an adapter: image, points, points[x,y,z], scan, navsat, rotation_matrix, transforms, file.
        tolerance, window, offset: ns; what was left out is None, its default depends on the clock.
        strings: characters kept for text inside arrays of sub-messages.
        shape: (h, w, c) that all images of the topic have.
        resize: (height, width) of images.
        missing: what a log without the topic means.
    """

    topic: Topic
    field: Annotated[tuple[FieldPath, ...], BeforeValidator(as_list)] = ()
    as_: Annotated[str, text_check(_adapter_problem)] | None = Field(None, alias="as")
    resample: Annotated[str, BeforeValidator(_policy)] = "previous"
    tolerance: LengthOfTime | None = None
    window: tuple[Duration, Duration] | None = None
    offset: Duration = 0
    unit: Line = ""
    description: Line = ""
    dtype: Annotated[str, text_check(_dtype_problem)] | None = None
    strings: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] = 32
    shape: tuple[Positive, Positive, Positive] | None = None
    resize: tuple[Positive, Positive] | None = None
    encode: Literal["jpg", "png"] | None = None
    missing: Literal["fail", "unavailable"] = "unavailable"

    @property
    def adapter(self) -> str | None:
        """`as` without spaces, as readers of logs want it."""
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
        if self.offset and rules.uses == "topic":
            yield f"`offset` has no meaning with resample: {policy}"
        if self.as_ == "rotation_matrix":
            if len(self.field) != 1:
                yield "`as: rotation_matrix` needs one `field`, of a quaternion"
            if not rules.keeps_rotations:
                yield f"resample: {policy} of rotations is no rotation; use slerp or nearest"
        for key in ("shape", "resize", "encode"):
            if getattr(self, key) is not None and self.as_ != "image":
                yield f"`{key}` needs `as: image`"


class DerivedColumn(RecipePart):
    """A column computed from others by a function marked `@logloom.derive`.

    Attributes:
        derive: "module:function".
        from_: the columns it takes, ages and availabilities too.
        dtype: a number type, "string" or "bytes".
        shape: of a row; null (first) for lengths that differ by row.
    """

    derive: Annotated[str, text_check(_function_problem)]
    from_: Annotated[tuple[str, ...], BeforeValidator(as_list), Field(min_length=1)] = Field(alias="from")
    dtype: Annotated[str, text_check(_derived_dtype_problem)]
    shape: tuple[Positive | None, ...] = ()
    unit: Line = ""
    description: Line = ""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        num_ragged = sum(length is None for length in self.shape)
        if None in self.shape[num_ragged:]:
            raise ValueError("shape: lengths that differ by row (null) must come first")
        if self.dtype in ("string", "bytes") and self.shape:
            raise ValueError(f"shape: a column of {self.dtype} has none")
        return self


def _kind_of_column(value: Any) -> str:
    derived = isinstance(value, DerivedColumn) or (isinstance(value, dict) and "derive" in value)
    return "<other>" if derived else "<one>"


Column = Annotated[
    Annotated[TopicColumn, Tag("<one>")] | Annotated[DerivedColumn, Tag("<other>")],
    Discriminator(_kind_of_column),
]
