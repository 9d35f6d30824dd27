"""Gaps between rows: counting ticks that are no rows, and what dropped them."""

import itertools

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from logloom.transforms.rows.gaps import Cut, GapTally, TickGaps, cuts_of, filtered_gaps, merged_cuts

STEP = 100
REASONS = ("purged", "require cam", "where")


def counted_one_by_one(masks):
    """The gaps of ticks 0, 100, 200 …: {(mask, ticks): [number, first tick, longest]}, before, after."""
    runs = [
        (mask != 0, [*own]) for mask, own in itertools.groupby(range(len(masks)), key=lambda i: masks[i] != 0)
    ]
    between, before, after = {}, (), ()
    for place, (dropped, own) in enumerate(runs):
        if not dropped or not own:
            continue
        union = 0
        for tick in own:
            union |= masks[tick]
        edge = union, own[0] * STEP, own[-1] * STEP
        if place == 0:
            before = edge
        elif place == len(runs) - 1:
            after = edge
        else:
            one = between.setdefault((union, len(own)), [0, own[0] * STEP, 0])
            one[0] += 1
            one[2] = (len(own) + 1) * STEP
    return between, before, after


@given(
    st.lists(st.sampled_from([0, 0, 0, 1, 2, 4, 6]), max_size=40), st.lists(st.integers(0, 40), max_size=4)
)
def test_gaps_are_those_that_one_counts_tick_by_tick_wherever_pieces_end(masks, cuts):
    gaps = TickGaps(REASONS)
    for start, stop in itertools.pairwise(sorted({0, len(masks), *(min(cut, len(masks)) for cut in cuts)})):
        ticks = np.arange(start, stop, dtype=np.int64) * STEP
        gaps.add(ticks, np.array(masks[start:stop], np.uint64))
    between, before, after = counted_one_by_one(masks)
    tally = gaps.tally()
    assert {tuple(one[:2]): [*one[2:]] for one in tally.between} == between
    assert (tally.before, tally.after) == (before, after)
    assert tally.reasons == (REASONS if any(masks) else ())


def test_reasons_beyond_a_masks_bits_share_the_last_one():
    gaps = TickGaps([f"require c{number}" for number in range(70)])
    masks = np.zeros(3, np.uint64)
    masks[1] = gaps.bit("require c3") | gaps.bit("require c69")
    gaps.add(np.array([0, 100, 200], np.int64), masks)
    (mask, *_), tally = gaps.tally().between[0], gaps.tally()
    assert tally.of(mask)[0] == "require c3"
    assert "require c69" in tally.of(mask)


def test_a_gap_over_the_edge_of_two_spans_is_one_and_has_the_reasons_of_both():
    first = GapTally(REASONS, ((2, 2, 3, 1000, 300),), after=(2, 5000, 5100))
    second = GapTally(REASONS, ((4, 1, 1, 9000, 200),), before=(4, 5200, 5300))
    ends = [(900, 1200), (1900, 2200), (2900, 3200), (4900, 5400), (8900, 9100)]
    cuts = cuts_of([first, second], ends, 150, STEP, "a")
    found = {cut.reasons: (cut.number, cut.longest, cut.first) for cut in cuts}
    assert found == {
        ("require cam",): (3, 300, 1000),
        ("require cam", "where"): (1, 500, 5000),
        ("where",): (1, 200, 9000),
    }


def test_a_gap_without_ticks_and_one_of_seconds_are_told_apart_from_short_ones():
    tally = GapTally(REASONS, ((2, 1, 2, 1000, 2 * 10**6), (2, 50, 1, 2000, 5 * 10**9)))
    hour = 3600 * 10**9
    ends = [(0, 2 * 10**6), (10**7, 10**7 + 2 * 10**6), (10**8, 10**8 + 5 * 10**9), (10**11, 10**11 + hour)]
    cuts = cuts_of([tally], ends, 10**6, 10**6, "a")
    assert [(cut.reasons, cut.is_long, cut.number, cut.longest) for cut in cuts] == [
        ((), True, 1, hour),
        (("require cam",), False, 2, 2 * 10**6),
        (("require cam",), True, 1, 5 * 10**9),
    ]
    # Gaps no longer than the limit end nothing.
    assert [cut.is_long for cut in cuts_of([tally], ends[2:], 3 * 10**6, 10**6, "a")] == [True, True]


def test_gaps_of_a_topics_clock_that_end_nothing_are_not_counted():
    """Three gaps of one tick each: two short ones, and one in which the topic was silent, too."""
    gaps = TickGaps(REASONS)
    times = np.array([0, 100, 200, 300, 700, 800, 900, 1000], np.int64)
    masks = np.zeros(len(times), np.uint64)
    masks[[1, 3, 6]] = gaps.bit("require cam")
    gaps.add(times, masks)
    (cut,) = cuts_of([gaps.tally()], [(200, 700)], 250, None, "a")
    assert (cut.reasons, cut.number, cut.longest) == (("require cam",), 1, 500)


@given(st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 8, 8]), max_size=40))
@example([0, 1, 8])
@example([8, 1, 1, 0, 2, 8, 8, 0])
def test_gaps_of_rows_that_are_filtered_later_are_those_of_all_masks_at_once(masks):
    """Bit 3 is the filter; of gaps of equally many ticks, only the first is found by its place."""
    masks, times = np.array(masks, np.uint64), np.arange(len(masks), dtype=np.int64) * STEP
    is_later = masks == 8
    early, at_once = TickGaps(REASONS), TickGaps((*REASONS, "later"))
    early.add(times, np.where(is_later, 0, masks).astype(np.uint64))
    at_once.add(times, masks)
    rows = masks[(masks == 0) | is_later]
    found = filtered_gaps(early.tally(), times[(masks == 0) | is_later], rows == 0, "later", STEP)
    expected = at_once.tally()
    if not is_later.any():
        assert found == early.tally()
        return

    def ends(tally):
        """Gaps by their number of ticks, and how many have each reason."""
        ticks, named = {}, {}
        for mask, count, number, _, longest in tally.between:
            ticks[count] = ticks.get(count, 0) + number
            assert longest == (count + 1) * STEP
            named["later" in tally.of(mask)] = named.get("later" in tally.of(mask), 0) + number
        return ticks, named

    def by_reasons(tally):
        gaps = [*tally.between, *filter(None, (tally.before, tally.after))]
        return sorted((tally.of(mask), *rest) for mask, *rest in gaps)

    assert ends(found) == ends(expected)
    assert found.reasons == (*(early.tally().reasons), "later")
    assert [one[1:] for one in (found.before, found.after)] == [
        one[1:] for one in (expected.before, expected.after)
    ]
    for one, other in ((found.before, expected.before), (found.after, expected.after)):
        assert bool(one) == bool(other)
        assert not one or ("later" in found.of(one[0])) == ("later" in expected.of(other[0]))
    numbers = [one[1] for one in early.tally().between]
    if len(set(numbers)) == sum(one[2] for one in early.tally().between):  # each is found by its ticks
        assert by_reasons(found) == by_reasons(expected)


def test_gaps_of_several_logs_are_summed_by_what_ended_them():
    cuts = [
        Cut(("where",), False, 2, 400, 70, "b"),
        Cut(("where",), False, 1, 900, 80, "a"),
        Cut(("where",), True, 1, 10**10, 10, "a"),
        Cut((), False, 3, 500, 20, "b"),
    ]
    assert merged_cuts(cuts) == (cuts[3], Cut(("where",), False, 3, 900, 80, "a"), cuts[2])
