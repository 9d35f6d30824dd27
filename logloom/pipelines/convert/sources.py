"""Sources of a conversion: a version of logloom, or a foreign dataset.

Here: `open_source`, and `VersionSource`, the rows of a version unit by unit.
Elsewhere: foreign datasets (logloom.io.formats.foreign), converting the rows
(logloom.pipelines.convert.convert).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from logloom.blocks import Block
from logloom.caching import cached_property
from logloom.errors import UsageError
from logloom.io.catalog.entries import Entry
from logloom.io.catalog.manifest import Manifest, entries_of, open_root, read_manifest, split_root
from logloom.io.catalog.version_files import version_numbers
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.registry import form_options, format_named
from logloom.io.rows.log_ranges import LogRange, SourceLog
from logloom.io.rows.sources import BLOCK_BYTES, About, RowSource
from logloom.io.storage.store import Store
from logloom.pipelines.verify.verify import reading_of
from logloom.query.where import parse
from logloom.schema import Schema
from logloom.transforms.build.conversion import ROW_KEYS
from logloom.transforms.build.job import Committed
from logloom.transforms.build.read_back import Reading


def open_source(
    uri: str,
    *,
    kind: str | None = None,
    output: str | None = None,
    columns: Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    num_workers: int = 1,
    on_error: str = "fail",
    where: str = "",
) -> RowSource:
    """The rows of a version of logloom (`ROOT[@VERSION]`), or of a foreign dataset.

    Args:
        uri: `ROOT[@VERSION]`, or the folder, file or files in braces of a foreign dataset.
        kind: of a foreign dataset; None looks at its files.
        output: of a version, which to read; None takes one that keeps columns as they are.
        columns: names or globs; of a foreign dataset only these, and those of `where`, are looked at.
        storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.
        num_workers: processes that learn a foreign dataset's types.
        on_error: "skip" leaves out files of a foreign dataset that are damaged.
        where: the filter of the conversion.

    Returns:
        Its rows, for `plan_convert`.

    Raises:
        UsageError: there is nothing that can be converted.
        DatasetError: it is damaged.
    """
    root, version = split_root(uri)
    store = Store.at(root, storage_options)
    if kind is None and version_numbers(store):
        return VersionSource(*open_root(store, version), output)
    if output is not None:
        raise UsageError(f"{uri}: --output chooses among the outputs of a version; this is none")
    if columns is not None and where:
        named = (re.sub(r"\.(age|available)$", "", name) for name in parse(where).columns)
        columns = [*columns, *(name for name in named if name not in ROW_KEYS)]
    return open_foreign(
        uri, kind, storage_options, columns=columns, num_workers=num_workers, on_error=on_error
    )


class VersionSource(RowSource):
    """One output of a committed version."""

    kind = "logloom"

    def __init__(self, store: Store, manifest: Manifest, output: str | None):
        """
        Raises:
            UsageError: the version has no such output.
        """
        chosen = output or _best_output(manifest)
        if chosen not in manifest.outputs:
            known = ", ".join(manifest.outputs)
            raise UsageError(f"{store.uri}: version {manifest.version} has no output {chosen!r}; {known}")
        self.place, self.version, self.output = store.uri, manifest.version, chosen
        self.reading = reading_of(store, manifest)
        self.period = Committed.of(store, manifest).period
        forms = _forms_of(manifest)
        origin = {"from": store.uri, "kind": self.kind, "version": self.version, "output": chosen}
        self._about = About(
            manifest.name,
            {**manifest.recipe, "convert": {**origin, "forms": forms}},
            hints=_hints_of(manifest, chosen, forms),
        )
        self._schema = _schema_of(self.reading, manifest, chosen)

    @property
    def about(self) -> About:
        return self._about

    def logs(self) -> Sequence[SourceLog]:
        """See `RowSource.logs`; logs that the version lists without rows are listed again."""
        return self._source_logs

    @cached_property
    def _source_logs(self) -> Sequence[SourceLog]:
        manifest = read_manifest(self.reading.store, self.version)
        entries: dict[str, list[Entry]] = {record.log_id: [] for record in manifest.logs}
        for record, entry in entries_of(self.reading.store, manifest.logs):
            if entry.output == self.output:
                entries[record.log_id].append(entry)
        return [
            SourceLog(record, tuple(_part_of(entry) for entry in entries[record.log_id]))
            for record in manifest.logs
        ]

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        first = 0
        for log in self.logs():
            for part in log.parts:
                low, high = max(start - first, 0), part.rows if stop is None else min(stop - first, part.rows)
                if low < high:
                    yield from self.reading.open(part.where).scan(names, max_bytes, low, high)
                first += part.rows

    def scan_part(self, part: LogRange, names: Sequence[str], max_bytes: int) -> Iterator[Block]:
        """See `RowSource.scan_part`: an entry says it all, so that no worker lists the version's units."""
        return self.reading.open(part.where).scan(names, max_bytes)


def _part_of(entry: Entry) -> LogRange:
    return LogRange(
        entry.partition,
        entry.start,
        entry.stop,
        entry.rows,
        entry.identity,
        entry,
        entry.size,
        entry.columns,
        entry.tally,
    )


def _best_output(manifest: Manifest) -> str:
    """The first output that keeps columns as they are, preferably all of them."""
    plain = [name for name in manifest.outputs if format_named(name).keeps_columns]
    whole = [name for name in plain if manifest.outputs[name].get("columns") is None]
    return [*whole, *plain, *manifest.outputs][0]


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
    for output, key in form_options().items():
        forms |= manifest.outputs.get(output, {}).get(key) or {}
    return forms


def _hints_of(manifest: Manifest, output: str, forms: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The version's own options of each format, and for all formats which bytes are images."""
    hints = {name: {**options} for name, options in manifest.outputs.items()}
    for options in hints.values():
        options.pop("columns", None)
        options.pop("reference", None)  # chunks are to be stored here
    for name, key in form_options().items():
        own = hints.setdefault(name, {})
        own[key] = {**forms, **(own.get(key) or {})}
    hints[output] = format_named(output).again(hints[output])
    return hints
