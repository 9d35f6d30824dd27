"""The definition languages of ROS messages.

Here: `parse`, from a definition to the tree of types; `definition_of`, which checks the decoder first.
Elsewhere: the grammars (rosmsg, idl), the tree (logloom.io.logs.messages.definitions), types that logs leave
undefined (known_types).
"""

from __future__ import annotations

import functools

from logloom.errors import UnknownEncodingError
from logloom.io.logs.interface import Log, TopicInfo
from logloom.io.logs.messages.definitions import ROS1_TYPES, ROS2_TYPES, Struct, link, short_name
from logloom.io.logs.messages.ros import idl, known_types, rosmsg

_GRAMMARS = {
    "ros2msg": (rosmsg.declarations, ROS2_TYPES),
    "ros1msg": (rosmsg.declarations, ROS1_TYPES),
    "ros2idl": (idl.declarations, ROS2_TYPES),
}


def definition_of(log: Log, topic: str) -> Struct | None:
    """Return the type of a topic's messages; None if only its decoder knows it.

    Raises:
        LogloomError: nothing decodes the topic, or its definition can't be read.
    """
    log.time_source(topic, ("log",))  # as for reading messages
    decoder = getattr(log, "decoder", None)
    root = getattr(decoder(topic), "root", None) if decoder else parse(log.summary.topics[topic])
    return root if isinstance(root, Struct) else None


def parse(info: TopicInfo) -> Struct:
    """Return the type of a topic's messages.

    Raises:
        UnknownEncodingError: the definition is in another language, doesn't parse, lacks a type it uses, or
            is recursive or too large.
    """
    if not info.definition_encoding and info.encoding == "cdr":
        info = known_types.described(info)
    if info.definition_encoding not in _GRAMMARS:
        raise UnknownEncodingError(
            f"its definition is {info.definition_encoding!r}, which doesn't describe {info.encoding} "
            f"messages; known are {', '.join(_GRAMMARS)}"
        )
    return _parse(info.type, info.definition_encoding, info.definition)


@functools.lru_cache(maxsize=256)
def _parse(kind: str, language: str, definition: bytes) -> Struct:
    """Parse a definition; cached, as many of a fleet's thousands of topics have the same."""
    declarations, primitives = _GRAMMARS[language]
    try:
        return link(declarations(short_name(kind), definition.decode("utf-8")), primitives)
    except ValueError as error:
        raise UnknownEncodingError(f"definition of {kind}: {error}") from error
