"""The contract of formats whose units are stages, assembled into one dataset.

Here: `AssembledContract`, to be subclassed.
Elsewhere: what such a format promises of a unit (formats), its interface
(logloom.io.formats.interface.AssembledFormat).
"""

from __future__ import annotations

import itertools
import pathlib
import pickle
import shutil
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
_DAMAGED_FILES = 12


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

    @pytest.fixture
    def staged(self, tmp_path: pathlib.Path) -> Staged:
        """Units of two logs, in the root `tmp_path / "root"`."""
        return self.stage(tmp_path / "root")

    @pytest.fixture
    def dataset(self, staged: Staged, tmp_path: pathlib.Path) -> pathlib.Path:
        """The folder of the dataset that the units become."""
        folder = tmp_path / "dataset"
        _write(folder, staged.files(str(tmp_path / "root")))
        return folder

    def differences(self, staged: Staged, folder: pathlib.Path, root: pathlib.Path) -> Sequence[str]:
        """What the format says of a dataset."""
        plan = staged.plan(Store.at(str(root)))
        return list(self.format.assembled_differences(str(folder), plan.unit, {}))

    def test_chunks_are_made_in_any_order_by_anyone(self, staged: Staged, tmp_path: pathlib.Path) -> None:
        store = Store.at(str(tmp_path / "root"))
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
        self, staged: Staged, tmp_path: pathlib.Path
    ) -> None:
        root = str(tmp_path / "root")
        plan = staged.plan(Store.at(root))
        parts = plan.unit.get("parts", [()] * len(staged.units))
        # As builds remember units: without the digests of columns where the plan has what comes of them.
        units = [
            replace(unit, planned=part, columns={} if part else unit.columns)
            for unit, part in zip(staged.units, parts, strict=True)
        ]
        again = replace(staged, units=tuple(units))
        assert again.plan(Store.at(root)).unit == plan.unit
        assert again.files(root) == staged.files(root)

    def test_another_process_without_beam_makes_the_same_dataset(
        self, staged: Staged, tmp_path: pathlib.Path
    ) -> None:
        root = str(tmp_path / "root")
        assert without_beam(Staged.files, staged, root) == staged.files(root)

    def test_a_whole_dataset_differs_in_nothing(
        self, staged: Staged, dataset: pathlib.Path, tmp_path: pathlib.Path
    ) -> None:
        assert self.differences(staged, dataset, tmp_path / "root") == []

    def test_lost_and_cut_files_of_a_dataset_are_told(
        self, staged: Staged, dataset: pathlib.Path, tmp_path: pathlib.Path
    ) -> None:
        rng = np.random.default_rng(0)
        found = 0
        for name in sampled(list(files_in(dataset)), _DAMAGED_FILES):
            for damaged in (None, *cuts_of((dataset / name).read_bytes(), rng, 1)):
                with replaced(dataset / name, damaged):
                    problems = self.differences(staged, dataset, tmp_path / "root")
                assert all(str(dataset) in line for line in problems)
                found += bool(problems)
        assert found  # not of every file: some are there for others' clients alone

    def test_flipped_bits_of_a_dataset_are_told_or_harm_nobody(
        self, staged: Staged, dataset: pathlib.Path, tmp_path: pathlib.Path
    ) -> None:
        rng = np.random.default_rng(1)
        found = 0
        for name in sampled(list(files_in(dataset)), _DAMAGED_FILES):
            for damaged in flips_of((dataset / name).read_bytes(), rng, 4):
                with replaced(dataset / name, damaged):
                    try:
                        found += bool(self.differences(staged, dataset, tmp_path / "root"))
                    except LogloomError:
                        found += 1
        assert found

    def test_a_lost_file_of_a_unit_stops_assembly(self, staged: Staged, tmp_path: pathlib.Path) -> None:
        root, found = tmp_path / "root", 0
        whole = staged.files(str(root))
        for name in files_in(root):
            with replaced(root / name, None):
                try:
                    assert staged.files(str(root)) == whole  # it is no file that assembly reads
                except DatasetError as error:
                    found += names(error, str(root))
        assert found

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_store_that_fails_stops_assembly_with_a_storage_error(
        self, staged: Staged, fault: str, tmp_path: pathlib.Path, monkeypatch: Any
    ) -> None:
        root = tmp_path / "root"
        whole = staged.files(str(root))
        store = FailingStore(monkeypatch, files_in(root), "root")
        assert staged.files(store.uri) == whole
        failed = 0
        for _ in store.failures(fault):
            try:
                assert staged.files(store.uri) == whole
            except StorageError as error:
                failed += names(error, store.uri)
        assert failed


def _write(folder: pathlib.Path, files: Mapping[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
