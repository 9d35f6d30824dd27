"""Decoders of the fields of WebDataset samples: functions from bytes."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError


def clsdecode(data: bytes) -> int:
    """A class number written as text.

    Args:
        data: the bytes of a member.

    Raises:
        DatasetError: no number.
    """
    try:
        return int(data)
    except ValueError as error:
        raise DatasetError(f"a class should be a number, found {data[:20]!r}") from error


def imdecode(data: bytes) -> Array:
    """An image: (height, width, 3) uint8 RGB; (height, width) as stored if it is gray of more than 8 bits.

    Args:
        data: the bytes of a member.

    Raises:
        DatasetError: no image that decodes.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            deep = image.mode in ("F", "I") or image.mode.startswith("I;16")
            return np.array(image if deep else image.convert("RGB"))
    except Exception as error:  # Pillow raises many kinds
        raise DatasetError(f"no image that decodes: {error}") from error


def jsondecode(data: bytes) -> Any:
    """What a JSON text says.

    Args:
        data: the bytes of a member.

    Raises:
        DatasetError: no JSON.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"no JSON: {error}") from error
