"""The contract of dataset formats for units.

Here: `FormatContract`, to be subclassed.
Elsewhere: formats whose units are put together (assembled_formats), rows of every kind (rows), damage and
failing stores (damage), other processes (processes).
"""

from __future__ import annotations

import itertools
import pathlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import BaseModel, ValidationError

from logloom.blocks import Block
from logloom.digests import digests_of_rows, file_digest
from logloom.errors import LogloomError, StorageError
from logloom.io.catalog.entries import FileEntry
from logloom.io.formats.interface import Format, UnitContext
from logloom.io.formats.registry import format_named
from logloom.io.rows.sources import RowSource
from logloom.io.storage.known_files import check_all, with_check
from logloom.schema import ColumnType, Schema
from logloom.testing.damage import FAULTS, FailingStore, cuts_of, files_in, flips_of, names, replaced, sampled
from logloom.testing.processes import in_fork, in_threads, without_beam
from logloom.testing.rows import SCHEMA, TYPES, assert_equal_rows, cut, random_block, rows_in
from logloom.values import dataclass

_ROWS = 7
_DAMAGED_FILES = 12


@dataclass(frozen=True)
class Unit:
    """A unit that was written, and how it is read. Small and picklable.

    Attributes:
        entry: what its writer's `close` gave.
        columns: the digest of each column that its reader gives back, and maybe of others.
    """

    format: Format
    folder: pathlib.Path
    schema: Schema
    options: BaseModel
    entry: Mapping[str, Any]
    columns: Mapping[str, str]

    def reader(self, storage_options: Mapping[str, Any] | None = None, uri: str = "") -> RowSource:
        """The format's own reader of it."""
        return self.format.reader(
            uri or str(self.folder), self.schema, self.options, self.entry, storage_options=storage_options
        )

    def read(self, storage_options: Mapping[str, Any] | None = None, uri: str = "") -> dict[str, str]:
        """The digest of each column as the reader gives it back."""
        reader = self.reader(storage_options, uri)
        return digests_of_rows(reader.blocks(), reader.schema)

    @property
    def known(self) -> Mapping[str, tuple[bytes, str]]:
        """Bytes and digest of each file, as they are now."""
        return {name: (data, file_digest(self.folder / name)) for name, data in files_in(self.folder).items()}

    def without(self, digest: dict[str, str]) -> list[str]:
        """Columns that are read back as something else than was written."""
        return [name for name, value in digest.items() if self.columns.get(name) != value]


class FormatContract:
    """The contract of formats for one unit. Subclasses set the format, and optionally its options.

    Attributes:
        format: the one to test.
        options: of the format, as under `outputs.<name>`; by default none.
        schema: of the rows to write; by default the columns that the format supports.
        has_checksums: whether its reader detects any damage, without the digests in a unit's entry.
        knows_lengths: whether its reader detects truncated files.
    """

    format: ClassVar[Any]
    options: ClassVar[Any] = None
    schema: ClassVar[Schema] = SCHEMA
    has_checksums: ClassVar[bool] = False
    knows_lengths: ClassVar[bool] = True

    def make_block(self, schema: Schema, rows: int, seed: int) -> Block:
        """Rows to write, equal for equal arguments; to be overridden where not any values will do."""
        return random_block(schema, rows, seed)

    # --- what the tests are made of ---------------------------------------------------------------------

    @property
    def chosen(self) -> Any:
        """The options."""
        return self.format.Options() if self.options is None else self.options

    def held(self) -> Schema:
        """The columns of `schema` that the format says it holds."""
        if not self.format.check(self.chosen, self.schema):
            return self.schema
        kept: dict[str, Any] = {}
        for name, ctype in self.schema.columns.items():
            if self.holds(Schema(kept), Schema({**kept, name: ctype})):
                kept[name] = ctype
        return Schema(kept, tuple(name for name in self.schema.sampled if name in kept))

    def holds(self, schema: Schema, more: Schema) -> bool:
        """Whether the format has no more problems with a schema than with one of fewer columns."""
        return len(self.format.check(self.chosen, more)) <= len(self.format.check(self.chosen, schema))

    def context(self, block: Block) -> UnitContext:
        """What a writer knows of the rows."""
        return UnitContext(block.log_id, "drive.mcap", block.partition, "all")

    def write(self, folder: pathlib.Path, blocks: Sequence[Block], schema: Schema | None = None) -> Unit:
        """Writes a unit into a new folder."""
        schema = self.held() if schema is None else schema
        folder.mkdir(parents=True)
        writer = self.format.writer(folder, schema, self.chosen, self.context(blocks[0]))
        for block in blocks:
            writer.append(block)
        entry = writer.close()
        columns = entry.pop("columns", None) or digests_of_rows(blocks, schema)
        return Unit(self.format, folder, schema, self.chosen, entry, columns)

    @pytest.fixture(scope="class")
    @classmethod
    def unit(cls, tmp_path_factory: pytest.TempPathFactory) -> Unit:
        """A unit of some rows. Tests leave its files as they are."""
        contract = cls()
        folder = tmp_path_factory.mktemp(cls.format.name) / "unit"
        return contract.write(folder, [contract.make_block(contract.held(), _ROWS, 0)])

    # --- what it says of itself -------------------------------------------------------------------------

    def test_it_is_found_by_its_entry_point(self) -> None:
        assert type(format_named(self.format.name)) is type(self.format)

    def test_it_says_what_it_is(self) -> None:
        assert self.format.name.isidentifier()
        assert isinstance(self.format.suffix, str)
        assert self.format.semantics >= 1
        kind = self.format.Options
        assert kind.model_validate(self.chosen.model_dump(mode="json")) == self.chosen
        with pytest.raises(ValidationError):
            kind.model_validate({**self.chosen.model_dump(mode="json"), "no_such_option": 1})

    def test_what_it_can_not_hold_is_told_in_one_line_each(self) -> None:
        assert self.format.check(self.chosen, self.held()) == []
        assert self.format.check_log(self.chosen, "car/drive", "drive.mcap") == []
        for ctype in TYPES:
            for problem in self.format.check(self.chosen, Schema({"column": ctype})):
                assert problem.strip()
                assert "\n" not in problem

    # --- bytes ------------------------------------------------------------------------------------------

    def test_blocks_cut_anywhere_give_the_same_bytes(self, tmp_path: pathlib.Path) -> None:
        block = self.make_block(self.held(), 9, 1)
        one = self.write(tmp_path / "0/unit", [block])
        for number, at in enumerate([(), range(9), (1, 4, 5), (8,)], 1):
            other = self.write(tmp_path / str(number) / "unit", cut(block, at))
            assert (other.entry, other.columns) == (one.entry, one.columns)
            assert files_in(other.folder) == files_in(one.folder)

    def test_another_process_without_beam_writes_the_same_bytes_and_reads_them(
        self, unit: Unit, tmp_path: pathlib.Path
    ) -> None:
        block = self.make_block(unit.schema, _ROWS, 0)
        folder = tmp_path / "other/unit"
        found = without_beam(_write_and_read, unit, folder, self.context(block), [block])
        assert found == (dict(unit.entry), unit.read())
        assert files_in(folder) == files_in(unit.folder)

    def test_a_writer_stays_in_its_folder(self, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        self.write(tmp_path / "unit", [self.make_block(self.held(), 3, 2)])
        assert {name.split("/")[0] for name in files_in(tmp_path)} <= {"unit"}

    # --- rows -------------------------------------------------------------------------------------------

    def test_its_columns_are_told_without_a_unit(self, unit: Unit) -> None:
        declared = self.format.columns_of(self.chosen, unit.schema)
        assert declared in (None, unit.reader().schema)

    def test_what_is_read_back_digests_as_what_was_written(self, unit: Unit) -> None:
        assert unit.reader().schema.columns
        for max_bytes in (1, 1000, 64 << 20):
            reader = unit.reader()
            blocks = list(reader.blocks(max_bytes=max_bytes))
            assert unit.without(digests_of_rows(blocks, reader.schema)) == []
            assert {(block.log_id, block.partition) for block in blocks} == {("car/drive", "p3")}
            counts = [0, *itertools.accumulate(len(block) for block in blocks)]
            assert [block.first_row for block in blocks] == counts[:-1]
            assert counts[-1] == len(reader) == _ROWS

    def test_columns_of_each_type_that_it_says_it_holds_read_back(self, tmp_path: pathlib.Path) -> None:
        base = self.held()
        more: dict[str, ColumnType] = {}
        for number, ctype in enumerate(TYPES):
            columns = {**base.columns, **more}
            if self.holds(Schema(columns), Schema({**columns, f"type{number}": ctype})):
                more[f"type{number}"] = ctype
        schema = Schema({**base.columns, **more}, (*base.sampled, *more))
        block = self.make_block(base, 5, 1)
        values = random_block(Schema(more, tuple(more)), 5, 1).columns
        unit = self.write(tmp_path / "unit", [replace(block, columns={**values, **block.columns})], schema)
        wrong = unit.without(unit.read())
        assert not wrong, [f"{name}: {schema.all[name]}" for name in wrong]

    def test_a_row_is_that_of_its_block(self, unit: Unit) -> None:
        reader = unit.reader()
        names = list(reader.schema.all)
        blocks = list(reader.blocks())
        plain, whole = rows_in(blocks, reader.schema), rows_in(blocks, reader.schema, names)
        for index in range(-_ROWS, _ROWS):
            assert_equal_rows(reader[index], plain[index])
            assert_equal_rows(reader.row(index, names), whole[index])
        for wrong in (_ROWS, -_ROWS - 1):
            with pytest.raises(IndexError):
                reader[wrong]

    def test_some_columns_are_those_among_all(self, unit: Unit) -> None:
        reader = unit.reader()
        everything = digests_of_rows(reader.blocks(), reader.schema)
        assert [list(block.columns) for block in reader.blocks(())] == [["timestamp"]]
        for name, ctype in reader.schema.columns.items():
            blocks = list(reader.blocks([name]))
            assert {tuple(block.columns) for block in blocks} == {("timestamp", name)}
            found = digests_of_rows(blocks, Schema({name: ctype}))
            assert found == {own: everything[own] for own in found}
            assert list(reader.row(1, [name])) == ["log_id", "timestamp", name]

    def test_a_unit_without_rows_reads_as_empty(self, unit: Unit, tmp_path: pathlib.Path) -> None:
        context = UnitContext("car/drive", "drive.mcap", "p3", "all")
        folder = tmp_path / "empty/unit"
        folder.mkdir(parents=True)
        entry = self.format.writer(folder, unit.schema, unit.options, context).close()
        entry.pop("columns", None)
        reader = self.format.reader(str(folder), unit.schema, unit.options, entry)
        assert len(reader) == 0
        assert list(reader.blocks()) == []

    # --- elsewhere --------------------------------------------------------------------------------------

    def test_a_reader_pickles_before_and_after_it_was_used(self, unit: Unit) -> None:
        reader = unit.reader()
        fresh: RowSource = pickle.loads(pickle.dumps(reader))
        last = fresh[_ROWS - 1]
        assert_equal_rows(reader[_ROWS - 1], last)
        used: RowSource = pickle.loads(pickle.dumps(reader))
        assert_equal_rows(used[_ROWS - 1], last)
        assert digests_of_rows(used.blocks(), used.schema) == unit.read()

    def test_a_forked_process_reads_what_its_parent_does(self, unit: Unit) -> None:
        reader = unit.reader()
        first, expected = reader[0], unit.read()
        assert in_fork(lambda: digests_of_rows(reader.blocks(), reader.schema)) == expected
        assert_equal_rows(reader[0], first)

    def test_many_threads_read_at_the_same_time(self, unit: Unit) -> None:
        expected = rows_in(list(unit.reader().blocks()), unit.reader().schema)
        reader = unit.reader()
        order = np.random.default_rng(0).integers(0, _ROWS, 60).tolist()
        for row, found in zip(order, in_threads(lambda n: reader[order[n]], len(order)), strict=True):
            assert_equal_rows(found, expected[row])

    def test_a_unit_in_an_object_store_reads_as_one_on_a_disk(self, unit: Unit, monkeypatch: Any) -> None:
        store = FailingStore(monkeypatch, files_in(unit.folder), unit.folder.name)
        assert unit.read(uri=store.uri) == unit.read()

    # --- faults -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_store_that_fails_is_a_storage_error(self, unit: Unit, fault: str, monkeypatch: Any) -> None:
        store = FailingStore(monkeypatch, files_in(unit.folder), unit.folder.name)
        failed, expected = 0, unit.read()
        for _ in store.failures(fault):
            try:
                assert unit.read(uri=store.uri) == expected
            except StorageError as error:
                failed += names(error, store.uri)
        assert failed

    def test_a_cut_or_missing_file_is_an_error_or_changes_no_value(self, unit: Unit) -> None:
        self._damage(unit, lambda data, rng: [None, *cuts_of(data, rng)], self.knows_lengths)

    def test_a_flipped_bit_is_an_error_or_changes_no_value(self, unit: Unit) -> None:
        self._damage(unit, flips_of, self.has_checksums)

    def test_damage_is_told_by_the_digests_of_a_unit_s_entry(self, unit: Unit) -> None:
        rng = np.random.default_rng(2)
        expected = unit.read()
        known = with_check(None, _Known(unit))
        for name in sampled(list(files_in(unit.folder)), _DAMAGED_FILES):
            path = unit.folder / name
            data = path.read_bytes()
            for damaged in [None, *cuts_of(data, rng, 1), *flips_of(data, rng, 2)]:
                options = pickle.loads(pickle.dumps(known))  # compares anew
                with replaced(path, damaged):
                    try:
                        check_all(options)
                        found = unit.read(options)
                    except LogloomError:
                        continue
                    assert found == expected, f"{name}: a wrong value"

    def _damage(
        self,
        unit: Unit,
        injuries: Callable[[bytes, np.random.Generator], Sequence[bytes | None]],
        never_wrong: bool,
    ) -> None:
        """Damages file after file, and reads the unit each time."""
        rng = np.random.default_rng(0)
        found = 0
        for name in sampled(list(files_in(unit.folder)), _DAMAGED_FILES):
            path = unit.folder / name
            for damaged in injuries(path.read_bytes(), rng):
                with replaced(path, damaged):
                    try:
                        wrong = unit.without(unit.read())
                    except LogloomError:
                        found += 1
                        continue
                    assert not (wrong and never_wrong), f"{name}: a wrong value in {', '.join(wrong)}"
                    found += bool(wrong)
        assert found  # or nothing of the unit was read
        assert unit.without(unit.read()) == []

    # --- views ------------------------------------------------------------------------------------------

    def test_a_view_names_each_file_once_and_within_its_folder(self, unit: Unit) -> None:
        files = list(files_in(unit.folder))
        for number in (0, 1, 999_999):
            view = self.format.view(number, files)
            assert set(view) <= set(files)
            assert len(set(view.values())) == len(view)
            for name in view.values():
                assert not name.startswith("/")
                assert not {"", ".", ".."} & set(name.split("/"))
        assert self.format.view(0, []) == {}


class _Known:
    """What an entry says of a unit's files. Picklable."""

    def __init__(self, unit: Unit):
        self._files = {
            str(unit.folder / name): FileEntry(name, len(data), digest)
            for name, (data, digest) in unit.known.items()
        }

    def __call__(self) -> Mapping[str, FileEntry]:
        return self._files


def _write_and_read(
    unit: Unit, folder: pathlib.Path, context: UnitContext, blocks: Sequence[Block]
) -> tuple[dict[str, Any], dict[str, str]]:
    """In another process: writes the same rows, and reads the unit that is there."""
    folder.mkdir(parents=True)
    writer = unit.format.writer(folder, unit.schema, unit.options, context)
    for block in blocks:
        writer.append(block)
    entry = writer.close()
    entry.pop("columns", None)
    return entry, unit.read()
