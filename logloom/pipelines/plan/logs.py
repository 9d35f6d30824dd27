"""The logs of a plan: unchanged, opened by the driver, or opened by workers.

Here: `PlanLogs`. If many have to be opened, it opens a deterministic sample.
Elsewhere: the cache of logs (logloom.io.logs.log_cache), planning (logloom.pipelines.plan.plan).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from logloom.errors import OF_CONTENT, LogloomError, LogReadError, UsageError
from logloom.io.catalog.log_tables import with_labels
from logloom.io.catalog.tombstones import Purged
from logloom.io.logs.duplicates import whole_digest
from logloom.io.logs.files.ranges import HASHES, MIB
from logloom.io.logs.files.sidecars import Sidecars
from logloom.io.logs.folders import Folders
from logloom.io.logs.interface import unfinished_words
from logloom.io.logs.log_cache import CONTENT_LENGTH, Memory, RememberedLog
from logloom.io.logs.log_list import (
    SAMPLE,
    LogFiles,
    LogList,
    list_failures,
    print_of,
    spread_evenly,
)
from logloom.io.logs.match import NOT, access_to, check_files, has_settled, size_of_files, waiting_threads
from logloom.io.logs.messages import point_clouds
from logloom.io.logs.opening import open_log, with_passes
from logloom.io.logs.outline import Outline, outlines
from logloom.io.rows.log_ranges import Ints
from logloom.io.storage.filesystems import absolute_uri
from logloom.io.storage.store import Store
from logloom.io.storage.threads import ahead
from logloom.pipelines.plan.next_version import Before
from logloom.pipelines.plan.vanished_labels import label_types_before, settle_vanished_labels
from logloom.recipe import LogTable, Recipe
from logloom.recipe.labels import RecipeLabels
from logloom.recipe.logs import (
    check_listed_splits,
    expand_logs,
    open_options,
    split_of,
    unused_tables,
    with_listed_names,
)
from logloom.schema import ColumnType
from logloom.text import counted
from logloom.transforms.rows.accounts import check_clock
from logloom.transforms.rows.derive.columns import NOT_OF_THE_LOG
from logloom.transforms.rows.notices import Notice, notes_of
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.rows.plan.row_plan import RowPlan
from logloom.transforms.rows.plan.topics import Alike, named_topics
from logloom.uris import shown

if TYPE_CHECKING:
    from logloom.pipelines.plan.duplicates import Duplicate

OnOpened = Callable[[int, int], None]
_READ = 2 * MIB  # of a file for its content id, which includes all of a small one
_WHOLES = "duplicates"  # the file of a root's index folder
_SETTLING = 64  # threads that request when files changed


class State(enum.IntEnum):
    """State of a log in a plan."""

    NEW = 0  # nothing yet
    REMEMBERED = 1  # its files are unchanged since a build opened them
    OPENED = 2
    LEFT = 3  # workers open it first
    FAILED = 4  # it can't be read
    DUPLICATE = 5  # it is left out, as another one has its content


class PlanLogs(Mapping[str, Outline]):
    """The logs of a recipe: opened ones by log_id (cached ones are opened on access), others as columns.

    Attributes:
        recipe: that it is, with the names in lists of `split` as this version takes them.
        files: of all logs.
        opened: logs by log_id.
        samples: of the opened, cached ones that were opened to check the recipe.
        failed: unreadable logs, and why.
        sources: absolute URIs and globs of `logs`, or its table, without credentials.
        shortened: log_ids of truncated logs, and how; they aren't built, to keep their rows. "" for later
            passes.
        unsettled: log_ids of logs that wait for a later build, as their files changed recently; without later
            passes.
        tombstones: of the root.
        options: for opening them.
        labels: of them.
        labels_gone: by column the logs built without their labels of the latest version.
        labels_kept: by column the logs that keep vanished labels.
        duplicates: those with the content of another log, by log_id; some are kept from the latest version.
    """

    def __init__(
        self,
        recipe: Recipe,
        store: Store,
        base: str | None = None,
        limit: int | None = None,
        sample: int | None = SAMPLE,
        on_opened: OnOpened = lambda done, total: None,
        before: Before | None = None,
    ):
        """List the logs, without opening any.

        Args:
            base: the folder that relative URIs are resolved against.
            limit: only the first logs, for a trial.
            sample: number of logs to open at a time if not all are needed; None opens all.
            on_opened: called with the number of opened logs, and of all.
            before: the latest version; logs that it leaves out are removed.

        Raises:
            RecipeError: `logs`, `log_id` or a table of labels are wrong.
            InputError: labels vanished, see `settle_vanished_labels`.
        """
        before = before or Before(None)
        self.recipe, self._on_opened, self._limit, self._sample = recipe, on_opened, limit, sample
        self._topics = named_topics(recipe)
        uris = [recipe.logs.table] if isinstance(recipe.logs, LogTable) else recipe.logs
        self.sources = tuple(shown(absolute_uri(uri, base)) for uri in uris if not uri.startswith(NOT))
        self.tombstones = Purged(store)
        sidecars = Sidecars.of(store)
        # A content id of all bytes is needed if the ends of a file, and so its listing, aren't enough.
        self._reads_all = recipe.hash == "full"
        # The number of a log's passes is known only after opening it, so listings aren't enough then, either.
        self._splits = recipe.time.set_back == "split"
        # A cache from before some time was erased, as in a restored copy, is invalid.
        by = open_options(recipe, {}, redactions=self.tombstones.redactions).known_by
        nothing = Memory.of(by, self._topics) if self._reads_all or self._splits else None
        self._before = nothing or Memory.load(sidecars, by, self._topics)
        folders = Folders(self._before.bags)
        found = expand_logs(recipe, base, store.options, folders)
        self.recipe = recipe = _with_splits(recipe, found, before)
        self._known_bags, self._folder_notes = folders.known_bags, folders.notes
        access = access_to(store.options, found)
        self.unsettled = set[str]()
        self.shortened: dict[str, str] = {}
        self._waiting: dict[str, Outline] = {}  # to check the recipe if all logs wait
        self._found, self._outline = found, outlines()
        self.options = open_options(recipe, access, sidecars.uri, self.tombstones.redactions)
        self.files = self._to_build(before.left_out, folders.now_ns, access)
        self._rows = self._before.recall(self.files)
        self._states = np.where(self._rows >= 0, State.REMEMBERED, State.NEW).astype(np.int8)
        self.opened: dict[str, Outline] = {}
        self.samples: list[str] = []
        self.failed: list[tuple[LogFiles, str]] = []
        self.duplicates: Mapping[str, Duplicate] = {}
        self._left_out: dict[str, Outline] = {}  # duplicates that were opened
        self._wholes, self.wholes = sidecars.load(_WHOLES) or {}, dict[str, str]()  # see `whole_digest`
        self._known, labelled = before.schema, label_types_before(recipe, before)
        self.labels = RecipeLabels(recipe, base, store.options, self.options.redactions, labelled)
        self._settle_labels(store, before, labelled)

    def _settle_labels(self, store: Store, before: Before, types: Mapping[str, ColumnType]) -> None:
        """Add digests of labels to the logs; treat vanished labels as the recipe defines."""
        self.labels_gone: dict[str, tuple[str, ...]] = {}
        self.labels_kept: dict[str, tuple[str, ...]] = {}
        self._vanished_notes: list[str] = []
        if not self.labels.types:
            return
        self.labels_gone, self.labels_kept, self._vanished_notes = settle_vanished_labels(
            self.recipe, self.labels, before, store, self.files.ids, self.tombstones.parts, types
        )
        listed = zip(self.files.ids.to_pylist(), self.files.column("catalogue").to_pylist(), strict=True)
        self.files = self.files.with_catalogue(
            [
                with_labels(catalogue, self.labels.digests_of(log_id), self.labels.files_of(log_id))
                for log_id, catalogue in listed
            ]
        )

    def _to_build(self, left_out: Collection[str], now_ns: int, access: Mapping[str, Any]) -> LogList:
        """Return the logs to build; record those that may still be written."""
        found = _without(self._found, left_out)
        if self.recipe.settle is not None:
            self.unsettled = _changing(found, now_ns - self.recipe.settle, access)
            found = _without(found, self.unsettled)
        found = found if self._limit is None else found.take(np.arange(len(found))[: self._limit])
        return with_passes(found, self.options) if self._splits else found

    def hold_to_waiting(self, before: Before) -> None:
        """If all logs wait or were dropped, open some waiting ones to check the recipe.

        Nothing is made of these: only their current topics matter.

        Args:
            before: the latest version, whose rows are kept.

        Raises:
            UsageError: it has none of those that wait, or none of them can be read yet.
        """
        listed = len(self._found)
        if len(self.files) or not listed:
            return
        names = sorted(self.unsettled)
        known = self._found.rows_of(before.having([*names, *self.shortened]))
        known = known[known >= 0]  # without later passes
        found = {log.log_id: self.open_one(log) for log in self._found.at(spread_evenly(known, SAMPLE))}
        self._waiting = {name: log for name, log in found.items() if not isinstance(log, str)}
        if self._waiting:
            return
        waits = f"{len(names)} may still be written, by the recipe's `settle`: build again later"
        cut = list(filter(None, self.shortened.values()))
        num_dropped = listed - len(names) - len(cut)
        dropped = f"{num_dropped} left the dataset by `logloom drop`"
        reasons = [waits] * bool(names) + cut + [dropped] * (num_dropped > 0)
        raise UsageError(f"none of {counted(listed, 'log')} is to be built: {'; '.join(reasons)}")

    def set_aside(self, log_ids: Sequence[str], why: str) -> None:
        """Keep the latest version's records of a log and its passes, as it was truncated."""
        self.shortened |= dict.fromkeys(log_ids, "") | {log_ids[0]: why}
        stay = np.setdiff1d(np.arange(len(self.files)), self.files.rows_of(log_ids))
        self.files, self._rows, self._states = self.files.take(stay), self._rows[stay], self._states[stay]

    def having(self, log_ids: Sequence[str]) -> list[str]:
        """Return those of these logs that exist."""
        rows = self.files.rows_of(log_ids).tolist()
        return [log_id for log_id, row in zip(log_ids, rows, strict=True) if row >= 0]

    def __getitem__(self, log_id: str) -> Outline:
        if log_id not in self.opened:
            rows = self.files.rows_of([log_id])
            if rows[0] >= 0 and self._states[rows[0]] == State.FAILED:
                raise LogReadError(next(why for log, why in self.failed if log.log_id == log_id))
            if rows[0] < 0 or self._states[rows[0]] != State.REMEMBERED:
                raise KeyError(log_id)
            self.open(rows)
            if log_id not in self.opened:
                raise LogReadError(self.failed[-1][1])
            self.samples.append(log_id)
        return self.opened[log_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.opened)

    def __len__(self) -> int:
        return len(self.opened)

    def __contains__(self, log_id: object) -> bool:
        return log_id in self.opened  # without opening it

    def rows(self, *states: State) -> Ints:
        """Return positions of the logs in some state, ascending."""
        return np.flatnonzero(np.isin(self._states, states))

    def are_remembered(self, rows: Ints) -> NDArray[np.bool_]:
        """Mask of cached logs among those at some positions."""
        are: NDArray[np.bool_] = self._states[rows] == State.REMEMBERED
        return are

    def may_have_changed(self, rows: Ints) -> NDArray[np.bool_]:
        """Mask of logs at some positions whose middle may have changed since a build opened them."""
        if self._reads_all:  # their content ids show it
            return np.zeros(len(rows), bool)
        sizes = self.files.sizes(rows)
        may = np.isin(self._states[rows], (State.OPENED, State.LEFT)) & ((sizes < 0) | (sizes > _READ))
        unchanged: NDArray[np.bool_] = np.isin(rows, self.files.rows_of(self.samples))
        return may & ~unchanged

    @property
    def num_left(self) -> int:
        return int(np.count_nonzero(self._states == State.LEFT))

    def purged(self, before: Before) -> set[str]:
        """Return the logs that were erased from the root, and must not be built again with the same content.

        Args:
            before: the latest version, whose logs are removed if they were erased from it and aren't found.
        """
        if not len(self.tombstones):
            return set()
        rows = self.rows(State.REMEMBERED)
        files = self.files
        like = self.tombstones.are_like(files.ids.take(rows), self.contents(rows), files.sizes(rows))
        compared = np.concatenate([rows[like], self.rows(State.OPENED)])
        there = {log.log_id for row, log in self.at(compared) if self._is_purged(row, log)}
        named = self.tombstones.has_named
        lost = [log_id for log_id in before.missing_from(self.files.ids) if named(log_id)]
        return there | {
            record.log_id for record in before.records(lost) if record.part in self.tombstones.parts
        }

    def _is_purged(self, row: int, log: LogFiles) -> bool:
        """Return whether a log has erased content, by any `hash` recorded for it."""
        content, uris = self.content_of(row, log)
        if self.tombstones.has(content) or not self.tombstones.resembles(log.log_id, self._size_of(log)):
            return self.tombstones.has(content)
        others = (replace(self.options, hash=name) for name in HASHES if name != self.options.hash)
        return any(self.tombstones.has(open_log(uris, one, log.log_id).summary.content_id) for one in others)

    def pattern_notes(self) -> list[str]:
        """See `Folders.notes` and `unused_tables`."""
        return [*self._folder_notes, *unused_tables(self.recipe, self._found)]

    def label_notes(self, staying: Collection[str]) -> Iterator[Notice]:
        """Return notes on vanished labels; and see `RecipeLabels.notes`."""
        yield from notes_of("labels", self._vanished_notes)
        if self.labels.types:
            for column, text in self.labels.notes(self.files.ids.to_pylist(), staying):
                yield Notice(text, kind="labels", column=column)

    def _size_of(self, log: LogFiles) -> int | None:
        """Return the bytes of a log's files; None if unknown."""
        if not self.tombstones.knows_sizes or log.size is not None:
            return log.size
        return size_of_files(log.uris, self.options.storage_options)

    def sizes(self, rows: Ints) -> Ints:
        """(M,) bytes of the files of logs at some positions; -1 if unknown."""
        sizes = self.files.sizes(rows)
        unknown = np.flatnonzero(sizes < 0)
        access = self.options.storage_options
        asked = ahead(lambda log: size_of_files(log.recordings, access), self.files.at(rows[unknown]))
        sizes[unknown] = [-1 if size is None else size for size in asked]
        return sizes

    def whole_digest(self, log: LogFiles, size: int) -> str | None:
        """Digest all bytes of a log whose content id another one has; None if it can't be read.

        "" if the content id covers all bytes. Digests are cached as long as listings show no change.
        """
        if self.is_whole_content(size):
            return ""
        name = print_of(log)
        known = self._wholes.get(name) if name else None
        if not isinstance(known, str):
            known = whole_digest(log, self.options.storage_options)
        if name and known:
            self.wholes[name] = known
        return known

    def is_whole_content(self, size: int) -> bool:
        """Return whether a content id covers all bytes of a log of this size; -1 if unknown."""
        return self._reads_all or 0 <= size <= _READ

    def own_split(self, log: LogFiles, uris: Sequence[str]) -> str:
        """Return the split of a log by its own name, or by tables."""
        return split_of(self.recipe, log.log_id, uris, log.split, log.catalogue)

    def split_of(self, log: LogFiles, uris: Sequence[str]) -> str:
        """Return the split of a log; for a duplicate that of the log with its content."""
        duplicate = self.duplicates.get(log.log_id)
        return self.own_split(log, uris) if duplicate is None else duplicate.split

    def set_duplicates(self, found: Iterable[Duplicate]) -> None:
        """Record duplicates, and leave some of them out."""
        self.duplicates = {one.log_id: one for one in found}
        rows = self.files.rows_of([one.log_id for one in self.duplicates.values() if one.is_left_out])
        rows = rows[rows >= 0]  # without those of which only rows are left
        if not len(rows):
            return
        if not np.isin(self.rows(State.OPENED, State.LEFT, State.REMEMBERED), rows, invert=True).any():
            self.open(rows[:1])  # to check the recipe if only rows of missing logs are kept
        self._states[rows] = State.DUPLICATE
        names = self.files.ids.take(rows).to_pylist()
        self._left_out = {name: self.opened.pop(name) for name in names if name in self.opened}

    def is_listed(self, log_id: str) -> bool:
        """Return whether a log of this name is found, and not left out."""
        row = self.files.rows_of([log_id])[0]
        return bool(row >= 0 and self._states[row] not in (State.DUPLICATE, State.FAILED))

    def open_some(self, rows: Ints) -> None:
        """Open logs to build; of many a sample, spread evenly over their names.

        Raises:
            LogReadError: see `open`.
        """
        chosen = spread_evenly(rows, self._sample)
        if len(self.tombstones):
            # The content shows whether a purged one is back under any name.
            may_have = self.tombstones.may_have
            same = [row for row, log in self.at(rows) if may_have(log.log_id, self._size_of(log))]
            chosen = np.union1d(chosen, np.array(same, np.int64))
        self._states[rows] = State.LEFT
        self.open(chosen)

    def open(self, rows: Ints) -> None:
        """Open logs, replacing what is cached of them.

        Raises:
            LogReadError: logs can't be read (under `on_error: fail`, or none can); lists all of them.
        """
        files = list(self.files.at(rows))
        threads = waiting_threads(uri for log in files for uri in log.uris)
        results = ahead(self.open_one, files, threads, at_once=len(files))
        for done, (row, log, result) in enumerate(zip(rows, files, results, strict=True), 1):
            self._rows[row] = -1
            self._states[row] = State.FAILED if isinstance(result, str) else State.OPENED
            if isinstance(result, str):
                self.failed.append((log, result))
            else:
                self.opened[log.log_id] = result
            self._on_opened(done, len(files))
        self._check_failed()

    def leave_out(self, row: int, log: LogFiles, why: str) -> None:
        """Leave out a log that was to be built, like an unreadable one.

        Raises:
            LogReadError: see `open`.
        """
        self._states[row] = State.FAILED
        self.opened.pop(log.log_id, None)
        self.failed.append((log, why))
        self._check_failed()

    def _check_failed(self) -> None:
        if self.failed and (self.options.on_error == "fail" or np.all(self._states == State.FAILED)):
            raise LogReadError(list_failures((why for _, why in self.failed), len(self.files)))

    def open_one(self, log: LogFiles) -> Outline | str:
        """Return a log, or why it can't be read."""
        try:
            opened = self._outline(open_log(log.uris, self.options, log.log_id))
            check_files(log, lambda uris: open_log(uris, self.options))
            check_clock(opened.summary)
        except LogReadError as error:
            return str(error)
        except (LogloomError, *NOT_OF_THE_LOG):
            raise
        except Exception as error:  # any other error of a library for a log
            return f"{log.uris[0]}: {type(error).__name__}: {error}"
        return opened

    def resolve(self, allow_derive: Sequence[str]) -> tuple[RowPlan, tuple[Notice, ...]]:
        """Resolve the recipe for all the logs; see `logloom.transforms.rows.plan.resolve`.

        More of those left to workers are opened as long as the others lack information for the plan.
        """
        while self.num_left:
            try:
                plan, notes = self._resolve(allow_derive)
                if not any(point_clouds.needs_message(column.spec) for column in plan.columns):
                    return plan, notes
            except OF_CONTENT:
                if (self.opened or self.num_remembered) and not self._topics - self._seen():
                    raise
            self.open(spread_evenly(self.rows(State.LEFT), max(self._sample or 1, len(self.opened))))
        return self._resolve(allow_derive)

    @property
    def num_remembered(self) -> int:
        return int(np.count_nonzero(self._states == State.REMEMBERED))

    def _seen(self) -> set[str]:
        """Return the topics of an opened or cached log."""
        known = [alike.topics.keys() for alike in self._alike()]
        return set().union(*known, *(log.summary.topics.keys() for log in self.opened.values()))

    def _alike(self) -> list[Alike]:
        """Group the cached logs with equal definitions of topics."""
        rows = self.rows(State.REMEMBERED)
        kinds = self._before.kinds[self._rows[rows]]
        return [
            Alike(self._before.profiles[kind], self.files.ids.take(rows[kinds == kind]))
            for kind in np.unique(kinds).tolist()
        ]

    def _resolve(self, allow_derive: Sequence[str]) -> tuple[RowPlan, tuple[Notice, ...]]:
        """Resolve the recipe for the opened and cached logs.

        The first cached log with each definition of a topic is opened. Mistakes refer to current contents.
        """
        while self.num_remembered:
            failed = len(self.failed)
            try:
                return resolve(self.recipe, self, allow_derive, self._alike(), self.labels.types, self._known)
            except OF_CONTENT:
                # Without those that turned out to be unreadable, if these may be skipped.
                self.open(self.rows(State.REMEMBERED) if len(self.failed) == failed else self.rows())
        logs = self or self._left_out or self._waiting
        return resolve(self.recipe, logs, allow_derive, labels=self.labels.types, known=self._known)

    def at(self, rows: Ints) -> Iterator[tuple[int, LogFiles]]:
        """Logs with their positions."""
        return zip(rows.tolist(), self.files.at(rows), strict=True)

    def content_of(self, row: int, log: LogFiles) -> tuple[str, tuple[str, ...]]:
        """Return the content id of the log at a position, and its URIs in the order in which they are
        joined.
        """
        if log.log_id in self.opened:
            summary = self.opened[log.log_id].summary
            return summary.content_id, summary.uris
        remembered = self._before.log(int(self._rows[row]), log)
        return remembered.content_id, remembered.uris

    def contents(self, rows: Ints) -> pa.Array:
        """Return content ids of cached logs."""
        text = self._before.contents[self._rows[rows]].tobytes().hex().encode()
        ends = np.arange(len(rows) + 1, dtype=np.int64) * CONTENT_LENGTH
        held = pa.LargeStringArray.from_buffers(len(rows), pa.py_buffer(ends), pa.py_buffer(text))
        return held.cast(pa.string())

    def unfinished(self) -> Iterator[str]:
        """List files that their recorder hasn't closed, so that a later build may find more in them."""
        known = {log_id: outline.summary.unfinished for log_id, outline in self.opened.items()}
        open_ends = np.fromiter(self._before.unfinished, np.int64, len(self._before.unfinished))
        rows = np.flatnonzero(np.isin(self._rows, open_ends) & (self._states == State.REMEMBERED))
        for row, log in self.at(rows):
            known[log.log_id] = self._before.unfinished[int(self._rows[row])]
        for _, files in sorted(known.items()):
            for uri, why in sorted(files.items()):
                yield f"{uri}: {unfinished_words(why)}; its current content is built"

    @property
    def remembers(self) -> bool:
        """Whether the next plan may use a cache of the logs that this build opens."""
        return not (self._reads_all or self._splits) and self._limit is None

    def bytes_to_compare(self, rows: Ints) -> int:
        """Return the bytes to read for content ids, as far as listings show; 0 for ends of files."""
        return int(self.files.sizes(rows).clip(0).sum()) if self._reads_all else 0

    def memory(self) -> Memory | None:
        """Return the cache for the next plan; None if it is unchanged."""
        if not self.remembers:
            return None
        shared: dict[Any, Any] = {}
        known = []
        opened = {**self.opened, **self._left_out}
        for log in self.files.at(np.sort(self.files.rows_of(opened))):
            summary = opened[log.log_id].summary
            one = RememberedLog.of(log.uris, summary, self._topics, shared)
            known += [(listed, one)] if one is not None and (listed := print_of(log)) else []
        memory = self._before.take(self._rows[self._rows >= 0], self._known_bags)
        if known:
            memory = memory.with_more([Memory.of(self.options.known_by, self._topics, known)])
        return None if memory.is_same(self._before) else memory


def _with_splits(recipe: Recipe, found: LogList, before: Before) -> Recipe:
    """Check the lists of `split`, and return the recipe with what their names are in this version.

    Names that the latest version's recipe lists had a log once, which may have vanished.
    """
    names = [] if recipe.split is None else [log for logs in recipe.split.listed.values() for log in logs]
    parts = (before.recipe.get("split") or {}).values()
    had = {*before.having(names)}
    listed = {log for part in parts if isinstance(part, list) for log in part}
    check_listed_splits(recipe, found, had | listed)
    return with_listed_names(recipe, found, had, listed)


def _without(found: LogList, log_ids: Collection[str]) -> LogList:
    """Return the logs without some."""
    if not log_ids:
        return found
    leaving = found.rows_of(log_ids)
    return found.take(np.setdiff1d(np.arange(len(found)), leaving))


def _changing(found: LogList, before_ns: int, access: Mapping[str, Any]) -> set[str]:
    """Return the logs that may still be written, as files of them changed after some time."""
    settled = ahead(lambda log: (log.log_id, has_settled(log, before_ns, access)), found, threads=_SETTLING)
    return {log_id for log_id, is_settled in settled if not is_settled}


def save_memory(memory: Memory | None, wholes: Mapping[str, str], store: Store) -> None:
    """Save the cache for the next plan; a read-only root has its logs opened again.

    Args:
        wholes: digests of logs of equal content id, see `PlanLogs.whole_digest`; without any, existing ones
            are kept.
    """
    try:
        if memory is not None:
            memory.save(Sidecars.of(store))
        if wholes and Sidecars.of(store).load(_WHOLES) != wholes:
            Sidecars.of(store).save(_WHOLES, dict(sorted(wholes.items())))
    except (LogloomError, OSError):
        return
