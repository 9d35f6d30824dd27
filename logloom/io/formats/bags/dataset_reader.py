"""Random access to the datapoints of a dataset, which is a folder of bags.

Here: `DatasetReader`, masks and ranges.
Elsewhere: writing (logloom.io.formats.bags.dataset_writer), single bags (logloom.io.formats.bags.bag),
several datasets as one (logloom.io.formats.bags.shards), spec.json and refs.bag
(logloom.io.formats.bags.spec).
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.formats.bags.bag import BagReader
from logloom.io.formats.bags.codecs import ArrayDecoder, FixedDecoder, array_head
from logloom.io.formats.bags.files import ClosedAtEnd, open_folder
from logloom.io.formats.bags.limits import checked_range
from logloom.io.formats.bags.spec import REFS, Codecs, codecs_for, is_sequence, read_spec
from logloom.io.storage.threads import Threads

Mask = Mapping[str, bool | range | slice] | Sequence[str]


class DatasetReader(ClosedAtEnd):
    """Random access to the datapoints of a folder of bags, of any generation.

    Opens bags when they are first read, pickles by location, serves many threads and crosses a fork.
    `closed` says whether it was closed; a copy, pickled or not, is open.

    Examples:
        >>> with bags.DatasetReader("words", bags.decoders) as reader:
        ...     print(len(reader), reader[2], reader[2, {"words": range(0, 1)}])
        3 {'label': 2, 'words': ['stop', 'stop']} {'words': ['stop']}
    """

    def __init__(
        self,
        directory: Any,
        decoders: Codecs,
        cache_index: bool = True,
        cache_keys: Sequence[str] = (),
        parallel: bool = False,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            directory: a path, URI or path-like object.
            decoders: a function from bytes for each type; None gives bytes.
            cache_index: keep the tables of limits in memory.
            cache_keys: keys whose bags are kept in memory whole; `refs` too.
            parallel: read the keys of a datapoint in threads, for object stores.
            storage_options: fsspec options by protocol: {"gs": {"token": "anon"}}.

        Raises:
            DatasetError: there is no dataset, or its spec is damaged.
            UsageError: a type has no decoder, or a cached key doesn't exist.
        """
        given = directory, decoders, cache_index, tuple(cache_keys), parallel
        self._again = functools.partial(DatasetReader, *given, storage_options=storage_options)
        self._folder = open_folder(directory, storage_options)
        self._cache_index = cache_index
        self._cache_keys = frozenset(cache_keys)
        self._spec = read_spec(self._folder)
        if unknown := sorted(self._cache_keys - self._spec.keys() - {REFS}):
            raise UsageError(f"{self._folder.name}: no key {unknown[0]!r} to cache; {', '.join(self._spec)}")
        self._decoders = codecs_for(self._spec, decoders, "decoder", self._folder.name)
        self._parallel = parallel
        self._threads = Threads(min(32, max(1, len(self._spec))), "bags")
        self._bags: dict[str, BagReader] = {}
        self._fetchers: dict[str, Callable[[int], bytes]] = {}
        self.closed = False
        self._has_refs = REFS not in self._spec and self._folder.exists(f"{REFS}.bag")
        self._order = {key: position for position, key in enumerate(self._spec)}
        self._sequences = frozenset(key for key, name in self._spec.items() if is_sequence(name))
        if self._sequences and not self._has_refs:
            raise DatasetError(f"{self._folder.name}: {REFS}.bag is missing, which lists the sequences")
        first = next(iter(self._spec), None)
        self._length = len(self._bag(REFS)) if self._has_refs else len(self._bag(first)) if first else 0
        # Our own folders and the third generation: record i is datapoint i, so refs need not be read.
        self._aligned = not self._sequences and (
            not self._has_refs or (first is not None and self._folder.exists(f"{first}.idx"))
        )
        self._plan: list[tuple[str, Any, Any]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return self._again, ()

    @property
    def spec(self) -> dict[str, str]:
        return self._spec

    @property
    def size(self) -> int:
        """Bytes of the bags, their tables included."""
        keys = [*self._spec, *([REFS] if self._has_refs else [])]
        return sum(self._bag(key).size for key in keys)

    def __len__(self) -> int:
        return self._length

    def available(self, index: int) -> dict[str, bool | range]:
        """Return what a mask of this datapoint may select: True, or the range of a sequence.

        Args:
            index: of the datapoint.
        """
        refs = self._refs(self._number(index))
        return {
            key: range(_sequence_ref(ref)[1]) if key in self._sequences else True
            for key, ref in zip(self._spec, refs, strict=True)
        }

    def __getitem__(self, index: Any) -> dict[str, Any]:
        """Read a datapoint, or a range of them as a dict of lists; only what a mask selects is read.

        Args:
            index: a number, slice or range; or (one of these, mask). A mask maps keys to True, False or, of a
                sequence, a range, which is clipped to its end; keys that it lacks are left out. A list of
                keys will do.

        Raises:
            IndexError: there is no such datapoint.
            UsageError: the mask doesn't fit, a range of datapoints with sequences, the reader is closed.
            DatasetError: the dataset is damaged, or a record can't be decoded; names key and datapoint.
        """
        mask: Mask | None = None
        if isinstance(index, tuple):
            index, mask = index
        if isinstance(index, slice | range):
            return self._rows(*checked_range(index, self._length), mask)
        number = self._number(index)
        if mask is None and self._aligned and not self._parallel:
            return self._row(number)
        return self._masked(number, self._wanted(mask))

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read many datapoints, for loaders."""
        return [self[index] for index in indices]

    def get_many(self, indices: Any, out: Mapping[str, Array]) -> dict[str, Array]:
        """Read many datapoints into arrays, those of `array`, `i64` and `u64` keys without a copy in between.

        Args:
            indices: (n,) in any order.
            out: by key: (n, *shape), of the dtype and shape that all values have; other keys are not read.

        Returns:
            `out`.

        Raises:
            ValueError: a value is of another dtype or shape.
        """
        numbers = [self._number(index) for index in np.asarray(indices).tolist()]
        places = sorted(zip(numbers, range(len(numbers)), strict=True))
        for key, target in out.items():
            decode = self._decoders[key]
            if self._aligned and isinstance(decode, ArrayDecoder):
                head = array_head(target.dtype, target.shape[1:])
                self.bag(key).read_arrays(places, target, head)
                continue
            is_number = isinstance(decode, FixedDecoder) and target.dtype == decode.dtype
            if self._aligned and is_number and target.ndim == 1:
                self.bag(key).read_arrays(places, target, b"")
                continue
            plan = [(key, self._fetcher(key), decode)] if self._aligned else None
            for number, row in places:
                found = self._row(number, plan) if plan else self[number, (key,)]
                value = np.asarray(found[key])
                if value.shape != target.shape[1:] or not np.can_cast(value.dtype, target.dtype, "safe"):
                    raise ValueError(
                        f"{key!r} is {value.dtype} {value.shape}, not {target[0].dtype} {target.shape[1:]}"
                    )
                target[row] = value
        return dict(out)

    def copy(self) -> DatasetReader:
        """Return a reader of the same dataset that shares nothing with this one."""
        return self._again()

    def bag(self, key: str) -> BagReader:
        """The reader of a key's own bag.

        Args:
            key: of the spec.

        Raises:
            UsageError: there is no such key.
        """
        if key not in self._spec:
            raise UsageError(f"{self._folder.name}: no key {key!r}; there are {', '.join(self._spec)}")
        return self._bag(key)

    def close(self) -> None:
        """Release files and memory; later calls are refused."""
        self.closed = True
        self._bags.clear()
        self._fetchers.clear()
        self._plan = None
        self._threads.close()

    def _number(self, index: Any) -> int:
        number = operator.index(index)
        if not -self._length <= number < self._length:
            raise IndexError(f"{self._folder.name}: datapoint {number} of {self._length}")
        return number if number >= 0 else number + self._length

    def _bag(self, key: str) -> BagReader:
        bag = self._bags.get(key)
        if bag is not None:
            return bag
        if self.closed:
            raise UsageError(f"{self._folder.name}: the reader is closed")
        file = self._folder.file(f"{key}.bag")
        # A folder with refs has its tables inside; the .idx files there are for other clients.
        index: Any = False if self._has_refs else self._folder.file(f"{key}.idx")
        bag = BagReader(file, self._cache_index, key in self._cache_keys, idx=index)
        if key != REFS and not self._has_refs and self._bags and len(bag) != self._length:
            raise DatasetError(f"{file.name}: {len(bag)} records, the other bags have {self._length}")
        if key != REFS and self._has_refs and self._aligned and len(bag) != self._length:
            raise DatasetError(f"{file.name}: {len(bag)} records, refs.bag has {self._length}")
        self._bags[key] = bag
        return bag

    def _fetcher(self, key: str) -> Callable[[int], bytes]:
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = self._bag(key).fetcher()
        return fetcher

    def _row(self, number: int, plan: list[tuple[str, Any, Any]] | None = None) -> dict[str, Any]:
        """Read all of a datapoint or what a plan selects, where record i is datapoint i."""
        if plan is None:
            plan = self._plan
        if plan is None:
            plan = self._plan = [(key, self._fetcher(key), self._decoders[key]) for key in self._spec]
        row = {}
        key = ""
        try:
            for key, fetch, decode in plan:
                record = fetch(number)
                row[key] = decode(record) if decode is not None else record
        except LogloomError:
            raise
        except Exception as error:
            raise self._undecodable(key, f"datapoint {number}", error) from error
        return row

    def _wanted(self, mask: Mask | None) -> Mapping[str, bool | range | slice]:
        """The mask's entries in the order of the spec."""
        if mask is None:
            return dict.fromkeys(self._spec, True)
        if not isinstance(mask, Mapping):
            mask = dict.fromkeys(mask, True)
        try:
            keys = sorted(mask, key=self._order.__getitem__) if len(mask) > 1 else list(mask)
            if keys and keys[-1] not in self._order:
                raise KeyError(keys[-1])
        except KeyError as error:
            known = ", ".join(self._spec)
            raise UsageError(f"{self._folder.name}: the mask asks for {error}; there are {known}") from None
        return {key: mask[key] for key in keys if mask[key] is not False}

    def _masked(self, number: int, wanted: Mapping[str, bool | range | slice]) -> dict[str, Any]:
        if not wanted:
            return {}
        if self._aligned and not self._parallel and all(part is True for part in wanted.values()):
            return self._row(number, [(key, self._fetcher(key), self._decoders[key]) for key in wanted])
        jobs: list[tuple[str, int | tuple[int, int]]] = []
        refs = None if self._aligned else self._refs(number)
        for key, part in wanted.items():
            if key in self._sequences and refs is not None:
                first, count = _sequence_ref(refs[self._order[key]])
                start, stop = (0, count) if part is True else self._sequence_range(key, part, count)
                jobs.append((key, (first + start, first + stop)))
            elif part is not True:
                raise UsageError(
                    f"{self._folder.name}: the mask of {key!r} is {part!r}; it is no sequence: True"
                )
            else:
                jobs.append((key, number if refs is None else refs[self._order[key]]))
        place = f"datapoint {number}"
        if self._parallel and len(jobs) > 1:
            values = self._threads.pool.map(lambda job: self._value(job[0], job[1], place), jobs)
            return dict(zip(wanted, values, strict=True))
        return {key: self._value(key, where, place) for key, where in jobs}

    def _sequence_range(self, key: str, part: Any, count: int) -> tuple[int, int]:
        if not isinstance(part, range | slice):
            raise UsageError(f"{self._folder.name}: the mask of {key!r} is {part!r}; True, or a range")
        return checked_range(part, count)

    def _value(self, key: str, where: int | tuple[int, int], place: str) -> Any:
        """The value, or list of values, of one record or of a range."""
        decode = self._decoders[key]
        bag = self._bag(key)
        try:
            if isinstance(where, int):
                if where >= len(bag):
                    raise IndexError
                record = self._fetcher(key)(where)
                return record if decode is None else decode(record)
            if where[1] > len(bag):
                raise IndexError
            data, limits = bag.read_range(*where)
            if isinstance(decode, ArrayDecoder | FixedDecoder):
                return decode.many(data, limits)
            records = [data[start:stop] for start, stop in itertools.pairwise(limits)]
            return records if decode is None else [decode(record) for record in records]
        except LogloomError:
            raise
        except IndexError as error:
            raise DatasetError(
                f"{self._folder.name}: {place} refers to record {where} of {key}.bag, which has "
                f"{len(bag)}; refs.bag or {key}.bag is damaged"
            ) from error
        except Exception as error:
            raise self._undecodable(key, place, error) from error

    def _rows(self, start: int, stop: int, mask: Mask | None) -> dict[str, list[Any]]:
        if self._sequences:
            raise UsageError(
                f"{self._folder.name}: {min(self._sequences)} is a sequence, whose records need not be side "
                "by side; read such datapoints one by one"
            )
        wanted = self._wanted(mask)
        if odd := [part for part in wanted.values() if part is not True]:
            raise UsageError(
                f"{self._folder.name}: a mask of a range of datapoints has {odd[0]!r}; True or False"
            )
        place = f"datapoints {start} to {stop}"
        if self._aligned:
            return {key: self._value(key, (start, stop), place) for key in wanted}
        refs = [self._refs(number) for number in range(start, stop)]
        columns: dict[str, list[Any]] = {}
        for key in wanted:
            records = [ref[self._order[key]] for ref in refs]
            if records == list(range(start, start + len(records))):
                columns[key] = self._value(key, (start, stop), place)
            else:
                columns[key] = [self._value(key, record, place) for record in records]
        return columns

    def _refs(self, number: int) -> list[Any]:
        """Read the places of a datapoint's values, in the order of the keys, checked.

        Raises:
            DatasetError: refs.bag is damaged.
        """
        if not self._has_refs:
            return [number] * len(self._spec)
        record = self._fetcher(REFS)(number)
        try:
            refs = msgpack.unpackb(record)
            if not isinstance(refs, list) or len(refs) != len(self._spec):
                raise ValueError(f"{str(refs)[:80]} for {len(self._spec)} keys")
            for key, ref in zip(self._spec, refs, strict=True):
                if key not in self._sequences:
                    sound = type(ref) is int and ref >= 0
                elif type(ref) is list and len(ref) == 2:
                    first, count = ref
                    sound = type(first) is int and type(count) is int and first >= 0 and count >= 0
                else:
                    sound = ref == []
                if not sound:
                    raise ValueError(f"{str(ref)[:80]} is no place in {key}.bag")
        except (ValueError, TypeError) as error:
            raise DatasetError(
                f"{self._folder.name}: {REFS}.bag is damaged at datapoint {number}: {error}; write it again"
            ) from error
        return refs

    def _undecodable(self, key: str, place: str, error: Exception) -> DatasetError:
        return DatasetError(
            f"{self._folder.name}: {place}: {key!r} can't be decoded as {self._spec[key]}: {error}; pass "
            "decoders=None to see its bytes"
        )


def _sequence_ref(ref: Any) -> tuple[int, int]:
    return (ref[0], ref[1]) if ref else (0, 0)
