"""Open Parquet, Feather and CSV files with Arrow.

Here: `arrow_file`, and a check of names (`text_problems`).
Elsewhere: their contents (columns, logloom.io.formats, logloom.io.logs.table_files).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from logloom.errors import DatasetError, LogloomError
from logloom.io.storage.faults import MISSING, fault_of
from logloom.io.storage.filesystems import stored_file
from logloom.io.storage.remote.range_requests import failure
from logloom.uris import is_local, path_of


@contextlib.contextmanager
def arrow_file(
    uri: str,
    options: Mapping[str, Any] | None,
    damaged: Callable[[str], LogloomError],
    missing: Callable[[str], LogloomError] = DatasetError,
    **opening: Any,
) -> Iterator[Any]:
    """Open a file; errors of Arrow, or of a check, in the block become an error with the file's name.

    Args:
        damaged: makes the error of an invalid file from a reason.
        missing: makes the error of a missing file.
        opening: how to open a file in an object store; see `stored_file`.

    Raises:
        StorageError: the disk or the store refused.
    """
    try:
        if is_local(uri):
            opened = pa.OSFile(os.fsencode(path_of(uri)))  # bytes, as a name may not be UTF-8
        else:
            opened = stored_file(uri, options, **opening)
        with opened as file:
            yield file
    except MISSING as error:
        raise failure(uri, error, missing) from error
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, NotImplementedError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise fault_of(uri, error) or damaged(reason) from error


def text_problems(log_id: str, log_uri: str) -> list[str]:
    """Explain why a file of Arrow can't contain a log of this name, as its texts are UTF-8."""
    try:
        log_id.encode()
    except UnicodeEncodeError as error:
        return [f"{log_uri}: log_id {log_id!r} is not UTF-8 ({error}); set `log_id` in the recipe"]
    return []
