"""Rows made slowly and obviously: one tick, one column and one message at a time, over the whole log at once.

It follows the definition of rows sentence by sentence, and shares only the plan's types with the kernels.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np

from logloom.schema import NO_AGE
from logloom.transforms.rows.plan.row_plan import RateClock, SyncClock
from tests.resample.matching_reference import tightest_first

NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000000))[0]


def ticks_of(log, plan):
    """All ticks of a log, as Python ints."""
    summary = log.summary
    if isinstance(plan.clock, SyncClock):
        return sorted(sets_of(log, plan.clock))
    if not isinstance(plan.clock, RateClock):
        clock = log.topics.get(plan.clock.topic)
        return [] if clock is None else sorted({m[0] for m in usable(log, plan.clock.topic, plan.clock)})
    if summary.num_messages == 0:
        return []
    step = Fraction(10**9) / Fraction(plan.clock.rate)
    runs, _ = runs_of(log)
    columns = [c.sampling for c in plan.columns if c.sampling.policy != "static"]
    after = max([0, *(c.back + c.offset for c in columns)])
    before = max([0, *(c.forward - c.offset for c in columns)])
    ticks = set()
    for run in runs:
        first, last = max(runs[0][0], run[0] - before), min(runs[-1][-1], run[-1] + after)
        k = math.floor(Fraction(first) / step) - 2
        while (tick := math.floor(k * step)) <= last:
            if tick >= first:
                ticks.add(tick)
            k += 1
    return sorted(ticks)


def runs_of(log):
    """The log times of all topics, as runs of messages up to an hour apart, and those that are strays."""
    hour, day, year_2000 = 3600 * 10**9, 86400 * 10**9, 946684800 * 10**9
    runs = []
    for time in sorted(t for topic in log.topics.values() for t in topic.log_times.tolist()):
        if not runs or time - runs[-1][-1] > hour:
            runs.append([])
        runs[-1].append(time)
    strays = [run for run in runs if run[-1] < year_2000 <= runs[-1][-1]]
    known = [run for run in runs if run not in strays]
    largest = max(known, key=len, default=None)
    total = sum(map(len, known))
    small = [
        run
        for run in known
        if max(run[0] - largest[-1], largest[0] - run[-1]) > day
        and (len(run) <= 3 or len(run) * 100 <= total)
    ]
    strays += small if 2 * sum(map(len, small)) < total else []
    return [run for run in runs if run not in strays], strays


def sets_of(log, clock):
    """By tick, the time of each topic's message in its matched set."""
    if not all(topic in log.topics for topic in clock.topics):
        return {}
    times = [sorted({m[0] for m in usable(log, topic, clock)}) for topic in clock.topics]
    stamp = clock.topics.index(clock.stamp)
    sets = tightest_first(times, stamp, clock.within)
    return {one[stamp]: dict(zip(clock.topics, one, strict=True)) for one in sets}


def usable(log, topic, rule):
    """[(message time, position, index)] of the usable messages of a topic, in that order."""
    found = log.topics[topic]
    messages = []
    strays = {time for run in runs_of(log)[1] for time in run}
    for i, (stamp, log_time) in enumerate(zip(found.stamps.tolist(), found.log_times.tolist(), strict=True)):
        too_late = rule.max_delay is not None and abs(stamp - log_time) > rule.max_delay
        if stamp != 0 and not too_late and log_time not in strays:
            messages.append((stamp, int(found.positions[i]), i))
    return sorted(messages)


def rows_of(log, plan):
    """One dict per row: timestamp, and for each column c its value or None, c.age, c.available.

    Also the indices of the messages that stand in rows, by column.
    """
    rows, used = [], {c.name: set() for c in plan.columns}
    messages = {c.name: _messages(log, c) for c in plan.columns}
    sets = sets_of(log, plan.clock) if isinstance(plan.clock, SyncClock) else {}
    for tick in ticks_of(log, plan):
        row, uses = {"timestamp": tick}, {}
        for column in plan.columns:
            value, age, chosen = _at(log, column, messages[column.name], tick, sets.get(tick))
            row[column.name] = value
            row[f"{column.name}.age"] = age
            row[f"{column.name}.available"] = value is not None
            uses[column.name] = chosen
        if all(row[f"{name}.available"] for name in plan.require):
            rows.append(row)
            for name, chosen in uses.items():
                used[name] |= set(chosen)
    return rows, used


def _messages(log, column):
    """[(message time with offset, value, index)] that the column can use, in order."""
    if column.topic not in log.topics:
        return []
    values = log.topics[column.topic].fields[column.spec.paths[0]][1]
    if column.ctype.dtype.kind == "U":
        values = [value.tobytes().decode() for value in values]
    if column.sampling.policy == "static":
        return [(0, values[i], i) for i in range(len(values))]
    found = [
        (time + column.sampling.offset, values[i], i) for time, _, i in usable(log, column.topic, column)
    ]
    if column.sampling.policy == "slerp":
        broken = _broken(log, column)
        found = [m for m in found if m[2] in broken or any(part != 0 for part in m[1].tolist())]
    return found


def _at(log, column, messages, tick, matched=None):
    """(value or None, age, indices used) of a column at a tick; only windows do without broken messages."""
    broken = _broken(log, column)
    if column.sampling.rules.uses in ("window", "tick"):
        messages = [m for m in messages if m[2] not in broken]
    value, age, used = _of_all(log, column, messages, tick, matched)
    return (None, NO_AGE, []) if broken & set(used) else (value, age, used)


def _broken(log, column):
    """The indices of messages whose values can't be read; a count reads none."""
    broken = log.topics[column.topic].broken if column.topic in log.topics else None
    if broken is None or column.sampling.policy == "count":
        return set()
    return set(np.flatnonzero(broken).tolist())


def _of_all(log, column, messages, tick, matched):
    policy, tolerance = column.sampling.policy, column.sampling.tolerance
    if policy == "static":
        if not messages:
            return None, NO_AGE, []
        _, value, i = messages[-1]
        return value, tick - int(log.topics[column.topic].log_times[i]), [i]
    if policy == "all":
        now = [m for m in messages if m[0] == tick]
        return (np.array([m[1] for m in now]), 0, [m[2] for m in now]) if now else (None, NO_AGE, [])
    a, b = column.sampling.window
    window = [m for m in messages if tick + a < m[0] <= tick + b]
    if policy == "count":
        return len(window), tick - window[-1][0] if window else NO_AGE, [m[2] for m in window]
    if policy in ("window", "mean", "min", "max", "sum", "first", "last"):
        if not window:
            return None, NO_AGE, []
        value = _reduced(policy, [m[1] for m in window])
        return value, tick - window[-1][0], [m[2] for m in window]
    singles = {}
    for message in messages:
        singles[message[0]] = message  # the last of equal times stays
    before = max((m for m in singles if m <= tick), default=None)
    after = min((m for m in singles if m >= tick), default=None)
    if before is not None and tick - before > tolerance:
        before = None
    if after is not None and after - tick > tolerance:
        after = None
    if policy in ("linear", "slerp", "angle"):
        return _between(policy, singles, before, after, tick)
    if policy == "previous":
        found = before
    elif policy == "next":
        found = after
    elif policy == "matched":
        found = matched[column.topic] if matched[column.topic] in singles else None
    elif policy == "exact":
        found = tick if tick in singles else None
    elif before is None or after is None:  # nearest
        found = after if before is None else before
    else:
        found = before if tick - before <= after - tick else after
    if found is None:
        return None, NO_AGE, []
    return singles[found][1], tick - found, [singles[found][2]]


def _reduced(policy, values):
    if policy == "window":
        return np.array(values)
    if policy == "first":
        return values[0]
    if policy == "last":
        return values[-1]
    flat = [np.asarray(value).reshape(-1).tolist() for value in values]
    result = []
    for numbers in zip(*flat, strict=True):
        if policy in ("min", "max"):
            best = numbers[0]
            for number in numbers[1:]:
                if best != best:
                    break
                if number != number or (number < best if policy == "min" else number > best):
                    best = number
            result.append(best)
        else:
            total = float(numbers[0])
            for number in numbers[1:]:
                total = total + float(number)
            if policy == "mean":
                total = total / float(len(numbers))
            result.append(NAN if total != total else total)
    dtype = values[0].dtype if policy in ("min", "max") else np.float64
    return np.array(result, dtype).reshape(np.shape(values[0]))


def _between(policy, singles, before, after, tick):
    if before is None or after is None:
        return None, NO_AGE, []
    alone = {"linear": float, "angle": lambda x: wrap(float(x))}
    a, b = singles[before][1], singles[after][1]
    x, y = (np.asarray(v, np.float64).reshape(-1).tolist() for v in (a, b))
    w = None if before == after else float(tick - before) / float(after - before)
    if policy == "slerp":
        result = unit(x) if w is None else slerp(x, y, w)
    elif w is None:
        result = [alone[policy](number) for number in x]
    elif policy == "linear":
        result = [p + (q - p) * w for p, q in zip(x, y, strict=True)]
    else:
        result = [wrap(p + wrap(q - p) * w) for p, q in zip(x, y, strict=True)]
    result = [NAN if number != number else number for number in result]
    used = {singles[before][2], singles[after][2]}
    return np.array(result, np.float64).reshape(np.shape(a)), tick - before, sorted(used)


def wrap(x):
    """Radians in (-pi, pi]."""
    if math.isinf(x) or x != x:
        return NAN
    turn = 2 * math.pi
    while abs(x) > turn:
        x = x - math.floor(x / turn) * turn
    if x <= -math.pi:
        x = x + turn
    if x > math.pi:
        x = x - turn
    return x


def unit(q):
    largest = abs(q[0])
    for part in q[1:]:
        if abs(part) > largest:
            largest = abs(part)
    if largest == 0 or largest != largest or any(p != p for p in q) or math.isinf(largest):
        return [NAN] * 4
    q = [part / largest for part in q]
    norm = math.sqrt(dot(q, q))
    return [part / norm for part in q]


def dot(a, b):
    total = a[0] * b[0]
    for p, q in zip(a[1:], b[1:], strict=True):
        total = total + p * q
    return total


def series(coefficients, z):
    total = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = total * z + coefficient
    return total


SINE = [float(Fraction((-1) ** n, math.factorial(2 * n + 1))) for n in range(12)]
ARCSINE = [float(Fraction(math.comb(2 * n, n), 4**n * (2 * n + 1))) for n in range(13)]


def slerp(a, b, w):
    a, b = unit(a), unit(b)
    d = dot(a, b)
    if d != d:
        return [NAN] * 4
    if d < 0:
        b, d = [-part for part in b], -d
    if d > 0.9995:
        return unit([p + (q - p) * w for p, q in zip(a, b, strict=True)])
    s, c = math.sqrt((1 - d) * 0.5), math.sqrt((1 + d) * 0.5)
    for _ in range(2):
        c = math.sqrt((1 + c) * 0.5)
        s = s / (2 * c)
    theta = 8 * (s * series(ARCSINE, s * s))

    def sine(x):
        return x * series(SINE, x * x)

    return [
        (p * sine((1 - w) * theta) + q * sine(w * theta)) / sine(theta) for p, q in zip(a, b, strict=True)
    ]
