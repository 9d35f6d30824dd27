"""Mutated logs: an error or a salvage, soon; never a crash, a hang or a wrong value."""

import random
import time
import tracemalloc

import pytest

from logloom.errors import LogReadError
from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.opening import open_log
from tests.fuzz.mutations import mutated
from tests.io.logs.making import contents, everything, make_messages, ros1_payload, write_bag, write_mcap
from tests.tier import by_tier

MODES = [OpenOptions(on_error=mode, max_chunk_bytes=1 << 24) for mode in ("fail", "salvage")]
SEEDS = range(by_tier(12, 100))
SECONDS = 5  # for one mutated log; a healthy one takes milliseconds


def outcome(path, options):
    """The rows (log time, publish time, payload) that can be read, or None for an error."""
    CHUNKS.clear()
    try:
        log = open_log([str(path)], options)
        found = set()
        for topic in log.summary.topics:
            found.update(contents(log.read({topic: everything()}))[topic])
        return found
    except LogReadError:
        return None


def torment(path, seeds, intact):
    """Mutates a log many times and looks at every outcome.

    Args:
        intact: all rows of the whole log, where a checksum covers every message; else None.
    """
    data = path.read_bytes()
    read = 0
    for seed in seeds:
        path.write_bytes(mutated(data, random.Random(seed)))
        for options in MODES:
            start = time.process_time()
            found = outcome(path, options)
            assert time.process_time() - start < SECONDS, f"seed {seed}, {options.on_error}"
            if intact is not None and found is not None:
                assert found <= intact, f"seed {seed}, {options.on_error}: a value that no message had"
            read += bool(found)
    path.write_bytes(data)
    assert read > len(seeds) // 10  # or the mutations only ever broke the whole file


MCAPS = {
    "chunked": {},
    "lz4": {"compression": "lz4"},
    "uncompressed": {"compression": "none"},
    "no-index": {"index_types": [], "compression": "lz4"},
    "no-message-index": {"index_types": ["CHUNK"]},
    "unchunked": {"use_chunking": False},
}


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("form", MCAPS)
def test_a_mutated_mcap_is_an_error_or_a_salvage(tmp_path, form):
    messages = make_messages(150)
    path = write_mcap(tmp_path / "drive.mcap", messages, **MCAPS[form])
    intact = {(m.log_time, m.publish_time, m.data) for m in messages}
    torment(path, SEEDS, None if form == "unchunked" else intact)


@pytest.mark.parametrize("compression", ["none", "lz4", "bz2"])
def test_a_mutated_bag_is_an_error_or_a_salvage(tmp_path, compression):
    messages = make_messages(150, payload=ros1_payload)
    path = write_bag(tmp_path / "drive.bag", messages, compression=compression)
    intact = {(m.log_time, m.log_time, m.data) for m in messages}
    torment(path, SEEDS, intact if compression == "bz2" else None)


@pytest.mark.parametrize("name", ["l5kit_scene.mcap", "tilt_laser.bag", "turtlesim.bag"])
def test_mutated_real_logs(tmp_path, shared_data, name):
    path = tmp_path / name
    path.write_bytes((shared_data / "logs" / name).read_bytes())
    assert outcome(path, OpenOptions())
    torment(path, SEEDS[: len(SEEDS) // 3], None)  # none of them has checksums


@pytest.mark.usefixtures("toy")
def test_a_file_that_claims_enormous_sizes_allocates_little(tmp_path):
    messages = make_messages(150)
    path = write_mcap(tmp_path / "drive.mcap", messages)
    data = path.read_bytes()
    rng = random.Random(0)
    tracemalloc.start()
    try:
        for at in rng.sample(range(len(data) - 8), by_tier(15, 60)):
            path.write_bytes(data[:at] + b"\xff\xff\xff\xff\xff\xff\x00\x00" + data[at + 8 :])
            for options in MODES:
                outcome(path, options)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
