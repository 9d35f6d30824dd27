"""A dataset: a folder of bags, one for each key, read and written datapoint by datapoint.

Here: `DatasetWriter`, `DatasetReader`, and what they share: specs, masks, unfinished folders.
Elsewhere: single bags (logloom.io.bags.bag), many datasets as one (logloom.io.bags.sharded), encoders and
decoders (logloom.io.bags.codecs), rows of blocks (logloom.io.bags.rows).

spec.json says the type of each key, sorted. In the first two generations refs.bag says, datapoint by
datapoint, which records of the bags belong to it: a msgpack list in the order of the keys, a number for a
plain key, [first, count] for a sequence, [] for an empty one. In the third, datapoint i is record i.
"""

from __future__ import annotations

import itertools
import json
import operator
import os
import pathlib
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import msgpack
import numpy as np

from logloom.blocks import Array
from logloom.errors import DatasetError, LogloomError, StorageError, UsageError
from logloom.io.bags.bag import BagReader, Generation, RecordFile, checked_range
from logloom.io.bags.codecs import ArrayDecoder, FixedDecoder, array_parts, encode_array
from logloom.io.bags.files import SPEC, Folder, already_there, open_folder
from logloom.io.storage import explained

REFS = "refs"
_KEY = re.compile(r"[a-z_][^/\\\x00-\x1f\x7f]{0,199}")
_TYPE = re.compile(r"[a-z_][^\[\]]*(\[\])?")
_AT_ONCE = 512 << 10  # larger arrays are written from where they lie; smaller ones gather into large writes
_MAX_SPEC = 16 << 20

Mask = Mapping[str, bool | range | slice] | Sequence[str]
Codecs = Mapping[str, Callable[[Any], Any]] | None


def is_sequence(type_name: str) -> bool:
    return type_name.endswith("[]")


def check_spec(spec: Mapping[str, str], place: str) -> dict[str, str]:
    """The spec, sorted.

    Raises:
        UsageError: a key that can't name a file of the folder, or a type that is none.
    """
    for key, type_name in spec.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key) or not _encodable(key):
            raise UsageError(
                f"{place}: key {key!r} can't name a bag; begin with a-z or _, and leave out slashes and "
                "control characters"
            )
        if not isinstance(type_name, str) or not _TYPE.fullmatch(type_name):
            raise UsageError(
                f"{place}: {key} has type {type_name!r}; types look like utf8, or utf8[] for lists"
            )
    return dict(sorted(spec.items()))


def _encodable(key: str) -> bool:
    try:
        return len(key.encode()) <= 250
    except UnicodeEncodeError:
        return False


def codecs_for(spec: Mapping[str, str], codecs: Codecs, kind: str, place: str) -> dict[str, Any]:
    """The encoder or decoder of each key; None where values are bytes already.

    Raises:
        UsageError: a type has none.
    """
    if codecs is None:
        return dict.fromkeys(spec)
    found = {}
    for key, type_name in spec.items():
        try:
            codec = codecs[type_name.removesuffix("[]")]
        except KeyError:
            known = ", ".join(sorted(codecs))
            raise UsageError(
                f"{place}: no {kind} for type {type_name!r} of {key!r}; there are {known}"
            ) from None
        found[key] = ArrayDecoder() if isinstance(codec, ArrayDecoder) else codec
    return found


class DatasetWriter:
    """Writes a dataset; its folder appears when it is closed, whole.

    Until then its files lie in a folder beside. Leaving the `with` by an exception leaves nothing behind.
    """

    def __init__(
        self,
        directory: Any,
        spec: Mapping[str, str],
        encoders: Codecs,
        *,
        generation: Generation = 1,
        beside: Folder | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            directory: a path, URI or path-like object of a folder that isn't there yet.
            spec: the type of each key; `type[]` for lists.
            encoders: a function to bytes for each type; None takes bytes as they are.
            generation: 1, which every client reads, or 3.
            beside: the folder next to which the unfinished files lie; by default the folder itself.

        Raises:
            UsageError: the folder is there, a key or a type won't do.
        """
        folder = open_folder(directory, storage_options)
        self._unfinished = UnfinishedDataset(folder, spec, generation, beside=beside)
        self._encoders = codecs_for(self.spec, encoders, "encoder", folder.name)
        self._plan = list(self._unfinished.files.items())
        self._refs = self._unfinished.refs
        self._has_sequences = any(map(is_sequence, self.spec.values()))
        self._length = 0

    @property
    def spec(self) -> dict[str, str]:
        return self._unfinished.spec

    @property
    def size(self) -> int:
        """Bytes of the bags, their tables included."""
        return self._unfinished.size

    def __len__(self) -> int:
        return self._length

    def append(self, datapoint: Mapping[str, Any], flush: bool = True) -> int:
        """Adds a datapoint, whole or not at all, and gives its number.

        Args:
            datapoint: a value for each key of the spec, in any order; an iterable for a sequence.
            flush: taken for granular's sake; records go to the disk when enough of them wait.

        Raises:
            UsageError: other keys than the spec has, or a value that can't be encoded (its cause says why).
        """
        self._unfinished.check_open()
        if datapoint.keys() != self.spec.keys():
            self._complain(datapoint)
        before = [len(file) for _, file in self._plan] if self._has_sequences else None
        try:
            refs = [self._append_value(key, file, datapoint[key]) for key, file in self._plan]
        except BaseException:
            for number, (_, file) in enumerate(self._plan):
                file.rollback(before[number] if before else self._length)
            raise
        if self._refs is not None:
            self._refs.append(msgpack.packb(refs))
        self._length += 1
        return self._length - 1

    def _append_value(self, key: str, file: RecordFile, value: Any) -> Any:
        encoder = self._encoders[key]
        if not is_sequence(self.spec[key]):
            return self._append_record(key, file, encoder, value)
        first = len(file)
        for item in value:  # one at a time: it may be a generator of many large values
            self._append_record(key, file, encoder, item)
        count = len(file) - first
        return [first, count] if count else []

    def _append_record(self, key: str, file: RecordFile, encoder: Any, value: Any) -> int:
        try:
            if encoder is encode_array and getattr(value, "nbytes", 0) >= _AT_ONCE:
                return file.append_at_once(*array_parts(value))
            record = encoder(value) if encoder else value
            if type(record) is not bytes:
                raise TypeError(f"the encoder should give bytes, it gave {type(record).__name__}")
        except Exception as error:
            raise UsageError(
                f"datapoint {self._length}: {key!r} can't be encoded as {self.spec[key]}: {error}"
            ) from error
        return file.append(record)

    def _complain(self, datapoint: Mapping[str, Any]) -> None:
        missing = sorted(self.spec.keys() - datapoint.keys())
        unknown = sorted(map(str, datapoint.keys() - self.spec.keys()))
        words = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(unknown)}"] * bool(
            unknown
        )
        raise UsageError(
            f"datapoint {self._length} {' and '.join(words)}; its keys must be those of the spec: "
            f"{', '.join(self.spec)}"
        )

    def flush(self) -> None:
        """Hands everything to the operating system."""
        self._unfinished.flush()

    def close(self) -> None:
        """Finishes the dataset and gives its folder its name.

        Raises:
            UsageError: meanwhile another writer finished one there.
        """
        self._unfinished.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._unfinished.abandon()


class UnfinishedDataset:
    """The files of a dataset while they are written.

    Attributes:
        files: of records by key, sorted.
        refs: the file of references, None in the third generation.
    """

    def __init__(
        self,
        folder: Folder,
        spec: Mapping[str, str],
        generation: Generation = 1,
        *,
        beside: Folder | None = None,
        scratch: pathlib.Path | None = None,
    ):
        """
        Args:
            folder: where it will be.
            beside: the folder next to which the files lie until then, where it is on a disk.
            scratch: instead: fill this very folder, which the caller publishes.
        """
        self.spec = check_spec(spec, folder.name)
        if generation not in (1, 3):
            raise UsageError(f"{folder.name}: generation {generation}; 1 and 3 are written")
        sequences = [key for key, type_name in self.spec.items() if is_sequence(type_name)]
        if generation == 3 and sequences:
            raise UsageError(
                f"{folder.name}: {sequences[0]} is a sequence, which generation 3 lacks; write 1"
            )
        if generation == 1 and REFS in self.spec:
            raise UsageError(
                f"{folder.name}: `refs` is the name of a file of its own; call the key otherwise"
            )
        if scratch is None and folder.exists(SPEC):
            raise UsageError(already_there(folder.name))
        self._folder = folder
        self._generation = generation
        # Without sequences datapoint i is record i, so the .idx files of generation 3 fit beside.
        self._idx = not sequences
        self._owned = None if scratch is not None else _scratch_beside(folder, beside or folder)
        self.path = scratch if scratch is not None else pathlib.Path(str(self._owned))
        self.files = {key: RecordFile(self.path / f"{key}.bag") for key in self.spec}
        self.refs = RecordFile(self.path / f"{REFS}.bag") if generation == 1 else None
        self._closed = False

    @property
    def _all(self) -> list[RecordFile]:
        return [*self.files.values(), *([self.refs] if self.refs is not None else [])]

    @property
    def size(self) -> int:
        table = 8 if self._generation == 1 else 0
        return sum(file.nbytes + 8 * len(file) + table for file in self._all)

    def check_open(self) -> None:
        """
        Raises:
            UsageError: it is closed.
        """
        if self._closed:
            raise UsageError(f"{self._folder.name}: the writer is closed")

    def flush(self) -> None:
        for file in self._all:
            file.flush()

    def close(self) -> None:
        """Ends all files, and publishes them unless the caller does."""
        if self._closed:
            return
        self._closed = True
        try:
            for file in self._all:
                file.finish(table=self._generation == 1, idx=self._idx and file is not self.refs)
            with explained(str(self.path)):
                (self.path / SPEC).write_text(json.dumps(self.spec))
            if self._owned is not None:
                self._folder.publish(self.path)
        finally:
            self._remove()

    def abandon(self) -> None:
        """Leaves nothing behind."""
        if not self._closed:
            self._closed = True
            for file in self._all:
                file.abandon()
            self._remove()

    def _remove(self) -> None:
        if self._owned is not None:
            shutil.rmtree(self._owned, ignore_errors=True)


def _scratch_beside(folder: Folder, beside: Folder) -> pathlib.Path:
    parent = beside.scratch_parent()
    if parent is None:
        return pathlib.Path(tempfile.mkdtemp(prefix="logloom-bags-"))
    base = pathlib.PurePath(beside.name).name
    own = "" if folder is beside else f".{pathlib.PurePath(folder.name).name}"
    path = parent / f".{base}{own}.{uuid.uuid4().hex[:8]}.unfinished"
    with explained(folder.name):
        path.mkdir(parents=True)
    return path


class DatasetReader:
    """Random access to the datapoints of a folder of bags, of any generation.

    Opens bags when they are first read, pickles as where they are, serves many threads and crosses a fork.
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

        Raises:
            DatasetError: there is no dataset, or its spec is damaged.
            UsageError: a type has no decoder, or a cached key isn't there.
        """
        self._arguments = (directory, decoders, cache_index, tuple(cache_keys), parallel, storage_options)
        self._folder = open_folder(directory, storage_options)
        self._cache_index = cache_index
        self._cache_keys = frozenset(cache_keys)
        self._spec = _read_spec(self._folder)
        if unknown := sorted(self._cache_keys - self._spec.keys() - {REFS}):
            raise UsageError(f"{self._folder.name}: no key {unknown[0]!r} to cache; {', '.join(self._spec)}")
        self._decoders = codecs_for(self._spec, decoders, "decoder", self._folder.name)
        self._parallel = parallel
        self._pool: tuple[int, ThreadPoolExecutor] | None = None
        self._bags: dict[str, BagReader] = {}
        self._fetchers: dict[str, Callable[[int], bytes]] = {}
        self._closed = False
        self._has_refs = REFS not in self._spec and self._folder.exists(f"{REFS}.bag")
        self._order = {key: position for position, key in enumerate(self._spec)}
        self._sequences = frozenset(key for key, name in self._spec.items() if is_sequence(name))
        if self._sequences and not self._has_refs:
            raise DatasetError(f"{self._folder.name}: {REFS}.bag is missing, which says where sequences lie")
        first = next(iter(self._spec), None)
        self._length = len(self._bag(REFS)) if self._has_refs else len(self._bag(first)) if first else 0
        # Our own folders and the third generation: record i is datapoint i, so refs need not be read.
        self._aligned = not self._sequences and (
            not self._has_refs or (first is not None and self._folder.exists(f"{first}.idx"))
        )
        self._plan: list[tuple[str, Any, Any]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, self._arguments)

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
        """What a mask of this datapoint may ask for: True, or the range of a sequence."""
        refs = self._refs(self._number(index))
        return {
            key: range(_sequence_ref(ref)[1]) if key in self._sequences else True
            for key, ref in zip(self._spec, refs, strict=True)
        }

    def __getitem__(self, index: Any) -> dict[str, Any]:
        """A datapoint, or a range of them as a dict of lists; only what a mask asks for is read.

        Args:
            index: a number, slice or range; or (one of these, mask). A mask says True, False or, of a
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
        """Many datapoints, as loaders ask for them."""
        return [self[index] for index in indices]

    def get_many(self, indices: Any, out: Mapping[str, Array]) -> dict[str, Array]:
        """Many datapoints into arrays, those of `array` keys without a copy in between.

        Args:
            indices: (n,) in any order.
            out: by key: (n, *shape), of the dtype and shape that all values have; other keys are not read.

        Returns:
            `out`.

        Raises:
            ValueError: a value is of another dtype or shape.
        """
        numbers = [self._number(index) for index in np.asarray(indices).tolist()]
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        for key, target in out.items():
            decode = self._decoders[key]
            if self._aligned and isinstance(decode, ArrayDecoder):
                self.bag(key).read_arrays([(numbers[row], target[row]) for row in order])
                continue
            for row in order:
                value = np.asarray(self[numbers[row], (key,)][key])
                if value.shape != target.shape[1:] or not np.can_cast(value.dtype, target.dtype, "safe"):
                    raise ValueError(
                        f"{key!r} is {value.dtype} {value.shape}, not {target[0].dtype} {target.shape[1:]}"
                    )
                target[row] = value
        return dict(out)

    def copy(self) -> DatasetReader:
        """A reader of the same dataset that shares nothing with this one."""
        return _reopen(*self._arguments)

    def bag(self, key: str) -> BagReader:
        """The reader of a key's own bag.

        Raises:
            UsageError: there is no such key.
        """
        if key not in self._spec:
            raise UsageError(f"{self._folder.name}: no key {key!r}; there are {', '.join(self._spec)}")
        return self._bag(key)

    def close(self) -> None:
        """Lets go of files and memory; whatever is asked afterwards is refused."""
        self._closed = True
        self._bags.clear()
        self._fetchers.clear()
        self._plan = None
        if self._pool is not None:
            self._pool[1].shutdown(wait=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _number(self, index: Any) -> int:
        number = operator.index(index)
        if not -self._length <= number < self._length:
            raise IndexError(f"{self._folder.name}: datapoint {number} of {self._length}")
        return number if number >= 0 else number + self._length

    def _bag(self, key: str) -> BagReader:
        bag = self._bags.get(key)
        if bag is not None:
            return bag
        if self._closed:
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
        """All of a datapoint or what a plan says, where record i is datapoint i."""
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
            values = self._threads().map(lambda job: self._value(job[0], job[1], place), jobs)
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
                f"{self._folder.name}: {min(self._sequences)} is a sequence, whose records need not lie side "
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
        """Where a datapoint's values are, in the order of the keys, checked.

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
                # Plain keys first, and as they nearly always are.
                if type(ref) is int and ref >= 0 and key not in self._sequences:
                    continue
                _check_ref(key, ref, key in self._sequences)
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

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None or self._pool[0] != os.getpid():  # threads don't cross a fork
            workers = min(32, max(1, len(self._spec)))
            self._pool = (os.getpid(), ThreadPoolExecutor(workers, "bags"))
        return self._pool[1]


def _reopen(
    directory: Any,
    decoders: Codecs,
    cache_index: bool,
    cache_keys: Sequence[str],
    parallel: bool,
    storage_options: Mapping[str, Any] | None,
) -> DatasetReader:
    return DatasetReader(
        directory, decoders, cache_index, cache_keys, parallel, storage_options=storage_options
    )


def _check_ref(key: str, ref: Any, sequence: bool) -> None:
    numbers = ref if sequence else [ref]
    shaped = isinstance(numbers, list) and (not sequence or len(numbers) in (0, 2))
    if not shaped or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"{str(ref)[:80]} is no place in {key}.bag")


def _sequence_ref(ref: Any) -> tuple[int, int]:
    return (ref[0], ref[1]) if ref else (0, 0)


def _read_spec(folder: Folder) -> dict[str, str]:
    file = folder.file(SPEC)
    try:
        size = file.size
        if size > _MAX_SPEC:
            raise DatasetError(f"{file.name}: {size} bytes, a spec has {_MAX_SPEC} at most")
        spec = json.loads(file.read(0, size))
        if not isinstance(spec, dict):
            raise ValueError("it is no JSON object")
        return check_spec(spec, file.name)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{file.name}: no spec of a dataset of bags ({error})") from error
    except StorageError as error:
        raise DatasetError(f"{folder.name}: no dataset of bags: {error}") from error
