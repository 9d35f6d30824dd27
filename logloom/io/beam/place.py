"""The staging folder of a run of `WriteTo`, and its claim of the final place.

Here: `Place`, and the mark by which a run recognises its own result.
Elsewhere: what is written (logloom.io.beam.write), files that appear whole (logloom.io.storage.store).

A run works in `<place>.stage/<run id>`. A local folder appears by one rename, mark and all. In an object
store, and beside datasets in the same folder, the mark is created first; then files are moved one by one,
those that make readers recognise the dataset last; then the mark records that all are there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from logloom.errors import DatasetError, StorageError, UsageError
from logloom.io.beam.places import STAGES
from logloom.io.storage import disk
from logloom.io.storage.faults import MISSING
from logloom.io.storage.file_ages import listed, now_of
from logloom.io.storage.filesystems import explained
from logloom.io.storage.metadata import canonical
from logloom.io.storage.store import TEMPORARY, Store
from logloom.io.storage.threads import in_threads
from logloom.values import dataclass

MARK = "_written"
WHOLE = "whole"  # of a mark: whether all files are there


@dataclass(frozen=True)
class Place:
    """A folder that a run writes a dataset into.

    Attributes:
        store: of the folder.
        run_id: of the run.
        file: the one file that is written, beside which there may be other datasets; "" for the folder.
        mark_folder: see `logloom.io.formats.interface.Format`.
    """

    store: Store
    run_id: str
    file: str = ""
    mark_folder: str = ""

    @property
    def stages(self) -> Store:
        """The stages of all runs that write to this place."""
        return Store(f"{self.store.uri}{STAGES}", self.store.options)

    @property
    def stage(self) -> Store:
        """What isn't in the place yet."""
        of_file = f"-{quote(self.file, safe='')}" if self.file else ""
        return Store(f"{self.stages.uri}/{self.run_id}{of_file}", self.store.options)

    def dataset(self, digest: str) -> Store:
        """A finished dataset, before it is moved.

        Args:
            digest: of all that it depends on; an attempt that gave other values makes another one.
        """
        return Store(self.stage.uri_of(_folder_of(digest)), self.stage.options)

    @property
    def is_local(self) -> bool:
        """Whether the place is on a disk."""
        return self.store.local is not None

    @property
    def claim_name(self) -> str:
        """The name of the mark within the place, until the dataset is whole."""
        of_file = quote(self.file.removesuffix(".json"), safe="")
        return f"{MARK}-{of_file}.json" if self.file else f"{MARK}.json"

    @property
    def mark_name(self) -> str:
        """The name of the mark within the place, afterwards."""
        return f"{self.mark_folder}/{self.claim_name}".lstrip("/")

    def check_name(self) -> None:
        """
        Raises:
            UsageError: there is no folder beside it for stages.
        """
        above, _, name = self.store.uri.rpartition("/")
        if self.store.local is None and (above.endswith(":/") or not name):
            raise UsageError(f"{self.store.uri}: a whole bucket; choose a folder in it")
        if self.store.local is not None and os.path.ismount(self.store.local):
            raise UsageError(f"{self.store.uri}: a disk is mounted there; choose a folder in it")

    def own_mark(self) -> dict[str, Any] | None:
        """The mark, if this run left it; None if the place is free.

        Raises:
            UsageError: another dataset, or anything else, is there.
        """
        uri = self.store.uri
        found = self._read_mark()
        if found is None and self._is_taken():
            found = self._read_mark()  # another attempt of this run may have left it just now
            if found is None:
                place = self.store.uri_of(self.file)
                raise UsageError(
                    f"{place}: there is a dataset already, or something else; remove it, or choose another "
                    "path"
                )
        if found is not None and found["run"] != self.run_id:
            raise UsageError(
                f"{uri}: there is a dataset already, or another pipeline (run {found['run']}) is writing it; "
                "remove the folder, or choose another path"
            )
        return found

    def _read_mark(self) -> dict[str, Any] | None:
        for name in dict.fromkeys([self.mark_name, self.claim_name]):
            data = self.store.read_if_there(name)
            if data is not None:
                return _parsed(data, self.store.uri_of(name))
        return None

    def _is_taken(self) -> bool:
        if self.store.local is not None and self.store.local.is_file():
            raise UsageError(f"{self.store.uri}: a file is there; choose another path")
        return self.store.exists(self.file) if self.file else bool(self.store.names())

    def write(self, digest: str, name: str, data: bytes) -> None:
        """Write a file of a dataset; what is unfinished is elsewhere in the stage."""
        if self.stage.local is not None:
            disk.make_folder(self.stage.local / TEMPORARY)
        self.stage.replace(f"{_folder_of(digest)}/{name}", data)

    def gather(self, digest: str, files: Mapping[str, str], others: Sequence[str]) -> dict[str, str]:
        """Put files of the stage into a dataset, too.

        Args:
            digest: of the dataset.
            files: the name in the stage by that in the dataset.
            others: names of files that are in the dataset already.

        Returns:
            The names of all in the stage, by those in the dataset.
        """
        found = {shown: f"{_folder_of(digest)}/{shown}" for shown in (*files, *others)}
        target = self.dataset(digest)
        if self.stage.local is None:
            in_threads(lambda shown: self.stage.copy(files[shown], found[shown]), sorted(files))
            return found
        for folder in sorted({target.path_of(shown).parent for shown in files}):
            disk.make_folder(folder)
        for shown, name in files.items():
            with explained(target.uri_of(shown)):
                self._link(self.stage.path_of(name), target.path_of(shown))
        return found

    def _link(self, path: pathlib.Path, new: pathlib.Path) -> None:
        """Give a file a second name, if this is free; a copy where a disk has no links."""
        path.chmod(0o644)  # the user's own
        try:
            os.link(path, new)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in disk.NO_LINKS:
                raise
            partial = self.stage.path_of(disk.own_name())
            shutil.copyfile(path, partial)
            partial.replace(new)

    def claim(self, mark: Mapping[str, Any], files: Mapping[str, str], last: Sequence[str]) -> dict[str, Any]:
        """Show the dataset, or start to: see `moves`.

        Args:
            mark: what the mark records beside the run.
            files: the name in the stage by that in the place; a folder on a disk must be gathered.
            last: files of the place that come after all others.

        Returns:
            The mark, perhaps of an earlier attempt of this run.

        Raises:
            UsageError: another run was faster; this run's stage is removed.
            DatasetError: a file is there with other bytes.
        """
        by_rename = self.is_local and not self.file
        made = {"run": self.run_id, **mark, WHOLE: by_rename}
        data = _bytes_of(made)
        if by_rename:
            self.write(made["digest"], self.mark_name, data)
            return made if self._rename(made["digest"]) else self._after_another()
        if self.file:
            self._check_shared(files)
        first = [name for name in sorted(files) if name not in last]
        moves = [[files[name], name] for name in [*first, *last]]
        self.stage.replace(_moves_of(made), json.dumps([len(first), moves]).encode())
        if not self.store.create(self.claim_name, data):
            return self._after_another()
        if not self.file and self._is_of_another(files):
            self.store.remove(self.claim_name)
            return self._after_another()
        return made

    def _is_of_another(self, files: Mapping[str, str]) -> bool:
        """Whether another run wrote to the place; an attempt of this one may have moved files."""
        mark = self._read_mark()
        own = {self.claim_name, *(shown.partition("/")[0] for shown in files)}
        return (mark is not None and mark["run"] != self.run_id) or not own.issuperset(self.store.names())

    def _after_another(self) -> dict[str, Any]:
        found = self.own_mark()
        if found is None:
            raise UsageError(f"{self.store.uri}: another pipeline wrote there; run this one again")
        return found

    def _rename(self, digest: str) -> bool:
        """Whether the dataset became the place."""
        folder = self.dataset(digest).local
        assert folder is not None
        assert self.store.local is not None
        with explained(self.store.uri):
            disk.sync_all([*disk.paths_below(folder), folder])
            disk.make_folder(self.store.local.parent)
            try:
                folder.rename(self.store.local)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    return False
                raise
            disk.sync(self.store.local.parent)
        return True

    def _check_shared(self, files: Mapping[str, str]) -> None:
        """Make sure that files of other datasets that have the name of one of these have its bytes, too."""
        there = self.store.sizes("") if files and self.store.names() else {}
        in_threads(lambda shown: self._check_same(files[shown], shown), sorted(there.keys() & files.keys()))

    def _check_same(self, name: str, shown: str) -> None:
        data = self.stage.read_if_there(name)
        if data is not None and self.store.read(shown) != data:
            raise UsageError(
                f"{self.store.uri_of(shown)}: another dataset's file; remove it or choose another folder"
            )

    def moves(self, mark: Mapping[str, Any]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """The moves from the stage to the place that are left after `claim`: all, then the last ones.

        Args:
            mark: the result of `claim`.

        Raises:
            DatasetError: the stage was removed before all was moved.
        """
        if mark[WHOLE]:
            return [], []
        data = self.stage.read_if_there(_moves_of(mark))
        if data is None:
            found = self.own_mark()
            if found is not None and found[WHOLE]:  # another attempt was faster
                return [], []
            raise self._gone(self.stage.uri)
        count, moves = json.loads(data)
        pairs = [(name, shown) for name, shown in moves]
        return pairs[:count], pairs[count:]

    def move(self, moves: Sequence[tuple[str, str]]) -> None:
        """Move files from the stage to the place, where they aren't yet."""
        in_threads(self._move, list(moves))

    def _move(self, names: tuple[str, str]) -> None:
        name, shown = names
        try:
            with explained(self.store.uri_of(shown), MISSING):
                if self.file:  # beside datasets of others, whose files stay as they are
                    if not self.store.create(shown, self.stage.read(name)):
                        self._check_same(name, shown)
                else:
                    self.stage.fs.cp_file(self.stage.fs_path(name), self.store.fs_path(shown))
        except MISSING:
            if not self.store.exists(shown):
                raise self._gone(self.stage.uri_of(name)) from None

    def _gone(self, place: str) -> DatasetError:
        return DatasetError(
            f"{place}: removed before all of {self.store.uri} was moved there; remove that folder, and run "
            "the pipeline again"
        )

    def finish(self, mark: Mapping[str, Any]) -> None:
        """Record that all that was claimed is there."""
        if not mark[WHOLE]:
            self.store.replace(self.mark_name, _bytes_of({**mark, WHOLE: True}))
            if self.mark_name != self.claim_name:
                self.store.remove(self.claim_name)

    def remove_stage(self, stale_after: float | None = None) -> None:
        """Remove this run's stage, and those of others that were left long ago.

        Args:
            stale_after: seconds since the last file was written; None leaves others alone.
        """
        before = None
        if stale_after is not None:
            with contextlib.suppress(StorageError):  # an object store that doesn't date files
                before = now_of(self.stage) - stale_after
        self.stage.remove_all("")
        if before is not None:
            for run in self.stages.names():
                with contextlib.suppress(StorageError):
                    changed = [file.changed for file in listed(self.stages, run)]
                    if changed and max(changed) < before:
                        self.stages.remove_all(run)
        if self.stages.local is not None:
            with contextlib.suppress(OSError):  # another run is at work
                self.stages.local.rmdir()


def _bytes_of(mark: Mapping[str, Any]) -> bytes:
    return canonical(dict(mark)) + b"\n"


def _folder_of(digest: str) -> str:
    return f"dataset-{digest[:32]}"


def _moves_of(mark: Mapping[str, Any]) -> str:
    return f"moves-{mark['digest']}.json"


def _parsed(data: bytes, place: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
        if (
            isinstance(found, dict)
            and isinstance(found.get("run"), str)
            and {"digest", WHOLE} <= found.keys()
        ):
            return found
    except ValueError:
        pass
    raise DatasetError(f"{place}: damaged; remove the folder, or choose another path")
