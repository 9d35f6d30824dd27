"""Ranges of an array, gathered from its chunks, are what slicing gives."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from logloom.io.formats.zarr.array_reader import ArrayReader
from logloom.io.formats.zarr.layout import ArrayLayout
from logloom.io.formats.zarr.shards import encode_file
from logloom.io.storage.lru_cache import LruCache
from logloom.io.storage.store import Store

ranges = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)).map(sorted), max_size=12)


@given(
    ranges=ranges,
    layout=st.builds(
        lambda chunk, per_file, compress, zarr_format, width: ArrayLayout(
            np.dtype("<u2"),
            (90, width),
            chunk,
            chunk * per_file if zarr_format == 3 else chunk,
            compress,
            zarr_format,
        ),
        st.integers(1, 40),
        st.integers(1, 5),
        st.sampled_from(["lz4", "zstd", "none"]),
        st.sampled_from([2, 3]),
        st.sampled_from([1, 700]),  # short ranges go through the cache
    ),
)
def test_gathered_ranges_are_what_slices_of_the_array_are(ranges, layout, tmp_path_factory):
    folder = tmp_path_factory.mktemp("array")
    whole = np.arange(90 * layout.shape[1], dtype="<u2").reshape(layout.shape)
    for file in range(layout.num_files):
        path = folder / "a" / layout.file_name(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_file(layout, whole[file * layout.shard : (file + 1) * layout.shard]))
    reader = ArrayReader(Store.at(str(folder)), "a", layout, LruCache(1 << 20))
    starts, stops = np.array(ranges, np.int64).reshape(-1, 2).T
    slices = [whole[start:stop] for start, stop in ranges]
    wanted = np.concatenate([np.empty((0, *layout.tail), "<u2"), *slices])
    np.testing.assert_array_equal(reader.gather(starts, stops), wanted)
    into = np.zeros(wanted.shape, "<u2")
    np.testing.assert_array_equal(reader.gather(starts, stops, into), wanted)
    assert reader.gather_bytes(starts, stops) == [part.tobytes() for part in slices]
