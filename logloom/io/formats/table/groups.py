"""Column groups: which columns of a table are stored together.

Here: the default groups, the groups a caller names, and the cheapest cover of columns by groups.
Elsewhere: the layout of a group's columns in a chunk (logloom.io.formats.table.chunks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logloom.errors import UsageError
from logloom.io.formats.table.chunks import row_bytes
from logloom.io.formats.table.description import LONGEST_NAME
from logloom.schema import Schema

SMALL_COLUMN = 1024  # bytes; larger columns have a group of their own
# No column can have this name (a hyphen), so the default groups' names never collide.
SMALL_GROUP = "small-columns"
META_GROUP = "meta"

LOCAL_REQUEST = 64 << 10  # bytes that could be read in the time a request takes
REMOTE_REQUEST = 1 << 20
_MAX_STEPS = 5_000


def make_groups(
    schema: Schema, named: Mapping[str, str | Sequence[str]] | None = None
) -> dict[str, tuple[str, ...]]:
    """Make the groups of a table: the named ones, then default groups for columns in none of them.

    By default small columns of fixed shape share a group, large and ragged ones have their own (of the
    column's name), ages and availabilities share another. This follows from declared types alone.

    Args:
        schema: of the table.
        named: group name to patterns (`Schema.select`). Groups may overlap: a column in two of them is stored
            twice, and a call reads whichever costs less.

    Raises:
        UsageError: a pattern matches nothing, or a name can't be a file's.
    """
    groups: dict[str, tuple[str, ...]] = {}
    for name, patterns in (named or {}).items():
        if not name or not name.replace("-", "_").replace(".", "_").isidentifier():
            raise UsageError(f"group {name!r}: names are made of letters, digits, dots, - and _")
        groups[name] = schema.select([patterns] if isinstance(patterns, str) else patterns)
    held = {column for columns in groups.values() for column in columns}
    defaults: dict[str, list[str]] = {}
    for column, ctype in schema.columns.items():
        if column not in held:
            alone = ctype.is_ragged or row_bytes(ctype) > SMALL_COLUMN
            defaults.setdefault(column if alone else SMALL_GROUP, []).append(column)
    meta = [column for column in schema.meta if column not in held]
    if meta:
        defaults[META_GROUP] = meta
    for name, default in defaults.items():
        if name in groups:
            raise UsageError(f"group {name!r} leaves out {', '.join(default)}, whose own group has that name")
        groups[name] = tuple(default)
    if long := [name for name in groups if len(name) > LONGEST_NAME]:
        raise UsageError(
            f"group {long[0][:40]}…: {len(long[0])} letters, where a file's name has at most {LONGEST_NAME}; "
            "name groups of long columns, such as groups={'short': ['" + long[0][:12] + "*']}"
        )
    return groups


def cheapest_cover(
    wanted: Sequence[str], groups: Mapping[str, Sequence[str]], costs: Mapping[str, float]
) -> tuple[str, ...]:
    """Choose groups that contain all `wanted` columns at the least total cost.

    Exact up to about a dozen overlapping groups; beyond `_MAX_STEPS` steps of the search the best found so
    far (at worst the greedy choice) is taken. Ties go to the groups named first.

    Args:
        wanted: column names, each in at least one group.
        groups: name to columns.
        costs: of reading each group, any unit.
    """
    holders = {c: [g for g, columns in groups.items() if c in columns] for c in wanted}
    forced = {found[0] for found in holders.values() if len(found) == 1}
    held = {c for g in forced for c in groups[g]}
    rest = frozenset(c for c in wanted if c not in held)
    chosen = forced | _cover_rest(rest, groups, costs)
    return tuple(g for g in groups if g in chosen)


def _cover_rest(
    rest: frozenset[str], groups: Mapping[str, Sequence[str]], costs: Mapping[str, float]
) -> frozenset[str]:
    """Branch and bound: cover the rarest remaining column by each of its groups in turn."""
    useful = {g: held for g, columns in groups.items() if (held := frozenset(columns) & rest)}
    holders = {c: [g for g in useful if c in useful[g]] for c in rest}
    for found in holders.values():
        found.sort(key=lambda g: costs[g])
    rarest = sorted(rest, key=lambda c: (len(holders[c]), c))
    best = _greedy(rest, useful, costs)
    best_cost = sum(costs[g] for g in best)
    steps = 0

    def search(covered: frozenset[str], taken: frozenset[str], cost: float) -> None:
        nonlocal best, best_cost, steps
        steps += 1
        column = next((c for c in rarest if c not in covered), None)
        if column is None:
            best, best_cost = taken, cost
            return
        for group in holders[column]:
            if cost + costs[group] < best_cost and steps < _MAX_STEPS:
                search(covered | useful[group], taken | {group}, cost + costs[group])

    search(frozenset(), frozenset(), 0.0)
    return best


def _greedy(
    rest: frozenset[str], useful: Mapping[str, frozenset[str]], costs: Mapping[str, float]
) -> frozenset[str]:
    taken: set[str] = set()
    while rest:
        group = min((g for g in useful if useful[g] & rest), key=lambda g: costs[g] / len(useful[g] & rest))
        taken.add(group)
        rest = rest - useful[group]
    return frozenset(taken)
