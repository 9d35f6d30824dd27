"""Kept indices: what is loaded is what was saved, and whatever else became of the file counts as missing."""

import random

import numpy as np
import pytest

from logloom.io.logs.files.sidecars import BOUNDS, Sidecars
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.opening import open_log
from tests.io.logs.making import make_messages, write_mcap
from tests.tier import by_tier

pytestmark = pytest.mark.usefixtures("toy")
LIMIT = 1 << 20


@pytest.fixture
def index(tmp_path):
    """The index of a scanned file that was cut, so that it lists damage too."""
    path = write_mcap(tmp_path / "drive.mcap", make_messages(100), index_types=["NONE"])
    path.write_bytes(path.read_bytes()[:-600])
    return open_log([str(path)], OpenOptions("salvage")).parts[0].index


def same(one, other):
    return (
        one.channels == other.channels
        and np.array_equal(one.stretches, other.stretches)
        and np.array_equal(one.shares, other.shares)
        and (one.num_numbers, one.lost, one.is_scanned) == (other.num_numbers, other.lost, other.is_scanned)
    )


def test_what_is_loaded_is_what_was_saved_and_equal_indices_give_equal_bytes(tmp_path, index):
    assert index.lost
    kept = Sidecars(str(tmp_path / "index"), {})
    kept.save_index("log", LIMIT, index)
    assert same(kept.load_index("log", LIMIT), index)
    assert kept.load_index("log", LIMIT + 1) is None  # other chunks would have been refused
    assert kept.load_index("other", LIMIT) is None
    (file,) = (tmp_path / "index").iterdir()
    data = file.read_bytes()
    kept.save_index("log", LIMIT, kept.load_index("log", LIMIT))
    assert file.read_bytes() == data


def test_message_times_are_kept_by_topic_and_source(tmp_path):
    bounds = np.array([(0, 5, 9, 1), (3, 7, 8, 0)], BOUNDS)
    kept = Sidecars(str(tmp_path), {})
    kept.save_bounds("log", "/a", "header", bounds)
    assert np.array_equal(kept.load_bounds("log", "/a", "header"), bounds)
    assert kept.load_bounds("log", "/a", "publish") is None
    assert kept.load_bounds("log", "/b", "header") is None


def test_a_mutated_sidecar_counts_as_missing(tmp_path, index):
    kept = Sidecars(str(tmp_path / "index"), {})
    kept.save_index("log", LIMIT, index)
    (file,) = (tmp_path / "index").iterdir()
    data = file.read_bytes()
    for seed in range(by_tier(100, 2300)):
        rng = random.Random(seed)
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.3:
            del changed[rng.randrange(len(changed)) :]
        file.write_bytes(changed)
        assert changed == data or kept.load_index("log", LIMIT) is None
