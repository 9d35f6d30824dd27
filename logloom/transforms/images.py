"""Whether images decode: for resampling a JPEG is just a value, and it is looked into when read back."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

from logloom.blocks import Block
from logloom.io.units import Format
from logloom.schema import Schema

_IMAGE_SUFFIXES = frozenset({"jpg", "jpeg", "png"})


def image_columns(schema: Schema, encoded: Iterable[str], form: Format, options: Any) -> set[str]:
    """The bytes columns that hold encoded images: made by `encode`, or named .jpg or .png in an output."""
    suffixes: dict[str, str] = getattr(options, form.forms_option) if form.forms_option else {}
    named = {name for name, suffix in suffixes.items() if suffix in _IMAGE_SUFFIXES}
    kinds = schema.columns
    return {name for name in {*encoded, *named} if name in kinds and kinds[name].kind == "bytes"}


def check_images(place: str, block: Block, columns: Iterable[str]) -> Iterator[str]:
    """Says which available images don't decode."""
    from PIL import Image

    for column in sorted(columns):
        for row, data in enumerate(block.columns[column]):
            if len(data) == 0:
                continue
            try:
                with Image.open(io.BytesIO(data)) as image:
                    image.draft("L", (1, 1))  # a JPEG's whole entropy code is read, its pixels aren't made
                    image.load()
            except Exception as error:  # Pillow raises many kinds
                yield (
                    f"{place}: {column} at {block.timestamp[row]} of {block.log_id} is no image that decodes "
                    f"({error})"
                )
