"""Brace notation for lists of shards: `drive-{000000..000146}.tar`."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator

from logloom.errors import UsageError
from logloom.uris import is_local, path_of

_MAX_EXPANDED = 1_000_000


def braceexpand(pattern: str) -> list[str]:
    """Return the names that a shell makes of braces: `{a,b}`, `{000..146}`, `{1..9..2}`, nested ones too.

    Args:
        pattern: with any number of braces.

    Raises:
        UsageError: more than a million names.
    """
    names = list(itertools.islice(_expand(pattern), _MAX_EXPANDED + 1))
    if len(names) > _MAX_EXPANDED:
        raise UsageError(f"{pattern}: more than {_MAX_EXPANDED} names")
    return names


def files_named(uri: str) -> list[str]:
    """Return the URIs that one in brace notation names; a file or folder of exactly this name is itself.

    Raises:
        UsageError: see `braceexpand`.
    """
    is_there = "{" in uri and is_local(uri) and os.path.exists(path_of(uri))
    return [uri] if is_there else braceexpand(uri)


def _expand(text: str) -> Iterator[str]:
    for start, opened in enumerate(text):
        if opened != "{":
            continue
        parts = _alternatives(text, start)
        if parts is not None:
            alternatives, end = parts
            for middle in alternatives:
                for rest in _expand(text[end:]):
                    yield text[:start] + middle + rest
            return
    yield text


def _alternatives(text: str, start: int) -> tuple[Iterable[str], int] | None:
    """Return the alternatives in the braces at `start`, and their end; None if the braces are literal."""
    depth, commas = 0, [start]
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if text[at] == "," and depth == 1:
            commas.append(at)
        if depth == 0:
            break
    else:
        return None
    inner = text[start + 1 : at]
    if len(commas) > 1:
        pieces = [text[a + 1 : b] for a, b in itertools.pairwise([*commas, at])]
        return itertools.chain.from_iterable(_expand(piece) for piece in pieces), at + 1
    numbers = _number_range(inner)
    return None if numbers is None else (numbers, at + 1)


def _number_range(inner: str) -> Iterable[str] | None:
    found = re.fullmatch(r"(-?\d{1,18})\.\.(-?\d{1,18})(?:\.\.(-?\d{1,18}))?", inner)
    letters = re.fullmatch(r"([a-zA-Z])\.\.([a-zA-Z])", inner)
    if found:
        first, last, step = int(found[1]), int(found[2]), abs(int(found[3] or 1)) or 1
        digits = [part.lstrip("-") for part in (found[1], found[2])]
        padded = any(len(part) > 1 and part[0] == "0" for part in digits)
        width = max(len(found[1]), len(found[2])) if padded else 0
        numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
        return (f"{number:0{width}d}" for number in numbers)
    if letters:
        first, last = ord(letters[1]), ord(letters[2])
        codes = range(first, last + 1) if first <= last else range(first, last - 1, -1)
        return (chr(code) for code in codes)
    return None
