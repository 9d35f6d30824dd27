"""Settings of a build for its workers, passed as a whole by the command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from logloom.errors import UsageError
from logloom.values import dataclass


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """What people choose for one build; neither rows nor bytes of files depend on it.

    Attributes:
        verify: what to read back: "new", "all", "none" or "sample:<share>" (see `Manifest.verified`).
        allow_empty: commit a version without rows, or a first one with a split without logs.
        strict: refuse to commit if a warning names lost or doubtful data.
        labels: of this submission, for people and bills; kept in runs/, and shown by engines whose jobs have
            labels (Dataflow).

    Raises:
        UsageError: `verify` is something else.
    """

    verify: str = "new"
    allow_empty: bool = False
    strict: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.verify not in ("new", "none"):
            check_sample(self.verify, "new, all, none")

    @property
    def read_share(self) -> str:
        """How much of the units that a build makes it reads back."""
        return "all" if self.verify == "new" else self.verify


def check_sample(sample: str, others: str = "all") -> None:
    """Check that `sample` is "all" or "sample:<share between 0 and 1>".

    Raises:
        UsageError: it is neither; names `others` as what is expected.
    """
    if sample == "all":
        return
    try:
        share = float(sample.removeprefix("sample:")) if sample.startswith("sample:") else -1.0
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise UsageError(f"{sample!r}: expected {others}, or sample:0.05 (a share of the units)")
