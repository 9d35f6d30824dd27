"""Installed parts, of logloom and of other packages: what they offer, by name.

Here: `Part`, which an entry point in `logloom.parts` names; `names` of what is offered, and `load`, which
imports an object when it is used.
Elsewhere: the parts of logloom, a module for each in this folder; what they offer, in modules and folders of
the part's name.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from types import MappingProxyType
from typing import Any, NamedTuple

from logloom.errors import UsageError

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
    """

    outputs: Mapping[str, str] = _NOTHING
    logs: Mapping[str, str] = _NOTHING
    decoders: Mapping[str, str] = _NOTHING
    importers: Mapping[str, str] = _NOTHING
    examiners: Mapping[str, str] = _NOTHING
    engines: Mapping[str, str] = _NOTHING
    jobs: Mapping[str, str] = _NOTHING
    pages: Mapping[str, str] = _NOTHING
    verbs: Mapping[str, Verb] = MappingProxyType({})
    requires: tuple[str, ...] = ()


_WORDS = {
    "outputs": "output",
    "logs": "kind of log",
    "decoders": "decoder of messages",
    "importers": "importer of labels",
    "examiners": "examiner of logs of kind",
    "engines": "engine",
    "jobs": "detached job on",
    "pages": "page",
    "verbs": "command",
}


@functools.cache
def installed(*, own: bool) -> Mapping[str, Part]:
    """The parts of logloom itself or of all other packages, by name, in name order.

    Finding those of others takes 1 ms for each 25 installed packages, so they are read only where logloom's
    own don't answer a question.

    Raises:
        UsageError: a part can't be imported.
    """
    found: dict[str, Part] = {}
    for point in (point for package in _packages(own) for point in package.entry_points):
        if point.group != GROUP or point.name in found:  # the first on the path
            continue
        try:
            found[point.name] = point.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"part {point.name!r}: can't import {point.value} ({error}); install its package again "
                "or uninstall it"
            ) from error
    return dict(sorted(found.items()))


def _packages(own: bool) -> Iterator[Distribution]:
    if own:
        with contextlib.suppress(PackageNotFoundError):
            yield distribution("logloom")
        return
    for package in distributions():  # a name is in a long file, so few packages are asked for theirs
        if f"[{GROUP}]" in (package.read_text("entry_points.txt") or "") and package.name != "logloom":
            yield package


def names(what: str) -> Iterator[str]:
    """Names of what parts offer, in name order: logloom's own, then those of other packages, read only then.

    Args:
        what: a field of `Part`: "outputs".
    """
    for own in (True, False):
        yield from sorted({name for part in installed(own=own).values() for name in getattr(part, what)})


def verbs() -> dict[str, Verb]:
    """The commands of all parts, in the order of their names."""
    found: dict[str, Verb] = {}
    for own in (False, True):
        for part in installed(own=own).values():
            found |= part.verbs
    return dict(sorted(found.items()))


def load(what: str, name: str) -> Any:
    """The object that a part offers, or the module of a verb; logloom's own come first.

    Args:
        what: a field of `Part`: "outputs".

    Raises:
        UsageError: no part offers it, or the part requires one that isn't installed.
    """
    for own in (True, False):
        for title, part in installed(own=own).items():
            if name in getattr(part, what):
                place = getattr(part, what)[name]
                return _load(title, part, place.module if isinstance(place, Verb) else place)
    raise UsageError(missing(what, name))


def missing(what: str, name: str) -> str:
    """The message that no part offers something, which lists what parts do offer."""
    there = sorted({*names(what)})
    return f"no installed part offers {_WORDS[what]} {name!r}; there are {', '.join(there) or 'none'}"


def _load(title: str, part: Part, place: str) -> Any:
    for other in part.requires:
        if other not in installed(own=True) and other not in installed(own=False):
            raise UsageError(
                f"part {title!r} requires part {other!r}, which isn't installed; install both or neither"
            )
    name, _, attribute = place.partition(":")
    module = importlib.import_module(name)
    return getattr(module, attribute) if attribute else module
