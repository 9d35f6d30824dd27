"""Sources that give their rows part by part, as they are converted.

Here: `PartedSource`.
Elsewhere: those of versions (logloom.pipelines.convert_sources), those whose types were learnt
(logloom.io.surveyed).
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from logloom.blocks import Block
from logloom.io.sources import RowSource
from logloom.io.stretches import Ints, LogRange, Stretches

_KEPT = 4  # parts in memory: who reads rows in order, or near each other, reads each part once


class PartedSource(RowSource):
    """Rows that `logs` and `blocks` tell; a part is read whole, and the last few stay in memory."""

    @functools.cached_property
    def _parts(self) -> list[tuple[str, LogRange]]:
        return [(log.log_id, part) for log in self.logs() for part in log.parts]

    @functools.cached_property
    def stretches(self) -> Stretches:
        return Stretches.of_logs(
            [log_id for log_id, _ in self._parts], [part.rows for _, part in self._parts]
        )

    @functools.cached_property
    def stamps(self) -> Ints | None:
        if not self.has_stamps:
            return None
        blocks = [block for log_id, part in self._parts for block in self.blocks(log_id, part, ())]
        return np.concatenate([np.empty(0, np.int64), *(block.timestamp for block in blocks)])

    def _open(self) -> OrderedDict[tuple[int, tuple[str, ...]], tuple[list[Block], Ints]]:
        return OrderedDict()  # what was read of parts, in this process

    def rows(self, positions: Ints, names: Sequence[str]) -> list[dict[str, Any]]:
        chosen = tuple(names)
        rows = [self._row(position, chosen) for position in positions.tolist()]
        return rows if self.has_stamps else [{name: row[name] for name in names} for row in rows]

    def _row(self, position: int, names: tuple[str, ...]) -> dict[str, Any]:
        bounds = self.stretches.bounds
        number = int(np.searchsorted(bounds, position, side="right")) - 1
        blocks, firsts = self._read(number, names)
        at = position - int(bounds[number])
        place = int(np.searchsorted(firsts, at, side="right")) - 1
        return blocks[place].row(at - int(firsts[place]), self.schema, names)

    def _read(self, number: int, names: tuple[str, ...]) -> tuple[list[Block], Ints]:
        kept = self.reader
        found: tuple[list[Block], Ints] | None = kept.get((number, names))
        if found is None:
            blocks = list(self.blocks(*self._parts[number], names))
            lengths = np.array([len(block) for block in blocks], np.int64)
            found = kept[number, names] = blocks, np.cumsum(lengths) - lengths
            while len(kept) > _KEPT:
                kept.pop(next(iter(kept)), None)
        return found
