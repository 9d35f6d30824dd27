"""Manifests, which define versions; opening the versions of a root.

Here: manifests, versions by their names, and the files of versions:

    versions/00000007.json                 the manifest; created last and if absent: this is the commit
    versions/00000007.blake3               its digest, see logloom.io.catalog.manifest_digest
    versions/00000007.times.json           when it was made, see logloom.io.catalog.commit_times
    versions/00000005.removed              marks the version as removed, see
                                           logloom.io.catalog.removal_notes
    versions/pages/<digest>.parquet        pages: records of logs, see logloom.io.catalog.pages
    runs/<number>/<run>.json               the note of one build of that version

Elsewhere: names of these files, and numbers of versions (logloom.io.catalog.version_files); the
logs of a version as a sequence (logloom.io.catalog.records); names of versions (logloom.io.catalog.tags);
entries of units and logs' parts, which records name (logloom.io.catalog.entries); how whole files appear
(logloom.io.storage.store); views of a version (logloom.pipelines.view).
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from typing import Annotated, Any

from blake3 import blake3
from pydantic import AfterValidator, Field, InstanceOf

from logloom import parts
from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.assembled_outputs import AssembledEntry, find_assembled
from logloom.io.catalog.commit_times import is_day, version_of_day
from logloom.io.catalog.entries import (
    ENTRY,
    FAN_OUT,
    Entry,
    read_log_part,
    repair_hint,
    unit_folder,
)
from logloom.io.catalog.manifest_digest import check_digest
from logloom.io.catalog.pages import MAX_BYTES, MAX_LOGS, LogRecord, LogStatus, RecordPage
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.tags import Version, read_tags
from logloom.io.catalog.tombstones import check_purged
from logloom.io.catalog.version_files import (
    all_versions,
    is_root_name,
    lost_manifest,
    version_file,
    version_numbers,
)
from logloom.io.storage.faults import MISSING
from logloom.io.storage.filesystems import contents
from logloom.io.storage.metadata import STRICT, Count, Name, Text, canonical, checked, parsed, without_number
from logloom.io.storage.missing_paths import missing_words
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.schema import Schema
from logloom.text import near_to, some_of
from logloom.uris import is_local, path_of
from logloom.validation import adapter_of
from logloom.values import dataclass

FORMAT = 1
_DIGITS = re.compile(r"[0-9]{1,8}")
_HEAD_BYTES = 64  # of a file that may be a log
_LOOKED_AT = 5  # files of a folder that may contain logs
_RUNS = re.compile(r"\d{8}")  # folders of runs/
_OF_ROOT = re.compile(r"(?P<root>.+)/(logs|parts|runs|index|versions(/pages)?)")


@dataclass(frozen=True)
class Assembled:
    """What an output put together from many units of a split: its folder is parts/<output>/<identity>.

    Attributes:
        entry: BLAKE3 of the folder's entry.json, which lists the files.
    """

    __pydantic_config__ = STRICT

    output: Name
    split: Name
    identity: Name
    entry: Text
    size: Count
    rows: Count

    @property
    def folder(self) -> str:
        return unit_folder(self.output, self.identity)


@dataclass(frozen=True)
class Manifest:
    """One immutable version.

    Attributes:
        recipe: as canonical JSON data.
        logs: read when asked.
        plan: digest of what all rows depend on beside the logs.
        outputs: name to options.
        verified: what was read back before the commit: "new" (all units that the build made or found, but
            none of logs whose records it took over), "all" (those, too), "sample:0.05" (of the new ones) or
            "none".
        software: of the build that committed it; entries of units say what made these.
        parent_digest: BLAKE3 of the parent's manifest; "" without a parent.
        trusted: how many "logs", whole "assembled" outputs, and "portions" of others were taken over from
            the parent without being read.
        reason: given for a rollback, or for dropped drives; "" for builds.
        dependencies: what rows depend on beside logs and recipe: "module NAME" and "file NAME" to their
            BLAKE3, "package NAME" to its version. They are part of `plan`, too.
    """

    __pydantic_config__ = STRICT

    version: Version
    parent: Version | None
    name: Text
    recipe: Annotated[Mapping[str, Any], AfterValidator(_check_recipe)]
    schema: Annotated[Mapping[str, Any], AfterValidator(_check_schema)]
    plan: Text
    outputs: Mapping[Name, Mapping[str, Any]]
    logs: InstanceOf[LogRecords]
    assembled: tuple[Assembled, ...]
    totals: Mapping[str, Count]
    verified: Text
    software: Mapping[str, Text]
    parent_digest: Text
    trusted: Mapping[str, Count]
    reason: Text
    dependencies: Mapping[Text, Text]

    @property
    def split_names(self) -> list[str]:
        """The splits that the recipe names, in its order; none where it has none, or a table of logs says."""
        named: list[str] = (self.recipe.get("order") or {}).get("split") or []
        return named

    @property
    def period(self) -> int | None:
        """Of the recipe's clock, ns; None where a topic is the clock, or there was no recipe."""
        rate = (self.recipe.get("clock") or {}).get("rate")
        return None if rate is None else int(10**9 / Decimal(str(rate)))

    @property
    def counts(self) -> dict[str, int]:
        """The totals; `logs` are those that aren't only recorded as dropped, as `logs_dropped` are."""
        totals, dropped = self.logs.totals, self.logs.statuses.get(LogStatus.dropped, 0)
        return totals | {"logs": totals["logs"] - dropped, "logs_dropped": dropped}

    def to_bytes(self) -> bytes:
        """Return the bytes of its file, with the names of the pages of its records."""
        fields = asdict(replace(self, logs=LogRecords()))
        logs = [asdict(page) for page in self.logs.pages]
        return canonical(fields | {"format": FORMAT, "logs": logs})

    def _repr_html_(self) -> str:
        """What notebooks show."""
        from logloom.markup import table

        facts: dict[str, object] = {"parent": "none" if self.parent is None else self.parent}
        facts |= {name.replace("_", " "): f"{count:,}" for name, count in self.counts.items()}
        facts |= {"outputs": ", ".join(self.outputs), "read back": self.verified}
        facts |= {"reason": self.reason} if self.reason else {}
        return table(f"{self.name}, version {self.version}", ("", ""), facts.items())

    @classmethod
    def from_bytes(cls, data: bytes, source: str, store: Store | None = None) -> Manifest:
        """Read a manifest.

        Args:
            data: of its file, canonical JSON.
            source: what errors call it.
            store: the root, with the pages of its records.

        Returns:
            The manifest.

        Raises:
            DatasetError: it isn't one, or is of a newer format.
        """
        none = "not a manifest of logloom"
        what = f"{source}: {none}"
        value = without_number(parsed(data, what), "format", FORMAT, source, none)
        if "logs" in value:
            value["logs"] = LogRecords(store, checked(_PagesJson, {"logs": value["logs"]}, what).logs)
        return checked(cls, value, what)


@dataclass(frozen=True)
class _PagesJson:
    __pydantic_config__ = STRICT

    logs: Annotated[tuple[RecordPage, ...], AfterValidator(_in_order)]


def _in_order(pages: tuple[RecordPage, ...]) -> tuple[RecordPage, ...]:
    for page, following in itertools.pairwise(pages):
        if page.last >= following.first:
            raise ValueError(f"the page from {following.first!r} on begins before {page.last!r}")
    for page in pages:
        if not 0 < page.totals.get("logs", 0) <= MAX_LOGS:
            raise ValueError(f"the page from {page.first!r} on contains no, or too many logs")
        if page.size > MAX_BYTES:
            raise ValueError(f"the page from {page.first!r} on is too large")
    return pages


@dataclass(frozen=True)
class _ClockJson:
    rate: Annotated[Decimal, Field(gt=0, allow_inf_nan=False)] | None = None


@dataclass(frozen=True)
class _RecipeColumnJson:
    topic: Text | None = None
    encode: Text | None = None


@dataclass(frozen=True)
class _ConvertJson:
    source: Annotated[Text, Field(alias="from")]
    forms: Mapping[str, Text] | None = None


@dataclass(frozen=True)
class _RecipeJson:
    """The keys of a recipe that readers of a version use; the others are for people."""

    columns: Mapping[str, _RecipeColumnJson]
    clock: _ClockJson | None = None
    convert: _ConvertJson | None = None
    split: Mapping[str, Any] | None = None


def _check_recipe(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    adapter_of(_RecipeJson).validate_python(recipe)
    return recipe


def _check_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    Schema.from_json(schema)
    return schema


def read_manifest(store: Store, version: int | str = "latest") -> Manifest:
    """The manifest of a version.

    Args:
        store: the root.
        version: a number, "latest", a tag, or a day (UTC): the last version that was committed up to its end.

    Raises:
        UsageError: there is no such version; lists those there are.
    """
    return manifest_at(store, resolve_version(store, version))


def open_root(store: Store, version: int | str = "latest") -> tuple[Store, Manifest]:
    """Open a version of a root.

    Args:
        store: the root.
        version: a number, a tag or "latest".

    Returns:
        The store, which now knows the layout of units, and the manifest of the version.

    Raises:
        UsageError: there is no such version; lists those there are.
    """
    manifest = read_manifest(store, version)
    return as_laid_out(store), manifest


def as_laid_out(store: Store) -> Store:
    """Return a root as a store that knows the folders of its units."""
    return replace(store, fan_out=FAN_OUT)


def resolve_version(store: Store, version: int | str) -> int:
    """The number of a version given by number, tag, "latest" or a day, as in 2026-11-24.

    Raises:
        UsageError: there is no such version; lists those there are.
        DatasetError: its manifest is lost.
    """
    numbers, removed, lost = found = all_versions(store)
    if found.is_newest_lost and (version == "latest" or not numbers):
        raise lost_manifest(store, lost[-1])
    if not numbers:
        raise no_version_at(store)
    if version == "latest":
        return numbers[-1]
    text = str(version).lstrip("v")
    number = int(text) if _DIGITS.fullmatch(text) else None
    if number in numbers:
        return number
    tags = read_tags(store)
    number = tags.get(str(version)) if number is None else number
    if is_dated := number is None and is_day(str(version)):
        number = version_of_day(store, str(version), sorted(itertools.chain(*found)))
    if number is not None and number in numbers:
        return number
    if number is not None and number in lost:
        raise lost_manifest(store, number)
    known = [*map(str, numbers[-5:]), *sorted(tag for tag in tags if tags[tag] in numbers)]
    hint = near_to(text if text[:1].isalpha() else "", known)  # a number is near to too many
    if number in removed:
        named = f" ({version})" if str(version) in tags or is_dated else ""
        raise UsageError(f"{store.uri}: version {number}{named} was removed by `logloom gc`{hint}")
    raise UsageError(f"{store.uri}: no version {version!r:.100}{hint}")


def no_version_at(store: Store) -> UsageError:
    """Return the error, with a remedy, for a place without versions."""
    if other := of_other_kind(store):
        return UsageError(f"{store.uri}: {other}")
    if store.local is not None and store.local.is_file():
        return UsageError(f"{store.uri}: is a file; give a dataset's folder, with versions/ in it")
    root, _ = split_root(store.uri)
    if root != store.uri and version_numbers(Store.at(root, store.options)):
        return UsageError(
            f"{store.uri}: the root alone is expected here, without {store.uri.removeprefix(root)}"
        )
    if others := [name for name in store.names() if not is_root_name(name)]:
        return UsageError(
            f"{store.uri}: no version here, but {some_of(others)}; if this is a dataset of another kind, "
            f"`logloom head` shows its rows and `logloom convert {store.uri} ROOT` makes a version of it"
        )
    if problem := missing_words(store):
        make = "" if problem.endswith("?") else f", or make it: `logloom build RECIPE --to {store.uri}`"
        return UsageError(f"{store.uri}: {problem}{make}")
    return UsageError(f"{store.uri}: no version here; `logloom build RECIPE --to {store.uri}` makes one")


def of_other_kind(store: Store) -> str:
    """Return the problem, with a remedy, of a recipe, a log or a folder of logs given as a dataset; or ""."""
    names, build = store.names(), f"`logloom build {store.uri} --to ROOT`"
    if names:
        are_logs = any(_is_log(store.uri_of(name), store) for name in names[:_LOOKED_AT])
        return f"contains logs, no dataset; {build} makes one of them" if are_logs else ""
    is_folder = store.local is not None and store.local.is_dir()
    if store.uri.endswith((".yaml", ".yml")) and not is_folder and store.exists(""):
        return f"is a recipe; give the ROOT that {build} writes"
    return f"is a log; {build} makes a dataset of it" if _is_log(store.uri, store) else ""


def _is_log(uri: str, store: Store) -> bool:
    """Return whether a file has the name of a recording and begins like one."""
    known = [kind for _, kind in parts.usable("logs") if not getattr(kind, "is_generic", False)]
    kinds = [kind for kind in known if uri.endswith(kind.suffixes)]
    if not kinds:
        return False
    try:
        head = contents(uri, store.options, _HEAD_BYTES)
    except MISSING:
        return False
    return any(kind.matches(uri, head) for kind in kinds)


def check_not_of_root(store: Store) -> None:
    """Make sure that a folder without versions isn't a root, nor inside one, before its files are looked at.

    A root's own Parquet files describe logs and units; they are no dataset.

    Raises:
        UsageError: it is a root without a version yet, or one of the folders that a root has.
    """
    if any(_RUNS.fullmatch(name) for name in store.names("runs")):
        raise UsageError(
            f"{store.uri}: no version yet, only what builds left that committed none; build first: `logloom "
            f"build RECIPE --to {store.uri}`, and `logloom status {store.uri}` shows how builds ended"
        )
    inside = _OF_ROOT.fullmatch(store.uri.rstrip("/"))
    if inside and version_numbers(Store.at(inside["root"], store.options)):
        raise UsageError(f"{store.uri}: a folder of the root {inside['root']}, no dataset; open the root")


def manifest_at(store: Store, number: int) -> Manifest:
    """The manifest of a version that there is, or was before it was removed.

    Raises:
        UsageError: there is no such version.
        DatasetError: what is there is no manifest, or one of another version.
    """
    name = version_file(number)
    place = store.uri_of(name)
    if (data := store.read_if_there(name)) is None:
        raise UsageError(f"{place}: there is no version {number}")
    check_digest(store, number, data)
    manifest = Manifest.from_bytes(data, place, store)
    if manifest.version != number:
        raise DatasetError(f"{place}: the manifest of version {manifest.version}")
    return manifest


def digest_of_manifest(store: Store, number: int) -> str:
    """Return the BLAKE3 of a version's stored manifest: the next version's `parent_digest`."""
    return blake3(store.read(version_file(number))).hexdigest()


def split_root(text: str) -> tuple[str, str]:
    """ROOT[@version] as (root, version); the version is "latest" where none is given.

    The @ belongs to the name of a folder that exists.
    """
    root, at, version = text.rpartition("@")
    if at and "/" not in version and not (is_local(text) and os.path.exists(path_of(text))):
        return root, version or "latest"
    return text, "latest"


def read_assembled(store: Store, part: Assembled) -> AssembledEntry:
    """The entry of an assembled output of a version.

    Raises:
        DatasetError: it is missing, damaged, or another one.
    """
    found = find_assembled(store, part.output, part.identity)
    place = store.uri_of(f"{part.folder}/{ENTRY}")
    if found is None:
        check_purged(store, place, folder=part.folder)
        raise DatasetError(f"{place}: missing; {repair_hint(place)}")
    entry, digest = found
    if digest != part.entry:
        raise DatasetError(f"{place}: damaged, its bytes changed; {repair_hint(place)}")
    return entry


def folders_of(store: Store, part: Assembled) -> list[str]:
    """List the folders of an assembled output of a version: its own, then those of its portions.

    Raises:
        DatasetError: as `read_assembled`.
    """
    return read_assembled(store, part).folders(part.identity)


def entries_of(
    store: Store, logs: Iterable[LogRecord], *, brief: bool = False
) -> Iterable[tuple[LogRecord, Entry]]:
    """All units of the given logs, in (log_id, span) order within each output.

    Args:
        brief: see `read_log_part`.
    """
    records = (log for log in logs if log.part)
    for log, entries in ahead(lambda log: (log, read_log_part(store, log.part, brief=brief)), records):
        for entry in entries:
            yield log, entry


def units_of(
    store: Store, logs: Iterable[LogRecord], outputs: Collection[str], *, left_out: Sequence[str] = ()
) -> Iterator[tuple[LogRecord, Entry]]:
    """As `entries_of`, the units of some outputs that hold rows.

    Args:
        left_out: see `read_log_part`.
    """
    records = (log for log in logs if log.part)
    read = functools.partial(read_log_part, store, left_out=left_out)
    for log, units in ahead(lambda log: (log, read(log.part)), records):
        for entry in units.entries_with_rows(outputs):
            yield log, entry
