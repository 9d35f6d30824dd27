"""Datasets in a folder with a subfolder per split, such as a copied view.

Elsewhere: which folders these are (logloom.datasets.opening), the datasets (logloom.io.rows.sources).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from logloom.blocks import Array, Block
from logloom.caching import cached_property
from logloom.errors import UsageError
from logloom.inference import wider
from logloom.io.rows.batches import Batch, stacked_rows
from logloom.io.rows.chain import ChainedSource
from logloom.io.rows.log_ranges import Ints, Stretches
from logloom.io.rows.sources import BLOCK_BYTES, RowSource, Share
from logloom.schema import Schema
from logloom.text import some_of


class MixedSource(ChainedSource):
    """Sources one after the other whose types may be narrower than the common ones.

    Where files don't say types, what was learnt of one part may be narrower than what holds for all.
    """

    @cached_property
    def _is_uniform(self) -> bool:
        types = self.schema.columns
        return all(
            (own.dtype, own.shape, own.kind) == (ctype.dtype, ctype.shape, ctype.kind)
            for part in self._parts
            for name, ctype in types.items()
            for own in [part.schema.columns[name]]
        )

    def scan(
        self, names: Sequence[str], max_bytes: int = BLOCK_BYTES, start: int = 0, stop: int | None = None
    ) -> Iterator[Block]:
        """See `RowSource.scan`; of the common types, as `take` gives them."""
        if self._is_uniform:
            return super().scan(names, max_bytes, start, stop)
        return RowSource.scan(self, names, max_bytes, start, stop)

    def leaves(self) -> Sequence[RowSource]:
        return super().leaves() if self._is_uniform else [self]

    def take(self, positions: Ints, names: Sequence[str], out: Mapping[str, Array] | None = None) -> Batch:
        if self._is_uniform:
            return super().take(positions, names, out)
        return stacked_rows(self.rows(positions, names), self.schema.all, self.place, positions)


class SplitsSource(MixedSource):
    """The rows of each split, one split after the other."""

    def __init__(self, place: str, splits: Mapping[str, RowSource]):
        """
        Raises:
            UsageError: splits have different columns.
        """
        parts = list(splits.values())
        super().__init__(place, parts, _common_schema(place, splits), parts[0].max_gap)
        self._splits = list(splits)

    @cached_property
    def stretches(self) -> Stretches:
        found = [(part.stretches, split) for part, split in zip(self._parts, self._splits, strict=True)]
        return Stretches.joined(
            [
                Stretches(own.log_ids, own.partitions, [split] * len(own.log_ids), own.counts)
                for own, split in found
            ]
        )

    def shares(self) -> Sequence[Share]:
        """See `RowSource.shares`: those of the splits, whose names their partitions begin with."""
        found = []
        for split, part, first in zip(self._splits, self._parts, self._bounds.tolist()[:-1], strict=True):
            for share in part.shares():
                partition = f"{split}.{share.partition}".rstrip(".")
                if share.source is None:
                    own = {"start": first + share.start, "stop": first + (share.stop or 0)}
                    found.append(replace(share, partition=partition, **own))
                    continue
                source = share.source
                if not self._is_uniform:
                    source = MixedSource(source.place, [source], self.schema, None)
                found.append(replace(share, partition=partition, source=source))
        return found


def _common_schema(place: str, splits: Mapping[str, RowSource]) -> Schema:
    filled = {
        split: source for split, source in splits.items() if len(source)
    }  # bags without rows lack types
    (first, source), *others = (filled or splits).items()
    columns, sampled = dict(source.schema.columns), source.schema.sampled
    for split, other in others:
        types = other.schema.columns
        common = {name: wider(ctype, types.get(name)) for name, ctype in columns.items()}
        columns = {name: ctype for name, ctype in common.items() if ctype is not None}
        if (
            columns.keys() != common.keys()
            or columns.keys() != types.keys()
            or other.schema.sampled != sampled
        ):
            odd = sorted(common.keys() - columns.keys() | types.keys() ^ common.keys()) or ["ages"]
            raise UsageError(
                f"{place}: {split} has other columns than {first} ({some_of(odd)}), so they are no "
                "splits of one dataset; open them one by one"
            )
    return Schema(columns, sampled)
