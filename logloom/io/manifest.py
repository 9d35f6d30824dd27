"""The files that say what a dataset holds, and from which logs.

Here: entries of finished units, each log's part of a manifest, manifests, versions, and where they lie:

    parts/<output>/<identity>/entry.json   a finished unit, or a portion that units share; written last, the
                                           completion mark
    logs/<digest>.parquet                  a log's part: a row for each unit
    versions/00000007.json                 the manifest; created last and if absent: this is the commit
    versions/00000007.blake3               its digest, see logloom.io.manifest_digest
    runs/<number>/<run>.json               what became of one build that was to be that number

Elsewhere: how whole files appear (logloom.io.storage), views of a version (logloom.pipelines.view).
All JSON is canonical (sorted keys, no spaces), so equal content is equal bytes.
"""

from __future__ import annotations

import io
import json
import re
import shlex
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from blake3 import blake3
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict

from logloom.errors import DatasetError, UsageError
from logloom.io.manifest_digest import check_digest
from logloom.io.metadata import Count, FileName, Int64, Name, NameOrNone, Text, checked, parsed
from logloom.io.storage import MISSING, TEMPORARY, Store
from logloom.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 2
ENTRY = "entry.json"
UNITS = "parts"  # the folder of all units
_JSON_COLUMNS = ("files", "columns", "unit", "tally")  # of a log's part
_READERS = 16  # threads that read parts of logs ahead; they wait for storage
_TAGS = "versions/tags.json"
Version = Annotated[int, Strict(), Field(ge=1, lt=10**8)]
_STRICT = ConfigDict(extra="forbid")
_ROOT_NAMES = re.compile(rf"parts|logs|versions|runs|index|referenced-by|{TEMPORARY}|v\d{{8}}")


def canonical(value: Any) -> bytes:
    """JSON bytes that are equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


@dataclass(frozen=True)
class FileEntry:
    """A file of a unit: its name within the unit's folder, size in bytes and BLAKE3.

    Attributes:
        portion: identity of the portion that it belongs to, in whose folder it lies; "" for the unit's own.
    """

    __pydantic_config__ = _STRICT

    name: FileName
    size: Count
    digest: Text
    portion: NameOrNone = ""


def _apart(files: tuple[FileEntry, ...]) -> tuple[FileEntry, ...]:
    """Raises ValueError where files have one place, or one lies in a folder that another one is."""
    places = {(file.portion, file.name) for file in files}
    if len(places) < len(files):
        raise ValueError("two files have one name")
    for file in files:
        if file.name == ENTRY:
            raise ValueError(f"a file is called {ENTRY}, like what lists them")
        steps = file.name.split("/")
        if any((file.portion, "/".join(steps[:n])) in places for n in range(1, len(steps))):
            raise ValueError(f"{file.name!r} lies in a folder that is a file")
    return files


Files = Annotated[tuple[FileEntry, ...], AfterValidator(_apart)]


@dataclass(frozen=True)
class Entry:
    """A finished unit: one partition of one log in one output.

    Attributes:
        partition: the span's name.
        start, stop: the span in ns, half-open.
        rows: how many rows it holds.
        columns: digest of each column as the unit's reader gives it back.
        unit: what the writer said on closing.
        tally: how messages and ticks were used (see logloom.transforms.rows).
        software: that made it (see logloom.software); empty where a logloom made it that didn't note it.
    """

    __pydantic_config__ = _STRICT

    output: Name
    identity: Name
    log_id: Text
    content_id: Text
    partition: Text
    start: Int64
    stop: Int64
    rows: Count
    files: Files
    columns: Mapping[str, Text]
    unit: Mapping[str, Any]
    tally: Mapping[str, Any]
    software: Mapping[str, Text] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        return unit_folder(self.output, self.identity)

    @property
    def folders(self) -> tuple[str, ...]:
        """All folders of the root that the unit's files lie in: its own, and those of its portions."""
        names = dict.fromkeys([self.identity, *(file.portion or self.identity for file in self.files)])
        return tuple(unit_folder(self.output, name) for name in names)

    def path_of(self, file: FileEntry) -> str:
        """Where a file of the unit lies in the root."""
        return f"{unit_folder(self.output, file.portion or self.identity)}/{file.name}"

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """What stands in entry.json; an entry of before, without software, keeps its bytes."""
        data = asdict(self)
        if not self.software:
            del data["software"]
        return data


def unit_folder(output: str, identity: str) -> str:
    return f"{UNITS}/{output}/{identity}"


def repair_hint(place: str) -> str:
    """What to do about a damaged or lost file of a root, given its URI."""
    root = place.rpartition("/parts/")[0] or place.rpartition("/logs/")[0] or "ROOT"
    return f"`logloom repair {shlex.quote(root)}` builds it again"


def find_entry(store: Store, output: str, identity: str) -> Entry | None:
    """The entry of a unit, where it is finished.

    Raises:
        DatasetError: the entry can't be read.
    """
    found = _read_entry(store, output, identity)
    return None if found is None else checked(Entry, *found[1:])


@dataclass(frozen=True)
class AssembledEntry:
    """The entry of an output that was put together from many units of a split.

    Attributes:
        unit: what the format said of it.
    """

    __pydantic_config__ = _STRICT

    output: Name
    split: Name
    unit: Mapping[str, Any]
    rows: Count
    files: Files
    software: Mapping[str, Text] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        """What stands in entry.json."""
        data = asdict(self)
        for file in data["files"]:
            del file["portion"]  # all are its own
        if not self.software:  # nor had entries of before
            del data["software"]
        return canonical(data)


def find_assembled(store: Store, output: str, identity: str) -> tuple[AssembledEntry, str] | None:
    """The entry of an assembled output and its BLAKE3, where it is finished.

    Raises:
        DatasetError: the entry can't be read.
    """
    found = _read_entry(store, output, identity)
    if found is None:
        return None
    data, *said = found
    return checked(AssembledEntry, *said), blake3(data).hexdigest()


def read_assembled(store: Store, part: Assembled) -> AssembledEntry:
    """The entry of an assembled output of a version.

    Raises:
        DatasetError: it is missing, damaged, or another one.
    """
    found = find_assembled(store, part.output, part.identity)
    place = store.uri_of(f"{unit_folder(part.output, part.identity)}/{ENTRY}")
    if found is None:
        raise DatasetError(f"{place}: missing")
    entry, digest = found
    if digest != part.entry:
        raise DatasetError(f"{place}: its bytes changed")
    return entry


def _read_entry(store: Store, output: str, identity: str) -> tuple[bytes, Any, str, str] | None:
    """An entry's bytes and value, its file, and what to do where it is damaged."""
    folder = unit_folder(output, identity)
    name = f"{folder}/{ENTRY}"
    try:
        data = store.read(name)
    except MISSING:
        return None
    place = store.uri_of(name)
    way_out = repair_hint(place)
    return data, parsed(data, place, way_out), place, way_out


@dataclass(frozen=True)
class LogRecord:
    """A log in a manifest.

    Attributes:
        key: digest of all that its rows and files depend on; a build with an equal key reuses the record.
        status: "whole", "salvaged", "skipped" (left out), "empty" (no ticks) or "kept" (the log is gone).
        part: digest that names logs/<part>.parquet; "" when skipped.
        reasons: for people, why it isn't whole.
        verified: what the build that made its units read back of them: "all", "sample:0.05" or "none"; "" of
            logs without units, and where that wasn't noted.
    """

    __pydantic_config__ = _STRICT

    log_id: Text
    uris: tuple[Text, ...]
    content_id: Text
    split: Name
    key: Text
    status: Text
    part: NameOrNone
    rows: Count
    planned: Count
    dropped: Mapping[str, Count]
    refused: Count
    reasons: tuple[Text, ...] = ()
    verified: Text = ""


@dataclass(frozen=True)
class Assembled:
    """What an output put together from many units of a split: its folder is parts/<output>/<identity>.

    Attributes:
        entry: BLAKE3 of the folder's entry.json, which lists the files.
    """

    __pydantic_config__ = _STRICT

    output: Name
    split: Name
    identity: Name
    entry: Text
    size: Count
    rows: Count


@dataclass(frozen=True)
class Manifest:
    """One immutable version.

    Attributes:
        recipe: as canonical JSON data.
        plan: digest of what all rows depend on beside the logs.
        outputs: name to options.
        verified: what was read back before the commit: "new" (all units that the build made or found, but
            none of logs whose records it took over), "all" (those, too), "sample:0.05" (of the new ones) or
            "none". Versions of format 1 say "all" for "new".
        software: of the build that committed it; entries of units say what made these.
        parent_digest: BLAKE3 of the parent's manifest; "" without a parent, or where that wasn't noted.
        trusted: how many "logs" and "assembled" outputs were taken over from the parent without being read.
    """

    __pydantic_config__ = _STRICT

    version: Version
    parent: Version | None
    name: Text
    recipe: Annotated[Mapping[str, Any], AfterValidator(_check_recipe)]
    schema: Annotated[Mapping[str, Any], AfterValidator(_check_schema)]
    plan: Text
    outputs: Mapping[Name, Mapping[str, Any]]
    logs: tuple[LogRecord, ...]
    assembled: tuple[Assembled, ...]
    totals: Mapping[str, Count]
    verified: Text
    software: Mapping[str, Text]
    parent_digest: Text = ""
    trusted: Mapping[str, Count] = field(default_factory=dict)
    format: Count = field(default=FORMAT)

    def to_bytes(self) -> bytes:
        return canonical(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes, source: str) -> Manifest:
        """Reads a manifest.

        Raises:
            DatasetError: it isn't one, or is of a newer format.
        """
        what = f"{source}: not a manifest of logloom"
        value = parsed(data, what)
        number = value.get("format") if isinstance(value, dict) else None
        if isinstance(number, int) and number > FORMAT:
            raise DatasetError(
                f"{source}: written in manifest format {number}, this logloom reads up to "
                f"{FORMAT}: install a newer logloom"
            )
        return checked(cls, value, what)


class _Clock(BaseModel):
    rate: Annotated[Decimal, Field(gt=0, allow_inf_nan=False)] | None = None


class _Column(BaseModel):
    topic: Text | None = None
    encode: Text | None = None


class _Convert(BaseModel):
    source: Text = Field(alias="from")
    forms: Mapping[str, Text] | None = None


class _Recipe(BaseModel):
    """What readers of a version look up in its recipe; the rest is for people."""

    columns: Mapping[str, _Column]
    clock: _Clock | None = None
    convert: _Convert | None = None
    split: Mapping[str, Any] | None = None


def _check_recipe(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    _Recipe.model_validate(recipe)
    return recipe


def _check_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    Schema.from_json(schema)
    return schema


# --- a log's part ---------------------------------------------------------------------------------------


def write_log_part(store: Store, entries: Sequence[Entry]) -> str:
    """Writes a log's part of the manifest, and gives the digest that names it."""
    data = log_part_bytes(entries)
    digest = blake3(data).hexdigest()
    store.create(f"logs/{digest}.parquet", data)
    return digest


def log_part_bytes(entries: Sequence[Entry]) -> bytes:
    """A log's part of the manifest: a Parquet row a unit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [_entry_row(entry) for entry in entries]
    # Without the last one where no entry has it, so that a part of before comes out with the bytes it had.
    schema = _part_schema(has_software=any(entry.software for entry in entries))
    buffer = io.BytesIO()
    table = pa.Table.from_pylist(rows, schema=schema)
    pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    return buffer.getvalue()


def _part_schema(*, has_software: bool) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [(name, pa.string()) for name in ("output", "identity", "log_id", "content_id", "partition")]
        + [(name, pa.int64()) for name in ("start", "stop", "rows", "size")]
        + [(name, pa.string()) for name in (*_JSON_COLUMNS, *(["software"] if has_software else []))]
    )


def _entry_row(entry: Entry) -> dict[str, Any]:
    row = entry.to_json() | {"size": entry.size}
    return row | {name: canonical(row[name]).decode() for name in (*_JSON_COLUMNS, "software") if name in row}


def read_log_part(store: Store, part: str) -> list[Entry]:
    """The entries of a log's part, in the order in which they were written.

    Raises:
        DatasetError: the part is missing or damaged; names the file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = f"logs/{part}.parquet"
    place = store.uri_of(name)
    try:
        data = store.read(name)
    except MISSING:
        raise DatasetError(
            f"{place}: a log's part of the manifest is missing; {repair_hint(place)}"
        ) from None
    if blake3(data).hexdigest() != part:
        raise DatasetError(f"{place}: damaged, its bytes don't match its name; {repair_hint(place)}")
    try:
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            if file.schema_arrow not in (_part_schema(has_software=True), _part_schema(has_software=False)):
                raise DatasetError(f"{place}: not a log's part of a manifest, its columns are others")
            # Arrow's threads would let go of Python's bytes a little later, which aborts a process that ends.
            rows = file.read(use_threads=False).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DatasetError(f"{place}: damaged ({error})") from error
    return [_row_entry(row, f"{place}: row {number}") for number, row in enumerate(rows)]


def _row_entry(row: dict[str, Any], place: str) -> Entry:
    del row["size"]
    row |= {key: parsed(row[key] or "null", f"{place}: {key}") for key in _JSON_COLUMNS}
    row["software"] = parsed(row.get("software") or "{}", f"{place}: software")
    return checked(Entry, row, place)


# --- versions -------------------------------------------------------------------------------------------


def version_file(number: int) -> str:
    return f"versions/{number:08d}.json"


def view_folder(number: int) -> str:
    return f"v{number:08d}"


def check_root(store: Store) -> None:
    """Makes sure that a folder is a root of logloom, or may become one.

    Raises:
        UsageError: it holds other things.
    """
    for place in (store.local, *store.local.parents) if store.local is not None else ():
        if place.is_file():
            raise UsageError(f"{place}: is a file; --to wants a folder")
    strange = [name for name in store.names() if not _ROOT_NAMES.fullmatch(name)]
    if strange:
        raise UsageError(
            f"{store.uri}: not a logloom root, it holds {', '.join(strange[:3])}"
            f"{' …' if len(strange) > 3 else ''}; choose an empty or new folder"
        )


def version_numbers(store: Store) -> list[int]:
    """The committed versions, ascending."""
    found = (re.fullmatch(r"(\d{8})\.json", name) for name in store.names("versions"))
    return sorted(int(match[1]) for match in found if match)


def read_manifest(store: Store, version: int | str = "latest") -> Manifest:
    """The manifest of a version.

    Args:
        version: a number, "latest", or a tag.

    Raises:
        UsageError: there is no such version; lists those there are.
    """
    return _manifest_at(store, resolve_version(store, version))


def resolve_version(store: Store, version: int | str) -> int:
    """The number of a version given by number, tag or "latest".

    Raises:
        UsageError: there is no such version; lists those there are.
    """
    numbers = version_numbers(store)
    if not numbers:
        if store.local is not None and store.local.is_file():
            raise UsageError(f"{store.uri}: is a file; a dataset is a folder with versions/ in it")
        raise UsageError(f"{store.uri}: no version here; `logloom build RECIPE --to {store.uri}` makes one")
    if version == "latest":
        return numbers[-1]
    text = str(version).lstrip("v")
    if text.isdigit() and int(text) in numbers:
        return int(text)
    tags = read_tags(store)
    if str(version) in tags:
        return tags[str(version)]
    known = ", ".join([*map(str, numbers[-5:]), *sorted(tags)])
    raise UsageError(f"{store.uri}: no version {version!r}; there are {known}")


def read_tags(store: Store) -> dict[str, int]:
    """The versions that tags name.

    Raises:
        DatasetError: the file of tags can't be read.
    """
    try:
        data = store.read(_TAGS)
    except FileNotFoundError:
        return {}
    place = store.uri_of(_TAGS)
    return checked(dict[str, Version], parsed(data, place), place)


def _manifest_at(store: Store, number: int) -> Manifest:
    """
    Raises:
        UsageError: there is no such version.
        DatasetError: what is there is no manifest, or one of another version.
    """
    name = version_file(number)
    name = version_file(number)
    place = store.uri_of(name)
    try:
        data = store.read(name)
    except MISSING:
        raise UsageError(f"{place}: there is no version {number}") from None
    check_digest(store, number, data)
    manifest = Manifest.from_bytes(data, place)
    if manifest.version != number:
        raise DatasetError(f"{place}: the manifest of version {manifest.version}")
    return manifest


def digest_of_manifest(store: Store, number: int) -> str:
    """BLAKE3 of a version's manifest as it lies there: what the next version says of it."""
    return blake3(store.read(version_file(number))).hexdigest()


def split_root(text: str) -> tuple[str, str]:
    """ROOT[@version] as (root, version); the version is "latest" where none is given."""
    root, at, version = text.rpartition("@")
    if at and "/" not in version:
        return root, version or "latest"
    return text, "latest"


def entries_of(store: Store, logs: Iterable[LogRecord]) -> Iterable[tuple[LogRecord, Entry]]:
    """All units of the given logs, in (log_id, span) order within each output."""
    coming: deque[tuple[LogRecord, Future[list[Entry]]]] = deque()
    with ThreadPoolExecutor(_READERS) as threads:
        for log in logs:
            if log.part:
                coming.append((log, threads.submit(read_log_part, store, log.part)))
            if len(coming) > 2 * _READERS:  # some ahead, not all in memory
                yield from _next_entries(coming)
        while coming:
            yield from _next_entries(coming)


def _next_entries(
    coming: deque[tuple[LogRecord, Future[list[Entry]]]],
) -> Iterable[tuple[LogRecord, Entry]]:
    log, entries = coming.popleft()
    return [(log, entry) for entry in entries.result()]
