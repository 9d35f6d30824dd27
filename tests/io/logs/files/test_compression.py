"""Decompression: exact sizes, damage, and the memory of chunks, which is used again when it is free."""

from __future__ import annotations

import bz2
import contextlib
import copy
import gc
import pickle
import zlib
from concurrent.futures import ThreadPoolExecutor

import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import zstandard

from logloom.io.logs.files import compression
from logloom.io.logs.files.compression import (
    BLOCK_BYTES,
    MAX_SPARE,
    SHARES_BLOCK,
    block_bytes,
    crc32,
    decompress,
    room,
)

SIZES = [0, 1, SHARES_BLOCK.start - 1, SHARES_BLOCK.start, 1_000_003, SHARES_BLOCK.stop]


def plain(size: int, seed: int = 0) -> bytes:
    """Text, zeros (which become repeated blocks) and noise (which becomes raw blocks), a third of each."""
    noise = np.random.default_rng(seed).integers(0, 256, size // 3 + 2, np.uint8).tobytes()
    return (b"logloom " * size)[: size // 3] + bytes(size // 3) + noise[: size - 2 * (size // 3)]


@pytest.mark.parametrize("name", ["zstd", "lz4", "bz2", "none"])
def test_of_data_that_is_cut_a_prefix_is_decompressed(name):
    whole = plain(4_000_000)
    data = {"zstd": packed, "lz4": lz4.frame.compress, "bz2": bz2.compress, "none": bytes}[name](whole)
    found = compression.decompress_prefix(name, data[: len(data) * 9 // 10], len(whole))
    assert len(found) > 2_000_000
    assert found == whole[: len(found)]
    assert len(compression.decompress_prefix(name, data, 1000)) == 1000
    if name != "none":
        with pytest.raises(ValueError, match=f"its {name} data can't be decompressed"):
            compression.decompress_prefix(name, b"damaged" * 100, 1000)


def packed(data: bytes, checksum: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=checksum).compress(data)


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_every_size_comes_out_as_it_went_in(size: int, checksum: bool) -> None:
    assert bytes(decompress("zstd", packed(plain(size), checksum), size)) == plain(size)


def test_a_frame_without_its_size_comes_out_too() -> None:
    data = plain(400_000)
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert bytes(decompress("zstd", memoryview(frame), len(data))) == data


def test_bytes_behind_a_frame_change_nothing() -> None:
    data = plain(400_000)
    assert bytes(decompress("zstd", packed(data) + b"more", len(data))) == data


@pytest.mark.parametrize("checksum", [False, True])
def test_a_frame_that_lacks_its_end_is_refused(checksum: bool) -> None:
    frame = packed(plain(600_000), checksum)
    for cut in [1, 2, 3, 4, 5, 1000, len(frame) // 2, len(frame) - 20, len(frame) - 3]:
        with pytest.raises(ValueError, match="can't be decompressed"):
            decompress("zstd", frame[:-cut], 600_000)


def test_a_flipped_bit_is_refused_by_the_checksum() -> None:
    frame = packed(plain(600_000))
    for place in [0, 4, 6, 9, 100, len(frame) // 2, len(frame) - 40_000, len(frame) - 1]:
        damaged = bytearray(frame)
        damaged[place] ^= 1
        with pytest.raises(ValueError, match="can't be decompressed"):
            decompress("zstd", bytes(damaged), 600_000)


def test_another_size_than_the_frame_claims_is_refused() -> None:
    with pytest.raises(ValueError, match="declares 600000 bytes, 600001 are expected"):
        decompress("zstd", packed(plain(600_000)), 600_001)


LZ4_FRAMES = [
    {},
    {"content_checksum": True, "block_checksum": True},
    {"block_linked": False, "store_size": False},
    {"block_size": lz4.frame.BLOCKSIZE_MAX4MB},
]


@pytest.mark.parametrize("options", LZ4_FRAMES)
@pytest.mark.parametrize("size", SIZES)
def test_every_size_of_lz4_frame_comes_out_as_it_went_in(size: int, options: dict[str, int]) -> None:
    frame = lz4.frame.compress(plain(size), **options)
    assert bytes(decompress("lz4", memoryview(frame), size)) == plain(size)


@pytest.mark.parametrize("options", LZ4_FRAMES)
def test_an_lz4_frame_that_lacks_its_end_or_holds_another_size_is_refused(options: dict[str, int]) -> None:
    frame = lz4.frame.compress(plain(600_000), **options)
    for cut in [1, 4, 5, 1000, len(frame) // 2, len(frame) - 3]:
        with pytest.raises(ValueError, match="can't be decompressed"):
            decompress("lz4", frame[:-cut], 600_000)
    for size in (599_999, 600_001, 300 * len(frame)):
        with pytest.raises(ValueError, match="can't be decompressed"):
            decompress("lz4", frame, size)


def test_flipped_bits_of_an_lz4_frame_are_refused_or_give_as_many_bytes() -> None:
    frame = lz4.frame.compress(plain(600_000))  # without checksums: what holds the frame has one
    lengths = []
    for place in np.random.default_rng(0).integers(0, len(frame), 200).tolist():
        damaged = bytearray(frame)
        damaged[place] ^= 1 << place % 8
        with contextlib.suppress(ValueError):
            lengths.append(len(decompress("lz4", bytes(damaged), 600_000)))
    assert 0 < len(lengths) < 200
    assert set(lengths) == {600_000}


def test_the_checksum_is_that_of_zlib() -> None:
    for size in (0, 1, 17, 100_000):
        assert crc32(plain(size)) == zlib.crc32(plain(size))


def test_results_stay_what_they_are_while_threads_go_on() -> None:
    size, count = 700_001, 3 * BLOCK_BYTES // 700_001
    frames = [packed(plain(size, seed)) for seed in range(count)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda frame: decompress("zstd", frame, size), frames))
    assert [bytes(result) == plain(size, seed) for seed, result in enumerate(results)] == [True] * count
    assert all(memoryview(result).readonly for result in results)


# --- memory of chunks -----------------------------------------------------------------------------------


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
    blocks = compression._Blocks()
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
    blocks = compression._Blocks()
    held = [blocks.take(BLOCK_BYTES // 4) for _ in range(4 * (MAX_SPARE + 3))]
    del held
    assert len(blocks._spare) == MAX_SPARE


def test_a_spare_block_that_is_too_small_is_passed_over() -> None:
    blocks = compression._Blocks()
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
