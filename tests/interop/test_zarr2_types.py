"""Arrays of times and of text that zarr 2 writes open as columns; what can't be opened is named."""

import numpy as np
import pytest

import logloom.datasets

WRITE = """
import sys, numcodecs, numpy, zarr
group = zarr.open_group(sys.argv[1], mode="w")
texts = numpy.array(["a", "Straße 7", "", "東京"], object)
group.create_dataset("when", data=numpy.array([1, 2, 3, -4]).astype("M8[ns]"))
group.create_dataset("took", data=numpy.arange(4).astype("m8[s]"))
group.create_dataset("text", data=texts, dtype=object, object_codec=numcodecs.VLenUTF8(), chunks=(2,))
group.create_dataset("fixed", data=texts.astype("U9"))
group.create_dataset("pickled", data=texts, dtype=object, object_codec=numcodecs.Pickle())
group.create_dataset("told", data=texts, dtype=object, object_codec=numcodecs.JSON())
if sys.argv[2] == "consolidated":
    zarr.consolidate_metadata(group.store)
"""


@pytest.mark.parametrize("how", ["plain", "consolidated"])
def test_times_and_texts_that_zarr_2_writes_are_columns(zarr2, tmp_path, how):
    zarr2(WRITE, tmp_path / "theirs.zarr", how)
    with pytest.warns(UserWarning, match="left out.* pickled: .* told: "):
        rows = logloom.datasets.open(tmp_path / "theirs.zarr")
    assert rows.columns == ("fixed", "text", "took", "when")
    assert [row["text"] for row in rows] == ["a", "Straße 7", "", "東京"]
    assert [str(row["fixed"]) for row in rows] == ["a", "Straße 7", "", "東京"]
    np.testing.assert_array_equal(rows.get_many(range(4))["when"], [1, 2, 3, -4])
    np.testing.assert_array_equal(rows.get_many([3, 1])["took"], [3 * 10**9, 10**9])
