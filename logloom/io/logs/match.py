"""From URIs and globs to logs: find files, group them to logs, and name these.

Elsewhere: contents of folders (folders), opening logs (opening), logs of a recipe (logloom.recipe.logs).
Nothing here opens a log; a glob costs one or two listings, single files one listing per folder.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from logloom import parts
from logloom.errors import LogloomError, UsageError
from logloom.io.logs.folders import Folders, is_bag_file, is_metadata, parent_of
from logloom.io.logs.interface import Log, LogSummary
from logloom.io.logs.listings import MAGIC, as_glob, changed_ns, glob_matcher
from logloom.io.logs.log_list import LogFiles, LogList, in_name_order
from logloom.io.logs.opening import kinds
from logloom.io.storage.faults import fault_of
from logloom.io.storage.filesystems import absolute_uri, file_name_of, filesystem, uri_in, with_access
from logloom.io.storage.missing_paths import missing_words
from logloom.io.storage.store import Store
from logloom.io.storage.threads import in_threads
from logloom.text import OnMessage, ignore_message
from logloom.uris import is_local, shown, without_query

MAX_LOG_ID = 200  # bytes
NOT = "!"  # prefix of exclusions in a list of URIs and globs

_SUFFIX = re.compile(r"(?<=.)\.[A-Za-z0-9]{1,10}(\.(zstd|zst|gz|bz2|lz4|active))?$")
_NUMBERED = re.compile(r"_\d+\.(?!mcap|db3)[^/]*$")  # names of splits; those of ROS 2 are found by folder
_NO_NAMES = frozenset(("", ".", ".."))
EACH_FILE = "log_id: {match: '(?P<name>[^/]+)$', as: \"{name}\"}"  # of a recipe: each file is a log
_THREADS, _FAR_THREADS = 16, 64
TEMPLATES = ("{stem}", "{parent}", "{parent}-{stem}", "{path}")


class FoundLog(NamedTuple):
    """A log that was found: a file, or the folder of a ROS 2 bag or of tables."""

    uri: str
    uris: tuple[str, ...]
    stamps: tuple[str, ...]
    given: tuple[str, ...] = ()

    @classmethod
    def of(cls, uri: str, stamps: Mapping[str, str]) -> FoundLog:
        """Return a found log for these URIs, keeping those with credentials apart.

        Args:
            stamps: of each file, see `LogFiles`.
        """
        files = tuple(map(shown, stamps))
        given = tuple(file for file, own in zip(stamps, files, strict=True) if own != file)
        return cls(shown(uri), files, tuple(stamps.values()), given)


class Missing(str):
    """Why a URI or glob matches nothing: the store has no such file."""


class _NotFoundError(Exception):
    """Why a URI or glob matches no log; follows it in messages."""


def access_to(options: Mapping[str, Any] | None, logs: LogList) -> Mapping[str, Any]:
    """Return the storage options that open the files of these logs."""
    return with_access(options, logs.given)


def has_settled(log: LogFiles, before_ns: int, options: Mapping[str, Any] | None) -> bool:
    """Return whether no file of a log is known to have changed since a time, ns since the Unix epoch."""
    for uri, stamp in zip(log.uris, log.stamps, strict=True):
        changed = changed_ns(*filesystem(uri, options), stamp)
        if changed is not None and changed > before_ns:
            return False
    return True


def size_of_files(uris: Iterable[str], options: Mapping[str, Any] | None) -> int | None:
    """Return the size of files according to listings; None if one can't be found."""
    total = 0
    for uri in uris:
        try:
            fs, path = filesystem(uri, options)
            total += int(fs.info(path)["size"])
        except Exception:  # every object store has its own errors
            return None
    return total


def group_logs(
    uris: Sequence[str],
    storage_options: Mapping[str, Any] | None = None,
    on_skipped: OnMessage = ignore_message,
) -> LogList:
    """Find the logs of URIs and globs, each named by its file (or folder).

    Args:
        on_skipped: called with what is no log in a folder that was given for the logs in it.

    Raises:
        UsageError: lists those that match nothing.
    """
    folders = Folders()
    results = find_all(uris, None, storage_options, folders)
    problems = [result for result in results if isinstance(result, str)]
    if problems:
        raise UsageError("\n".join(problems))
    for note in folders.notes:
        on_skipped(note)
    items = (item for result in results if not isinstance(result, str) for item in result)
    found = {item.uri: item for item in with_splits(items)}
    template = unique_template(found) or "{path}"
    return named(found.values(), functools.partial(log_id_of, template=template))


def waiting_threads(uris: Iterable[str]) -> int:
    """Return how many threads list or open these: object stores answer slowly, but many at once."""
    return _THREADS if all(map(is_local, uris)) else _FAR_THREADS


def unique_template(uris: Iterable[str]) -> str | None:
    """Return the shortest template of a log_id that distinguishes all these files; None if none does."""
    names = list(uris)
    for template in TEMPLATES:
        if len({fill_template(template, uri) for uri in names}) == len(names):
            return template
    return None


def check_files(log: LogFiles, open_files: Callable[[Sequence[str]], Log]) -> None:
    """Checks that a log's files, if there are several, can be one recording.

    Raises:
        UsageError: see `check_one_recording`.
        LogReadError: one can't be read alone.
    """
    if len(log.uris) > 1:
        check_one_recording(log, [open_files([uri]).summary for uri in log.recordings])


def check_one_recording(log: LogFiles, summaries: Sequence[LogSummary]) -> None:
    """Checks that files with one log_id can be one recording: no topic overlaps in time.

    Args:
        summaries: of the single files, in any order.

    Raises:
        UsageError: two files overlap; suggests the shortest log_id that distinguishes them.
    """
    ranges: dict[str, list[tuple[int, int, str]]] = {}
    for summary in summaries:
        for topic, info in summary.topics.items():
            if info.num_messages:
                ranges.setdefault(topic, []).append((info.first, info.last, summary.uris[0]))
    for topic, spans in sorted(ranges.items()):
        spans.sort()
        for (_, last, one), (first, _, other) in pairwise(spans):
            if first < last:
                template = unique_template(log.uris)
                hint = f"`log_id: {template!r}` distinguishes all its files" if template else "rename one"
                if is_split(log.uris):
                    hint = f"`{EACH_FILE}` makes each file a log"
                raise UsageError(
                    f"log_id {log.log_id!r} names {one} and {other}, which both have {topic} at one time, "
                    f"so they are not one recording: {hint}"
                )


def _stem(uri: str) -> str:
    return _SUFFIX.sub("", file_name_of(uri))


def _words(uri: str, template: str) -> dict[str, str]:
    """Return the values of a URI for templates."""
    words = {}
    if "{stem" in template:
        words["stem"] = _stem(uri)
    if "{parent" in template or "{path" in template:
        path = without_query(uri).split("://", 1)[-1].strip("/")
        folder = path.rpartition("/")[0]
        words |= {"parent": file_name_of(folder) if folder else "", "path": _SUFFIX.sub("", path)}
    return words


def fill_template(template: str, uri: str, words: Mapping[str, str] | None = None) -> str:
    """Fill in a template with values of a URI and these."""
    if template == "{stem}":
        return _stem(uri)  # true of nearly all
    return template.format(**_words(uri, template), **(words or {}))


def log_id_of(uri: str, template: str, words: Mapping[str, str] | None = None) -> str:
    """Return the log_id of a file or a bag's folder.

    Raises:
        UsageError: it isn't a valid name.
    """
    return checked_log_id(fill_template(template, uri, words), uri)


def checked_log_id(log_id: str, uri: str) -> str:
    """Check a log_id and return it.

    Raises:
        UsageError: it isn't a valid name.
    """
    if len(log_id.encode(errors="surrogateescape")) > MAX_LOG_ID:
        raise UsageError(f"{uri}: the log_id {log_id[:40]!r}… is longer than {MAX_LOG_ID} bytes")
    strange = not log_id.isprintable() or "\\" in log_id
    if strange or not _NO_NAMES.isdisjoint(log_id.split("/")):
        raise UsageError(f"{uri}: {log_id!r} can't be a log_id, which becomes part of file names")
    return log_id


def named(found: Iterable[FoundLog], log_id_of: Callable[[str], str]) -> LogList:
    """Name what was found; return the logs in the order of their log_ids.

    Raises:
        UsageError: lists all invalid names.
    """
    problems: set[str] = set()
    logs = LogList.of(_each_named(found, log_id_of, problems))
    if problems:
        raise UsageError("\n".join(sorted(problems)))
    return logs.joined(_one_log)


def _each_named(
    found: Iterable[FoundLog], log_id_of: Callable[[str], str], problems: set[str]
) -> Iterator[LogFiles]:
    """Make each file or folder a log; collect problems with names."""
    for item in found:
        try:
            log_id = log_id_of(item.uri)
        except UsageError as error:
            problems.add(str(error))
            continue
        is_alone = len(item.uris) == 1
        yield LogFiles(log_id, *item[1:]) if is_alone else _one_log(log_id, [item])


def _one_log(log_id: str, found: Sequence[FoundLog] | Sequence[LogFiles]) -> LogFiles:
    """Merge logs to one; of duplicate files the last wins."""
    if len(found) == 1 and len(found[0].uris) == 1:
        return LogFiles(log_id, found[0].uris, found[0].stamps, found[0].given)
    stamps: dict[str, str] = {}
    given: set[str] = set()
    for item in found:
        stamps.update(zip(item.uris, item.stamps, strict=True))
        given.update(item.given)
    uris = in_name_order(stamps)
    return LogFiles(log_id, uris, tuple(stamps[uri] for uri in uris), tuple(sorted(given)))


def with_splits(found: Iterable[FoundLog]) -> Iterator[FoundLog]:
    """Merge files that are one recording by their names: /x/a_0.bag and /x/a_1.bag are /x/a.bag."""
    folders: dict[str, dict[str, FoundLog]] = {}
    for item in found:
        if len(item.uris) == 1 and _NUMBERED.search(item.uri):
            folders.setdefault(parent_of(item.uri), {})[file_name_of(item.uri)] = item
        else:
            yield item
    # Kinds are imported only where there may be something to merge.
    splitting = [kind for kind in kinds() if hasattr(kind, "recordings")] if folders else []
    for folder, files in folders.items():
        for kind in splitting:
            for name, own in kind.recordings(sorted(files)).items():
                whole = _one_log("", [files.pop(file) for file in own])
                yield FoundLog(f"{folder}/{name}" if folder else name, *whole[1:4])
        yield from files.values()


def leaving_out(
    found: Iterable[FoundLog], patterns: Sequence[str], base: str | None = None
) -> Iterator[FoundLog]:
    """Remove the files that match any pattern, and logs without other files.

    Args:
        patterns: URIs and globs; relative ones are resolved against `base`; those that begin with `**/` match
            anywhere.
    """
    if not patterns:
        yield from found
        return
    folder = absolute_uri(base) if base else ""
    absolute = [
        one
        if one.startswith("**/")
        else as_glob(uri := absolute_uri(one, base), folder, is_local=is_local(uri))
        for one in patterns
    ]
    matches = glob_matcher(absolute)
    for item in found:
        kept = [i for i, uri in enumerate(item.uris) if not matches(uri)]
        uris = tuple(item.uris[i] for i in kept)
        if len(kept) == len(item.uris):
            yield item
        elif kept:
            stamps = tuple(item.stamps[i] for i in kept)
            yield FoundLog(item.uri, uris, stamps, tuple(one for one in item.given if shown(one) in uris))


# --- files ----------------------------------------------------------------------------------------------


def find_all(
    uris: Sequence[str], base: str | None, options: Mapping[str, Any] | None, folders: Folders | None = None
) -> list[Iterable[FoundLog] | str]:
    """Find the matches of each URI or glob, or why it has none; each can be iterated once.

    Raises:
        StorageError: a disk or a store failed.
    """
    there = folders or Folders()
    absolute = [absolute_uri(uri, base) for uri in uris]

    def find(given: str, uri: str) -> Iterable[FoundLog] | str:
        if not given:  # an unset variable must not mean the working folder
            return Missing("'' names no log: give a file, folder, URI or glob ('.' for this folder)")
        try:
            return _find(uri, base, options, there)
        except _NotFoundError as error:
            return Missing(shown(f"{given}: {error}"))
        except Exception as error:  # every object store has its own errors
            if (fault := fault_of(f"{given}: {uri}" if uri != given else uri, error)) is not None:
                raise fault from error
            if isinstance(error, LogloomError):
                return str(error)
            return shown(f"{given}: can't be listed ({uri}): {type(error).__name__}: {error}")

    pairs = list(zip(uris, absolute, strict=True))
    return in_threads(lambda pair: find(*pair), pairs, waiting_threads(absolute))


def _find(
    uri: str, base: str | None, options: Mapping[str, Any] | None, there: Folders
) -> Iterable[FoundLog]:
    fs, path = filesystem(uri, options)
    fs.invalidate_cache()  # logs may be new or changed since this process listed them
    folder = filesystem(base, options)[1] if base else ""
    glob = as_glob(path, folder, is_local=is_local(uri))
    names, below = there.matching(fs, glob) if MAGIC.search(glob) else ([], [])
    folders = set(below)
    if not (names or folders):
        kind = there.kind_of(fs, path)
        if kind is None:
            place = f" ({uri})" if uri != path else ""
            if MAGIC.search(glob):
                raise _NotFoundError(f"matches nothing{place}; check the path")
            raise _NotFoundError(f"{missing_words(Store.at(uri, options)) or 'nothing is there'}{place}")
        if kind == "file" and path.endswith((".yaml", ".yml")) and not is_metadata(path):
            raise _NotFoundError("is a recipe, no log; give the logs that it names, or `logloom plan` it")
        names, folders = ([], {path.rstrip("/")}) if kind == "directory" else ([path], set())
    parents = {parent_of(name) for name in names if is_bag_file(name)}
    bags = there.bags(fs, folders | parents, waiting_threads([uri]))
    for folder in sorted(folders - bags.keys()):
        files = there.log_in(fs, folder)
        bags |= {folder: files} if files else {}
    if folders and not names and not bags.keys() & folders:
        if any(there.is_root(fs, folder) for folder in folders):
            raise _NotFoundError("is a dataset, no log; give logs; `logloom head` shows a dataset's rows")
        names, bags = _inside(fs, sorted(folders), there)
        if not (names or bags):
            raise _NotFoundError(_no_log_words(folders))

    as_uri = _uri_of(uri)

    def found_bag(name: str, files: Iterable[str]) -> FoundLog:
        return FoundLog.of(as_uri(name), {as_uri(file): there.stamp(fs, file) for file in files})

    def found_file(name: str) -> FoundLog:
        own, stamp = as_uri(name), there.stamp(fs, name)
        return FoundLog(own, (own,), (stamp,)) if shown(own) == own else FoundLog.of(own, {own: stamp})

    single = [
        name
        for name in names
        if not (bags and is_bag_file(name) and parent_of(name) in bags) and not is_metadata(name)
    ]
    if not (bags or single):
        raise _NotFoundError(f"matches no log ({uri})")
    return itertools.chain(itertools.starmap(found_bag, bags.items()), map(found_file, single))


def _inside(fs: Any, folders: Sequence[str], there: Folders) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Return the logs directly in folders that are none themselves: files, and bags with their files."""
    names: list[str] = []
    bags: dict[str, tuple[str, ...]] = {}
    for folder in folders:
        files, below = there.logs_in(fs, folder)
        own = there.bags(fs, {*below, folder} if files else below, _THREADS)
        own |= {one: log for one in below if one not in own and (log := there.log_in(fs, one))}
        if files or own:
            there.pass_over(fs, folder, {*files, *own})
        names += files
        bags |= own
    return names, bags


def _no_log_words(folders: Collection[str]) -> str:
    known = [f"{kind.name} ({', '.join(kind.suffixes)})" for kind in kinds()]
    where = "this folder" if len(folders) == 1 else "one of these folders"
    return (
        f"no installed part reads a log that is {where}, nor one that is in it; there are "
        f"{', '.join(known) or 'none'}. Name the files below it, as in 'folder/**/*.mcap'"
        f"{parts.broken_note('logs')}"
    )


def is_split(uris: Iterable[str]) -> bool:
    """Return whether files are one recording by their names."""
    return len(list(with_splits(FoundLog.of(uri, {uri: ""}) for uri in uris))) == 1


def naming_uri(uris: Sequence[str], options: Mapping[str, Any] | None = None) -> str:
    """Return the URI that names the log of files: the only one, their folder if that is a ROS 2 bag, or the
    whole if they are one recording by their names.
    """
    whole, *others = with_splits(FoundLog.of(uri, {uri: ""}) for uri in uris)
    if len(uris) > 1 and not others:
        return whole.uri
    uri = uris[0]
    fs, path = filesystem(uri, options)
    folder = parent_of(path)
    return _uri_of(uri)(folder) if is_bag_file(path) and Folders().bags(fs, [folder], 1) else uri


def _uri_of(like: str) -> Callable[[str], str]:
    """Return a function from paths in the file system of `like` to absolute URIs."""
    return (lambda path: path) if is_local(like) else functools.partial(uri_in, like)
