"""Find the elements of arrays with elements of varying size.

Structs with text are an example.

Here: `element_places`.
Elsewhere: the nodes that are walked (wire), reading bytes (logloom.io.logs.messages.cursor).
The second element starts where the first one ends, so finding them takes a step for each. But topics repeat
themselves: messages of one size mostly have their elements at the same places. So one of several similar
messages is walked, and its places are tried on the others, all at once: if each element, read from its
expected start, ends where the next one is expected, then by induction all places are right. Other messages
are walked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from logloom.blocks import run_indices
from logloom.io.logs.messages.cursor import At, Cursor, MisfitError, settle, spread

if TYPE_CHECKING:
    from logloom.io.logs.messages.ros.wire import Node

Int64s = NDArray[np.int64]

_FEW_ROWS = 4  # up to this many messages are walked one by one, so that a place is a plain int
_GUESSES = 4  # several publishers may send messages of one size
_MIXERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


def element_places(element: Node, cursor: Cursor, at: At, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Return where each element starts, for all messages concatenated, and the places after the arrays.

    Args:
        at: start of the first element of each message, (n,) or one for all.
        counts: (n,) elements of each message.

    Returns:
        (total,) and (n,).

    Raises:
        MisfitError: elements exceed their messages.
    """
    key = (element, at) if isinstance(at, int) else None
    if key is not None and key in cursor.places:
        return cursor.places[key]
    starts, ends = np.empty(int(counts.sum()), np.int64), spread(at, len(cursor)).copy()
    before = np.cumsum(counts) - counts
    left = np.flatnonzero(counts)
    for _ in range(_GUESSES if element.is_bounded else 0):
        if len(left) <= _FEW_ROWS:
            break
        first, which = _alike(cursor, ends, counts, left)
        if 2 * len(first) > len(left):
            break
        patterns, _ = _walked(element, cursor.take(first), ends[first], counts[first])
        begins = np.cumsum(counts[first]) - counts[first]
        guess = patterns[run_indices(begins[which], counts[left])]
        is_right, behind = _tried(element, cursor, left, guess, counts[left])
        right = left[is_right]
        starts[run_indices(before[right], counts[right])] = guess[np.repeat(is_right, counts[left])]
        ends[right] = behind[is_right]
        left = left[~is_right]
    if len(left):
        found, behind = _walked(element, cursor.take(left), ends[left], counts[left])
        starts[run_indices(before[left], counts[left])] = found
        ends[left] = behind
    if key is not None:
        cursor.places[key] = starts, ends
    return starts, ends


def _alike(cursor: Cursor, at: Int64s, counts: Int64s, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Group messages that look alike: the first of each kind, and the kind of each of `rows`."""
    looks = np.stack([cursor.size[rows], at[rows], counts[rows]]).view(np.uint64)
    if (looks == looks[:, :1]).all():
        return rows[:1], np.zeros(len(rows), np.int64)
    mixed = (looks * _MIXERS[:, None]).sum(axis=0, dtype=np.uint64)  # wraps
    _, first, which = np.unique(mixed, return_index=True, return_inverse=True)
    if (looks[:, first][:, which] != looks).any():  # two kinds were mixed up
        return rows, np.arange(len(rows))
    return rows[first], which


def _tried(
    element: Node, cursor: Cursor, rows: Int64s, guess: Int64s, counts: Int64s
) -> tuple[NDArray[np.bool_], Int64s]:
    """Check guessed places: a mask of the messages they fit, and the places after their arrays.

    Args:
        rows: the messages, each with elements.
        guess: (total,) of all elements of all of them.
        counts: of elements, of each of `rows`.
    """
    is_right, behind = np.ones(len(rows), bool), np.zeros(len(rows), np.int64)
    for _ in range(_GUESSES):
        tried = np.flatnonzero(is_right)
        if not len(tried):
            break
        places = guess[np.repeat(is_right, counts)]
        owner = np.repeat(tried, counts[tried])
        every = cursor.take(rows[owner])
        try:
            stops = spread(element.visit(every, settle(places), {}, {}), len(every))
        except MisfitError as misfit:
            is_right &= ~np.isin(cursor.rows[rows], misfit.rows)
            continue
        is_next = owner[1:] == owner[:-1]
        is_right[owner[1:][is_next & (stops[:-1] != places[1:])]] = False
        behind[tried] = stops[np.cumsum(counts[tried]) - 1]
        return is_right, behind
    return np.zeros(len(rows), bool), behind


def _walked(element: Node, cursor: Cursor, at: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """`element_places` by walking: the first element of each message, then the second, and so on."""
    starts, ends = np.empty(int(counts.sum()), np.int64), at.copy()
    before = np.cumsum(counts) - counts
    live, done, some = np.arange(len(cursor)), 0, cursor
    while len(live) > _FEW_ROWS:
        starts[before[live] + done] = ends[live]
        ends[live] = element.visit(some, settle(ends[live]), {}, {})
        done += 1
        if not (goes_on := counts[live] > done).all():
            live = live[goes_on]
            some = cursor.take(live) if len(live) else cursor
    for row in live.tolist():
        alone, place = cursor.take(np.array([row])), int(ends[row])
        for index in range(int(before[row]) + done, int(before[row] + counts[row])):
            starts[index] = place
            place = int(element.visit(alone, place, {}, {}))
        ends[row] = place
    return starts, ends
