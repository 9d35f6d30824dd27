"""Decompression: exact sizes, damage, and memory that several results share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zstandard

from logloom.io.logs.compression import BLOCK_BYTES, SHARES_BLOCK, decompress

SIZES = [
    0,
    1,
    SHARES_BLOCK.start - 1,
    SHARES_BLOCK.start,
    1_000_003,
    SHARES_BLOCK.stop - 1,
    SHARES_BLOCK.stop,
]


def plain(size: int, seed: int = 0) -> bytes:
    """Text, zeros (which become repeated blocks) and noise (which becomes raw blocks), a third of each."""
    noise = np.random.default_rng(seed).integers(0, 256, size // 3 + 2, np.uint8).tobytes()
    return (b"logloom " * size)[: size // 3] + bytes(size // 3) + noise[: size - 2 * (size // 3)]


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
    with pytest.raises(ValueError, match="claims 600000 bytes, 600001 are promised"):
        decompress("zstd", packed(plain(600_000)), 600_001)


def test_results_stay_what_they_are_while_threads_go_on() -> None:
    size, count = 700_001, 3 * BLOCK_BYTES // 700_001
    frames = [packed(plain(size, seed)) for seed in range(count)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda frame: decompress("zstd", frame, size), frames))
    assert [bytes(result) == plain(size, seed) for seed, result in enumerate(results)] == [True] * count
    assert all(memoryview(result).readonly for result in results)
