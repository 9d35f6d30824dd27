"""Times of versions: recorded beside manifests, and relied on only where no clock contradicts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import DatasetError, UsageError
from logloom.io.catalog import commit_times
from logloom.io.catalog.commit_times import (
    CLOCKS_APART_S,
    CommitTimes,
    _in_order,
    first_since,
    is_day,
    read_times,
    times_file,
    version_of_day,
    write_times,
)
from logloom.io.storage.store import Store
from tests.files import flip

START = 1_767_225_600  # 2026-01-01
DAY = 86400
NOW = START + 1000 * DAY


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.at(str(tmp_path / "root"))


def commit_at(store, monkeypatch, times):
    """Records when versions were committed, by number."""
    for number, at in times.items():
        monkeypatch.setattr(commit_times, "clock", lambda at=at: at)
        write_times(store, number, at - 60)


def test_the_first_commit_of_a_version_counts(store, monkeypatch):
    commit_at(store, monkeypatch, {1: START})
    commit_at(store, monkeypatch, {1: START + DAY})
    found = read_times(store, 1)
    assert (found.version, found.started, found.committed) == (1, START - 60, START)
    assert read_times(store, 2) is None


def test_a_clock_that_ran_back_or_ahead_is_reported_and_not_relied_on(store, monkeypatch):
    commit_at(store, monkeypatch, {1: START, 2: START + 900 * DAY, 3: START + DAY, 5: 60, 6: START + 2 * DAY})
    commit_at(store, monkeypatch, {7: START + 2 * DAY - CLOCKS_APART_S, 8: NOW + DAY})
    found = CommitTimes.of(store, range(1, 9), NOW)
    assert list(found.known) == [1, 3, 6, 7]
    assert found.missing == (4,)
    assert [text.partition(":")[0] for text in found.problems] == ["version 2", "version 5", "version 8"]
    assert "2028-06-19" in found.problems[0]
    assert "a clock that was wrong then, or ran back" in found.problems[0]


def test_a_build_that_ended_before_it_began_has_no_time(store, monkeypatch):
    monkeypatch.setattr(commit_times, "clock", lambda: START)
    write_times(store, 1, START + DAY)
    assert CommitTimes.of(store, [1], NOW).known == {}


def test_the_version_of_a_day_is_the_last_one_up_to_its_end(store, monkeypatch):
    commit_at(store, monkeypatch, {1: START, 2: START + DAY - 1, 3: START + DAY, 6: START + 9 * DAY})
    monkeypatch.setattr(commit_times, "clock", lambda: NOW)
    numbers = [1, 2, 3, 4, 6]
    assert version_of_day(store, "2026-01-01", numbers) == 2
    assert version_of_day(store, "2026-01-10", numbers) == 6
    assert version_of_day(store, "2026-05-01", numbers) == 6
    assert version_of_day(store, "2199-01-01", [*numbers, 7]) == 7
    with pytest.raises(
        UsageError, match="no version up to the end of 2025-12-31: the first one is of 2026-01-01"
    ):
        version_of_day(store, "2025-12-31", numbers)
    with pytest.raises(UsageError, match=r"some versions have no recorded commit time \(4\), so the last"):
        version_of_day(store, "2026-01-04", numbers)
    with pytest.raises(UsageError, match=r"some versions have no recorded commit time \(7, 8\)"):
        version_of_day(store, "2026-01-04", [7, 8])
    assert [first_since(store, day, numbers) for day in ("2025-12-31", "2026-01-01", "2026-01-02")] == [
        1,
        1,
        3,
    ]
    assert [first_since(store, day, numbers) for day in ("2026-01-03", "2026-01-11")] == [4, 7]
    for text in ("2026-1-1", "2026-13-01", "latest", "7", "20260101"):
        assert not is_day(text)


@pytest.mark.parametrize("how", ["flipped", "cut", "another's"])
def test_a_damaged_file_of_times_is_named_and_not_relied_on(store, monkeypatch, how):
    commit_at(store, monkeypatch, {1: START, 2: START + DAY})
    path = store.path_of(times_file(1))
    if how == "flipped":
        path.chmod(0o644)
        flip(path, 20)
    else:
        store.replace(times_file(1), path.read_bytes()[:-9] if how == "cut" else store.read(times_file(2)))
    with pytest.raises(DatasetError, match=r"00000001\.times\.json: .*backup, or remove it"):
        read_times(store, 1)
    found = CommitTimes.of(store, [1, 2], NOW)
    assert (found.known, found.missing) == ({2: START + DAY}, ())
    assert "00000001.times.json" in found.problems[0]


@given(st.lists(st.integers(0, 12).map(lambda at: at * DAY), max_size=9))
def test_no_more_times_ascend_than_those_that_are_relied_on(times):
    fits = _in_order(times)
    kept = [at for at, one in zip(times, fits, strict=True) if one]
    assert kept == sorted(kept)
    longest: list[int] = []  # that ends at each place
    for place, at in enumerate(times):
        longest.append(1 + max((longest[i] for i in range(place) if times[i] <= at), default=0))
    assert len(kept) == max(longest, default=0)
