"""Open logs: detect the kind of a file among the installed kinds.

Here: `open_log`, `with_passes`, and the `Kind` protocol.
Elsewhere: the kinds, which installed parts offer (logloom.parts).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Protocol

from logloom import parts
from logloom.errors import LogReadError, UsageError
from logloom.io.logs.files.ranges import LogFile
from logloom.io.logs.interface import Log, OpenOptions
from logloom.io.logs.log_list import LogFiles, LogList
from logloom.io.logs.passes import Pass, pass_named
from logloom.io.logs.redaction import RedactedLog
from logloom.io.logs.renamed_log import RenamedLog
from logloom.io.storage.filesystems import with_access
from logloom.io.storage.threads import ahead
from logloom.uris import shown

HEAD_BYTES = 64


class Kind(Protocol):
    """A kind of log; offered by a part (logloom.parts).

    Attributes:
        suffixes: of file names, such as ".mcap".

    A kind may also have `also`, the names of kinds whose files it opens together with its own, and
    `files_in(names)`, which selects the files of a folder that is a log of this kind, else none. The latter
    is called for kinds in name order, last for those with `is_generic`, which accept any files of a suffix.
    `recordings(names)` returns files of a folder that are several of one recording, by the name of the whole.
    """

    name: str
    suffixes: tuple[str, ...]

    def matches(self, uri: str, head: bytes) -> bool:
        """Return whether a file is of this kind.

        Args:
            uri: of the file.
            head: its first 64 bytes.
        """

    def open(self, uris: Sequence[str], options: OpenOptions) -> Log:
        """Open files as one log, without reading anything yet.

        Args:
            uris: of the files, all of this kind.
            options: how logs are read: what to do about damage, limits, sidecar indices.

        Returns:
            The log.
        """


def kinds() -> Iterator[Kind]:
    """Installed kinds in name order: logloom's own, then those of other packages, read only then.

    Broken ones are left out (`parts.broken`). The kind that is chosen of them is taken by `kind_named`.
    """
    return (kind for _, kind in parts.usable("logs"))


@functools.cache
def kind_named(name: str) -> Kind:
    """An installed kind; its module is imported here, so that a log imports those of other kinds no more.

    Raises:
        UsageError: no installed package offers it, several do, or that of another package is broken.
    """
    kind: Kind = parts.load("logs", name)
    return kind


def open_log(
    uris: Sequence[str],
    options: OpenOptions = OpenOptions(),  # noqa: B008 (immutable)
    log_id: str = "",
) -> Log:
    """Open one log.

    Args:
        uris: its files, in any order; paths, or URIs that fsspec opens.
        options: how logs are read: what to do about damage, limits, sidecar indices.
        log_id: selects redactions; "" for those of the content only. If logs are split where clocks were set
            back, it also selects the pass; "" for the whole log.

    Returns:
        The log; its `summary` describes it.

    Raises:
        LogReadError: a file is missing, unreadable, empty, or of no known kind; or they are of several kinds.
    """
    if isinstance(uris, str):
        uris = [uris]
    options = dataclasses.replace(options, storage_options=with_access(options.storage_options, uris))
    uris = [shown(uri) for uri in uris]
    if options.set_back == "split" and log_id:
        log_id, number = pass_named(log_id)  # redactions of a log apply to all its passes
        options = dataclasses.replace(options, pass_number=number)
    if not uris:
        raise UsageError("a log needs at least one file")
    found = {uri: kind_of(uri, options) for uri in uris}
    names = sorted({kind.name for kind in found.values()})
    for kind in found.values():
        if set(names) <= {kind.name, *getattr(kind, "also", ())}:
            log = kind.open(list(uris), options)
            log = RenamedLog(log, options.alternatives) if options.alternatives else log
            return RedactedLog(log, log_id, options.redactions) if options.redactions else log
    raise LogReadError(
        f"{', '.join(uris)}: files of different kinds ({', '.join(names)}) can't be one log; give them "
        "different log_ids"
    )


def with_passes(logs: LogList, options: OpenOptions) -> LogList:
    """Split the logs whose clock was set back into one log per pass: X, X~2, X~3 …

    Opens all of them; unreadable ones are returned unchanged.
    """
    whole = dataclasses.replace(options, set_back="")

    def passes_of(log: LogFiles) -> list[LogFiles]:
        try:
            places = open_log(log.uris, whole, log.log_id).summary.recorded.set_backs
        except LogReadError:  # the build reports it
            places = ()
        return [log._replace(log_id=Pass(log.log_id, i + 1).name) for i in range(len(places) + 1)]

    found = list(ahead(passes_of, logs))
    if len(found) == sum(map(len, found)):
        return logs
    return LogList.of(sorted(itertools.chain(*found), key=operator.attrgetter("log_id")))


def kind_of(uri: str, options: OpenOptions) -> Kind:
    """Detect the kind of a file by its first bytes, else by its name (for damaged files).

    Raises:
        LogReadError: missing, unreadable, empty, or of no known kind.
        UsageError: several packages offer its kind.
    """
    head = LogFile(uri, options.storage_options).head(HEAD_BYTES)
    if not head:
        raise LogReadError(f"{uri}: empty file (the writer probably crashed); exclude it")
    for kind in kinds():
        if kind.matches(uri, head):
            return kind_named(kind.name)
    for kind in kinds():
        if uri.endswith(kind.suffixes):
            return kind_named(kind.name)
    raise LogReadError(
        f"{uri}: no installed part reads a log that starts with {head[:12]!r}; there are "
        f"{', '.join(kind.name for kind in kinds())}. Correct the path, or install a package that reads it"
        f"{parts.broken_note('logs') or '.'}"
    )
