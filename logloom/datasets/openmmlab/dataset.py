"""`BaseDataset` with the interface of OpenMMLab's.

Elsewhere: pipelines of transforms (registry), wrappers around datasets (wrappers), the buffer of infos
(shared_infos), annotation files (logloom.io.formats.annotations.files), datasets over versions of logloom
(version_dataset).
"""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from logloom.datasets.openmmlab import shared_infos
from logloom.datasets.openmmlab.registry import DATASETS, Compose, Transform, force_full_init, logger
from logloom.errors import DatasetError
from logloom.io.catalog.file_digests import options_in_view
from logloom.io.formats.annotations.files import (
    AnnotationError,
    is_absolute,
    joined,
    load_annotations,
    read_names,
)
from logloom.io.storage.known_files import UncheckedWarning


@DATASETS.register_module()
class BaseDataset:
    """Data infos of an annotation file, each given through a pipeline of transforms.

    Meets torch's protocol of a map-style dataset; pickles; forked workers share `data_bytes`, spawned ones
    are given it as shared memory.

    Attributes:
        METAINFO: (of a class) metainfo that goes before the annotation file's.
        data_list: the infos; empty once they are serialized.
        data_bytes: (total,) uint8, all infos pickled end to end.
        data_address: (N,) int64, where each info ends in `data_bytes`.
        ann_file, data_prefix: joined with `data_root`.
    """

    METAINFO: dict[str, Any] = {}  # noqa: RUF012, as users write it
    _fully_initialized: bool = False

    def __init__(
        self,
        ann_file: str | None = "",
        metainfo: Any = None,
        data_root: str | None = "",
        data_prefix: Mapping[str, str] = {"img_path": ""},
        filter_cfg: dict[str, Any] | None = None,
        indices: int | Sequence[int] | None = None,
        serialize_data: bool = True,
        pipeline: Sequence[Mapping[str, Any] | Transform] = (),
        test_mode: bool = False,
        lazy_init: bool = False,
        max_refetch: int = 1000,
        *,
        check: bool = False,
    ):
        """
        Args:
            ann_file: path or fsspec URI of a .json, .yaml, .yml or .pkl file; relative to `data_root`.
            metainfo: anything with `items()`; a text that names a file is replaced by the file's lines.
            data_prefix: folder or URI for each key of an info that holds a path; relative to `data_root`.
            filter_cfg: for `filter_data` of subclasses.
            indices: the first (or last, when negative) so many infos, or the infos at these places.
            serialize_data: whether to keep the infos pickled in one buffer.
            pipeline: transforms; see `Compose`.
            test_mode: whether a pipeline that gives None is an error; else another info is tried.
            lazy_init: whether to wait with reading `ann_file` until the first use.
            max_refetch: how many other infos are tried.
            check: whether to compare `ann_file`, if it is in a version's view, with the version's digest;
                warns if there is none.

        Raises:
            TypeError: `metainfo` has no items, a prefix isn't text.
            FileNotFoundError, TypeError, AnnotationError: see `load_annotations`; unless `lazy_init`.
        """
        self.ann_file = ann_file
        self._metainfo = self._load_metainfo(copy.deepcopy(metainfo))
        self.data_root = data_root
        self.data_prefix = copy.copy(data_prefix)
        self.filter_cfg = copy.deepcopy(filter_cfg)
        self._indices = indices
        self.serialize_data = serialize_data
        self.test_mode = test_mode
        self.max_refetch = max_refetch
        self._check = check
        self.data_list: list[Any] = []
        self.data_bytes: shared_infos.Bytes
        self.data_address: shared_infos.Ends
        self._join_prefix()
        self.pipeline = Compose(pipeline)
        if not lazy_init:
            self.full_init()

    def _checking(self) -> Mapping[str, Any] | None:
        """Storage options by which the annotation file is compared with its digest, if that is wanted."""
        known = options_in_view(self.ann_file or "") if self._check else None
        if self._check and known is None:
            warnings.warn(
                f"{self.ann_file}: check=True can't find damage, since nothing has a digest of this file: it "
                "isn't in the view of a version",
                UncheckedWarning,
                stacklevel=2,
            )
        return known

    # --- what subclasses override -----------------------------------------------------------------------

    def load_data_list(self) -> list[dict[str, Any]]:
        """Reads `ann_file`; its metainfo fills in what isn't known yet.

        Raises:
            FileNotFoundError, TypeError, AnnotationError: see `load_annotations`.
            TypeError: `parse_data_info` gave neither a dict nor a list of dicts.
        """
        annotations = load_annotations(self.ann_file or "", self._checking())
        for key, value in annotations["metainfo"].items():
            self._metainfo.setdefault(key, value)
        infos: list[dict[str, Any]] = []
        for raw in annotations["data_list"]:
            parsed = self.parse_data_info(raw)
            if isinstance(parsed, dict):
                infos.append(parsed)
            elif not isinstance(parsed, list):
                raise TypeError(f"data_info should be a dict or list of dict, but got {type(parsed)}")
            else:
                wrong = next((type(info) for info in parsed if not isinstance(info, dict)), None)
                if wrong is not None:
                    raise TypeError(f"data_info must be list of dict, but got {wrong}")
                infos += parsed
        return infos

    def parse_data_info(self, raw_data_info: dict[str, Any]) -> dict[str, Any] | list[dict[str, Any]]:
        """Makes an entry of `data_list` one info (or several); here: joins its paths with `data_prefix`.

        Raises:
            AssertionError: the entry lacks a key of `data_prefix`.
            AnnotationError: it is no dict, or has something else than a path under such a key.
        """
        if not isinstance(raw_data_info, dict):
            raise AnnotationError(f"{self.ann_file}: {_shortened(raw_data_info)} in data_list is no dict")
        for key, prefix in self.data_prefix.items():
            if key not in raw_data_info:
                raise AssertionError(
                    f"{self.ann_file}: raw_data_info: {_shortened(raw_data_info)} does not contain prefix "
                    f"key {key}, please check your data_prefix."
                )
            path = raw_data_info[key]
            if not isinstance(path, str):
                raise AnnotationError(f"{self.ann_file}: {key} is {_shortened(path)}, a path is text")
            raw_data_info[key] = joined(prefix, path)
        return raw_data_info

    def filter_data(self) -> list[dict[str, Any]]:
        """The infos to keep, by `filter_cfg`; here: all."""
        return self.data_list

    def get_cat_ids(self, idx: int) -> list[int]:
        """The classes of an info, which ClassBalancedDataset asks for.

        Raises:
            NotImplementedError: unless a subclass says.
        """
        raise NotImplementedError(f"{type(self)} must implement `get_cat_ids` method")

    def prepare_data(self, idx: int) -> Any:
        """What the pipeline makes of info `idx`."""
        return self.pipeline(self.get_data_info(idx))

    # --- reading ----------------------------------------------------------------------------------------

    @property
    def metainfo(self) -> dict[str, Any]:
        """A copy of what is known of the dataset: the argument's, before METAINFO's, before the file's."""
        return copy.deepcopy(self._metainfo)

    def full_init(self) -> None:
        """Reads, filters, chooses and serializes the infos; once."""
        if self._fully_initialized:
            return
        self.data_list = self.load_data_list()
        self.data_list = self.filter_data()
        if self._indices is not None:
            self.data_list = self._get_unserialized_subset(self._indices)
        if self.serialize_data:
            self.data_bytes, self.data_address = self._serialize_data()
        self._fully_initialized = True

    @force_full_init
    def __len__(self) -> int:
        return len(self.data_address if self.serialize_data else self.data_list)

    @force_full_init
    def get_data_info(self, idx: int) -> dict[str, Any]:
        """Info `idx`, a copy, with its place as `sample_idx`.

        Raises:
            IndexError: there is no such info.
        """
        count = len(self.data_address) if self.serialize_data else len(self.data_list)
        place = operator.index(idx)
        if not -count <= place < count:
            raise IndexError(f"{self.ann_file}: info {idx} of {count}")
        if place < 0:
            place += count
        if self.serialize_data:
            info = shared_infos.info_at(self.data_bytes, self.data_address, place)
        else:
            info = copy.deepcopy(self.data_list[place])
        info["sample_idx"] = place
        found: dict[str, Any] = info
        return found

    def __getitem__(self, idx: int) -> Any:
        """What the pipeline makes of info `idx`, or, in training, of another where that is None.

        Raises:
            DatasetError: the pipeline gave None, in `test_mode` or for `max_refetch` infos in a row.
        """
        if not self._fully_initialized:
            logger.warning("Please call `full_init()` method manually to accelerate the speed.")
            self.full_init()
        if self.test_mode:
            data = self.prepare_data(idx)
            if data is None:
                raise DatasetError(f"{self.ann_file}: the pipeline gave None for info {idx} at test time")
            return data
        for _ in range(self.max_refetch + 1):
            data = self.prepare_data(idx)
            if data is not None:
                return data
            idx = self._rand_another()
        raise DatasetError(
            f"{self.ann_file}: Cannot find valid image after {self.max_refetch}! "
            "Please check your image path and pipeline"
        )

    # --- subsets ----------------------------------------------------------------------------------------

    @force_full_init
    def get_subset_(self, indices: int | Sequence[int]) -> None:
        """Keeps the first (last, when negative) so many infos, or the infos at these places.

        Raises:
            TypeError: neither an int nor a sequence.
            AssertionError: there are fewer infos (IndexError where they aren't serialized).
        """
        if self.serialize_data:
            self.data_bytes, self.data_address = self._get_serialized_subset(indices)
        else:
            self.data_list = self._get_unserialized_subset(indices)

    @force_full_init
    def get_subset(self, indices: int | Sequence[int]) -> BaseDataset:
        """A dataset of its own with the infos that `get_subset_` would keep."""
        subset = self._copy_without_annotation()
        if self.serialize_data:
            data, ends = self._get_serialized_subset(indices)
            subset.data_bytes, subset.data_address = data.copy(), ends.copy()
            subset.data_list = []
        else:
            subset.data_list = copy.deepcopy(self._get_unserialized_subset(indices))
        return subset

    def _get_serialized_subset(self, indices: Any) -> tuple[shared_infos.Bytes, shared_infos.Ends]:
        if isinstance(indices, int | np.integer):
            return shared_infos.first_or_last(self.data_bytes, self.data_address, int(indices))
        if isinstance(indices, Sequence):
            return shared_infos.chosen(self.data_bytes, self.data_address, indices)
        raise TypeError(f"indices should be a int or sequence of int, but got {type(indices)}")

    def _get_unserialized_subset(self, indices: Any) -> list[Any]:
        if isinstance(indices, int | np.integer):
            return self.data_list[:indices] if indices >= 0 else self.data_list[indices:]
        if isinstance(indices, Sequence):
            return [self.data_list[index] for index in indices]
        raise TypeError(f"indices should be a int or sequence of int, but got {type(indices)}")

    # --- parts ------------------------------------------------------------------------------------------

    @classmethod
    def _load_metainfo(cls, metainfo: Any = None) -> dict[str, Any]:
        """METAINFO with what is given over it; texts that name a file become its lines."""
        known = copy.deepcopy(cls.METAINFO)
        if metainfo is None:
            return known
        if not callable(getattr(metainfo, "items", None)):
            raise TypeError(f"metainfo should be a Mapping or Config, but got {type(metainfo)}")
        for key, value in metainfo.items():
            names = read_names(value) if isinstance(value, str) else None
            if isinstance(value, str) and names is None:
                logger.warning("%s is not a meta file, simply parsed as meta information", value)
            known[key] = value if names is None else names
        return known

    def _join_prefix(self) -> None:
        """Joins `ann_file` and `data_prefix` with `data_root` where they are relative."""
        root = self.data_root or ""
        if self.ann_file:
            self.ann_file = joined(root, self.ann_file)
        prefixes: dict[str, Any] = dict(self.data_prefix)
        for key, prefix in prefixes.items():
            if not isinstance(prefix, str):
                raise TypeError(f"prefix should be a string, but got {type(prefix)}")
            prefixes[key] = prefix if is_absolute(prefix) else joined(root, prefix)
        self.data_prefix = prefixes

    def _serialize_data(self) -> tuple[shared_infos.Bytes, shared_infos.Ends]:
        data, ends = shared_infos.serialize(self.data_list)
        self.data_list = []
        return data, ends

    def _rand_another(self) -> int:
        return int(np.random.randint(0, len(self)))

    def _copy_without_annotation(self, memo: dict[int, Any] | None = None) -> BaseDataset:
        """A deep copy of everything but the infos."""
        memo = {} if memo is None else memo
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        for key, value in self.__dict__.items():
            if key not in ("data_list", "data_address", "data_bytes", "_shared"):
                setattr(other, key, copy.deepcopy(value, memo))
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Processes that are started get the infos as memory that all of them share."""
        state = self.__dict__.copy()
        shared = state.pop("_shared", None)
        if not (
            shared_infos.is_starting_a_process() and state.get("serialize_data") and "data_bytes" in state
        ):
            return state
        if shared is None or state["data_bytes"] is not shared[1]:
            memory = shared_infos.SharedBytes(state["data_bytes"])
            self.data_bytes = memory.data
            self._shared = shared = (memory, self.data_bytes)
        state["data_bytes"] = shared[0]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        memory = state.get("data_bytes")
        if isinstance(memory, shared_infos.SharedBytes):
            self.data_bytes = memory.data
            self._shared = (memory, self.data_bytes)


def _shortened(value: Any, length: int = 200) -> str:
    text = str(value)
    return text if len(text) <= length else f"{text[:length]}…"
