"""Support in zarr-python 3 for format 2 arrays whose struct fields are arrays.

zarr-python 3 knows structs of scalars only: it refuses the three-item fields ["centroid", "<f8", [2]] that
zarr 2 wrote. `register` adds what is missing; registered types are matched by their JSON alone, so other
dtypes of the process resolve as before. `WritableArray` wraps arrays to write into.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from zarr.core.dtype.npy.structured import Structured
from zarr.dtype import DataTypeValidationError, data_type_registry

from logloom.errors import DatasetError
from logloom.io.formats.l5kit.metadata import dtype_fields, dtype_from_fields


@dataclass(frozen=True, kw_only=True)
class SubarrayStruct(Structured):  # type: ignore[override,unused-ignore]
    """A struct with fields (name, numpy dtype string, shape). Exists in zarr format 2 only."""

    _zarr_v3_name: ClassVar[Any] = "logloom.subarray_struct"
    fields: tuple[tuple[str, str, tuple[int, ...]], ...]  # type: ignore[assignment]

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> SubarrayStruct:
        """The zarr type of a packed structured dtype; give it to zarr as `dtype=`."""
        return cls(fields=tuple((f[0], f[1], tuple(f[2]) if len(f) > 2 else ()) for f in dtype_fields(dtype)))

    @classmethod
    def from_native_dtype(cls, dtype: Any) -> Any:
        # zarr's own Structured claims every struct, and two claims on one dtype are an error there.
        raise DataTypeValidationError(f"{dtype}: pass SubarrayStruct.of(dtype) to zarr")

    def to_native_dtype(self) -> Any:
        return np.dtype(list(self.fields))

    @classmethod
    def _from_json_v2(cls, data: Any) -> Any:
        name = data.get("name") if isinstance(data, dict) else None
        if not isinstance(name, Sequence) or isinstance(name, str) or not any(len(f) == 3 for f in name):
            raise DataTypeValidationError(f"no field of {data!r} is an array")
        try:
            return cls.of(dtype_from_fields(name, "zarr metadata"))
        except DatasetError as error:
            raise DataTypeValidationError(str(error)) from error

    @classmethod
    def _from_json_v3(cls, data: Any) -> Any:
        raise DataTypeValidationError("structs with array fields are known in zarr format 2 only")

    def to_json(self, zarr_format: Any) -> Any:
        if zarr_format != 2:
            raise ValueError("structs with array fields are known in zarr format 2 only")
        return {"name": dtype_fields(self.to_native_dtype()), "object_codec_id": None}

    def default_scalar(self) -> np.void:
        # Zero bytes; zarr's own way casts the number 0, which makes the text "0".
        return cast("np.void", np.zeros((), self.to_native_dtype())[()])


def register() -> None:
    """Makes the type known to zarr; may be called again."""
    data_type_registry.register(SubarrayStruct._zarr_v3_name, SubarrayStruct)


class WritableArray:
    """A zarr array with the length that zarr-python 3 took away, and that writes chunks of zeros too.

    All else is the array's own: assignment, `append`, `resize`, `attrs`, ...
    """

    def __init__(self, array: Any):
        # A chunk left out reads as zeros in zarr, but to a reader that looks for damage it is lost.
        self._array = array.with_config({"write_empty_chunks": True})

    def __len__(self) -> int:
        return int(self._array.shape[0])

    def __getitem__(self, key: Any) -> Any:
        return self._array[key]

    def __setitem__(self, key: Any, rows: Any) -> None:
        self._array[key] = rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self._array[:], dtype)

    def __getattr__(self, name: str) -> Any:
        if name == "_array":  # not there yet while unpickling
            raise AttributeError(name)
        return getattr(self._array, name)
