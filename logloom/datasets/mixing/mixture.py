"""Several datasets by weight, as one.

Here: `mix`, and `Mixture`, which it gives.
Elsewhere: which row comes at which position (logloom.datasets.loader.orders), batches
(logloom.datasets.loader.loader), datasets end to end (logloom.datasets.mixing.concatenation).
"""

from __future__ import annotations

import copy
import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, overload

import numpy as np

from logloom.blocks import Array
from logloom.caching import cached_property
from logloom.datasets.dataset import Dataset
from logloom.datasets.loader.orders import Ints, MixedOrder, RowGroups, shares_of
from logloom.datasets.mixing.concatenation import common_schema
from logloom.datasets.views import positions as views
from logloom.datasets.views.column_choice import given_names, is_many
from logloom.errors import UsageError
from logloom.io.rows.batches import Batch, scattered, to_tensors
from logloom.io.rows.chain import grouped, joined
from logloom.io.rows.sources import RowSource

Weight = float | str | Fraction
_DIGEST = "digest of the chosen rows"
_KINDS = {"mix": "a mixture", "dataset": "a single dataset", "": "another source of rows"}
_VERSION = re.compile(r"/v(\d{8})(?=[/,]|$)")


def mix(
    sources: Mapping[str, Weight | tuple[Dataset[Any], Weight]],
    *,
    seed: int = 0,
    repeat: bool = True,
    key: str = "source",
    **options: Any,
) -> Mixture:
    """The rows of several datasets by weight: one sequence, for a Loader or torch's DataLoader.

        mixture = logloom.datasets.mix({"urban@3": 0.6, "highway@gold": 0.4}, columns=["ego.*"])
        mixture = logloom.datasets.mix({"day": (day, 3), "night": (night.filter("ego.speed > 3"), 1)})

    Which row comes at a position follows from the position, the seeds and the datasets alone. Among the first
    rows, however many, each source has its share, less than one row more or less. All rows of a source come,
    each once, before one comes again.

    Args:
        sources: URIs, each with its weight; or any names, each with a dataset and its weight. Weights are
            numbers in proportion to each other, exact as decimals; of weight 0 no row comes. Datasets have
            equal columns, as for `concat`; windows and mapped ones will do, if all are.
        seed: of the order in which each source's rows come.
        repeat: sources begin anew, and `len` rows are those until each came whole; or without, `len` rows
            are those until one would begin anew.
        key: of a row for the name of its source.
        options: of `logloom.datasets.open`, for the URIs.

    Raises:
        UsageError: columns differ, says where; a weight is none; a source has no rows.

    Examples:
        >>> day = logloom.open("demo/dataset", columns="ego.speed")
        >>> night = logloom.open("demo/dataset", columns="ego.speed", where="ego.speed > 9")
        >>> mixture = logloom.mix({"day": (day, 0.75), "night": (night, 0.25)}, seed=1)
        >>> sorted(mixture[number]["source"] for number in range(4))
        ['day', 'day', 'day', 'night']
    """
    from logloom.datasets import opening  # what only a Loader needs opens no files

    if not isinstance(sources, Mapping):
        raise UsageError(
            f"mix: expected names or URIs with weights, not a {type(sources).__name__}; pass a dict, as in "
            "mix({'day': (day, 0.75), 'night': (night, 0.25)}) or mix({'urban@3': 0.6, 'highway@2': 0.4})"
        )
    parts: dict[str, Dataset[Any]] = {}
    weights: list[Weight] = []
    for name, given in sources.items():
        if isinstance(given, Dataset):
            raise UsageError(f"mix: {name} has no weight; pass the dataset with one: {{{name!r}: (rows, 1)}}")
        part, weight = given if isinstance(given, tuple) else (opening.open(name, **options), given)
        if not isinstance(part, Dataset):
            raise UsageError(f"mix: {name} is a {type(part).__name__}, no dataset")
        parts[name] = part
        weights.append(weight)
    shares = shares_of(weights)
    for (name, part), share in zip(parts.items(), shares, strict=True):
        if share and not len(part):
            raise UsageError(f"mix: {name} has no rows ({part.place}); leave it out, or give it the weight 0")
    _check_alike(parts, key)
    return Mixture(MixedRows(parts, key), shares, seed, repeat)


class Mixture:
    """The rows of several datasets in the order in which they come: `mixture[7]` is the row at position 7.

    Methods give another mixture and leave this one as it is. What they don't offer, such as `filter` and
    `window`, is for the datasets before `mix`. Pickles, and serves forked and spawned workers, as its
    datasets do. A Loader goes on behind the last row, and gives its own seed to the order, which is this one
    for seed 0.

    Attributes:
        rows: the rows of all sources, one source after the other.
    """

    def __init__(self, rows: MixedRows, shares: Sequence[int], seed: int, repeat: bool):
        """See `mix`.

        Args:
            rows: of all sources.
            shares: how many rows of each source come in a period.
            seed: of the order.
            repeat: whether sources begin anew.
        """
        self.rows = rows
        self._shares, self._seed, self._repeat = tuple(shares), operator.index(seed), bool(repeat)
        if self._seed < 0:
            raise UsageError(f"mix: seed={seed}; it isn't negative")
        self._tensors = False
        self._chosen: views.Rows | None = None  # positions; None for all, in an order that has no end

    if not TYPE_CHECKING:  # else any attribute would do for type checkers

        def __getattr__(self, name):
            from logloom.familiar_names import DATASET, MIXTURE, ours

            if name not in MIXTURE and hasattr(Dataset, name) and not name.startswith("_"):
                raise AttributeError(
                    f"a mixture has no attribute {name!r}; call it on each dataset before mix, or on "
                    "logloom.datasets.concat([…])"
                )
            if hint := ours(name, {**DATASET, **MIXTURE}):
                raise AttributeError(f"a mixture has no attribute {name!r}{hint}")
            return object.__getattribute__(self, name)  # the error of a property, or Python's own

    def __repr__(self) -> str:
        period = sum(self._shares)
        shown = zip(self.rows.parts.items(), self._shares, strict=True)
        lines = [f"  {name}: {share / period:.4g} of {len(part):,} rows" for (name, part), share in shown]
        some = "" if self._chosen is None else f" of {self._order.length:,}"
        return "\n".join([f"mixture of {len(lines)} datasets, {len(self):,}{some} rows", *lines])

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that rows have, beside the source, log_id and timestamp."""
        return next(iter(self.rows.parts.values())).columns

    def __len__(self) -> int:
        return self._order.length if self._chosen is None else len(self._chosen)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[position] for position in range(len(self)))

    @overload
    def __getitem__(self, position: views.Many) -> Self: ...  # type: ignore[overload-overlap]

    @overload
    def __getitem__(self, position: SupportsIndex) -> dict[str, Any]: ...

    def __getitem__(self, position: Any) -> dict[str, Any] | Self:
        """The row at a position, with its source; a mixture of the rows at a slice, at several, or of a mask.

        Raises:
            IndexError: there is no such position.
            UsageError: a mask has another length.
        """
        if isinstance(position, slice) or is_many(position):
            chosen = position if isinstance(position, slice) else self._checked(position)
            return self._with(_chosen=views.taken(self._positions, chosen))
        return self.__getitems__([operator.index(position)])[0]

    def __getitems__(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """Many rows, read together, as torch's DataLoader asks for them."""
        rows = self.rows.__getitems__(self._numbers(self._checked(positions)))
        return [to_tensors(row) for row in rows] if self._tensors else rows

    def get_many(
        self,
        positions: Sequence[int] | Array | slice,
        columns: str | Sequence[str] | None = None,
        out: Mapping[str, Array] | None = None,
    ) -> Batch:
        """The rows at many positions as one array per column, with their sources; see `Dataset.get_many`.

        Args:
            positions: (n,) in any order, negative ones from the end; a slice; or (len(self),) bool.
            columns: names or globs; None for all.
            out: arrays to fill by column.

        Raises:
            IndexError: there is no such position.
            UsageError: sources give other types.

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset", columns="ego.speed")
            >>> mixture = logloom.datasets.mix({"a": (rows, 2), "b": (rows.filter("ego.speed > 9"), 1)})
            >>> batch = mixture.get_many(range(6))
            >>> batch["ego.speed"].shape, sorted(batch["source"].tolist())
            ((6,), ['a', 'a', 'a', 'a', 'b', 'b'])
        """
        if columns is not None:
            return self.select(columns).get_many(positions, out=out)
        batch = self.rows.get_many(self._numbers(self._checked(positions)), out)
        return to_tensors(batch) if self._tensors else batch

    def select(self, columns: str | Sequence[str]) -> Self:
        """The same rows with fewer columns; see `Dataset.select`. Rows keep their source."""
        named = [name for name in given_names(columns, "columns") if name != self.rows.key]
        return self._with(
            rows=self.rows.with_parts({name: part.select(named) for name, part in self.rows.parts.items()})
        )

    def map(self, fn: Callable[[dict[str, Any]], Any]) -> Self:
        """What a function makes of each row.

        Args:
            fn: given a row with its source; of the top level of a module, so that workers can be spawned.
                Where it gives a dict, rows keep their source.

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset", columns="ego.speed")
            >>> mixture = logloom.datasets.mix({"day": (rows, 1)}).map(lambda row: (row["source"], 1))
            >>> mixture[-1]
            ('day', 1)
        """
        fns = (to_tensors, fn) if self._tensors else (fn,)
        key = self.rows.key
        parts = self.rows.parts.items()
        rows = self.rows.with_parts(
            {name: part.map(functools.partial(_mapped, fns, key, name)) for name, part in parts}
        )
        return self._with(rows=rows, _tensors=False)

    def stats(self, columns: str | Sequence[str] | None = None) -> dict[str, Any]:
        """Statistics of columns over the rows at all positions, so that sources count by their weight.

        A row that comes several times in `len(self)` rows counts as often. Reads these columns.

        Args:
            columns: as for `Dataset.stats`, which has the result, too.

        Raises:
            UsageError: see `Dataset.stats`; or sources give other types.

        Examples:
            >>> rows = logloom.datasets.open("demo/dataset", columns="ego.speed")
            >>> logloom.datasets.mix({"all": (rows, 1)}).stats("ego.speed")["rows"] == len(rows)
            True
        """
        from logloom.datasets.statistics import stats_of

        numbers = np.sort(self._numbers(np.arange(len(self))))
        return stats_of(self.rows.taken(numbers), columns)

    def order(self, shuffle: bool = True, groups: Sequence[RowGroups] = (), pool: int = 1) -> MixedOrder:
        """Which of `rows` come at which positions; without `shuffle` each source's in their own order.

        Args:
            groups, pool: of each source, see `MixedOrder`.

        Raises:
            UsageError: only some positions were chosen, which have no order without an end.
        """
        if self._chosen is not None:
            raise UsageError(
                "Loader: some positions of a mixture have no order without an end; pass the whole "
                "mixture, or pass these to torch's DataLoader"
            )
        own = self.rows.lengths, self._shares, shuffle, self._repeat, self._seed
        return MixedOrder(*own, groups, pool)

    @property
    def _positions(self) -> views.Rows:
        return range(self._order.length) if self._chosen is None else self._chosen

    def _checked(self, positions: Any) -> Ints:
        return views.checked(positions, len(self), IndexError)

    def _numbers(self, places: Ints) -> Ints:
        """(n,) numbers in `rows` of the rows at some places of this view."""
        return self._order.rows(views.at(self._positions, places), 0)

    def _with(self, **changes: Any) -> Self:
        other = copy.copy(self)
        other.__dict__.update(changes)
        return other

    def torch(self) -> Self:
        """The same rows with tensors for numbers and arrays that torch has a type for."""
        return self._with(_tensors=True)

    @property
    def pins(self) -> dict[str, Any]:
        """What the order follows from: seed, repeat, and of each source its version, rows and share.

        Rows are described by their number, and a digest of the selected ones.
        """
        period = sum(self._shares)
        sources = [
            {"name": name, **pins, "share": str(Fraction(share, period))}
            for name, pins, share in zip(self.rows.parts, self._pins_of_parts, self._shares, strict=True)
        ]
        return {"seed": self._seed, "repeat": self._repeat, "sources": sources}

    @cached_property
    def _order(self) -> MixedOrder:
        return MixedOrder(self.rows.lengths, self._shares, True, self._repeat, self._seed)

    @cached_property
    def _pins_of_parts(self) -> list[dict[str, Any]]:
        return [pins_of(part) for part in self.rows.parts.values()]

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_order", "_pins_of_parts")}


class MixedRows:
    """The rows of several datasets, one after the other, each with the name of its dataset.

    Attributes:
        parts: by name.
        key: of a row for the name of its dataset.
    """

    def __init__(self, parts: Mapping[str, Dataset[Any]], key: str):
        self.parts, self.key = dict(parts), key
        self._datasets, self._names = list(parts.values()), np.array(list(parts))
        self.lengths = [len(part) for part in self._datasets]
        self._bounds = np.cumsum([0, *self.lengths], dtype=np.int64)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_joined"}

    def with_parts(self, parts: Mapping[str, Dataset[Any]]) -> MixedRows:
        """The rows of other datasets, or views, of the same names."""
        return MixedRows(parts, self.key)

    @property
    def spec(self) -> dict[str, tuple[np.dtype[Any], tuple[int | None, ...]]]:
        """As `Dataset.spec`; texts as wide as in any part.

        Raises:
            UsageError: a value has no fixed shape, or another one in another part.
        """
        _ = self._joined  # before a Loader forks, so that its workers share it
        found = {name: part.spec for name, part in self.parts.items() if len(part)}
        (first, spec), *others = found.items()
        for name, other in others:
            if other.keys() != spec.keys():
                raise UsageError(_odd_keys(first, spec, name, other))
            for key, (dtype, shape) in other.items():
                is_text = {dtype.kind, spec[key][0].kind} <= {"U", "O"}
                common = np.promote_types(dtype, spec[key][0]) if is_text else dtype
                if shape != spec[key][1] or (common != spec[key][0] and not is_text):
                    one = f"{spec[key][0]} {list(spec[key][1])}"
                    raise UsageError(f"mix: {key} is {one} of {first}, and {dtype} {list(shape)} of {name}")
                spec[key] = common, shape
        return {self.key: (self._names.dtype, ()), **spec}

    @cached_property
    def _joined(self) -> _JoinedRows | None:
        """All rows as those of one source; None where a batch isn't one read, or functions make samples."""
        parts = self._datasets
        if any(part.is_mapped or part.window_steps for part in parts):
            return None
        source = joined([part.source for part in parts])
        return None if source is None else _JoinedRows(source, parts, self._bounds)

    @property
    def text_widths(self) -> dict[str, int]:
        """Characters of the longest source and log_id."""
        widths = [part.text_widths for part in self._datasets]
        keys = {key for one in widths for key in one}
        longest = {key: max(one.get(key, 0) for one in widths) for key in keys}
        return {**longest, self.key: max(map(len, self.parts))}

    def taken(self, numbers: Ints) -> list[Dataset[Any]]:
        """The rows with some ascending numbers, by dataset."""
        cuts = np.searchsorted(numbers, self._bounds).tolist()
        starts = self._bounds.tolist()
        return [
            part.take(numbers[first:stop] - start)
            for part, first, stop, start in zip(self._datasets, cuts[:-1], cuts[1:], starts[:-1], strict=True)
        ]

    def __len__(self) -> int:
        return int(self._bounds[-1])

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int] | Ints) -> list[dict[str, Any]]:
        rows: list[Any] = [None] * len(numbers)
        for source, where, own in grouped(self._bounds, np.asarray(numbers, np.int64)):
            name, part = str(self._names[source]), self._datasets[source]
            for place, row in zip(where.tolist(), part.__getitems__(own.tolist()), strict=True):
                rows[place] = {self.key: name, **row} if isinstance(row, Mapping) else row
        return rows

    def get_many(self, numbers: Ints, out: Mapping[str, Array] | None = None) -> Batch:
        """Many rows as one array or list per column, as `Dataset.get_many` gives them.

        Raises:
            UsageError: sources give other types.
        """
        sources = np.searchsorted(self._bounds, numbers, side="right") - 1
        if not len(numbers):
            return {self.key: self._names[sources], **self._datasets[0].get_many([])}
        if self._joined is not None:
            batch = self._joined.batch(numbers, sources, out)
            return {self.key: self._names[sources], **batch}
        groups = list(grouped(self._bounds, numbers))
        if len(groups) == 1:
            batch = self._datasets[groups[0][0]].get_many(groups[0][2], out=out)
        else:
            parts = [(source, self._datasets[source].get_many(own)) for source, _, own in groups]
            self._check(parts)
            wheres = [where for _, where, _ in groups]
            placed = [(where, part) for where, (_, part) in zip(wheres, parts, strict=True)]
            windows = [key for key in parts[0][1] if self._datasets[0].steps_of(key)]
            batch = scattered(placed, len(numbers), out, windows)
        return {self.key: self._names[sources], **batch}

    def _check(self, parts: Sequence[tuple[int, Batch]]) -> None:
        (first, batch), *others = parts
        for number, other in others:
            names = str(self._names[first]), str(self._names[number])
            if other.keys() != batch.keys():
                raise UsageError(_odd_keys(names[0], batch, names[1], other))
            for key, column in batch.items():
                if _outline(column) != _outline(other[key]):
                    one, two = _shown(column), _shown(other[key])
                    raise UsageError(
                        f"mix: {key} is {one} of {names[0]}, and {two} of {names[1]}: make them alike in a "
                        "function given to map"
                    )


def _mapped(fns: Sequence[Callable[[Any], Any]], key: str, name: str, row: Mapping[str, Any]) -> Any:
    """What functions make of a row with its source; without the source, which `MixedRows` adds."""
    made: Any = {key: name, **row}
    for fn in fns:
        made = fn(made)
    if isinstance(made, Mapping) and isinstance(made.get(key), str) and made[key] == name:
        return {own: value for own, value in made.items() if own != key}
    return made


class _JoinedRows:
    """The rows of several datasets, read through one source that has all rows of their sources."""

    def __init__(self, source: RowSource, parts: Sequence[Dataset[Any]], bounds: Ints):
        """
        Args:
            bounds: (S + 1,) where the rows of each dataset begin.
        """
        self._source, self._columns, self._bounds = source, parts[0].columns, bounds
        starts = np.cumsum([0, *(len(part.source) for part in parts)])[:-1]
        self._starts: Ints = starts.astype(np.int64)
        self._rows = [part.stored_rows for part in parts]
        self._moves: Ints | None = None  # from number to position, where each dataset's rows are a run
        if all(isinstance(rows, range) and rows.step == 1 for rows in self._rows):
            firsts = np.array([rows[0] if len(rows) else 0 for rows in self._rows], np.int64)
            self._moves = self._starts + firsts - bounds[:-1]

    def batch(self, numbers: Ints, sources: Ints, out: Mapping[str, Array] | None) -> Batch:
        """Many rows by number, of the datasets that `sources` tell."""
        if self._moves is not None:
            return self._source.take(numbers + self._moves[sources], self._columns, out)
        positions = np.empty(len(numbers), np.int64)
        for source in set(sources.tolist()):
            there = np.flatnonzero(sources == source)
            own = numbers[there] - self._bounds[source]
            positions[there] = views.at(self._rows[source], own) + self._starts[source]
        return self._source.take(positions, self._columns, out)


def pins_of(rows: Dataset[Any]) -> dict[str, Any]:
    """What the order of a dataset's rows follows from: version, number of rows, and a digest of which rows of
    which logs they are."""
    digest = views.digest_of_rows(rows.stored_rows, rows.source.stretches)[:32]
    return {"version": _version_of(rows), "rows": len(rows), "digest": digest}


def check_pins(state: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Check that a loader's state is of the rows that it has.

    Args:
        state: of a loader; step and seed alone fit any rows but a mixture.
        own: {"shuffle", "mix": `Mixture.pins`} of a mixture, {"shuffle", "dataset": `pins_of`} of a dataset,
            {} of other sources; "groups" beside them where `shuffle` is.

    Raises:
        UsageError: they don't; the message has the differences and a remedy.
    """
    there, here = _kind_of(state), _kind_of(own)
    if there != here and (there or here == "mix"):
        raise UsageError(f"this is the state of a loader over {_KINDS[there]}, not over {_KINDS[here]}")
    if not there:
        return
    before, now = _flat(state[there], there), _flat(own[there], there)
    if isinstance(state.get("shuffle"), bool | str):
        if "groups" in (state["shuffle"], own["shuffle"]) and state["shuffle"] != own["shuffle"]:
            raise UsageError(
                f"this is the state of a loader with shuffle={state['shuffle']!r}, not "
                f"shuffle={own['shuffle']!r}: rows would come twice, or not at all; pass "
                f"shuffle={state['shuffle']!r}, or begin anew without load()"
            )
        before["shuffle"], now["shuffle"] = state["shuffle"], own["shuffle"]
    before |= _flat_groups(state)
    now |= _flat_groups(own)
    differ = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    if differ:
        changes = "; ".join(f"{key} was {before.get(key)}, is {now.get(key)}" for key in differ[:10])
        raise UsageError(
            f"this is the state of a loader over {'another mixture' if there == 'mix' else 'other rows'}: "
            f"{changes}. Rows would come twice, or not at all; open what it had, by version (urban@3) and by "
            "the same filters and views, or begin anew without load()"
        )


def _kind_of(pins: Mapping[str, Any]) -> str:
    return next((kind for kind in ("mix", "dataset") if pins.get(kind) is not None), "")


def _flat_groups(pins: Mapping[str, Any]) -> dict[str, Any]:
    groups = pins.get("groups")
    if not isinstance(groups, Mapping):
        return {}
    return {"shuffle_groups": groups.get("pool"), "digest of the row groups": groups.get("digest")}


def _flat(pins: Any, kind: str) -> dict[str, Any]:
    try:
        if kind == "dataset":
            return {"version": pins["version"], "rows": pins["rows"], _DIGEST: pins["digest"]}
        found = {key: pins[key] for key in ("seed", "repeat")}
        for number, source in enumerate(pins["sources"]):
            own = {key: source[key] for key in ("version", "rows", "share")} | {_DIGEST: source["digest"]}
            found |= {f"{key} of {source['name']}": value for key, value in {"place": number, **own}.items()}
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"{pins!r} is no state of {_KINDS[kind]}; `save` of its loader returns one"
        ) from error
    return found


def _check_alike(parts: Mapping[str, Dataset[Any]], key: str) -> None:
    """
    Raises:
        UsageError: samples differ in their keys or types, as far as known before functions run.
    """
    (first, view), *others = parts.items()
    for name, other in others:
        if other.is_mapped == view.is_mapped and other.window_steps != view.window_steps:
            steps = f"{other.window_steps} rows, {first} of {view.window_steps} (0: no windows)"
            raise UsageError(f"mix: {name} has windows of {steps}")
        if not other.is_mapped and not view.is_mapped and other.keys == view.keys:
            odd = [key for key in view.keys if other.steps_of(key) != view.steps_of(key)]
            if odd:
                lengths = f"{other.steps_of(odd[0])} rows, {first} of {view.steps_of(odd[0])}"
                raise UsageError(f"mix: {name} has windows of {odd[0]} of {lengths} (0: no window)")
        if not other.is_mapped and not view.is_mapped and other.keys != view.keys:
            common_schema([view, other], "mix")  # which says more
            raise UsageError(_odd_keys(first, dict.fromkeys(view.keys), name, dict.fromkeys(other.keys)))
    if not any(part.is_mapped for part in parts.values()):
        common_schema(list(parts.values()), "mix")
    for name, part in parts.items():
        if key in part.keys:
            raise UsageError(f"mix: {name} has a column {key!r}; call the source otherwise, with key=…")


def _odd_keys(first: str, one: Mapping[str, Any], name: str, other: Mapping[str, Any]) -> str:
    lacks = [f"lacks {key}" for key in one if key not in other]
    more = [f"also has {key}" for key in other if key not in one]
    return f"mix: {name} {'; '.join([*lacks, *more])}; {first} does not. Choose by select([…]) what all have"


def _outline(column: Any) -> tuple[Any, ...]:
    """What a column of two batches needs to have alike."""
    values = column[0] if isinstance(column, tuple) else column
    own = (values.dtype, values.shape[1:]) if isinstance(values, np.ndarray) else ()
    return (type(column), *own)


def _shown(column: Any) -> str:
    if isinstance(column, tuple):
        return f"ragged {column[0].dtype} {list(column[0].shape[1:])}"
    return f"{column.dtype} {list(column.shape[1:])}" if isinstance(column, np.ndarray) else "a list"


def _version_of(part: Dataset[Any]) -> int | list[int] | None:
    """A list where several datasets were put end to end before; None of what has no versions."""
    found = [int(number) for number in _VERSION.findall(part.place)]
    return found if len(found) > 1 else next(iter(found), None)
