"""Decompression: exact sizes, damage, and memory that several results share."""

from __future__ import annotations

import contextlib
import zlib
from concurrent.futures import ThreadPoolExecutor

import lz4.frame
import numpy as np
import pytest
import zstandard

from logloom.io.logs.files.chunk_memory import BLOCK_BYTES, SHARES_BLOCK
from logloom.io.logs.files.compression import crc32, decompress

SIZES = [0, 1, SHARES_BLOCK.start - 1, SHARES_BLOCK.start, 1_000_003, SHARES_BLOCK.stop]


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
