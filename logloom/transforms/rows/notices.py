"""Notices of a plan or a build to its user, printed as lines or as JSON.

A note explains what a build does; `--quiet` hides it. A warning names what may be wrong although nothing
failed; no option hides it.

Here: `Notice` and `BuildWarning`.
Elsewhere: what `--strict` refuses (logloom.transforms.build.build_warnings), all notices of a plan
(logloom.pipelines.plan.summary), printing (logloom.cli.terminal).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from logloom.io.storage.metadata import Text
from logloom.values import dataclass


@dataclass(frozen=True)
class Notice:
    """What people should know of a plan or a build.

    Attributes:
        text: a sentence for people, `<where>: <problem>; <what to do>`.
        severity: "note", "warning", or the status of a log: "skipped", "salvaged", "empty", "left out".
        is_doubtful: it names data that is lost or may be wrong, so `--strict` refuses to commit it.
        kind: what it is about, for programs; "" if its text says all.
        column, topic, log: what it is about; "" for none in particular.
        line: the line of a recipe that helps; "" if none does.
    """

    text: Text
    severity: Text = "note"
    is_doubtful: bool = False
    kind: Text = ""
    column: Text = ""
    topic: Text = ""
    log: Text = ""
    line: Text = ""

    def __str__(self) -> str:
        return self.text

    @property
    def printed(self) -> str:
        """The line that a terminal shows."""
        return f"{self.severity}: {self.text}"

    @property
    def is_quieted(self) -> bool:
        """Whether `--quiet` hides it."""
        return self.severity in ("note", "empty")

    def to_json(self) -> dict[str, Any]:
        """Return its fields without empty ones."""
        return {name: value for name, value in asdict(self).items() if value or name == "is_doubtful"}


@dataclass(frozen=True)
class BuildWarning(Notice):
    """What may be wrong with a version although nothing failed."""

    severity: Text = "warning"
    is_doubtful: bool = True


def notes_of(kind: str, texts: Iterable[str]) -> list[Notice]:
    """Make notes of one kind."""
    return [Notice(text, kind=kind) for text in texts]
