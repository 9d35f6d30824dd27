"""The contract of formats whose units are stages, assembled into one dataset.

Here: `AssembledContract`, to be subclassed.
Elsewhere: what such a format promises of a unit (formats), its interface
(logloom.io.formats.interface.AssembledFormat).
"""

from __future__ import annotations

import itertools
import pathlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from logloom.blocks import Block
from logloom.errors import DatasetError, LogloomError, StorageError
from logloom.io.formats.interface import AssembledFormat, AssemblyPlan, StagedUnit
from logloom.io.storage.store import Store
from logloom.testing.damage import FAULTS, FailingStore, cuts_of, files_in, flips_of, names, replaced, sampled
from logloom.testing.formats import FormatContract
from logloom.testing.processes import without_beam
from logloom.values import dataclass

_ROWS = 12
_DAMAGED_FILES = 8


@dataclass(frozen=True)
class Staged:
    """Finished units of a few logs, and what putting them together takes. Small and picklable."""

    format: Any
    units: tuple[StagedUnit, ...]
    schema: Any
    options: Any
    period: int | None

    def plan(self, store: Store) -> AssemblyPlan:
        """How they become one dataset."""
        form: AssembledFormat = self.format
        return form.plan_assembly(store, self.units, self.schema, self.options, self.period)

    def files(self, uri: str) -> dict[str, bytes]:
        """All files of the dataset, of units in a root at a URI."""
        store = Store.at(uri)
        plan = self.plan(store)
        return dict(self.format.make_chunk(store, task) for task in plan.tasks) | dict(plan.files)


class AssembledContract(FormatContract):
    """What every format whose units are put together promises, beside what all formats do.

    Attributes:
        period: of the rows' clock in ns; None where a topic is the clock.
    """

    period: ClassVar[int | None] = None

    def stage(self, root: pathlib.Path) -> Staged:
        """Writes units of two logs into a root, as a build leaves them there."""
        units = []
        for number, log_id in enumerate(("car/drive", "van")):
            block = self.make_block(self.held(), _ROWS, number)
            for start, stop in itertools.pairwise((0, 5, _ROWS)):
                part = Block(log_id, f"p{start}", 0, block.take(slice(start, stop)))
                folder = f"parts/{self.format.name}/{number}{start:031d}"
                unit = self.write(root / folder, [part])
                of_log = log_id, f"/logs/{log_id}.mcap", "all"
                units.append(StagedUnit(*of_log, part.partition, folder, len(part), unit.entry, unit.columns))
        return Staged(self.format, tuple(units), self.held(), self.chosen, self.period)

    # Made once for all tests, which leave their files as they are.

    @pytest.fixture(scope="class")
    @classmethod
    def root(cls, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
        """The folder of the root that has the units."""
        return tmp_path_factory.mktemp(cls.format.name) / "root"

    @pytest.fixture(scope="class")
    @classmethod
    def staged(cls, root: pathlib.Path) -> Staged:
        """Units of two logs, in `root`."""
        return cls().stage(root)

    @pytest.fixture(scope="class")
    @classmethod
    def files(cls, staged: Staged, root: pathlib.Path) -> Mapping[str, bytes]:
        """The files of the dataset that the units become."""
        return staged.files(str(root))

    @pytest.fixture(scope="class")
    @classmethod
    def dataset(cls, files: Mapping[str, bytes], root: pathlib.Path) -> pathlib.Path:
        """The folder of that dataset."""
        folder = root.with_name("dataset")
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return folder

    @pytest.fixture(scope="class")
    @classmethod
    def recorded(cls, staged: Staged, root: pathlib.Path) -> Mapping[str, Any]:
        """What the catalogue records of that dataset."""
        return staged.plan(Store.at(str(root))).unit

    def differences(self, dataset: pathlib.Path, recorded: Mapping[str, Any]) -> Sequence[str]:
        """What the format says of a dataset."""
        return list(self.format.assembled_differences(str(dataset), recorded, {}))

    def test_chunks_are_made_in_any_order_by_anyone(self, staged: Staged, root: pathlib.Path) -> None:
        store = Store.at(str(root))
        plan = staged.plan(store)
        forwards = [self.format.make_chunk(store, task) for task in plan.tasks]
        backwards = [
            self.format.make_chunk(store, pickle.loads(pickle.dumps(task))) for task in reversed(plan.tasks)
        ]
        assert forwards == backwards[::-1]
        names = [*(name for name, _ in forwards), *plan.files]
        assert len(names) == len(set(names))
        for name in names:
            assert not name.startswith("/")
            assert not {"", ".", ".."} & set(name.split("/"))

    def test_units_of_an_earlier_plan_make_the_same_dataset(
        self, staged: Staged, files: Mapping[str, bytes], recorded: Mapping[str, Any], root: pathlib.Path
    ) -> None:
        parts = recorded.get("parts", [()] * len(staged.units))
        # As builds remember units: without the digests of columns where the plan has what comes of them.
        units = [
            replace(unit, planned=part, columns={} if part else unit.columns)
            for unit, part in zip(staged.units, parts, strict=True)
        ]
        again = replace(staged, units=tuple(units))
        assert again.plan(Store.at(str(root))).unit == recorded
        assert again.files(str(root)) == files

    def test_another_process_without_beam_makes_the_same_dataset(
        self, staged: Staged, files: Mapping[str, bytes], root: pathlib.Path
    ) -> None:
        assert without_beam(Staged.files, staged, str(root)) == files

    def test_a_whole_dataset_differs_in_nothing(
        self, dataset: pathlib.Path, recorded: Mapping[str, Any]
    ) -> None:
        assert self.differences(dataset, recorded) == []

    def test_lost_and_cut_files_of_a_dataset_are_told(
        self, dataset: pathlib.Path, recorded: Mapping[str, Any]
    ) -> None:
        rng = np.random.default_rng(0)
        found = 0
        for name in sampled(list(files_in(dataset)), _DAMAGED_FILES):
            for damaged in (None, *cuts_of((dataset / name).read_bytes(), rng, 1)):
                with replaced(dataset / name, damaged):
                    problems = self.differences(dataset, recorded)
                assert all(str(dataset) in line for line in problems)
                found += bool(problems)
        assert found  # not of every file: some are there for others' clients alone

    def test_flipped_bits_of_a_dataset_are_told_or_harm_nobody(
        self, dataset: pathlib.Path, recorded: Mapping[str, Any]
    ) -> None:
        rng = np.random.default_rng(1)
        found = 0
        for name in sampled(list(files_in(dataset)), _DAMAGED_FILES):
            for damaged in flips_of((dataset / name).read_bytes(), rng, 2):
                with replaced(dataset / name, damaged):
                    try:
                        found += bool(self.differences(dataset, recorded))
                    except LogloomError:
                        found += 1
        assert found

    def test_a_lost_file_of_a_unit_stops_assembly(
        self, staged: Staged, files: Mapping[str, bytes], root: pathlib.Path
    ) -> None:
        found = 0
        for name in files_in(root):
            with replaced(root / name, None):
                try:
                    assert staged.files(str(root)) == files  # it is no file that assembly reads
                except DatasetError as error:
                    found += names(error, str(root))
        assert found

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_store_that_fails_stops_assembly_with_a_storage_error(
        self,
        staged: Staged,
        files: Mapping[str, bytes],
        root: pathlib.Path,
        fault: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        store = FailingStore(monkeypatch, files_in(root), "root")
        assert staged.files(store.uri) == files
        failed = 0
        for _ in store.failures(fault):
            try:
                assert staged.files(store.uri) == files
            except StorageError as error:
                failed += names(error, store.uri)
        assert failed
