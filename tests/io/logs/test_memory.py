"""Memory for chunks: what one array sees is its own until it is gone, and then serves the next."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from logloom.io.logs import memory
from logloom.io.logs.memory import BLOCK_BYTES, MAX_SPARE, SHARES_BLOCK, block_bytes, room


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
    blocks = memory._Blocks()
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
    blocks = memory._Blocks()
    held = [blocks.take(BLOCK_BYTES // 4) for _ in range(4 * (MAX_SPARE + 3))]
    del held
    assert len(blocks._spare) == MAX_SPARE


def test_a_spare_block_that_is_too_small_is_passed_over() -> None:
    blocks = memory._Blocks()
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
