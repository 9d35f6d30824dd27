"""Names of passes: parts of a log between set-backs of the recorder's clock.

    X, X~2, X~3 …    the passes of a log X, in the order of its files, under `time: {set_back: split}`

Elsewhere: where a clock was set back (recording_times), which messages a pass has
(logloom.io.logs.files.container_log), finding passes (opening).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

LATER = r"~([2-9]|[1-9][0-9]+)$"  # suffix of the name of a later pass
_NUMBER = re.compile(LATER)


class Pass(NamedTuple):
    """A pass of a log, as named by a log_id.

    Attributes:
        number: from 1.
    """

    log_id: str
    number: int

    @property
    def name(self) -> str:
        """Its log_id.

        >>> (Pass("drive", 1).name, Pass("drive", 2).name)
        ('drive', 'drive~2')
        """
        return self.log_id if self.number == 1 else f"{self.log_id}~{self.number}"


def pass_named(log_id: str) -> Pass:
    """Return the pass that a log_id names; the first if it isn't the name of a later one.

    >>> pass_named("drive~2")
    Pass(log_id='drive', number=2)
    >>> pass_named("drive~1")
    Pass(log_id='drive~1', number=1)
    """
    found = _NUMBER.search(log_id, 1)
    return Pass(log_id[: found.start()], int(found[1])) if found else Pass(log_id, 1)


def later_passes(
    log_ids: Iterable[str], uris_of: Callable[[list[str]], dict[str, tuple[str, ...]]]
) -> dict[str, str]:
    """Return the log_ids of a version that name later passes, with their logs.

    Without splitting, an ordinary log may have such a name; a pass has the files of its log.

    Args:
        uris_of: the files of logs of the version, by log_id, without those that it lacks.
    """
    named = {log_id: one.log_id for log_id in log_ids if (one := pass_named(log_id)).number > 1}
    uris = uris_of(sorted({*named, *named.values()})) if named else {}
    return {
        log_id: whole
        for log_id, whole in named.items()
        if log_id in uris and uris[log_id] and uris[log_id] == uris.get(whole)
    }
