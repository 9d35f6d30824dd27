"""The error of adapters, which know the number of a message but not its place."""


class UnfitError(Exception):
    """A message has content that an adapter can't read.

    Attributes:
        row: number of the message among the arguments.
    """

    def __init__(self, row: int, reason: str):
        super().__init__(reason)
        self.row = row
