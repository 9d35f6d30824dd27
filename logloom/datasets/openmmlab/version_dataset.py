"""`LogloomDataset`: rows of any output of a version as an OpenMMLab dataset.

Here: that class. Where mmengine is installed it is one of mmengine's own BaseDataset, so that its runners,
wrappers and registries take it; else one of ours.
Elsewhere: opening versions (logloom.datasets.open).
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from logloom.datasets.openmmlab.registry import DATASETS
from logloom.errors import DatasetError, UsageError

if TYPE_CHECKING:
    from logloom.datasets.openmmlab.dataset import BaseDataset as Base
elif importlib.util.find_spec("mmengine") is not None:
    from mmengine.dataset import BaseDataset as Base
    from mmengine.registry import DATASETS as THEIR_DATASETS
else:
    from logloom.datasets.openmmlab.dataset import BaseDataset as Base


class LogloomDataset(Base):
    """A version's rows as data infos: log_id, timestamp and the columns, numpy values by column name.

    The infos that are kept in memory are the small columns of the version's index; a row's other columns are
    read when it is asked for. `filter_data` of a subclass sees the small ones, under `data_list`.
    """

    def __init__(
        self,
        uri: str,
        version: int | str | None = None,
        output: str | None = None,
        columns: str | Sequence[str] | None = None,
        where: str | None = None,
        split: str | Sequence[str] | None = None,
        label: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        check: bool = False,
        **kwargs: Any,
    ):
        """
        Args:
            uri, version, output, columns, where, split, storage_options, check: see `logloom.datasets.open`.
            label: the column of class numbers that `get_cat_ids` gives; a number, or several.
            kwargs: of BaseDataset: metainfo, pipeline, indices, filter_cfg, serialize_data, test_mode,
                lazy_init, max_refetch.

        Raises:
            UsageError: there is no such version, output, column or split; a file is asked for.
        """
        refused = {"ann_file", "data_root", "data_prefix"} & kwargs.keys()
        if refused:
            raise UsageError(
                f"{', '.join(sorted(refused))}: rows come from {uri}, there is no annotation file"
            )
        self.uri, self.version, self.output = uri, version, output
        self.columns, self.where, self.split = columns, where, split
        self.label = label
        self.storage_options = storage_options
        self.check = check
        self._rows: Any = None
        super().__init__(ann_file=uri, data_prefix={}, **kwargs)

    @property
    def rows(self) -> Any:
        """The rows as `logloom.datasets.open` gives them, opened on first use."""
        if self._rows is None:
            from logloom import datasets

            self._rows = datasets.open(
                self.uri,
                self.version,
                output=self.output,
                columns=self.columns,
                where=self.where,
                split=self.split,
                storage_options=self.storage_options,
                check=self.check,
            )
        return self._rows

    def load_data_list(self) -> list[dict[str, Any]]:
        """One info a row: its number in the dataset as `row`, and its small columns."""
        index = self.rows.index
        taken = {name: index[name].tolist() for name in index.columns if name != "row"}
        names = list(taken)
        return [
            {"row": number, **dict(zip(names, values, strict=True))}
            for number, values in enumerate(zip(*taken.values(), strict=True))
        ]

    def get_data_info(self, idx: int) -> dict[str, Any]:
        """Row `idx` with its columns, and `sample_idx`.

        Raises:
            IndexError: there is no such row.
        """
        known = super().get_data_info(idx)
        info: dict[str, Any] = dict(self.rows[known["row"]])
        info["sample_idx"] = known["sample_idx"]
        return info

    def get_cat_ids(self, idx: int) -> list[int]:
        """The distinct classes of row `idx`, by the column `label`.

        Raises:
            UsageError: no column was named.
            DatasetError: a class that the metainfo doesn't name.
        """
        if self.label is None:
            raise UsageError(
                f"{self.uri}: get_cat_ids needs to know the classes: LogloomDataset(…, label=<column>)"
            )
        known = super().get_data_info(idx)
        value = known[self.label] if self.label in known else self.rows[known["row"]][self.label]
        found = [int(c) for c in np.unique(np.asarray(value))]
        check_classes(found, self._metainfo.get("classes"), f"{self.uri}: {self.label} of row {idx}")
        return found

    def _join_prefix(self) -> None:
        """Nothing to join: a version's URI is whole."""

    def __deepcopy__(self, memo: dict[int, Any]) -> LogloomDataset:
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        for key, value in self.__dict__.items():
            # Its source keeps files open and serves any number of users.
            other.__dict__[key] = value if key == "_rows" else copy.deepcopy(value, memo)
        return other


def check_classes(found: Sequence[int], classes: Any, what: str) -> None:
    """Makes sure that class numbers have names, where names are given.

    Raises:
        DatasetError: one has none.
    """
    unnamed = [number for number in found if classes is not None and not 0 <= number < len(classes)]
    if unnamed:
        raise DatasetError(
            f"{what} contains class {unnamed[0]}, metainfo names {len(classes)} classes, 0 to "
            f"{len(classes) - 1}"
        )


DATASETS.register_module(module=LogloomDataset, force=True)
if not TYPE_CHECKING and Base.__module__.startswith("mmengine"):
    THEIR_DATASETS.register_module(module=LogloomDataset, force=True)
