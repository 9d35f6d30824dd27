"""The logs that workers open first, as columns that make tasks on demand.

There may be a million of them, few of which are objects at a time.

Elsewhere: the logs (logloom.pipelines.plan.logs), the plan that has them (logloom.pipelines.plan.build_plan).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import overload

import pyarrow as pa

from logloom.io.logs.log_list import LogList, print_of
from logloom.io.rows.log_ranges import Ints
from logloom.recipe import Recipe
from logloom.recipe.logs import split_of
from logloom.transforms.build.job import LogTask
from logloom.values import dataclass


@dataclass(frozen=True, eq=False)
class ListedTasks(Sequence[LogTask]):
    """Tasks from a listing, in the order of their log_ids.

    Attributes:
        files: of these logs and of others.
        rows: (N,) positions of these, ascending.
        remembered: whether the next plan may use this listing as a cache, once workers have opened the logs.
        before: (N,) keys of their records in the latest version; nulls for logs to be built in any case.
        replaces: (N,) see `LogTask.replaces`.
    """

    recipe: Recipe
    files: LogList
    rows: Ints
    remembered: bool = False
    before: pa.Array | None = None
    replaces: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> LogTask: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LogTask]: ...
    def __getitem__(self, index: int | slice) -> LogTask | Sequence[LogTask]:
        if isinstance(index, slice):
            before, replaces = (None if of is None else of[index] for of in (self.before, self.replaces))
            return replace(self, rows=self.rows[index], before=before, replaces=replaces)
        row = range(len(self))[index]
        (task,) = self[row : row + 1]
        return task

    def __iter__(self) -> Iterator[LogTask]:
        of_records = [
            itertools.repeat(None, len(self)) if of is None else map(_text, of)
            for of in (self.before, self.replaces)
        ]
        for files, key, part in zip(self.files.at(self.rows), *of_records, strict=True):
            split = split_of(self.recipe, files.log_id, files.uris, files.split, files.catalogue)
            listed = print_of(files) if self.remembered else ""
            named = files.log_id, files.uris, "", split, ""
            yield LogTask(*named, listed, files.catalogue, before=key or "", replaces=part)

    @property
    def ids(self) -> pa.Array:
        """(N,) log_ids."""
        return self.files.ids.take(self.rows)

    @property
    def log_ids(self) -> Iterator[str]:
        """Yield the same one by one."""
        return map(_text, self.ids)


_text = operator.methodcaller("as_py")  # of one of Arrow's values
