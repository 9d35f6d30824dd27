"""Threads that stay, over forks and pickles."""

import pickle
import threading

from logloom.io.storage.threads import Threads
from logloom.testing.processes import in_fork


def who(threads):
    return threads.pool.submit(lambda: threading.current_thread().name).result(30)


def test_a_thread_that_is_done_takes_the_next_work():
    threads = Threads(4, "few")
    assert [who(threads) for _ in range(3)] == ["few_0"] * 3
    threads.close()


def test_a_forked_process_starts_its_own():
    threads = Threads(1, "own")
    assert who(threads) == "own_0"
    assert in_fork(lambda: who(threads)) == "own_0"
    assert who(threads) == "own_0"
    threads.close()


def test_those_that_were_ended_start_anew():
    threads = Threads(1, "anew")
    threads.close()
    assert who(threads) == "anew_0"
    threads.close()
    assert who(threads) == "anew_0"
    threads.close()


def test_a_pickle_has_none():
    threads = Threads(1, "one")
    assert who(threads) == "one_0"
    copy = pickle.loads(pickle.dumps(threads))
    assert who(copy) == "one_0"
    assert copy.pool is not threads.pool
    threads.close()
    copy.close()
