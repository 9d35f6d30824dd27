"""The logs of a plan: which a listing shows unchanged, which have to be opened, and which workers open.

Here: `PlanLogs`. Where many have to be opened, it opens a sample, the same of the same logs each time.
Elsewhere: what is remembered of logs (logloom.io.logs.remembered), what a plan makes of them
(logloom.pipelines.plan).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from logloom.errors import LogloomError, LogReadError, UsageError
from logloom.io.filesystems import absolute_uri
from logloom.io.logs.base import OpenOptions, unfinished_words
from logloom.io.logs.decoding import clouds
from logloom.io.logs.folders import Folders
from logloom.io.logs.match import (
    LogFiles,
    access_to,
    check_files,
    has_settled,
    size_of_files,
    waiting_threads,
)
from logloom.io.logs.opening import open_log
from logloom.io.logs.outline import Outline, outlines
from logloom.io.logs.ranges import HASHES
from logloom.io.logs.remembered import Memory, RememberedLog, print_of
from logloom.io.logs.sidecar import Sidecars
from logloom.io.purged import Purged
from logloom.io.storage import Store
from logloom.pipelines.versions import Before
from logloom.recipe import LogTable, Recipe
from logloom.recipe.logs import expand_logs
from logloom.transforms.columns import RowPlan
from logloom.transforms.resolve import named_topics, resolve
from logloom.uris import shown
from logloom.words import counted

OnOpened = Callable[[int, int], None]
_SHOWN = 20  # names of logs that a plan tells of
SAMPLE = 64  # logs that the driver opens to hold a recipe to, where there are more to build


class PlanLogs(Mapping[str, Outline]):
    """The logs that a recipe finds, by log_id. Asking for one that is only remembered opens it.

    Attributes:
        files: of all logs.
        remembered: logs that were not opened: their files are listed as they were when a build opened them.
        opened: those that were.
        left: those that workers are to open first, and what is remembered of them.
        samples: of the opened, remembered ones that were opened to hold the recipe to.
        failed: logs that can't be read, and why.
        sources: absolute URIs and globs that `logs` names, or its table, without credentials.
        unsettled: log_ids of logs whose files changed lately, so that they wait for a later build.
        options: by which they are opened.
    """

    def __init__(
        self,
        recipe: Recipe,
        store: Store,
        base: str | None = None,
        limit: int | None = None,
        sample: int | None = SAMPLE,
        on_opened: OnOpened = lambda done, total: None,
        left_out: Container[str] = (),
    ):
        """Lists the logs, and opens none.

        Args:
            base: the folder that relative URIs start from.
            limit: only the first logs, for a trial.
            sample: how many logs are opened at a time where not all need be; None opens all.
            on_opened: called with how many logs have been opened, of how many.
            left_out: log_ids of logs that are none of these, though the recipe finds them.

        Raises:
            RecipeError: `logs` or `log_id` are wrong.
            UsageError: all logs are left out, or may still be written.
        """
        self._recipe, self._on_opened, self._limit, self._sample = recipe, on_opened, limit, sample
        self._topics = named_topics(recipe)
        said = [recipe.logs.table] if isinstance(recipe.logs, LogTable) else recipe.logs
        self.sources = tuple(shown(absolute_uri(uri, base)) for uri in said)
        self._purged = Purged(store)
        sidecars = Sidecars(store.uri_of("index"), store.options)
        # A content id of all bytes is asked for where the ends of a file, and so its listing, aren't enough.
        self._reads_all = recipe.hash == "full"
        empty = Memory.of(recipe.hash, self._topics)
        self._before = empty if self._reads_all else Memory.load(sidecars, recipe.hash, self._topics)
        self._folders = Folders(self._before.bags)
        all_found = expand_logs(recipe, base, store.options, self._folders)
        found = [log for log in all_found if log.log_id not in left_out]
        access = access_to(store.options, found)
        self.unsettled = set() if recipe.settle is None else self._changing(found, recipe.settle, access)
        found = [log for log in found if log.log_id not in self.unsettled][:limit]
        if all_found and not found:
            raise UsageError(
                f"none of {counted(len(all_found), 'log')} is to be built: {len(self.unsettled)} may still "
                "be written, by the recipe's `settle`, and somebody dropped the others"
            )
        self.files = {log.log_id: log for log in found}
        self.remembered = self._before.recall(found)
        self.opened: dict[str, Outline] = {}
        self.left: dict[str, RememberedLog | None] = {}
        self.samples: list[str] = []
        self.failed: list[tuple[LogFiles, str]] = []
        self.options = OpenOptions(
            recipe.on_error_mode,
            access,
            sidecars.uri,
            hash=recipe.hash,
            redactions=self._purged.redactions,
        )
        self._outline = outlines()

    def _changing(self, found: Sequence[LogFiles], settle_ns: int, access: Mapping[str, Any]) -> set[str]:
        """The logs that may still be written, as files of them changed within so many ns."""
        before = self._folders.now_ns - settle_ns
        with ThreadPoolExecutor(waiting_threads(uri for log in found for uri in log.uris)) as pool:
            settled = list(pool.map(lambda log: has_settled(log, before, access), found))
        return {log.log_id for log, is_settled in zip(found, settled, strict=True) if not is_settled}

    def __getitem__(self, log_id: str) -> Outline:
        if log_id in self.remembered:
            self.open([log_id])
            if log_id not in self.opened:
                raise LogReadError(self.failed[-1][1])
            self.samples.append(log_id)
        return self.opened[log_id]

    def __iter__(self) -> Iterator[str]:
        return iter([*self.opened, *self.remembered])

    def __len__(self) -> int:
        return len(self.opened) + len(self.remembered)

    @property
    def new(self) -> list[str]:
        """The logs of which nothing is known yet."""
        failed = {log.log_id for log, _ in self.failed}
        known = self.opened.keys() | self.remembered.keys() | self.left.keys() | failed
        return [log_id for log_id in self.files if log_id not in known]

    def __contains__(self, log_id: object) -> bool:
        return log_id in self.opened or log_id in self.remembered

    def purged(self, before: Before) -> set[str]:
        """The logs that were erased from the root, and must not come back with the content that they had.

        Args:
            before: the newest version, whose logs leave if they were erased from it and aren't found.
        """
        if not len(self._purged):
            return set()
        there = {log_id for log_id in self if self._is_purged(log_id)}
        named = self._purged.has_named
        lost = [log_id for log_id in before.known if log_id not in self.files and named(log_id)]
        return there | {record.log_id for record in before.records(lost) if record.part in self._purged.parts}

    def _is_purged(self, log_id: str) -> bool:
        """Whether a log has a content that was erased, by whichever `hash` that was known."""
        content, uris = self.content_of(log_id)
        if self._purged.has(content) or not self._purged.resembles(log_id, self._size_of(log_id)):
            return self._purged.has(content)
        others = (replace(self.options, hash=name) for name in HASHES if name != self.options.hash)
        return any(self._purged.has(open_log(uris, one, log_id).summary.content_id) for one in others)

    def purged_notes(self, log_ids: Collection[str]) -> Iterator[str]:
        """Says which logs are left out since they were purged."""
        for log_id in sorted(log_ids)[:_SHOWN]:
            named = self._purged.has_named(log_id)
            why = "it was purged" if named else "it has the content of a log that was purged"
            yield f"{log_id}: left out, since {why}"
        if len(log_ids) > _SHOWN:
            yield f"{len(log_ids):,} logs left out, since they were purged; the first {_SHOWN} are named"

    def _may_be_purged(self, log_id: str) -> bool:
        """Whether only its content can tell whether a log was erased."""
        return self._purged.may_have(log_id, self._size_of(log_id))

    def _size_of(self, log_id: str) -> int | None:
        """Bytes of a log's files; None where nobody can tell."""
        files = self.files[log_id]
        if not self._purged.knows_sizes or files.size is not None:
            return files.size
        return size_of_files(files.uris, self.options.storage_options)

    def open_some(self, log_ids: Sequence[str]) -> None:
        """Opens logs that are to be built; of many a sample, spread evenly over their names.

        Raises:
            LogReadError: see `open`.
        """
        chosen = _spread(sorted(log_ids), self._sample)
        # Whether one that was purged is there again, under whichever name, its content says.
        chosen = sorted({*chosen, *filter(self._may_be_purged, log_ids)})
        self.left |= {log_id: self.remembered.pop(log_id, None) for log_id in sorted({*log_ids} - {*chosen})}
        self.open(chosen)

    def open(self, log_ids: Collection[str]) -> None:
        """Opens logs, so that no more is remembered of them than what they hold now.

        Raises:
            LogReadError: logs can't be read (under `on_error: fail`, or none can); lists all of them.
        """
        files = [self.files[log_id] for log_id in log_ids]
        with ThreadPoolExecutor(waiting_threads(uri for log in files for uri in log.uris)) as pool:
            for done, (log, result) in enumerate(zip(files, pool.map(self._open, files), strict=True), 1):
                self.remembered.pop(log.log_id, None)
                self.left.pop(log.log_id, None)
                if isinstance(result, str):
                    self.failed.append((log, result))
                else:
                    self.opened[log.log_id] = result
                self._on_opened(done, len(files))
        if self.failed and (self.options.on_error == "fail" or not (len(self) or self.left)):
            raise LogReadError(_list_failures(self.failed, len(self.files)))

    def _open(self, log: LogFiles) -> Outline | str:
        try:
            opened = self._outline(open_log(log.uris, self.options, log.log_id))
            check_files(log, lambda uris: open_log(uris, self.options))
        except LogReadError as error:
            return str(error)
        return opened

    def resolve(self, allow_derive: Sequence[str]) -> tuple[RowPlan, tuple[str, ...]]:
        """The recipe's plan for all the logs; see `logloom.transforms.resolve`.

        Of those that are left to workers, more are opened as long as none of the others tells what the plan
        has to know.
        """
        while self.left:
            try:
                plan, notes = self._resolve(allow_derive)
                if not any(clouds.needs_message(column.spec) for column in plan.columns):
                    return plan, notes
            except LogloomError:
                if len(self) and not self._topics - self._seen():
                    raise
            self.open(_spread(sorted(self.left), max(self._sample or 1, len(self.opened))))
        return self._resolve(allow_derive)

    def _seen(self) -> set[str]:
        """The topics that a log has which is opened or remembered."""
        told = [log.topics.keys() for log in self.remembered.values()]
        return set().union(*told, *(log.summary.topics.keys() for log in self.opened.values()))

    def _resolve(self, allow_derive: Sequence[str]) -> tuple[RowPlan, tuple[str, ...]]:
        """The plan for the logs that are opened or remembered.

        Of those that are remembered it opens the first that defines a topic in its way. What doesn't fit
        these is said of what all of them hold now.
        """
        while self.remembered:
            topics = {log_id: log.topics for log_id, log in self.remembered.items()}
            failed = len(self.failed)
            try:
                return resolve(self._recipe, self, allow_derive, topics)
            except LogloomError:
                # Without those that turned out to be unreadable, where these may be skipped.
                self.open(sorted(self.remembered) if len(self.failed) == failed else [])
        return resolve(self._recipe, self, allow_derive)

    def content_of(self, log_id: str) -> tuple[str, tuple[str, ...]]:
        """A log's content id, and its URIs in the order in which they are joined."""
        log = self.remembered.get(log_id) or self.opened[log_id].summary
        return log.content_id, log.uris

    def unfinished(self) -> Iterator[str]:
        """Says which files their recorder hasn't closed, so that a later build may find more in them."""
        for log_id in sorted(self):
            log = self.remembered.get(log_id) or self.opened[log_id].summary
            for uri, why in sorted(log.unfinished.items()):
                yield f"{uri}: {unfinished_words(why)}; what is in it now is built"

    def listed(self, log_id: str) -> str:
        """What tells a log in later listings, where whoever opens it may remember it; "" otherwise."""
        return "" if self._reads_all or self._limit is not None else print_of(self.files[log_id])

    def memory(self) -> Memory | None:
        """What the next plan may remember; None where that is what this one did."""
        if self._reads_all or self._limit is not None:
            return None
        shared: dict[Any, Any] = {}
        known = list(self.remembered.items())
        for log_id, outline in self.opened.items():
            log = RememberedLog.of(self.files[log_id].uris, outline.summary, self._topics, shared)
            known += [(log_id, log)] if log is not None else []
        known += [(log_id, log) for log_id, log in self.left.items() if log is not None]
        logs = ((listed, log) for log_id, log in known if (listed := print_of(self.files[log_id])))
        memory = Memory.of(self._recipe.hash, self._topics, logs, self._folders.bags_told)
        return None if memory.to_data() == self._before.to_data() else memory


def _spread(names: Sequence[str], most: int | None) -> list[str]:
    """So many of the names, the first and the last among them; all where there are no more."""
    if most is None or len(names) <= most:
        return list(names)
    return [names[i * (len(names) - 1) // max(most - 1, 1)] for i in range(most)]


def save_memory(memory: Memory | None, store: Store) -> None:
    """Keeps what the next plan may remember; a root that takes none has its logs opened again."""
    if memory is None:
        return
    try:
        memory.save(Sidecars(store.uri_of("index"), store.options))
    except (LogloomError, OSError):
        return


def _list_failures(failed: Iterable[tuple[LogFiles, str]], total: int) -> str:
    lines = [message for _, message in failed]
    if len(lines) == 1:
        return lines[0]
    return f"{len(lines)} of {counted(total, 'log')} can't be read:\n" + "\n".join(
        f"  {line}" for line in lines
    )
