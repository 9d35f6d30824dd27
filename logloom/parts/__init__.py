"""Installed parts, of logloom and of other packages: what they offer, by name.

Here: `Part`, which an entry point in `logloom.parts` names; `names` of what is offered, and `load`, which
imports an object when it is used. A part of another package (a `Plugin`) may be broken: that is an error of
what needs it, and of nothing else; `broken` lists all of them.
Elsewhere: the parts of logloom, a module for each in this folder; what they offer, in modules and folders of
the part's name.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, distributions
from types import MappingProxyType
from typing import Any, NamedTuple

from logloom.errors import UsageError
from logloom.text import some_of
from logloom.values import dataclass

GROUP = "logloom.parts"
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Verb(NamedTuple):
    """A command: the module that adds it to the app, and what `--help` says without importing that.

    Attributes:
        group: of `--help`.
        help: the first line of the command's own help.
    """

    module: str
    group: str
    help: str


class Part(NamedTuple):
    """What a part offers: by name, the place of each object as "module:object".

    Attributes:
        outputs: formats of datasets (`logloom.io.formats.interface.Format`).
        folders: kinds of datasets that open and convert, but are no outputs
            (`logloom.io.formats.interface.FolderKind`).
        logs: kinds of logs (`logloom.io.logs.opening.Kind`).
        decoders: of messages, by encoding (`logloom.io.logs.messages.raw_messages.Decoder`).
        importers: of labels, by tool (`logloom.io.labels.tools.image_labels.LabelImporter`).
        examiners: by kind of log, what `logloom doctor` finds beside messages: of its files, options and the
            types of columns that other logs have, which it adds to.
        engines: that run builds (`logloom.runners.engine.Engine`), made of `RunnerOptions` and `Size`.
        jobs: by engine, how a detached job at a place is (`logloom.runners.detached_jobs.look_at`).
        pages: about a version, by file name: functions of its store and manifest that give bytes.
        verbs: commands; see `Verb`.
        requires: names of parts that this one imports.
        familiar: names that other tools have for its outputs, to the outputs.
    """

    outputs: Mapping[str, str] = _NOTHING
    folders: Mapping[str, str] = _NOTHING
    logs: Mapping[str, str] = _NOTHING
    decoders: Mapping[str, str] = _NOTHING
    importers: Mapping[str, str] = _NOTHING
    examiners: Mapping[str, str] = _NOTHING
    engines: Mapping[str, str] = _NOTHING
    jobs: Mapping[str, str] = _NOTHING
    pages: Mapping[str, str] = _NOTHING
    verbs: Mapping[str, Verb] = MappingProxyType({})
    requires: tuple[str, ...] = ()
    familiar: Mapping[str, str] = _NOTHING


_WORDS = {
    "outputs": "output",
    "folders": "kind of dataset",
    "logs": "kind of log",
    "decoders": "decoder of messages",
    "importers": "importer of labels",
    "examiners": "examiner of logs of kind",
    "engines": "engine",
    "jobs": "detached job on",
    "pages": "page",
    "verbs": "command",
}


# Of objects of other packages, what logloom uses; the other members of a format have a default.
_MEMBERS = {
    "outputs": ("name", "semantics", "Options", "check", "writer", "reader"),
    "folders": ("name", "recognises", "rows", "typed_rows"),
    "logs": ("name", "suffixes", "matches", "open"),
    "decoders": ("column_type", "time_source", "header_time", "check", "take"),
    "engines": ("__enter__", "__exit__", "submit"),
}
_OBJECTS = ("outputs", "folders", "logs")  # all others are called, and may be classes
_FORMAT = "logloom.io.formats.interface.Format"


class Broken(NamedTuple):
    """An entry point of another package that can't be used, as a whole or for one of its offers.

    Attributes:
        package: its distribution and version, such as "acme 1.0".
        group: of the entry point.
        entry_point: its name.
        problem: why.
    """

    package: str
    group: str
    entry_point: str
    problem: str

    def __str__(self) -> str:
        where = f"{self.package}, entry point {self.entry_point!r} in {self.group}"
        return f"{where}: {self.problem}; upgrade or uninstall {self.package.partition(' ')[0]}"


@dataclass(frozen=True, eq=False)
class Plugin:
    """A part of another package.

    Attributes:
        package: its distribution and version.
        name: of the entry point.
        part: what it offers; nothing if it is broken.
        problem: why it can't be used; "" if it can.
    """

    package: str
    name: str
    part: Part
    problem: str = ""

    def broken(self, problem: str = "") -> Broken:
        """Return the description of the part, or of one of its offers."""
        return Broken(self.package, GROUP, self.name, problem or self.problem)


@functools.cache
def installed() -> Mapping[str, Part]:
    """The parts of logloom itself by name, in name order."""
    try:
        points = [*distribution("logloom").entry_points.select(group=GROUP)]
    except PackageNotFoundError:
        points = []
    return dict(sorted((point.name, point.load()) for point in points))


@functools.cache
def plugins() -> tuple[Plugin, ...]:
    """The parts of all other packages, by name.

    Finding them takes 1 ms for each 25 installed packages.
    """
    return tuple(sorted((_plugin(*one) for one in declared(GROUP)), key=lambda plugin: plugin.name))


def _plugin(package: str, point: EntryPoint | str) -> Plugin:
    if isinstance(point, str):
        return Plugin(package, "", Part(), point)
    found, problem = imported(point.value, point.load)
    if not problem and not isinstance(found, Part):
        problem = f"{point.value} is {_kind_of(found)}, not a logloom.parts.Part"
    problem = problem or _misfit_of(found)
    return Plugin(package, point.name, Part() if problem else found, problem)


def _misfit_of(part: Part) -> str:
    """Why a part doesn't say what it offers; "" if it does."""
    for what in _WORDS:
        offers, kind = getattr(part, what), Verb if what == "verbs" else str
        if not isinstance(offers, Mapping) or not all(isinstance(place, kind) for place in offers.values()):
            return f"{what} is no mapping from names to {'Verb' if kind is Verb else 'module:object'}"
    return "" if isinstance(part.requires, tuple) else "requires is no tuple of names"


def declared(group: str) -> Iterator[tuple[str, EntryPoint | str]]:
    """Entry points of other packages in a group, each with its distribution and version.

    Yields:
        The package, and the entry point, or why the package's list of them can't be read.
    """
    seen = {"logloom"}
    for package in distributions():  # a name is in a long file, so few packages are asked for theirs
        try:
            text = package.read_text("entry_points.txt") or ""
        except UnicodeDecodeError:
            continue
        if f"[{group}]" not in text:
            continue
        name = _name_of(package)
        if (known := re.sub(r"[-_.]+", "-", name).lower()) in seen:  # the first on the path
            continue
        seen.add(known)
        label = f"{name} {package.version or ''}".rstrip()
        try:
            points = [point for point in package.entry_points if point.group == group]
        except Exception as error:
            yield label, f"entry_points.txt is no list of entry points ({error})"
            continue
        yield from ((label, point) for point in points)


def _name_of(package: Distribution) -> str:
    return package.name or str(getattr(package, "_path", "a package without a name"))


def names(what: str) -> Iterator[str]:
    """Names of what parts offer, in name order: logloom's own, then those of other packages, read only then.

    Args:
        what: a field of `Part`: "outputs".
    """
    own = sorted({name for part in installed().values() for name in getattr(part, what)})
    yield from own
    yield from sorted({name for plugin in plugins() for name in getattr(plugin.part, what)}.difference(own))


def verbs() -> dict[str, Verb]:
    """The commands of all parts, in the order of their names."""
    found: dict[str, Verb] = {}
    for part in (*(plugin.part for plugin in plugins()), *installed().values()):
        found |= part.verbs
    return dict(sorted(found.items()))


def load(what: str, name: str) -> Any:
    """The object that a part offers, or the module of a verb.

    Args:
        what: a field of `Part`: "outputs".

    Raises:
        UsageError: no part offers it, or several packages do; the part requires one that isn't installed, or
            is of another package and broken.
    """
    own = _own(what, name)
    offering = check_single(what, name, is_own=own is not None)
    if own is not None:
        return _load(own, what, name)
    if offering is None:
        raise UsageError(missing(what, name))
    found, problem = _offered(offering, what, name)
    if problem:
        raise UsageError(str(offering.broken(problem)))
    return found


def _own(what: str, name: str) -> Part | None:
    """The part of logloom's that offers something."""
    return next((part for part in installed().values() if name in getattr(part, what)), None)


def check_single(what: str, name: str, *, is_own: bool) -> Plugin | None:
    """The part of another package that offers something.

    Args:
        what: a field of `Part`: "outputs".
        is_own: whether logloom offers it, too.

    Raises:
        UsageError: several packages offer it; names them.
    """
    offering = [plugin for plugin in plugins() if name in getattr(plugin.part, what)]
    if len(offering) + is_own > 1:
        raise UsageError(_conflict(what, name, offering, is_own))
    return offering[0] if offering else None


def _conflict(what: str, name: str, offering: list[Plugin], is_own: bool) -> str:
    packages = [f"logloom {distribution('logloom').version}"] if is_own else []
    packages += [f"{one.package} (entry point {one.name!r} in {GROUP})" for one in offering]
    others = [one.package.partition(" ")[0] for one in offering]
    remedy = f"uninstall {others[0]}" if is_own and len(others) == 1 else "uninstall all but one of them"
    return f"{_WORDS[what]} {name!r} is offered by {' and by '.join(packages)}; {remedy}"


def usable(what: str) -> Iterator[tuple[str, Any]]:
    """All that parts offer, to choose from: name and object, in the order of `names`.

    What is broken is left out (see `broken`). What is chosen is taken by `load`, which refuses it if other
    packages offer one of its name.

    Args:
        what: a field of `Part`: "outputs".
    """
    own = sorted({name for part in installed().values() for name in getattr(part, what)})
    for name in own:
        part = _own(what, name)
        assert part is not None
        yield name, _load(part, what, name)
    for name in itertools.islice(names(what), len(own), None):
        offering = [plugin for plugin in plugins() if name in getattr(plugin.part, what)]
        found, problem = _offered(offering[0], what, name)
        if len(offering) == 1 and not problem:
            yield name, found


def broken(*fields: str, commands: Collection[str] = ()) -> Iterator[Broken]:
    """Parts of other packages that can't be used, and offers of theirs; imports all of these.

    Args:
        fields: those of `Part` whose offers are tried; by default all.
        commands: of logloom that are of no part.
    """
    for plugin in plugins():
        if plugin.problem:
            yield plugin.broken()
        for what in fields or _WORDS:
            for name in sorted(getattr(plugin.part, what)):
                problem = _offered(plugin, what, name)[1]
                if problem:
                    yield plugin.broken(problem)
                    continue
                try:
                    is_core = what == "verbs" and name in commands
                    check_single(what, name, is_own=is_core or _own(what, name) is not None)
                except UsageError as error:
                    yield plugin.broken(str(error).rpartition("; ")[0])


def missing(what: str, name: str) -> str:
    """The message that no part offers something, which lists what parts do offer."""
    there = ", ".join(names(what)) or "none"
    own = familiar_output(name) if what == "outputs" else ""
    hint = f"here it is {own}" if own else f"there are {there}"
    return f"no installed part offers {_WORDS[what]} {name!r}; {hint}{broken_note(what)}"


def familiar_output(name: str) -> str:
    """Return the output that other tools call so; "" without one."""
    return next((part.familiar[name] for part in installed().values() if name in part.familiar), "")


def broken_note(*fields: str) -> str:
    """A list of broken parts that may offer something, for the end of a message; "" if there are none.

    Args:
        fields: of `Part`: "outputs".
    """
    lines = dict.fromkeys(map(str, broken(*fields)))
    return f". Broken parts, which may offer it: {'; '.join(lines)}" if lines else ""


def _load(part: Part, what: str, name: str) -> Any:
    """The object that a part offers.

    Raises:
        UsageError: it requires a part that isn't installed.
    """
    if lacking := _lacking(part):
        title = next(title for title, one in installed().items() if one is part)
        raise UsageError(f"part {title!r} requires part {lacking}; install both or neither")
    return _object_at(getattr(part, what)[name])


def _lacking(part: Part) -> str:
    """The part that one requires and that isn't installed, in words; "" if there is none."""
    there = (
        {*installed(), *(plugin.name for plugin in plugins() if not plugin.problem)} if part.requires else ()
    )
    return next((f"{other!r}, which isn't installed" for other in part.requires if other not in there), "")


def _object_at(place: str | Verb) -> Any:
    name, _, attribute = (place.module if isinstance(place, Verb) else place).partition(":")
    module = importlib.import_module(name)
    return getattr(module, attribute) if attribute else module


@functools.cache
def _offered(plugin: Plugin, what: str, name: str) -> tuple[Any, str]:
    """What a part of another package offers, and why it can't be used; imported once."""
    place = getattr(plugin.part, what)[name]
    shown = place.module if isinstance(place, Verb) else place
    if lacking := _lacking(plugin.part):
        return None, f"it requires part {lacking}"
    found, problem = imported(shown, lambda: _object_at(place))
    if what != "verbs" and not problem:
        problem = _unfit(what, name, found)
        problem = f"{shown} {problem}" if problem else ""
    return found, f"{_WORDS[what]} {name!r}: {problem}" if problem else ""


def imported(place: str, load: Callable[[], Any]) -> tuple[Any, str]:
    """What an import gives, and why it fails: importing a module of others runs any code."""
    try:
        return load(), ""
    except (Exception, SystemExit) as error:
        return None, f"can't import {place} ({type(error).__name__}: {error})"


def _unfit(what: str, name: str, found: Any) -> str:
    """Why an object isn't what a part says it offers; "" if it is."""
    is_class = isinstance(found, type)
    if what not in _OBJECTS and not callable(found):
        return f"is {_kind_of(found)}, which can't be called"
    if what in _OBJECTS and is_class:
        return "is a class; name an instance of it"
    if what == "outputs" and not any(f"{c.__module__}.{c.__name__}" == _FORMAT for c in type(found).__mro__):
        return f"is {_kind_of(found)}, not of a subclass of {_FORMAT}"
    members = _MEMBERS.get(what, ()) if what in _OBJECTS or is_class else ()
    lacking = [member for member in members if not _has(found, member)]
    if lacking:
        return f"lacks {some_of(lacking, len(lacking))}"
    if what in _OBJECTS and found.name != name:
        return f"has the name {found.name!r}"
    if what == "logs" and not isinstance(found.suffixes, tuple):
        return "has suffixes that are no tuple"
    return ""


def _has(found: Any, member: str) -> bool:
    """Whether an object has a member that isn't just declared by an interface."""
    if member in getattr(found, "__dict__", ()):
        return True
    classes = (found if isinstance(found, type) else type(found)).__mro__
    owner = next((one for one in classes if member in vars(one)), None)
    return owner is not None and not vars(owner).get("_is_protocol", False)


def _kind_of(found: Any) -> str:
    """What an object is, in words."""
    if isinstance(found, type):
        return f"the class {found.__name__}"
    return f"an object of type {type(found).__name__}"
