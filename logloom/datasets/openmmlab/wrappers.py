"""Wrappers with OpenMMLab's interface: concatenation, repetition, class balance.

Here: `ConcatDataset`, `RepeatDataset`, `ClassBalancedDataset`.
Elsewhere: the datasets themselves (dataset), how configs become datasets (registry).
"""

from __future__ import annotations

import bisect
import copy
import itertools
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.datasets.openmmlab.dataset import BaseDataset
from logloom.datasets.openmmlab.registry import DATASETS, force_full_init, logger

Index = int | Sequence[int]


def _built(dataset: Any) -> Any:
    """A dataset, or the one that a config names."""
    if isinstance(dataset, Mapping):
        return DATASETS.build(dataset)
    theirs = sys.modules.get("mmengine.dataset")
    kinds = (BaseDataset, theirs.BaseDataset) if theirs is not None else BaseDataset
    if isinstance(dataset, kinds):
        return dataset
    raise TypeError(
        f"elements in datasets sequence should be config or `BaseDataset` instance, but got {type(dataset)}"
    )


class _Wrapper:
    """What all wrappers share: the first dataset's metainfo, initialising once, no subsets."""

    _metainfo: dict[str, Any]
    _fully_initialized: bool = False

    @property
    def metainfo(self) -> dict[str, Any]:
        """A copy of the (first) dataset's metainfo."""
        return copy.deepcopy(self._metainfo)

    def full_init(self) -> None:
        """Initialises what is wrapped, and counts it; once."""
        if not self._fully_initialized:
            self._count()
            self._fully_initialized = True

    def _count(self) -> None:
        raise NotImplementedError

    def _initialise_loudly(self) -> None:
        if not self._fully_initialized:
            logger.warning("Please call `full_init` method manually to accelerate the speed.")
            self.full_init()

    def get_subset_(self, indices: Index) -> None:
        """Not supported: it would be ambiguous.

        Raises:
            NotImplementedError: always; take a subset of the wrapped dataset.
        """
        raise NotImplementedError(self._no_subset())

    def get_subset(self, indices: Index) -> BaseDataset:
        """Not supported; see `get_subset_`."""
        raise NotImplementedError(self._no_subset())

    def _no_subset(self) -> str:
        name = type(self).__name__
        return (
            f"`{name}` does not support `get_subset` and `get_subset_`, whose meaning would be ambiguous: "
            f"use them on the wrapped dataset first and then wrap it in `{name}`."
        )


@DATASETS.register_module()
class ConcatDataset(_Wrapper):
    """Datasets one after the other.

    Attributes:
        datasets: in order.
        cumulative_sizes: where each dataset ends; after `full_init`.
    """

    def __init__(
        self, datasets: Sequence[Any], lazy_init: bool = False, ignore_keys: str | list[str] | None = None
    ):
        """
        Args:
            datasets: or configs of datasets.
            ignore_keys: of the metainfo, whose values may differ.

        Raises:
            TypeError: what isn't a dataset or a config; a metainfo of another type than the first's.
            ValueError: a metainfo that differs from the first's, or lacks a key.
            IndexError: no dataset at all.
        """
        if not (ignore_keys is None or isinstance(ignore_keys, str | list)):
            raise TypeError(f"ignore_keys should be a list or str, but got {type(ignore_keys)}")
        self.datasets: list[Any] = [_built(dataset) for dataset in datasets]
        if not self.datasets:
            raise IndexError("ConcatDataset of no dataset: it accepts at least one")
        self.ignore_keys = [ignore_keys] if isinstance(ignore_keys, str) else list(ignore_keys or ())
        self._metainfo = self.datasets[0].metainfo
        self._check_metainfo()
        self._fully_initialized = False
        if not lazy_init:
            self.full_init()

    def _check_metainfo(self) -> None:
        known = [dataset.metainfo for dataset in self.datasets]
        keys = dict.fromkeys(key for meta in known for key in meta if key not in self.ignore_keys)
        for number, meta in enumerate(known, 1):
            for key in keys:
                if key not in meta:
                    raise ValueError(f"{key} does not in the meta information of the {number}-th dataset")
                first, own = self._metainfo[key], meta[key]
                if type(first) is not type(own):
                    raise TypeError(
                        f"The type {type(own)} of {key} in the {number}-th dataset should be the same "
                        f"with the first dataset {type(first)}"
                    )
                if not _same(first, own):
                    raise ValueError(
                        f"The meta information of the {number}-th dataset does not match meta information of "
                        f"the first dataset: {key}"
                    )

    def _count(self) -> None:
        for dataset in self.datasets:
            dataset.full_init()
        self.cumulative_sizes = list(itertools.accumulate(len(dataset) for dataset in self.datasets))

    @force_full_init
    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    @force_full_init
    def _get_ori_dataset_idx(self, idx: int) -> tuple[int, int]:
        """The dataset that holds info `idx`, and its place there."""
        if idx < 0:
            if -idx > len(self):
                raise ValueError(
                    f"absolute value of index({idx}) should not exceed dataset length({len(self)})."
                )
            idx += len(self)
        if idx >= len(self):
            raise IndexError(f"info {idx} of {len(self)}")
        number = bisect.bisect_right(self.cumulative_sizes, idx)
        return number, idx - (self.cumulative_sizes[number - 1] if number else 0)

    @force_full_init
    def get_data_info(self, idx: int) -> dict[str, Any]:
        """Info `idx`; its `sample_idx` is its place in its own dataset."""
        number, place = self._get_ori_dataset_idx(idx)
        info: dict[str, Any] = self.datasets[number].get_data_info(place)
        return info

    def __getitem__(self, idx: int) -> Any:
        self._initialise_loudly()
        number, place = self._get_ori_dataset_idx(idx)
        return self.datasets[number][place]


class _WrapperOfOne(_Wrapper):
    """A wrapper that maps its own places to those of one dataset."""

    dataset: Any

    def _wrap(self, dataset: Any, lazy_init: bool) -> None:
        self.dataset = _built(dataset)
        self._metainfo = self.dataset.metainfo
        self._fully_initialized = False
        if not lazy_init:
            self.full_init()

    def _get_ori_dataset_idx(self, idx: int) -> int:
        raise NotImplementedError

    @force_full_init
    def get_data_info(self, idx: int) -> dict[str, Any]:
        """Info `idx`; its `sample_idx` is its place in the wrapped dataset."""
        info: dict[str, Any] = self.dataset.get_data_info(self._get_ori_dataset_idx(idx))
        return info

    def __getitem__(self, idx: int) -> Any:
        self._initialise_loudly()
        return self.dataset[self._get_ori_dataset_idx(idx)]


@DATASETS.register_module()
class RepeatDataset(_WrapperOfOne):
    """A dataset `times` times over. Any index is taken, modulo the dataset's length."""

    def __init__(self, dataset: Any, times: int, lazy_init: bool = False):
        """
        Args:
            dataset: or its config.

        Raises:
            TypeError: neither.
        """
        self.times = times
        self._wrap(dataset, lazy_init)

    def _count(self) -> None:
        self.dataset.full_init()
        self._ori_len = len(self.dataset)

    @force_full_init
    def __len__(self) -> int:
        return self.times * self._ori_len

    @force_full_init
    def _get_ori_dataset_idx(self, idx: int) -> int:
        if not self._ori_len:
            raise IndexError(f"info {idx} of 0: there is nothing to repeat")
        return idx % self._ori_len


@DATASETS.register_module()
class ClassBalancedDataset(_WrapperOfOne):
    """A dataset whose infos of rare classes come several times.

    A class that a share f of the infos has is repeated r = max(1, √(oversample_thr / f)) times, an info
    ⌈max r of its classes⌉ times; one without classes once.

    Attributes:
        repeat_indices: the wrapped dataset's place of each info; after `full_init`.
    """

    def __init__(self, dataset: Any, oversample_thr: float, lazy_init: bool = False):
        """
        Args:
            dataset: or its config; its `get_cat_ids(idx)` gives the classes of an info.
            oversample_thr: the share of infos below which a class is rare.

        Raises:
            TypeError: no dataset.
            NotImplementedError: the dataset doesn't say its classes.
        """
        self.oversample_thr = oversample_thr
        self._wrap(dataset, lazy_init)

    def _count(self) -> None:
        self.dataset.full_init()
        factors = self._get_repeat_factors(self.dataset, self.oversample_thr)
        self.repeat_indices = [i for i, factor in enumerate(factors) for _ in range(math.ceil(factor))]

    def _get_repeat_factors(self, dataset: Any, repeat_thr: float) -> list[float]:
        """How often each info is to come, before rounding up."""
        classes = [set(dataset.get_cat_ids(idx)) for idx in range(len(dataset))]
        counts = Counter(itertools.chain.from_iterable(classes))
        # The share comes first: another order of operations rounds differently, and ceil shows it.
        repeats = {c: max(1.0, math.sqrt(repeat_thr / (count / len(classes)))) for c, count in counts.items()}
        return [max((repeats[c] for c in own), default=1.0) for own in classes]

    @force_full_init
    def __len__(self) -> int:
        return len(self.repeat_indices)

    @force_full_init
    def _get_ori_dataset_idx(self, idx: int) -> int:
        return self.repeat_indices[idx]

    @force_full_init
    def get_cat_ids(self, idx: int) -> list[int]:
        """The classes of info `idx`."""
        found: list[int] = self.dataset.get_cat_ids(self._get_ori_dataset_idx(idx))
        return found


def _same(a: Any, b: Any) -> bool:
    """Whether two values of metainfo are equal, arrays within them too."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and type(a) is type(b):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
