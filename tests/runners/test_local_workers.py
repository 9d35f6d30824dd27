"""Elements that worker processes make, without Beam."""

import contextlib
import logging
import os
import signal
import sys
import threading

import pytest

from logloom.errors import DatasetError, LogloomError
from logloom.io.storage.remote import retries
from logloom.metrics import collected, count
from logloom.runners.engine import JobFailedError
from logloom.runners.fork_server import ForkServer
from logloom.runners.inline import INLINE, Elements
from logloom.runners.local_workers import LocalWorkers, _AskedElement

HERE = os.getpid()


@pytest.fixture(scope="module")
def server():
    with contextlib.closing(ForkServer([__name__])) as started:
        yield started


@pytest.fixture
def start(server):
    with contextlib.closing(LocalWorkers(server, 2, {})) as workers:
        yield Elements([], workers)


def squared(number):
    count(squares=1)
    return number * number


def with_process(element, *others):
    return os.getpid(), element, *others


def up_to(number):
    return range(number)


def fail(element, error):
    raise error


def end(element, how):
    os.kill(os.getpid(), how)


class ParticularError(Exception):
    """Can't be pickled: it wants two arguments."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def leave(element):
    sys.exit("enough")


def unpicklable(element):
    return lambda: element


class Unreadable:
    """Pickled well, and not made again."""

    def __reduce__(self):
        return int, ("not a number",)


def asked_again(element):
    """As a store's client that retries and says so."""
    retries.watch()
    logging.getLogger("botocore.retryhandler").debug("Retry needed, action of: 0.1")
    logging.getLogger("somebody").error("on standard error")
    count(retries=retries.take())
    return element


def particular(element):
    raise ParticularError(1, 2)


def test_workers_make_the_elements_after_a_reshuffle_and_count_here(start):
    here = start | INLINE.Impulse() | INLINE.FlatMap(lambda one: range(40)) | INLINE.Reshuffle()
    with collected() as metrics:
        made = list(here | INLINE.Map(squared) | INLINE.Reshuffle() | INLINE.Map(with_process))
    assert sorted(square for _, square in made) == [number * number for number in range(40)]
    assert HERE not in {process for process, _ in made}
    assert metrics.counters == {"squares": 40}


def test_what_one_element_becomes_goes_to_any_worker_after_a_reshuffle(start):
    many = start | INLINE.Create([5, 0, 7]) | INLINE.FlatMap(up_to) | INLINE.Reshuffle() | INLINE.Map(squared)
    assert sorted(many) == sorted(number * number for most in (5, 7) for number in range(most))


def test_groups_have_all_values_and_are_made_into_elements_by_workers(start):
    keyed = start | INLINE.Create(range(9)) | INLINE.Map(divmod, 3)
    grouped = dict(group for _, group in keyed | INLINE.GroupByKey() | INLINE.Map(with_process))
    assert {key: sorted(values) for key, values in grouped.items()} == {key: [0, 1, 2] for key in range(3)}


def test_a_run_may_need_what_another_makes_while_it_is_under_way(start):
    outer = iter(start | INLINE.Create(range(20)) | INLINE.Map(squared))
    seen = [next(outer)]
    side = INLINE.pvalue.AsList(start | INLINE.Create([1, 2, 3]) | INLINE.Map(squared))
    ((_, _, others),) = start | INLINE.Create("a") | INLINE.Map(with_process, side)
    assert sorted(others) == [1, 4, 9]
    assert sorted([*seen, *outer]) == [number * number for number in range(20)]


@pytest.mark.parametrize(
    "error", [DatasetError("of a step"), ValueError("of Python"), OSError(5, "of a disk")]
)
def test_an_error_of_a_step_is_raised_here_with_its_place(start, error):
    with pytest.raises(type(error), match=str(error.args[-1])) as raised:
        list(start | INLINE.Create([1]) | INLINE.Map(fail, error))
    assert "in a worker process:" in raised.value.__notes__[0]
    assert "in fail" in raised.value.__notes__[0]


def test_an_error_that_can_not_be_pickled_is_raised_as_text(start):
    with pytest.raises(RuntimeError, match=r"(?s)in particular.*ParticularError: 1 and 2"):
        list(start | INLINE.Create([1]) | INLINE.Map(particular))


def test_a_result_that_can_not_be_pickled_is_an_error_that_says_so(start):
    with pytest.raises(Exception, match=r"unpicklable.*lambda"):
        list(start | INLINE.Create([1]) | INLINE.Map(unpicklable))
    assert list(start | INLINE.Create([3]) | INLINE.Map(squared)) == [9]


def test_an_element_that_can_not_be_made_again_is_an_error_that_says_so(start):
    with pytest.raises(ValueError, match="not a number"):
        list(start | INLINE.Create([Unreadable()]) | INLINE.Map(squared))
    assert list(start | INLINE.Create([3]) | INLINE.Map(squared)) == [9]


def test_a_step_that_ends_its_process_fails_the_run_with_its_place(start):
    with pytest.raises(JobFailedError, match=r"a step called sys.exit\('enough'\)") as raised:
        list(start | INLINE.Create([1]) | INLINE.Map(leave))
    assert "in leave" in raised.value.__notes__[0]


def test_what_ends_a_worker_stands_on_standard_error(capfd):
    with contextlib.closing(ForkServer()) as server:
        worker = server.fork({})
        with worker.connection:
            worker.connection.send(_AskedElement(run=7, stages=None, stage=0, element=0))  # of no known run
            assert worker.end.result(60) == 1
    assert "KeyError: 7" in capfd.readouterr().err


def test_retries_that_clients_of_stores_log_are_counted_and_nothing_is_printed(capfd):
    with (
        contextlib.closing(ForkServer([__name__])) as server,
        contextlib.closing(LocalWorkers(server, 2, {})) as workers,
        collected() as metrics,
    ):
        made = Elements([], workers) | INLINE.Create(range(5)) | INLINE.Map(asked_again)
        assert sorted(made) == list(range(5))
    assert metrics.counters == {"retries": 5}
    assert "on standard error" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("number", "how"),
    [(signal.SIGKILL, "was killed, perhaps because memory ran out"), (signal.SIGTERM, "SIGTERM")],
)
def test_a_worker_that_ends_fails_the_run(start, number, how):
    with pytest.raises(JobFailedError, match=f"a worker process ended before its work did: it .*{how}"):
        list(start | INLINE.Create(range(4)) | INLINE.Map(end, number))


def test_an_error_of_what_gives_the_elements_is_raised_as_it_is(start):
    def elements():
        yield 1
        raise LogloomError("no more")

    with pytest.raises(LogloomError, match="no more"):
        list(start.replaced(elements()).spread() | INLINE.Map(squared))


def test_large_elements_go_both_ways(start):
    large = [bytes([number]) * (3 << 20) for number in range(6)]
    made = {element for _, element in start | INLINE.Create(large) | INLINE.Map(with_process)}
    assert made == set(large)


def test_workers_do_without_threads_of_this_process(start):
    before = threading.active_count()
    list(start | INLINE.Create(range(4)) | INLINE.Map(squared))
    assert threading.active_count() == before
