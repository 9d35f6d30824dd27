"""The grammar of .msg text, ROS 1 and ROS 2, with the messages it uses appended after lines of `=`.

Here: text to declarations. Elsewhere: linking these into a tree (logloom.io.logs.messages.definitions).
Constants and default values aren't part of messages; they are parsed and ignored.
"""

from __future__ import annotations

import re

from logloom.io.logs.messages.definitions import Array, Declarations, Declared, short_name

_SEPARATOR = re.compile(r"={3,}\s*")
_HEADING = re.compile(r"MSG:\s*(\S+)\s*")
_FIELD = re.compile(
    r"(?P<type>[A-Za-z][\w/]*)(?:<=(?P<text>\d+))?(?P<array>\[(?P<bound><=)?(?P<length>\d*)\])?"
    r"\s+(?P<name>[A-Za-z_]\w*)\s*(?P<constant>=(?!=))?"
)


def declarations(root: str, text: str) -> Declarations:
    """Parse the fields of each message in `text`, the root first.

    Raises:
        ValueError: a line isn't a field; the message has its number.
    """
    found: dict[str, list[Declared]] = {root: []}
    fields = found[root]
    for number, words in enumerate(text.splitlines(), 1):
        words = words.strip()
        heading = _HEADING.fullmatch(words)
        if heading:
            # A log may append one message more than once; they are equal.
            fields = []
            found.setdefault(short_name(heading[1]), fields)
        elif words and not words.startswith("#") and not _SEPARATOR.fullmatch(words):
            field = _field(words, number)
            fields += [field] if field else []
    return found


def _field(words: str, line: int) -> Declared | None:
    """Parse the field declared on a line; None for a constant."""
    match = _FIELD.match(words)
    if not match:
        raise ValueError(f"line {line} is neither a field nor a constant: {words[:80]!r}")
    if match["constant"]:
        return None
    array = None
    if match["array"]:
        length = int(match["length"]) if match["length"] else None
        array = Array(bound=length) if match["bound"] else Array(length)
    return Declared(match["name"], match["type"], array, int(match["text"]) if match["text"] else None)
