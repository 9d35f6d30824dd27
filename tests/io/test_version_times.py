"""Times of versions: recorded beside manifests, and relied on only where no clock contradicts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import DatasetError
from logloom.io import version_times
from logloom.io.storage import Store
from logloom.io.version_times import (
    CLOCKS_APART_S,
    CommitTimes,
    _in_order,
    read_times,
    times_file,
    write_times,
)
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
        monkeypatch.setattr(version_times, "clock", lambda at=at: at)
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
    monkeypatch.setattr(version_times, "clock", lambda: START)
    write_times(store, 1, START + DAY)
    assert CommitTimes.of(store, [1], NOW).known == {}


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
