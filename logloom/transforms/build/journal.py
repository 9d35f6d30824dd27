"""Journal of a build: workers' notes on progress, in a file per process.

Here: writing notes, and reading new ones. A note that can't be written is left out: no build fails because of
its progress.
Elsewhere: the display of progress (logloom.pipelines.build.progress).
"""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator
from dataclasses import field

from logloom.io.storage.step_times import append_line
from logloom.values import dataclass

OPENED, BUILDING, READING_BACK = "opened", "building", "reading back"
FINISHING, PLANNING, CHECKING, ASSEMBLING = "finishing", "planning", "checking", "assembling"


@dataclass(frozen=True)
class Note:
    """One piece of work, begun or done.

    Attributes:
        phase: one of the names above.
        what: the log, or the output that is assembled.
        done: False where it begins, and while a partition is built.
        seconds: that it took.
        rows: that it made.
        pieces: of this phase that come with it: partitions, logs, units, or files to be assembled.
        found: it was there already, from an earlier attempt.
        size: of a log that was opened, its bytes of messages.
        cpu: seconds of processor time that it took, of all threads of its process, and of waiting for a
            processor that others had.
        part: of a partition that isn't done, the share that was built since the note before; of one that is,
            the share that such notes had. Their seconds and rows aren't in its last note again.
        made, made_cpu: seconds in which rows were read and decoded, and of these of processor time.
        wrote, wrote_cpu: seconds in which outputs encoded and wrote them, and of these of processor time.
    """

    phase: str
    what: str
    done: bool = True
    seconds: float = 0.0
    rows: int = 0
    pieces: int = 1
    found: bool = False
    size: int = 0
    cpu: float = 0.0
    part: float = 0.0
    made: float = 0.0
    made_cpu: float = 0.0
    wrote: float = 0.0
    wrote_cpu: float = 0.0


@dataclass(frozen=True)
class Journal:
    """A folder of notes; "" takes none.

    Attributes:
        folder: on a disk that all workers and the process that waits for them see.
        steps: a folder for the steps that take time (see logloom.io.storage.step_times); "" records nothing.
    """

    folder: str = ""
    steps: str = ""

    def write(self, note: Note) -> None:
        """Appends a note to this process's own file; see `append_line`."""
        if self.folder:
            append_line(self.folder, list(vars(note).values()))


@dataclass
class JournalReader:
    """Reads what has been noted since it was asked last."""

    folder: str
    _read: dict[str, int] = field(default_factory=dict)  # bytes of each file

    def new(self) -> Iterator[Note]:
        """The notes that came since the last call, those of one process in order."""
        for path in sorted(pathlib.Path(self.folder).glob("*")):
            with contextlib.suppress(OSError), path.open("rb") as file:
                file.seek(self._read.get(path.name, 0))
                whole, newline, _ = file.read().rpartition(b"\n")  # a line may be on its way
                self._read[path.name] = self._read.get(path.name, 0) + len(whole + newline)
                for line in whole.splitlines():
                    yield Note(*json.loads(line))
