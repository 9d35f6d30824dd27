"""The order of the rows that a writer is given.

Here: `RowOrder`, which writers of one log's rows hold them to.
"""

from __future__ import annotations

from logloom.blocks import Block
from logloom.errors import UsageError


class RowOrder:
    """Makes sure that rows are of one log, and that their timestamps ascend."""

    def __init__(self, place: str, what: str):
        """
        Args:
            place: what is written, for messages.
            what: the kind of thing that has rows of one log only, such as "a shard".
        """
        self._place, self._what = place, what
        self.source = {"log_id": "", "partition": ""}  # of the rows so far
        self._last: int | None = None

    def check(self, block: Block) -> None:
        """Check the next rows, at least one.

        Raises:
            UsageError: they are of another log, or don't ascend.
        """
        stamps, log_id = block.timestamp, block.log_id
        if self._last is not None and log_id != self.source["log_id"]:
            raise UsageError(
                f"{self._place}: rows of {log_id} after {self.source['log_id']}; {self._what} has one log"
            )
        late = self._last is not None and stamps[0] <= self._last
        if late or (stamps[1:] <= stamps[:-1]).any():
            raise UsageError(
                f"{self._place}: timestamps of {log_id} don't ascend; append blocks in row order"
            )
        self.source, self._last = {"log_id": log_id, "partition": block.partition}, int(stamps[-1])
