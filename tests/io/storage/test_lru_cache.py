"""Values that were used last."""

import multiprocessing
import pickle
import threading

import numpy as np

from logloom.io.storage.lru_cache import LruCache


def test_the_value_used_longest_ago_is_dropped():
    cache = LruCache(10, len)
    for name in "abc":
        cache.put(name, bytes(3))
    cache.get("a")
    cache.put("d", bytes(3))
    assert cache.get("b") is None
    assert cache.get("a") is not None
    assert cache.num_bytes == 9
    cache.put("large", bytes(11))
    assert cache.get("large") is None
    assert cache.num_bytes == 9


def test_a_cache_keeps_within_its_bytes():
    cache = LruCache(1000)
    for number in range(50):
        value = np.zeros(7 * number, np.uint8)
        cache.put(number, value)
        assert cache.num_bytes == sum(kept.nbytes for kept in cache._found.values()) <= 1000
        assert cache.get(number) is value
    assert cache.get(1) is None


def test_values_that_are_kept_whatever_their_size_are_the_last_ones():
    cache = LruCache(0, least=1)
    for number in (0, 1, 2, 1):
        cache.put(number, np.zeros(5))
        assert list(cache._found) == [number]
    assert cache.num_bytes == 40


def test_the_first_of_two_values_for_one_key_stays():
    cache = LruCache(10, len)
    cache.put("a", b"first")
    cache.put("a", b"other")
    assert (cache.get("a"), cache.num_bytes) == (b"first", 5)


def test_a_cache_is_cleared_and_pickles_empty():
    cache = LruCache(10, len, least=2)
    cache.put("a", b"value")
    other = pickle.loads(pickle.dumps(cache))
    assert (other.get("a"), other.num_bytes, other.max_bytes) == (None, 0, 10)
    other.put("large", bytes(11))
    assert other.get("large") is not None
    cache.clear()
    assert (cache.get("a"), cache.num_bytes) == (None, 0)


def test_threads_that_share_a_cache_keep_its_count_right():
    cache = LruCache(200, len)

    def use(seed):
        rng = np.random.default_rng(seed)
        for key in rng.integers(0, 40, 500).tolist():
            if cache.get(key) is None:
                cache.put(key, bytes(key))

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert cache.num_bytes == sum(map(len, cache._found.values())) <= 200


def test_a_fork_while_a_thread_uses_a_cache_leaves_the_child_able_to():
    cache = LruCache(10, len)
    cache.put("a", b"value")
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()
    with cache._lock:  # as another thread would hold it, its count not yet right
        cache.num_bytes = 1
        child = context.Process(target=lambda: found.put((cache.get("a"), cache.num_bytes)))
        child.start()
    child.join(60)
    assert child.exitcode == 0
    assert found.get() == (b"value", 5)
