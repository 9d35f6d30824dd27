"""The error of adapters, which know the number of a message but not where it lies."""


class UnfitError(Exception):
    """A message holds something else than an adapter reads.

    Attributes:
        row: which message of those that were handed over.
    """

    def __init__(self, row: int, reason: str):
        super().__init__(reason)
        self.row = row
