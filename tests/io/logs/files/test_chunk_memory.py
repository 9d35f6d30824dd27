"""Memory for chunks: what one array sees is its own until it is gone, and then serves the next."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from logloom.io.logs.files import chunk_memory
from logloom.io.logs.files.chunk_memory import BLOCK_BYTES, MAX_SPARE, SHARES_BLOCK, block_bytes, room


def test_rooms_never_overlap_while_they_are_looked_at() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(SHARES_BLOCK.start, 2_000_000, 90).tolist()

    def fill(number: int) -> np.ndarray:
        taken = room(sizes[number])
        taken[:] = number
        return taken[::1000]  # any view of it keeps it

    with ThreadPoolExecutor(4) as pool:
        views = list(pool.map(fill, range(len(sizes))))
    assert all((view == number).all() for number, view in enumerate(views))


def test_a_block_that_nobody_looks_at_serves_again() -> None:
    blocks = chunk_memory._Blocks()
    size = BLOCK_BYTES // 4
    held = [blocks.take(size) for _ in range(8)]
    places = {view.ctypes.data for view in held}
    kept = np.frombuffer(held[0].data.toreadonly(), np.uint8)[5:]
    del held
    again = [blocks.take(size) for _ in range(8)]
    assert (
        len(places & {view.ctypes.data for view in again}) == 4
    )  # the second block, for `kept` keeps the first
    del kept


def test_few_blocks_are_kept_for_later() -> None:
    blocks = chunk_memory._Blocks()
    held = [blocks.take(BLOCK_BYTES // 4) for _ in range(4 * (MAX_SPARE + 3))]
    del held
    assert len(blocks._spare) == MAX_SPARE


def test_a_spare_block_that_is_too_small_is_passed_over() -> None:
    blocks = chunk_memory._Blocks()
    blocks._spare = [np.empty(1_000_000, np.uint8)]
    assert len(blocks.take(2_000_000)) == 2_000_000
    assert len(blocks._spare) == 1


def test_blocks_leave_little_over() -> None:
    for size in (*range(SHARES_BLOCK.start, SHARES_BLOCK.stop, 99_991), 1_048_600, 1_870_000):
        capacity = block_bytes(size)
        assert size <= capacity <= BLOCK_BYTES
        assert capacity % size < capacity / 16


def test_other_sizes_have_memory_of_their_own() -> None:
    for size in (0, SHARES_BLOCK.start - 1, SHARES_BLOCK.stop):
        taken = room(size)
        assert len(taken) == size
        assert taken.base is None


HOLDERS = {
    "a slice": lambda taken: taken[7:-7:3],
    "a memoryview": lambda taken: taken.data.toreadonly()[100:],
    "a memoryview of another type": lambda taken: memoryview(taken[: len(taken) // 8 * 8]).cast("Q"),
    "an array of a memoryview": lambda taken: np.frombuffer(taken.data.toreadonly(), np.uint8)[5:],
    "a structured view": lambda taken: taken[: len(taken) // 12 * 12].view("<u4,<f8")["f1"],
    "an array at an offset": lambda taken: np.ndarray((100,), "V9", taken.data, 3, (1000,)),
    "a strided view": lambda taken: np.lib.stride_tricks.as_strided(taken, (1000, 5), (50, 1)),
    "an array through its interface": lambda taken: np.asarray(_Interface(taken)),
    "a subclass": lambda taken: taken.view(np.recarray)[9:],
    "a buffer of Arrow": lambda taken: pa.py_buffer(taken).slice(12),
    "a shallow copy of a list": lambda taken: copy.copy([taken[1:]])[0],
    "a cycle": lambda taken: _in_a_cycle(taken[3:]),
}


class _Interface:
    def __init__(self, array: np.ndarray):
        self._kept = array
        self.__array_interface__ = array[10:].__array_interface__


def _in_a_cycle(view: np.ndarray) -> list:
    cycle: list = [view]
    cycle.append(cycle)
    return cycle


def _bytes_of(holder: object) -> bytes:
    return holder[0].tobytes() if isinstance(holder, list) else bytes(memoryview(holder).tobytes())


@pytest.mark.parametrize("how", HOLDERS)
def test_whatever_looks_at_a_room_keeps_it_from_being_filled_again(how: str) -> None:
    size = BLOCK_BYTES // 8
    taken = room(size)
    taken[:] = np.arange(size, dtype=np.uint64).view(np.uint8)[:size]
    holder = HOLDERS[how](taken)
    before = _bytes_of(holder)
    try:
        again = pickle.loads(pickle.dumps(holder, 5))
    except TypeError:  # memoryviews don't pickle
        again = None
    del taken
    for number in range(40):  # several times all that is kept for later
        room(size)[:] = number
        gc.collect(0)
    assert _bytes_of(holder) == before
    if again is not None:
        assert _bytes_of(again) == before


def _room_in_child(queue: multiprocessing.Queue) -> None:
    queue.put(len(room(SHARES_BLOCK.start)))


def test_a_fork_while_a_thread_takes_memory_leaves_the_child_able_to() -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with chunk_memory._blocks._lock:
        child = context.Process(target=_room_in_child, args=(queue,))
        child.start()
    try:
        assert queue.get(timeout=20) == SHARES_BLOCK.start
    finally:
        child.kill()
        child.join()
