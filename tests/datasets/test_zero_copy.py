"""Arrow tables of datasets: which share memory with files, and that all readers get the same rows."""

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import logloom as ll
from logloom.datasets import arrow
from logloom.datasets.dataset import Dataset
from tests.absent import needs, present
from tests.datasets.units import unit_of_all_types

ROWS = 100_000


def address_of(column):
    """Where the last buffer of a column begins, without its offset within."""
    (chunk,) = column.chunks
    return chunk.buffers()[-1].address


@pytest.fixture
def arrow_file(tmp_path):
    needs("ipc")
    table = pa.table(
        {
            "x": np.arange(ROWS, dtype="f8"),
            "n": np.arange(ROWS, dtype="i2"),
            "v": pa.FixedSizeListArray.from_arrays(np.arange(3 * ROWS, dtype="f4"), 3),
            "points": pa.ListArray.from_arrays(np.arange(0, 2 * ROWS + 1, 2, "i4"), np.arange(2.0 * ROWS)),
            "text": [f"t{number}" for number in range(ROWS)],
        }
    )
    with pa.ipc.new_stream(tmp_path / "rows.arrow", table.schema) as file:
        file.write_table(table)
    return tmp_path / "rows.arrow", table


def test_a_table_of_an_arrow_file_is_a_view_of_the_mapped_file(arrow_file):
    path, table = arrow_file
    rows = ll.open(path)
    before = pa.total_allocated_bytes()
    found, again = rows.to_arrow(), rows.to_arrow()
    for name in ("x", "n", "v", "points", "text"):
        assert address_of(found[name]) == address_of(again[name]), name
        assert found[name].to_pylist() == table[name].to_pylist()
    assert pa.total_allocated_bytes() - before < 3 * 4 * ROWS + table["x"].nbytes  # offsets alone


def test_arrow_reads_the_same_rows_through_the_c_stream(arrow_file):
    path, table = arrow_file
    rows = ll.open(path, columns=["x", "text"])
    assert pa.table(rows).equals(table.select(["x", "text"]))
    assert pl.DataFrame(rows).equals(pl.from_arrow(table.select(["x", "text"])))
    (summed,) = duckdb.sql("select sum(x), max(text) from rows").fetchall()
    assert summed == (ROWS * (ROWS - 1) / 2, "t99999")
    assert pa.table(rows.head(0)).schema == pa.table(rows).schema


@pytest.mark.parametrize("name", present("bags", "lance", "parquet", "table", "tar", "zarr"))
def test_tables_of_blocks_equal_those_of_rows(tmp_path, name):
    source = unit_of_all_types(name, tmp_path / "unit", 9)
    rows = Dataset(source, range(2, 9), tuple(source.schema.all))
    by_number = rows.take(np.arange(len(rows)))
    found, wanted = rows.to_arrow(), by_number.to_arrow()
    assert found.schema == wanted.schema
    for one in found.column_names:
        assert repr(found[one].to_pylist()) == repr(wanted[one].to_pylist()), one


def test_rows_of_many_short_logs_are_joined_before_they_are_converted(tmp_path, monkeypatch):
    logs, ragged = [f"l{number:04}" for number in range(500)], [[n] * (n % 3) for n in range(500)]
    own = pa.table({"log_id": logs, "timestamp": range(500), "r": ragged, "t": [*map(str, range(500))]})
    with pa.ipc.new_stream(tmp_path / "rows.arrow", own.schema) as file:
        file.write_table(own)
    converted = []
    monkeypatch.setattr(
        arrow, "_stored_column", lambda *given, call=arrow._stored_column: converted.append(1) or call(*given)
    )
    found = ll.open(tmp_path / "rows.arrow")[100:].to_arrow()
    assert len(converted) == found.num_columns
    assert [column.num_chunks for column in found.columns] == [1, 1, 1, 1]
    assert found.select(own.column_names).to_pylist() == own.slice(100).to_pylist()
