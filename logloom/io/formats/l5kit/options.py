"""Options of a recipe under `outputs.l5kit`, and values derived from them.

Here: `L5KitOptions`, hosts, and the longest time between two frames of a scene.
Elsewhere: mapping columns to the arrays (mapping).
"""

from __future__ import annotations

import string
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, field_validator

from logloom.errors import UsageError
from logloom.io.formats.l5kit.dtypes import HOST_LENGTH
from logloom.io.storage.filesystems import file_name_of
from logloom.io.storage.metadata import with_text_keys
from logloom.uris import without_query
from logloom.validation import Duration, OneOrKeys

MAPPED_HINTS = {"agents": "agents", "tl_faces": "tl_faces"}  # what fills L5Kit from rows that were read of it

_TEMPLATE_NAMES = ("stem", "parent", "path", "log_id")


LabelMap = Annotated[dict[str, str], BeforeValidator(with_text_keys)]


class _L5KitPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


def _tag_of(value: Any) -> str:
    return "<other>" if isinstance(value, list | tuple) else "<one>"


# One name, or several whose numbers belong together: `position`, `[position.x, position.y]`.
OneOrMore = Annotated[
    Annotated[str, Tag("<one>")] | Annotated[tuple[str, ...], Tag("<other>"), Field(min_length=1)],
    Discriminator(_tag_of),
]


class FieldFrom(_L5KitPart):
    """A field filled from another one; `map` gives labels for the values of a class field."""

    from_: OneOrMore = Field(alias="from")
    map: LabelMap | None = None


FieldSource = OneOrKeys[OneOrMore, FieldFrom]


def names_of(given: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a value of `OneOrMore`."""
    return (given,) if isinstance(given, str) else given


class AgentsFrom(_L5KitPart):
    """Agents from a column of structs; the fields named here have other names or types there."""

    column: str
    centroid: FieldSource | None = None
    extent: FieldSource | None = None
    yaw: FieldSource | None = None
    velocity: FieldSource | None = None
    track_id: FieldSource | None = None
    label_probabilities: FieldSource | None = None


class TlFacesFrom(_L5KitPart):
    """Traffic light faces from a column of structs; the fields named here have other names or types there."""

    column: str
    face_id: FieldSource | None = None
    traffic_light_id: FieldSource | None = None
    traffic_light_face_status: FieldSource | None = None


class L5KitOptions(_L5KitPart):
    """`outputs.l5kit` of a recipe.

    Attributes:
        host: of the log's absolute URI: {stem} {parent} {path}, or {log_id}; at most 16 characters.
        translation: column of 3 numbers, metres; or columns that have them together.
        rotation: column of a 3 x 3 matrix, of its 9 numbers row by row, or of a quaternion (x, y, z, w); or
            columns that have these numbers together.
        agents, tl_faces: column of structs; without it the array is empty.
        max_gap: rows further apart than this start a new scene. Default: 1.5 periods of a rate clock; a topic
            clock has no period, so there a log is one scene unless this is given.
        masks: a mask of agents for each of these probabilities, so that AgentDataset needn't compute it.
    """

    host: str = "{parent}"
    translation: OneOrMore = "ego_translation"
    rotation: OneOrMore = "ego_rotation"
    agents: OneOrKeys[str, AgentsFrom] | None = None
    tl_faces: OneOrKeys[str, TlFacesFrom] | None = None
    max_gap: Duration | None = None
    masks: tuple[Annotated[float, Field(ge=0, le=1)], ...] = (0.5,)

    @field_validator("masks")
    @classmethod
    def _distinct(cls, masks: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(masks)) != len(masks):
            raise ValueError("a probability is listed twice")
        return masks

    @field_validator("host")
    @classmethod
    def _known_names(cls, host: str) -> str:
        for _, name, spec, conversion in string.Formatter().parse(host):
            if name is not None and (name not in _TEMPLATE_NAMES or spec or conversion):
                raise ValueError(f"{{{name}}} is none of {', '.join(f'{{{n}}}' for n in _TEMPLATE_NAMES)}")
        return host


def host_of(options: L5KitOptions, log_uri: str, log_id: str) -> str:
    """The host of a log's scenes.

    Raises:
        UsageError: it is longer than 16 characters.
    """
    folder = without_query(log_uri).rstrip("/").rpartition("/")[0]
    stem = file_name_of(log_uri).partition(".")[0] or file_name_of(log_uri)
    names = {"stem": stem, "parent": file_name_of(folder) if folder else "", "log_id": log_id}
    names["path"] = f"{folder.split('://', 1)[-1]}/{stem}"
    host = options.host.format(**names)
    if len(host) > HOST_LENGTH:
        raise UsageError(
            f"{log_uri}: l5kit's host would be {host!r}, {len(host)} characters of at most {HOST_LENGTH}; "
            f"shorten outputs.l5kit.host, now {options.host!r}, or give a fixed name"
        )
    return host


def gap_limit(options: L5KitOptions, period: int | None) -> int | None:
    """The longest time between two frames of one scene, in ns; None for any time.

    Args:
        period: of a rate clock, in ns; None for a topic clock.
    """
    if options.max_gap is not None:
        return options.max_gap
    return None if period is None else period * 3 // 2
