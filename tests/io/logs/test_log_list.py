"""Logs as columns say what their objects say."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from logloom.io.catalog.tombstones import Purged, Tombstone, digest_of_log, write_tombstone
from logloom.io.logs.log_list import LogFiles, LogList
from logloom.io.storage.store import Store

STAMPS = st.sampled_from(["", "size 12, mtime 3", "size 30, ETag x", "size , ETag x", "mtime 5, size 12, "])
FILES = st.lists(st.tuples(STAMPS, st.booleans()), min_size=1, max_size=3)


@given(st.lists(FILES, max_size=8), st.randoms(use_true_random=False))
def test_sizes_of_logs_as_columns_are_those_of_each_log(logs, rng):
    listed = LogList.of(
        LogFiles(
            f"{number:03}",
            tuple(f"/logs/{number}-{n}" for n in range(len(files))),
            tuple(stamp for stamp, is_told in files if is_told),
        )
        for number, files in enumerate(logs)
    )
    rows = np.array(rng.sample(range(len(listed)), rng.randint(0, len(listed))), np.int64)
    expected = [-1 if log.size is None else log.size for log in listed.at(rows)]
    assert listed.sizes(rows).tolist() == expected


def test_logs_like_those_that_were_erased_are_found_by_columns_as_one_by_one(tmp_path):
    store = Store.at(str(tmp_path))
    asked = [(log, content, size) for log in "ab" for content in ("x", "y") for size in (-1, 10, 20)]
    columns = [pa.array([one[n] for one in asked], pa.string()) for n in (0, 1)]
    sizes = np.array([size for *_, size in asked])
    assert not Purged(store).are_like(*columns, sizes).any()
    write_tombstone(store, Tombstone(digest_of_log("a"), ("x",), (), (), "", (), (), (10,)))
    write_tombstone(store, Tombstone(digest_of_log("b"), (), (), (), "", ((1, 2),), (), ()))
    purged = Purged(store)
    expected = [
        size < 0 or purged.has(content) or purged.resembles(log, size) for log, content, size in asked
    ]
    assert purged.are_like(*columns, sizes).tolist() == expected
    assert sum(expected) < len(expected)
