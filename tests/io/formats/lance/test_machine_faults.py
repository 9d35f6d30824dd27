"""What the machine or a store refuses to readers of Lance is a StorageError, never damage or fewer rows."""

import errno
import os

import numpy as np
import pyarrow as pa
import pytest

from logloom.errors import StorageError
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.lance import reader as lance_reader
from logloom.io.formats.lance.pylance import damage
from logloom.testing.processes import without_beam
from tests.descriptors import no_more_files


def lance_without_files(folder):
    """The rows of a table while no file can be opened for its third fragment, and then for the whole."""
    own, found = lance_reader._rows, []

    def rows(place, options, version, number, *more):
        if number != 2:
            return own(place, options, version, number, *more)
        with no_more_files():
            return own(place, options, version, number, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lance_reader, "_rows", rows)
        with pytest.raises(StorageError) as raised:
            open_foreign(folder, on_error="skip")
    found.append(str(raised.value))
    with no_more_files(), pytest.raises(StorageError) as raised:
        lance_reader._newest(folder, {})
    return [*found, str(raised.value)]


def test_a_lance_table_that_can_not_be_opened_loses_no_rows(tmp_path):
    lance = pytest.importorskip("lance")
    folder = str(tmp_path / "t.lance")
    for first in range(0, 100, 25):
        part = pa.table({"x": np.arange(first, first + 25)})
        lance.write_dataset(part, folder, mode="append" if first else "create")
    assert len(open_foreign(folder, on_error="skip")) == 100
    for text in without_beam(lance_without_files, folder):
        assert text.startswith(folder)
        assert text.endswith(os.strerror(errno.EMFILE))


@pytest.mark.parametrize(
    ("said", "is_fault"),
    [
        (
            "LanceError(IO): Generic S3 error: Error performing GET http://h/k in 1ms - HTTP error: reset",
            True,
        ),
        (
            "LanceError(IO): Error performing list request: Error performing GET http://h - 403 Forbidden",
            True,
        ),
        ("LanceError(IO): Object at location k not found: Error performing GET h - 404 Not Found: ", False),
        (
            "LanceError(IO): Generic LocalFileSystem error: Unable to open file /a (os error 5), /b.rs:1:2",
            True,
        ),
        ("LanceError(IO): Object at location k not found: No such file (os error 2), /b.rs:1:2", False),
        ("LanceError(IO): Generic memory error: Invalid range 0..9 for object of size 5 bytes", False),
    ],
)
def test_what_lance_says_tells_faults_of_machine_and_store_from_damage(said, is_fault):
    with pytest.raises(Exception, match=r"^here: ") as raised, damage("here"):
        raise pa.ArrowInvalid(said)
    assert isinstance(raised.value, StorageError) == is_fault
