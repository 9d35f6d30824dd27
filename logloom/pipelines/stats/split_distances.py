"""Least distance between splits of a version: its rule's bound, and a check.

A version records the rule by which a build split its rows, including `gap`, and all its rows follow it. So
its manifest has a bound that is true by construction; measuring checks the rows.

Here: `Proof`, `proof_of`.
Elsewhere: which rows the rule leaves out (logloom.row_splits), the distances
(logloom.datasets.splits.separation).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from logloom.errors import DatasetError
from logloom.recipe.sections import Split
from logloom.text import human_duration
from logloom.validation import describe_first
from logloom.values import dataclass

_UNITS = {"place": "m", "time": "s"}
_ROUNDING = {"m": 1e-6, "s": 0.0}  # places in a grid are floats, times are whole nanoseconds


@dataclass(frozen=True)
class Proof:
    """The least distance, or time, between any two splits.

    Attributes:
        bound: no two rows of different splits are nearer, by the rule.
        unit: "m" or "s".
        measured: the least that was measured; infinite if no two splits have rows to measure, None if it
            wasn't measured.
    """

    bound: float
    unit: str
    measured: float | None

    @property
    def is_kept(self) -> bool | None:
        """None where nothing was measured."""
        return None if self.measured is None else self.measured >= self.bound - _ROUNDING[self.unit]

    def to_json(self) -> dict[str, Any]:
        """For machines; `measured` is null where there is nothing to measure, too."""
        finite = self.measured is not None and math.isfinite(self.measured)
        measured = self.measured if finite else None
        return {"bound": self.bound, "unit": self.unit, "measured": measured, "is_kept": self.is_kept}

    def in_words(self) -> str:
        """One line for people."""
        bound = f"the bound of {self._length(self.bound)}, which the version's rule sets,"
        if self.measured is None:
            return f"{bound} wasn't measured: no output has the rule's column as positions to compare"
        if not math.isfinite(self.measured):
            return f"{bound} is kept: no two splits have rows that are apart"
        apart = self._length(self.measured)
        if self.is_kept:
            return f"{bound} is kept: the nearest rows of two splits are {apart} apart"
        return (
            f"{bound} is broken: rows of two splits are {apart} apart. They aren't those that a build cut: "
            "`logloom verify` names the files that were changed, and `logloom repair` builds them again"
        )

    def _length(self, number: float) -> str:
        if self.unit == "s" and number < 60:
            return human_duration(round(number * 1e9), digits=9)
        return f"{number:.9g} {self.unit}"  # as exact as the comparison


def proof_of(rule: Mapping[str, Any], metres: float | None, seconds: float | None) -> Proof | None:
    """What a version's rule promises, beside what was measured; None where it keeps no splits apart.

    Args:
        rule: `split` of the version's recipe; {} where no single rows are split.
        metres, seconds: the least between any two splits; None where that wasn't measured.

    Raises:
        DatasetError: the manifest has a rule that no recipe may have.
    """
    if not rule.get("gap"):
        return None
    try:
        split = Split.model_validate(dict(rule)).of_rows
    except ValidationError as error:
        raise DatasetError(f"the version's `split` makes no sense: {describe_first(error)}") from error
    if split is None or split.by not in _UNITS or not split.gap:
        return None
    measured = seconds if split.by == "time" else metres
    return Proof(float(split.gap), _UNITS[split.by], measured)
