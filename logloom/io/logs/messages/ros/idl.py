"""The part of OMG IDL that ROS 2 message definitions (ros2idl) use.

Here: text to declarations: modules, structs, typedefs, enums, constants, sequences, bounded strings, fixed
arrays. Several files may follow each other behind lines of `=` and a line `IDL: pkg/msg/Name`.
Elsewhere: linking these into a tree (logloom.io.logs.messages.definitions). Unions, maps, inheritance and
types that no ROS message has are refused.
"""

from __future__ import annotations

import re
from dataclasses import replace

from logloom.io.logs.messages.definitions import Array, Declarations, Declared, short_name

_FILE_HEADING = re.compile(r"^(={3,}|IDL:.*|#.*)$", re.MULTILINE)
_TOKEN = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/"  # nothing
    r'|(?P<token>L?"(?:\\.|[^"\\])*"|L?\'(?:\\.|[^\'\\])*\'|::|[A-Za-z_][\w]*(?:::\w+)*|\d[\w.]*|[^\s\w"\'])',
    re.DOTALL,
)
_NUMBERS = {
    "boolean": "bool",
    "octet": "byte",
    "char": "char",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "long": "int32",
    "long long": "int64",
    "unsigned short": "uint16",
    "unsigned long": "uint32",
    "unsigned long long": "uint64",
    **{name: name for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")},
}


def declarations(root: str, text: str) -> Declarations:
    """Parse the fields of each struct in `text`, the root first.

    Raises:
        ValueError: the text breaks the grammar, or doesn't define the root.
    """
    parser = _IdlParser(_tokens(_FILE_HEADING.sub("", text)))
    parser.definitions(())
    if root not in parser.structs:
        raise ValueError(f"no struct {root} in it; there are {', '.join(parser.structs) or 'none'}")
    return {root: parser.structs[root], **parser.structs}


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise ValueError(f"line {text.count(chr(10), 0, at) + 1}: can't read {text[at : at + 20]!r}")
        if match["token"]:
            tokens.append(match["token"])
        at = match.end()
    return tokens


class _IdlParser:
    """Recursive descent over tokens. A typedef is a `Declared` without a name, inserted where it is used."""

    def __init__(self, tokens: list[str]):
        self.tokens = tokens
        self.at = 0
        self.structs: dict[str, list[Declared]] = {}
        self.typedefs: dict[str, Declared] = {}
        self.constants: dict[str, str] = {}

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        if self.at >= len(self.tokens):
            raise ValueError("it ends in the middle")
        self.at += 1
        return self.tokens[self.at - 1]

    def skip(self, token: str) -> bool:
        found = self.peek() == token
        self.at += found
        return found

    def expect(self, token: str) -> None:
        if not self.skip(token):
            near = " ".join(self.tokens[max(0, self.at - 3) : self.at + 3])
            raise ValueError(f"expected {token!r} near {near[:80]!r}")

    def definitions(self, scope: tuple[str, ...]) -> None:
        while self.peek() not in ("", "}"):
            self.annotations()
            word = self.next()
            if word == "module":
                if len(scope) > 16:
                    raise ValueError("modules are nested too deep")
                name = self.next()
                self.expect("{")
                self.definitions((*scope, name))
                self.expect("}")
            elif word == "struct":
                self.struct(scope)
            elif word == "typedef":
                for name, item in self.declarators(self.resolved(self.type(), scope)):
                    self.typedefs["::".join((*scope, name))] = item
            elif word == "enum":
                self.enum(scope)
            elif word == "const":
                self.constant(scope)
            else:
                raise ValueError(f"{word!r} is not part of message definitions")
            self.expect(";")

    def annotations(self) -> None:
        while self.skip("@"):
            self.next()
            if not self.skip("("):
                continue
            depth = 1
            while depth:
                token = self.next()
                depth += {"(": 1, ")": -1}.get(token, 0)

    def struct(self, scope: tuple[str, ...]) -> None:
        name = self.next()
        self.expect("{")
        fields: list[Declared] = []
        while not self.skip("}"):
            self.annotations()
            for field_name, item in self.declarators(self.resolved(self.type(), scope)):
                fields.append(replace(item, name=field_name))
            self.expect(";")
        # ROS 2 writes this into a message without fields; it is one byte on the wire either way.
        if [field.name for field in fields] == ["structure_needs_at_least_one_member"]:
            fields = []
        self.structs[short_name("/".join((*scope, name)))] = fields

    def enum(self, scope: tuple[str, ...]) -> None:
        self.typedefs["::".join((*scope, self.next()))] = Declared("", "uint32")
        while self.next() != "}":
            pass

    def constant(self, scope: tuple[str, ...]) -> None:
        self.type()
        name = self.next()
        self.expect("=")
        self.constants["::".join((*scope, name))] = self.next()
        while self.peek() not in (";", ""):
            self.next()

    def type(self) -> Declared:
        word = self.next()
        if word == "sequence":
            self.expect("<")
            if self.peek() == "sequence":
                raise ValueError("arrays of arrays are not part of ROS messages")
            element = self.type()
            bound = self.length() if self.skip(",") else None
            self.expect(">")
            return self.array_of(element, Array(bound=bound))
        if word in ("string", "wstring"):
            bound = None
            if self.skip("<"):
                bound = self.length()
                self.expect(">")
            return Declared("", word, text_bound=bound)
        while word in ("unsigned", "long", "unsigned long") and self.peek() in ("short", "long", "double"):
            word += " " + self.next()
        if word in _NUMBERS:
            return Declared("", _NUMBERS[word])
        if not re.fullmatch(r"[A-Za-z_]\w*(::\w+)*|::", word):
            raise ValueError(f"{word!r} is no type that messages have")
        return Declared("", self.next() if word == "::" else word)

    def resolved(self, kind: Declared, scope: tuple[str, ...]) -> Declared:
        """Resolve a typedef; return other types unchanged."""
        for depth in range(len(scope), -1, -1):
            found = self.typedefs.get("::".join((*scope[:depth], kind.type)))
            if found:
                return found if kind.array is None else self.array_of(found, kind.array)
        return kind

    def array_of(self, element: Declared, array: Array) -> Declared:
        if element.array is not None:
            raise ValueError("arrays of arrays are not part of ROS messages")
        return replace(element, array=array)

    def declarators(self, kind: Declared) -> list[tuple[str, Declared]]:
        found = []
        while True:
            name, item = self.next(), kind
            if self.skip("["):
                item = self.array_of(kind, Array(self.length()))
                self.expect("]")
            if self.peek() == "[":
                raise ValueError(f"{name} has more than one dimension, which ROS messages don't")
            found.append((name, item))
            if not self.skip(","):
                return found

    def length(self) -> int:
        word = self.next()
        if not word.isdigit():
            matches = {v for name, v in self.constants.items() if ("::" + name).endswith("::" + word)}
            word = matches.pop() if len(matches) == 1 else word
        if not (word.isascii() and word.isdigit()):
            raise ValueError(f"{word!r} is no length")
        return int(word)
