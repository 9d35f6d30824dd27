"""Keys of the JSON that commands print, and the page of the site that shows them.

The file of keys, logloom/cli/json_keys.txt, has sections. One begins with a command line (`= plan: object:
meaning`) or the name of an object that several have (`@ notice: object: meaning`). A line below it is a
key: `path: type [unit]: meaning`. A path is as in `logs[].topics[].hz`, with `*` for any name; `?` marks an
optional key. `+ counts` adds the keys of another section. The types are those of `LEGEND`.
"""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

FILE = "logloom/cli/json_keys.txt"
PAGE = "reference/json.md"
HEAD = re.compile(r"(?P<sign>[=@]) (?P<name>.+?): (?P<type>[\w ]+): (?P<meaning>.+)")
KEY = re.compile(
    r"(?P<path>[\w.*\[\]]+)(?P<mark>\??): (?P<type>[\w |]+?)(?: \[(?P<unit>\w+)\])?: (?P<meaning>.+)"
)
LEGEND = """# Keys of JSON

Each command prints one value with `--json`. A dot leads to a key of an object within, `[]` to the objects
of a list, and `*` is any name: `splits.*.rows` is the key `rows` of each object in `splits`. An *optional*
key is only printed where it applies.

Types are those of JSON: `int` and `float` are numbers, `str` is text, `object of int` has numbers by name.
`number` is a float or `null`; `numbers` is a number or, of a column with several numbers per row, a list of
numbers; `ints` is the same of whole numbers. Other names are [objects](#objects). Durations in ns are
nanoseconds, times in ns are nanoseconds since the Unix epoch.
"""


class Key(NamedTuple):
    """A key of an object.

    Attributes:
        unit: "" for none.
    """

    path: str
    type: str
    unit: str
    meaning: str
    is_optional: bool


class Section(NamedTuple):
    """What a command prints, or an object within that."""

    name: str
    type: str
    meaning: str
    keys: dict[str, Key]
    is_command: bool


def sections(text: str) -> dict[str, Section]:
    """Read the file of keys; sections by name.

    Raises:
        ValueError: a line that is neither a head, a key nor empty.
    """
    found: dict[str, Section] = {}
    keys: dict[str, Key] = {}
    for line in filter(None, text.splitlines()):
        if head := HEAD.fullmatch(line):
            keys = {}
            name = head["name"]
            found[name] = Section(name, head["type"], head["meaning"], keys, head["sign"] == "=")
        elif line.startswith("+ "):
            keys |= found[line[2:]].keys
        elif key := KEY.fullmatch(line):
            keys[key["path"]] = Key(
                key["path"], key["type"], key["unit"] or "", key["meaning"], bool(key["mark"])
            )
        else:
            raise ValueError(f"{FILE}: not a line of keys: {line}")
    return found


def page(root: pathlib.Path) -> str:
    """Return the page."""
    found = sections((root / FILE).read_text(encoding="utf-8"))
    commands = [section for section in found.values() if section.is_command]
    types = {word for one in found.values() for key in one.keys.values() for word in key.type.split()}
    objects = {name: section for name, section in found.items() if name in types and not section.is_command}
    parts = [LEGEND]
    parts += [_shown(f"logloom {one.name}", one, objects) for one in commands]
    parts += ["## Objects\n\nThese are within what several commands print."]
    parts += [_shown(name, one, objects, level=3) for name, one in objects.items()]
    return "\n\n".join(parts) + "\n"


def _shown(title: str, section: Section, objects: dict[str, Section], level: int = 2) -> str:
    lines = [f"{'#' * level} {title}", "", f"{section.meaning} ({_linked(section.type, objects)})"]
    if section.keys:
        lines += ["", "| key | type | unit | meaning |", "|---|---|---|---|"]
    for key in section.keys.values():
        what = f"{'optional: ' if key.is_optional else ''}{key.meaning}"
        kind = _linked(key.type, objects).replace("|", "or")
        lines.append(f"| `{key.path}` | {kind} | {key.unit} | {what} |")
    return "\n".join(lines)


def _linked(kind: str, objects: dict[str, Section]) -> str:
    """Return a type with links to the objects that it names."""
    return re.sub(r"\w+", lambda word: f"[{word[0]}](#{word[0]})" if word[0] in objects else word[0], kind)
