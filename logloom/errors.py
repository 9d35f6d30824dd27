"""Errors of logloom, each built from a single message so that it can be pickled.

The tree of classes:

    LogloomError
    |-- UsageError               the command or the call is wrong (exit code 2)
    |   `-- RecipeError          the recipe is wrong; the message lists every mistake with its line
    |-- LogReadError             the input is damaged, or not what its name says
    |   |-- TruncatedLogError
    |   `-- UnknownEncodingError
    |-- InputError               logs or labels vanished, or logs are copies, which the recipe refuses
    |-- DatasetError             a part of a dataset is damaged, missing or of another kind
    |   |-- PurgedError          the requested data was erased on purpose
    |   `-- ReadBackError        data read back differs from what was written
    |-- AfterCommitError         a version was committed; what follows, as its view, failed (exit code 4)
    |-- BesideError              another build of the version runs
    |   `-- OvertakenError       ... and has committed it since this one was planned
    |-- CommitConflictError      another build committed this version first
    `-- StorageError             a disk or an object store refused
"""

import contextlib
import pickle
import traceback
from collections.abc import Iterator

from logloom.uris import shown

__all__ = [
    "AfterCommitError",
    "BesideError",
    "CommitConflictError",
    "DatasetError",
    "InputError",
    "LogReadError",
    "LogloomError",
    "OvertakenError",
    "PurgedError",
    "ReadBackError",
    "RecipeError",
    "StorageError",
    "TruncatedLogError",
    "UnknownEncodingError",
    "UsageError",
]


class LogloomError(Exception):
    """The base class of all errors of logloom, built from one message. No URI in it shows credentials.

    Examples:
        >>> try:
        ...     logloom.open("demo/dataset@7")
        ... except logloom.LogloomError as error:
        ...     print(type(error).__name__)
        UsageError
    """

    def __init__(self, message: str = ""):
        super().__init__(shown(str(message)))


class UsageError(LogloomError):
    """The command or the call is wrong; nothing was done."""


class RecipeError(UsageError):
    """The recipe is wrong; the message lists every mistake with its line."""


class LogReadError(LogloomError):
    """A log is damaged, or not what its name says."""


class TruncatedLogError(LogReadError):
    """A log ends in the middle of a record."""


class UnknownEncodingError(LogReadError):
    """A log uses an encoding, compression or definition that logloom doesn't read."""


class InputError(LogloomError):
    """Logs or labels of the latest version are missing, or logs are copies, and the recipe refuses that."""


class DatasetError(LogloomError):
    """A part of a dataset is damaged, missing or of another kind."""


class PurgedError(DatasetError):
    """The requested data was erased on purpose, from all versions."""


class ReadBackError(DatasetError):
    """Data that was read back differs from what was written."""


class BesideError(LogloomError):
    """Another build of the same version runs."""


class OvertakenError(BesideError):
    """Another build committed the version after this one was planned."""


class AfterCommitError(LogloomError):
    """A version was committed, or is up to date; what follows, such as making its view, failed."""


class CommitConflictError(LogloomError):
    """Another build committed this version number with other content."""


class StorageError(LogloomError):
    """A disk or an object store refused: full, read-only, no permission, gone."""


# Errors in a recipe, a log or a dataset, unlike those of their disk or store.
OF_CONTENT = (UsageError, LogReadError, DatasetError)


@contextlib.contextmanager
def after_commit(version: str, way_out: str, failed: str = "what follows failed") -> Iterator[None]:
    """Extend errors of a block by the information that a version is committed, and a remedy.

    Args:
        version: such as "version 7 of /data/urban".
        failed: what the block is for, and that it failed.

    Raises:
        AfterCommitError: the block failed.
    """
    try:
        yield
    except AfterCommitError:
        raise
    except Exception as error:
        internal = "" if isinstance(error, LogloomError) else f"internal error: {type(error).__name__}: "
        what = f"{internal}{error}"
        raise AfterCommitError(f"{version} is committed, but {failed}: {what}\n{way_out}") from error


def portable(error: BaseException, otherwise: type[Exception] = RuntimeError) -> BaseException:
    """Return the error for another process: with its traceback as a note, or as text.

    Args:
        otherwise: class for the text of an error that can't be pickled or recreated.
    """
    text = "".join(traceback.format_exception(error))
    try:
        copy: BaseException = pickle.loads(pickle.dumps(error))  # nosec B301 # made here
    except Exception:
        return otherwise(text)
    copy.add_note(f"in a worker process:\n{text}")
    return copy
