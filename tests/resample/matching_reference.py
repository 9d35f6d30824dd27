"""Matched sets made slowly and obviously: from every set, or every matching, there is; and ROS's own rule."""

from __future__ import annotations

import bisect
import itertools


def key_of(times, stamp):
    """The order in which sets are matched: spread, distance, times."""
    return max(times) - min(times), sum(abs(t - times[stamp]) for t in times), times


def crosses(a, b):
    return not (
        all(x < y for x, y in zip(a, b, strict=True)) or all(x > y for x, y in zip(a, b, strict=True))
    )


def tightest_first(topics, stamp, within):
    """Every set there is, the tightest first, that crosses none before it."""
    near = [[t for t in times if all(_has(other, t, within) for other in topics)] for times in topics]
    sets = [one for at in near[stamp] for one in _around(near, stamp, at, within)]
    chosen = []
    for one in sorted(sets, key=lambda s: key_of(s, stamp)):
        if not any(crosses(one, other) for other in chosen):
            chosen.append(one)
    return sorted(chosen)


def _has(times, at, within):
    return any(abs(t - at) <= within for t in times)


def _around(topics, stamp, at, within):
    """Every set with a message of the stamping topic."""
    near = [[t for t in times if abs(t - at) <= within] for times in topics]
    near[stamp] = [at]
    return [one for one in itertools.product(*near) if max(one) - min(one) <= within]


def matchings(topics, within):
    """Every monotone matching there is."""
    yield ()
    for first in itertools.product(*topics):
        if max(first) - min(first) <= within:
            rest = [[t for t in times if t > at] for times, at in zip(topics, first, strict=True)]
            yield from ((first, *more) for more in matchings(rest, within))


def approximate_time(topics, within):
    """What ROS's message_filters.ApproximateTimeSynchronizer gives, in the order in which it gives it.

    It is greedy, as messages come (here by time, then by topic): with a message that comes it tries those
    that wait, of each topic the nearest first, and the first set of less than `within` goes out at once.
    """
    queues, made = [[] for _ in topics], []
    for at, k in sorted((t, k) for k, times in enumerate(topics) for t in times):
        bisect.insort(queues[k], at)
        near = [sorted((t for t in q if abs(t - at) <= within), key=lambda t: abs(t - at)) for q in queues]
        near[k] = [at]
        for one in itertools.product(*near):
            if max(one) - min(one) < within:
                made.append(one)
                for queue, used in zip(queues, one, strict=True):
                    queue.remove(used)
                break
    return made
