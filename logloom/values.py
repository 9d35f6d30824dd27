"""Frozen dataclasses that are quick to define.

Here: `dataclass`, with the meaning of the standard library's, which type checkers see instead. The library
compiles six methods for each frozen class, in 0.5 ms, and a build imports more than 200 classes; here only
`__init__` is compiled, in 0.1 ms, and the other methods are closures.
"""

from __future__ import annotations

import dataclasses
import operator
import reprlib
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, **options):
        """Return the class as `dataclasses.dataclass` does."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, **options)
        if not frozen or options.keys() - {"kw_only", "eq"}:
            return dataclasses.dataclass(cls, frozen=frozen, **options)
        return _frozen(cls, **options)


def _frozen(cls: Any, eq: bool = True, **options: bool) -> Any:
    own = dict(vars(cls))
    made: Any = dataclasses.dataclass(cls, init=False, repr=False, eq=False, **options)
    fields = dataclasses.fields(made)
    names = [field.name for field in fields if field.compare]
    values = operator.attrgetter(*names) if names else lambda _: ()

    def equals(self: Any, other: Any) -> bool:
        return bool(values(self) == values(other)) if other.__class__ is self.__class__ else NotImplemented

    @reprlib.recursive_repr()
    def represent(self: Any) -> str:
        shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields if field.repr)
        return f"{self.__class__.__qualname__}({shown})"

    methods = {
        "__init__": _init_of(made),
        "__repr__": represent,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
    }
    if eq:
        methods |= {"__eq__": equals, "__hash__": lambda self: hash(values(self))}
    for name, method in methods.items():
        if own.get(name) is None:  # as Python sets `__hash__` beside `__eq__`
            setattr(made, name, method)
    return made


def _init_of(made: Any) -> Any:
    """Return `__init__` of a class, which writes to its dictionary, as `__setattr__` refuses."""
    space: dict[str, Any] = {"_missing": dataclasses.MISSING}
    parameters, body = [], []
    fields = dataclasses.fields(made)
    for field in sorted(fields, key=lambda one: bool(one.kw_only)):  # stable
        name, value = field.name, field.name
        space[f"_{name}_default"], space[f"_{name}_factory"] = field.default, field.default_factory
        default = ""
        if field.default_factory is not dataclasses.MISSING:
            default = "=_missing"
            value = (
                f"_{name}_factory() if {name} is _missing else {name}" if field.init else f"_{name}_factory()"
            )
        elif field.default is not dataclasses.MISSING:
            default = f"=_{name}_default"
            value = name if field.init else f"_{name}_default"
        if field.init:
            parameters += ["*"] * (field.kw_only and "*" not in parameters) + [name + default]
        if field.init or default:
            body.append(f" _values[{name!r}] = {value}")
    body += [" self.__post_init__()"] * hasattr(made, "__post_init__")
    head = f"def __init__(self, {', '.join(parameters)}):\n _values = self.__dict__\n"
    exec(head + "\n".join(body), space)
    init = space["__init__"]
    init.__qualname__, init.__module__ = f"{made.__qualname__}.__init__", made.__module__
    init.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
    return init


def _refuse(self: Any, name: str, *value: Any) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
