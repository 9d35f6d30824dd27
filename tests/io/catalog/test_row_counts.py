"""Counts of logs and rows by split: of whole logs, and of logs whose rows are split."""

import pyarrow as pa
import pytest

from logloom.errors import DatasetError
from logloom.io.catalog.row_counts import row_split_counts, row_split_names, rows_by_split, runs_of_unit


def records(*logs):
    """Split, rows and counts by split of each log."""
    split, rows, splits = zip(*logs, strict=True)
    return pa.table(
        {
            "split": pa.array(split, pa.string()),
            "rows": pa.array(rows, pa.int64()),
            "splits": pa.array(splits, pa.string()),
        }
    )


def test_logs_and_rows_are_counted_by_split():
    logs = records(("val", 5, None), ("train", 10, None), ("train", 7, None), ("train", 0, None))
    assert rows_by_split(logs) == [("train", 3, 17), ("val", 1, 5)]
    assert row_split_names(logs["splits"]) == []
    assert row_split_counts(logs["splits"]) == [{}] * 4
    assert rows_by_split(logs[:0]) == []


def test_a_log_whose_rows_are_split_counts_for_each_split_that_has_some():
    logs = records(
        ("", 9, '{"train": 6, "val": 3}'),
        ("", 0, '{"train": 0}'),
        ("", 9, '{"train": 6, "val": 3}'),
        ("", 2, '{"test": 2}'),
    )
    assert rows_by_split(logs) == [("test", 1, 2), ("train", 2, 12), ("val", 2, 6)]
    assert row_split_names(logs["splits"]) == ["test", "train", "val"]
    assert row_split_counts(logs["splits"])[1:3] == [{}, {"train": 6, "val": 3}]
    with pytest.raises(DatasetError, match="splits"):
        rows_by_split(records(("", 9, '{"train": -6}')))


def test_runs_of_a_unit_are_of_all_of_its_rows():
    assert runs_of_unit({"splits": [["train", 2], ["val", 3]]}, 5, "p") == (("train", 2), ("val", 3))
    assert runs_of_unit({}, 5, "p") == ()
    for tally, rows in (({"splits": [["train", 2]]}, 5), ({"splits": [["train", "2"]]}, 2), ([], 2)):
        with pytest.raises(DatasetError, match=r"^p: "):
            runs_of_unit(tally, rows, "p")
