"""Where the rows of a conversion come from: a version of logloom, or a foreign dataset.

Here: `ConvertSource`, which gives logs, parts and blocks of either, and `open_source`.
Elsewhere: foreign datasets (logloom.io.foreign), what becomes of the rows (logloom.pipelines.convert).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from logloom.blocks import Block
from logloom.digests import digest_of
from logloom.errors import UsageError
from logloom.io.entries import Entry
from logloom.io.foreign import open_foreign
from logloom.io.foreign.base import ForeignDataset, LogRange, LostFiles
from logloom.io.manifest import LogRecord, Manifest, entries_of, read_manifest, split_root, version_numbers
from logloom.io.storage import Store
from logloom.io.units import format_named, format_names
from logloom.pipelines.verify import reading_of
from logloom.schema import Schema
from logloom.transforms.job import Committed
from logloom.transforms.partition import Reading

DAMAGE = "damage of the source"  # why rows were left out, as manifests say it; 0 where nobody knows how many


@dataclass(frozen=True)
class SourceLog:
    """A log to convert.

    Attributes:
        record: what the new manifest will say of it, but for key and part.
        parts: its partitions, in row order; those without rows too.
    """

    record: LogRecord
    parts: tuple[LogRange, ...]


class ConvertSource(Protocol):
    """Rows with a schema. Small and picklable."""

    @property
    def name(self) -> str:
        """Of the dataset, for its manifest."""
        ...

    @property
    def schema(self) -> Schema:
        """Of every row."""
        ...

    @property
    def period(self) -> int | None:
        """Of a rate clock, in ns; None where rows have none."""
        ...

    @property
    def recipe(self) -> Mapping[str, Any]:
        """What the new manifest says instead of a recipe."""
        ...

    @property
    def hints(self) -> Mapping[str, Mapping[str, Any]]:
        """Options by output format that keep more of what was there."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """For people."""
        ...

    def logs(self) -> Sequence[SourceLog]:
        """All logs, by log_id."""
        ...

    def blocks(self, log_id: str, part: LogRange, columns: Sequence[str], max_bytes: int) -> Iterator[Block]:
        """The rows of a part in order, with `timestamp` and the named columns."""
        ...

    def digests(self, part: LogRange) -> Mapping[str, str]:
        """What is known of the digests of a part's columns."""
        ...

    def tally(self, part: LogRange) -> Mapping[str, Any]:
        """How the part's messages were used, where that is known."""
        ...


def open_source(
    uri: str,
    *,
    kind: str | None = None,
    output: str | None = None,
    columns: Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    num_workers: int = 1,
    on_error: str = "fail",
) -> ConvertSource:
    """The rows of a version of logloom (`ROOT[@VERSION]`), or of a foreign dataset.

    Args:
        kind: of a foreign dataset; None looks at its files.
        output: of a version, which to read; None takes one that keeps columns as they are.
        columns: names or globs; of a foreign dataset only these are looked at.
        num_workers: processes that learn a foreign dataset's types.
        on_error: "skip" leaves out files of a foreign dataset that are damaged.

    Raises:
        UsageError: there is nothing that can be converted.
        DatasetError: it is damaged.
    """
    root, version = split_root(uri)
    store = Store.at(root, storage_options)
    if kind is None and version_numbers(store):
        return VersionSource.open(store, read_manifest(store, version), output)
    if output is not None:
        raise UsageError(f"{uri}: --output chooses among the outputs of a version; this is none")
    return ForeignSource.of(
        open_foreign(uri, kind, storage_options, columns=columns, num_workers=num_workers, on_error=on_error)
    )


# --- versions -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VersionSource:
    """One output of a committed version."""

    name: str
    schema: Schema
    period: int | None
    recipe: Mapping[str, Any]
    hints: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...]
    reading: Reading
    output: str
    version: int

    @classmethod
    def open(cls, store: Store, manifest: Manifest, output: str | None) -> VersionSource:
        """
        Raises:
            UsageError: the version has no such output.
        """
        chosen = output or _best_output(manifest)
        if chosen not in manifest.outputs:
            known = ", ".join(manifest.outputs)
            raise UsageError(f"{store.uri}: version {manifest.version} has no output {chosen!r}; {known}")
        reading = replace(reading_of(store, manifest), encoded=frozenset())
        forms = _forms_of(manifest)
        lineage = {
            "from": store.uri,
            "kind": "logloom",
            "version": manifest.version,
            "output": chosen,
            "forms": forms,
        }
        return cls(
            name=manifest.name,
            schema=_schema_of(reading, manifest, chosen),
            period=Committed.of(store, manifest).period,
            recipe={**manifest.recipe, "convert": lineage},
            hints=_hints_of(manifest, chosen, forms),
            notes=(),
            reading=reading,
            output=chosen,
            version=manifest.version,
        )

    def logs(self) -> Sequence[SourceLog]:
        """See `ConvertSource.logs`; logs that the version lists without rows are listed again."""
        manifest = read_manifest(self.reading.store, self.version)
        entries: dict[str, list[Entry]] = {record.log_id: [] for record in manifest.logs}
        for record, entry in entries_of(self.reading.store, manifest.logs):
            if entry.output == self.output:
                entries[record.log_id].append(entry)
        return [
            SourceLog(record, tuple(_part_of(entry) for entry in entries[record.log_id]))
            for record in manifest.logs
        ]

    def blocks(self, log_id: str, part: LogRange, columns: Sequence[str], max_bytes: int) -> Iterator[Block]:
        """See `ConvertSource.blocks`."""
        return self.reading.open(part.where).blocks(columns, max_bytes)

    def digests(self, part: LogRange) -> Mapping[str, str]:
        """What the build noted."""
        columns: Mapping[str, str] = part.where.columns
        return columns

    def tally(self, part: LogRange) -> Mapping[str, Any]:
        """As the build noted it."""
        tally: Mapping[str, Any] = part.where.tally
        return tally


def _part_of(entry: Entry) -> LogRange:
    return LogRange(entry.partition, entry.start, entry.stop, entry.rows, entry.identity, entry, entry.size)


def _best_output(manifest: Manifest) -> str:
    """The first output that keeps columns as they are, preferably all of them."""
    plain = [name for name in manifest.outputs if format_named(name).keeps_columns]
    whole = [name for name in plain if manifest.outputs[name].get("columns") is None]
    return [*whole, *plain, *manifest.outputs][0]


def _form_options() -> dict[str, str]:
    """By format, the option that says what bytes columns hold."""
    formats = map(format_named, format_names())
    return {form.name: form.forms_option for form in formats if form.forms_option}


def _schema_of(reading: Reading, manifest: Manifest, output: str) -> Schema:
    """The schema that the output's reader gives, which may hold fewer columns than the version."""
    for _, entry in entries_of(reading.store, manifest.logs):
        if entry.output == output and entry.rows:
            return reading.open(entry).schema
    raise UsageError(
        f"{reading.store.uri}: version {manifest.version} has no rows in {output}, nothing to convert"
    )


def _forms_of(manifest: Manifest) -> dict[str, str]:
    """What bytes columns hold (jpg, …), as recipe, outputs or an earlier conversion say."""
    forms: dict[str, str] = dict((manifest.recipe.get("convert") or {}).get("forms") or {})
    for name, column in manifest.recipe.get("columns", {}).items():
        if column.get("encode"):
            forms[name] = column["encode"]
    for output, key in _form_options().items():
        forms |= manifest.outputs.get(output, {}).get(key) or {}
    return forms


def _hints_of(manifest: Manifest, output: str, forms: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The version's own options of each format, and for all formats which bytes are images."""
    hints = {name: {**options} for name, options in manifest.outputs.items()}
    for options in hints.values():
        options.pop("columns", None)
        options.pop("reference", None)  # chunks are to be stored here
    for name, key in _form_options().items():
        own = hints.setdefault(name, {})
        own[key] = {**forms, **(own.get(key) or {})}
    hints[output] = format_named(output).again(hints[output])
    return hints


# --- foreign datasets -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForeignSource:
    """A foreign dataset."""

    name: str
    schema: Schema
    recipe: Mapping[str, Any]
    hints: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...]
    dataset: ForeignDataset
    period: int | None = None

    @classmethod
    def of(cls, dataset: ForeignDataset) -> ForeignSource:
        lineage = {"from": dataset.uri, "kind": dataset.kind}
        name = dataset.uri.rstrip("/").rpartition("/")[2]
        recipe = {"name": name, "columns": {}, "convert": lineage}
        return cls(name, dataset.schema, recipe, dataset.hints, dataset.notes, dataset)

    def logs(self) -> Sequence[SourceLog]:
        """See `ConvertSource.logs`."""
        logs = [
            SourceLog(_record_of(log.log_id, log.uri, log.parts), log.parts) for log in self.dataset.logs()
        ]
        return sorted([*logs, *self._lost_logs()], key=lambda log: log.record.log_id)

    def _lost_logs(self) -> list[SourceLog]:
        """What was left out, each listed as a log of its own, since nothing says which it is part of."""
        lost: Sequence[LostFiles] = getattr(self.dataset, "lost", ())
        made = []
        for number, one in enumerate(lost):
            record = replace(
                _record_of(f"{self.name}.lost.{number:06}", one.place, ()),
                content_id=one.content,
                status="skipped",
                dropped={DAMAGE: 0},
                reasons=(one.reason,),
            )
            made.append(SourceLog(record, ()))
        return made

    def blocks(self, log_id: str, part: LogRange, columns: Sequence[str], max_bytes: int) -> Iterator[Block]:
        """See `ConvertSource.blocks`."""
        return self.dataset.blocks(log_id, part, columns, max_bytes)

    def digests(self, part: LogRange) -> Mapping[str, str]:
        """Nothing is known before the rows are read."""
        return {}

    def tally(self, part: LogRange) -> Mapping[str, Any]:
        """There were no messages."""
        return {}


def _record_of(log_id: str, uri: str, parts: Sequence[LogRange]) -> LogRecord:
    rows = sum(part.rows for part in parts)
    content = digest_of([part.identity for part in parts])
    return LogRecord(
        log_id=log_id,
        uris=(uri,),
        content_id=content,
        split="all",
        key="",
        status="whole",
        part="",
        rows=rows,
        planned=rows,
        dropped={},
        refused=0,
    )
