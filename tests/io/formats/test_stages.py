"""Bytes of staged files."""

import fsspec
import pytest

from logloom.errors import DatasetError
from logloom.io.formats.stages import read_entries
from logloom.io.storage.files import File


@pytest.fixture(params=["disk", "store"])
def staged(request, tmp_path):
    """Gives a file of ten bytes in a root."""
    if request.param == "disk":
        path = tmp_path / "dataset/parts/zarr/unit/rows"
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(range(10)))
        return str(path)
    uri = f"memory:/{tmp_path}/dataset/parts/zarr/unit/rows"
    fsspec.filesystem("memory").pipe_file(uri, bytes(range(10)))
    return uri


def test_a_range_is_what_lies_there_and_may_be_changed(staged):
    data = read_entries(File(staged), 2, 6)
    data += 1
    assert data.tolist() == [3, 4, 5, 6]
    assert read_entries(File(staged), 4, 4).tolist() == []


def test_a_file_that_ends_early_is_named_with_what_repairs_it(staged):
    words = f"cut short: .* it ends at byte .*; `logloom repair {staged.partition('/parts/')[0]}`"
    for stop in (11, 1 << 60):  # no memory is taken for what a stranger's file can't hold
        with pytest.raises(DatasetError, match=f"{staged}: {words}"):
            read_entries(File(staged), 8, stop)


def test_a_missing_file_is_named_with_what_repairs_it(staged):
    with pytest.raises(DatasetError, match=rf"{staged}\.lost: there is no such file; `logloom repair"):
        read_entries(File(f"{staged}.lost"), 0, 1)
