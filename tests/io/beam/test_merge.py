"""Rows of pieces in the order of their timestamps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Block, Ragged, concatenate
from logloom.errors import DatasetError
from logloom.io.beam.merge import merged


def rows(stamps):
    """Rows whose values follow from their timestamps."""
    stamps = np.array(stamps, np.int64)
    texts = Ragged.from_bytes([str(stamp).encode() for stamp in stamps.tolist()])
    speed = np.where(stamps % 3 == 0, np.nan, stamps).astype("f4")
    return Block("drive", "", 0, {"timestamp": stamps, "speed": speed, "text": texts})


def joined(pieces):
    found = list(merged("drive", [iter(piece) for piece in pieces]))
    return {name: concatenate([one[name] for one in found]) for name in found[0]} if found else None


def test_rows_are_merged_by_timestamp():
    found = joined([[rows([1, 4]), rows([9])], [rows([2, 3, 5])]])
    assert found["timestamp"].tolist() == [1, 2, 3, 4, 5, 9]
    assert [text.tobytes() for text in found["text"]] == [b"1", b"2", b"3", b"4", b"5", b"9"]


@given(st.lists(st.lists(st.lists(st.integers(0, 30), max_size=5), max_size=4), max_size=4))
def test_equal_rows_count_once_however_they_were_cut(cuts):
    pieces = []
    for cut in cuts:
        stamps = sorted(stamp for block in cut for stamp in block)
        ends = np.cumsum([len(block) for block in cut]).tolist()
        pieces.append([rows(part) for part in np.split(np.array(stamps, np.int64), ends)])
    wanted = sorted({stamp for cut in cuts for block in cut for stamp in block})
    found = joined(pieces)
    if not wanted:
        assert found is None
        return
    expected = rows(wanted).columns
    assert found["timestamp"].tolist() == wanted
    assert found["speed"].tobytes() == expected["speed"].tobytes()
    assert [text.tobytes() for text in found["text"]] == [text.tobytes() for text in expected["text"]]


@pytest.mark.parametrize("name", ["speed", "text"])
@pytest.mark.parametrize("cut", ["one block", "two blocks", "two pieces"])
def test_rows_of_one_timestamp_with_other_values_are_an_error(name, cut):
    other = rows([5])
    changed = {"speed": np.array([7], "f4"), "text": Ragged.from_bytes([b"6"])}
    other.columns[name] = changed[name]
    first = rows([2, 5])
    both = {key: concatenate([first.columns[key], other.columns[key]]) for key in first.columns}
    pieces = {
        "one block": [[Block("drive", "", 0, both)]],
        "two blocks": [[first, other]],
        "two pieces": [[first], [other]],
    }[cut]
    with pytest.raises(
        DatasetError, match=f"log drive, timestamp 5: two rows have different values of {name}"
    ):
        joined(pieces)
