"""The definition languages of ROS messages.

Here: `parse`, from a definition to the tree of types; `definition_of`, which checks the decoder first; the
grammar of .msg text; and types that a log lacks, which the `rosbags` package defines.
Elsewhere: the grammar of .idl text (idl), the tree (logloom.io.logs.messages.definitions).
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace

from logloom.errors import UnknownEncodingError
from logloom.io.logs.interface import Log, TopicInfo
from logloom.io.logs.messages import definitions
from logloom.io.logs.messages.ros import idl

_SEPARATOR = re.compile(r"={3,}\s*")
_HEADING = re.compile(r"MSG:\s*(\S+)\s*")
_FIELD = re.compile(
    r"(?P<type>[A-Za-z][\w/]*)(?:<=(?P<text>\d+))?(?P<array>\[(?P<bound><=)?(?P<length>\d*)\])?"
    r"\s+(?P<name>[A-Za-z_]\w*|(?P<quoted>\"(?:[^\"\\]|\\.)+\"))\s*(?P<constant>=(?!=))?"
)


def definition_of(log: Log, topic: str) -> definitions.Struct | None:
    """Return the type of a topic's messages; None if only its decoder knows it.

    Raises:
        LogloomError: nothing decodes the topic, or its definition can't be read.
    """
    log.time_source(topic, ("log",))  # as for reading messages
    decoder = getattr(log, "decoder", None)
    root = getattr(decoder(topic), "root", None) if decoder else parse(log.summary.topics[topic])
    return root if isinstance(root, definitions.Struct) else None


def parse(info: TopicInfo) -> definitions.Struct:
    """Return the type of a topic's messages.

    Raises:
        UnknownEncodingError: the definition is in another language, doesn't parse, lacks a type it uses, or
            is recursive or too large.
    """
    if not info.definition_encoding and info.encoding == "cdr":
        info = _described(info)
    if info.definition_encoding not in _GRAMMARS:
        raise UnknownEncodingError(
            f"its definition is {info.definition_encoding!r}, which doesn't describe {info.encoding} "
            f"messages; known are {', '.join(_GRAMMARS)}"
        )
    return _parse(info.type, info.definition_encoding, info.definition)


def _described(info: TopicInfo) -> TopicInfo:
    """Add the definition that a topic's type has in the latest ROS 2; bags older than Iron have none.

    Raises:
        UnknownEncodingError: the type is unknown.
    """
    missing = f"the log doesn't define {info.type}"
    try:
        from rosbags.typesys import Stores, get_typestore
        from rosbags.typesys.store import TypesysError
    except ImportError as error:
        raise UnknownEncodingError(
            f"{missing}; `pip install rosbags` provides the definitions of ROS's own types, and bags "
            "recorded with ROS 2 Iron or later contain all of them"
        ) from error
    try:
        text, _ = get_typestore(Stores.LATEST).generate_msgdef(info.type, ros_version=2)
    except (TypesysError, KeyError) as error:
        raise UnknownEncodingError(
            f"{missing}, and it isn't one of ROS's own types; convert the bag on a machine with its package: "
            "`ros2 bag convert` of ROS 2 Iron or later adds definitions; or leave the topic out"
        ) from error
    return replace(info, definition_encoding="ros2msg", definition=text.encode())


@functools.lru_cache(maxsize=256)
def _parse(kind: str, language: str, definition: bytes) -> definitions.Struct:
    """Parse a definition; cached, as many of a fleet's thousands of topics have the same."""
    declarations, primitives = _GRAMMARS[language]
    try:
        return definitions.link(
            declarations(definitions.short_name(kind), definition.decode("utf-8")), primitives
        )
    except ValueError as error:
        raise UnknownEncodingError(f"definition of {kind}: {error}") from error


def _msg_declarations(root: str, text: str) -> definitions.Declarations:
    """Parse .msg text, of ROS 1 and 2: the fields of each message, the root first.

    The messages that it uses follow after lines of `=`. Constants and default values are ignored. Names of
    a table's columns may be in quotes, as in JSON.

    Raises:
        ValueError: a line isn't a field; the message has its number.
    """
    found: dict[str, list[definitions.Declared]] = {root: []}
    fields = found[root]
    for number, words in enumerate(text.splitlines(), 1):
        words = words.strip()
        heading = _HEADING.fullmatch(words)
        if heading:
            # A log may append one message more than once; they are equal.
            fields = []
            found.setdefault(definitions.short_name(heading[1]), fields)
        elif words and not words.startswith("#") and not _SEPARATOR.fullmatch(words):
            field = _field(words, number)
            fields += [field] if field else []
    return found


def _field(words: str, line: int) -> definitions.Declared | None:
    """Parse the field declared on a line; None for a constant."""
    match = _FIELD.match(words)
    if not match:
        raise ValueError(f"line {line} is neither a field nor a constant: {words[:80]!r}")
    if match["constant"]:
        return None
    array = None
    if match["array"]:
        length = int(match["length"]) if match["length"] else None
        array = definitions.Array(bound=length) if match["bound"] else definitions.Array(length)
    name = json.loads(match["quoted"]) if match["quoted"] else match["name"]
    name.encode()  # a ValueError, unless it is text
    return definitions.Declared(name, match["type"], array, int(match["text"]) if match["text"] else None)


_GRAMMARS = {
    "ros2msg": (_msg_declarations, definitions.ROS2_TYPES),
    "ros1msg": (_msg_declarations, definitions.ROS1_TYPES),
    "ros2idl": (idl.declarations, definitions.ROS2_TYPES),
}
