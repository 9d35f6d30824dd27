"""Files that Arrow reads: those of Parquet, Feather and CSV, of datasets, tables' indices and logs.

Here: `arrow_file`, and what such files can't hold (`text_problems`).
Elsewhere: what they hold (columns, logloom.io.formats.parquet, logloom.io.formats.table.index.files,
logloom.io.logs.tables).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from logloom.errors import DatasetError, LogloomError
from logloom.io.storage.faults import MISSING, fault_of
from logloom.io.storage.files import path_of
from logloom.io.storage.filesystems import stored_file
from logloom.io.storage.remote.range_requests import failure
from logloom.uris import is_local


@contextlib.contextmanager
def arrow_file(
    uri: str,
    options: Mapping[str, Any] | None,
    damaged: Callable[[str], LogloomError],
    missing: Callable[[str], LogloomError] = DatasetError,
    **opening: Any,
) -> Iterator[Any]:
    """An open file; what Arrow, or a check, refuses within the block becomes an error that names it.

    Args:
        damaged: makes the error of a file that isn't what it should be, given why.
        missing: makes the error of a file that isn't there.
        opening: how a file in an object store is opened; see `stored_file`.

    Raises:
        StorageError: the disk or the store refused.
    """
    try:
        if is_local(uri):
            opened = pa.OSFile(os.fsencode(path_of(uri)))  # bytes, since a name may be no UTF-8
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
    """Why a file of Arrow's can't hold a log of this name: texts are UTF-8 there."""
    try:
        log_id.encode()
    except UnicodeEncodeError as error:
        return [f"{log_uri}: log_id {log_id!r} is no UTF-8 ({error}); name it by `log_id` of the recipe"]
    return []
