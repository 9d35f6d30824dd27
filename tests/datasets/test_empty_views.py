"""Views without rows have the types of views with rows; lists that make no array are lists."""

import io
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logloom as ll
from logloom.datasets import open as opened
from logloom.datasets.dataset import Dataset
from logloom.errors import UsageError
from tests.absent import needs, present
from tests.datasets.units import unit_of_all_types

COLUMNS = {
    "whole": pa.array([1, 2], pa.int16()),
    "real": pa.array([1.5, None]),
    "flag": [True, False],
    "word": ["a", "b"],
    "raw": [b"x", b""],
    "list": pa.array([[1], []], pa.list_(pa.float32())),
    "grid": [[[1, 2]], [[3, 4], [5, 6]]],
    "pair": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)),
    "struct": [{"x": 1.0}, {"x": 2.0}],
}


def views(rows):
    return [
        (rows, rows.head(0)),
        (rows, rows.filter("whole > 5")),
        (
            rows.select(["whole", "real.available", "list"]),
            rows.select(["whole", "real.available", "list"]).head(0),
        ),
        (
            rows.rename({"struct": "s", "list": "pair", "pair": "list"}),
            rows.rename({"struct": "s", "list": "pair", "pair": "list"}).filter("whole > 5").sort_by("word"),
        ),
        (rows.window([-1, 0], on_edge="pad"), rows.window([-1, 0], on_edge="pad").head(0)),
    ]


@pytest.fixture(params=["parquet", "table", "zarr", "tar"])
def rows(request, tmp_path):
    pq.write_table(pa.table(COLUMNS), tmp_path / "x.parquet")
    if request.param == "parquet":
        return opened(tmp_path / "x.parquet")
    ll.convert(str(tmp_path / "x.parquet"), str(tmp_path / "root"), request.param)
    return opened(tmp_path / "root")


def shape_of(column):
    """Types of a column of a batch, without the number of rows."""
    if isinstance(column, tuple):
        return [(part.dtype, part.shape[1:]) for part in column]
    return list if isinstance(column, list) else (column.dtype, column.shape[1:])


def test_batches_tables_and_frames_without_rows_have_the_types_of_others(rows):
    for full, nothing in views(rows):
        assert len(nothing) == 0
        batch, wanted = nothing.get_many([]), full.get_many(np.arange(2))
        assert {name: shape_of(column) for name, column in batch.items()} == {
            name: shape_of(column) for name, column in wanted.items()
        }
        assert {len(column[1] if isinstance(column, tuple) else column) for column in batch.values()} == {0}
        (one,) = nothing.to_batches()
        assert one.num_rows == 0
        assert one.schema == next(full.to_batches()).schema
        assert nothing.to_arrow().schema == full.to_arrow().schema
        assert nothing.to_pandas().dtypes.to_dict() == full.to_pandas().dtypes.to_dict()


def test_a_batch_of_no_rows_of_a_view_that_has_some_has_their_types(rows):
    assert rows.get_many([], "pair")["pair"].shape == (0, 2)
    assert rows.get_many(np.empty(0, np.int64), "word")["word"] == []


def test_statistics_of_no_rows_count_none(rows):
    for name in ("whole", "word", "list", "pair", "struct", "real.age"):
        full, nothing = rows.stats(name), rows.head(0).stats(name)
        assert (nothing["rows"], nothing["unavailable"], nothing["count"]) == (0, 0, 0)
        assert nothing["type"] == full["type"]


JAGGED = [[[1], [2, 3]], [[4, 5]], [], [[6], [7]]]


def jagged(row):
    return {"v": JAGGED[int(row["whole"])], "whole": row["whole"]}


def test_jagged_lists_that_a_function_makes_are_lists_in_windows_and_batches(tmp_path):
    pq.write_table(pa.table({"whole": [0, 1, 2, 3]}), tmp_path / "x.parquet")
    rows = opened(tmp_path / "x.parquet").map(jagged)
    assert rows.get_many([0, 3])["v"] == [JAGGED[0], JAGGED[3]]
    windows = rows.window([-1, 0], on_edge="pad")
    assert windows[0]["v"] == [None, JAGGED[0]]
    assert windows.get_many([1, 3])["v"] == [JAGGED[0:2], JAGGED[2:4]]
    assert windows[1]["whole"].tolist() == [0, 1]
    assert list(rows.to_pandas()["v"]) == JAGGED
    with pytest.raises(UsageError, match="functions given to map made whole no array"):
        opened(tmp_path / "x.parquet").map(lambda row: {"whole": JAGGED[0]}).stats("whole")


def optional_members(folder):
    """Two shards: `txt` only in the first sample, `npy` only in the last one, `cls` in all."""
    needs("tar")
    for number in range(2):
        with tarfile.open(folder / f"a-{number}.tar", "w") as archive:
            for key in range(3 * number, 3 * number + 3):
                members = {"cls": b"%d" % key}
                members |= {"txt": b"hi"} if key == 0 else {}
                members |= {"npy": b"\x93NUMPY"} if key == 5 else {}
                for suffix, data in members.items():
                    info = tarfile.TarInfo(f"{key:04}.{suffix}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))


def test_members_that_only_some_samples_have_are_unavailable_in_the_others(tmp_path):
    optional_members(tmp_path)
    rows = opened(tmp_path)
    assert rows.columns == ("cls", "npy", "txt")
    names = ["txt", "txt.available", "npy.available"]
    batch = rows.get_many(range(6), names)
    assert batch["txt"] == [b"hi", *[b""] * 5]
    assert batch["txt.available"].tolist() == [True, *[False] * 5]
    assert batch["npy.available"].tolist() == [*[False] * 5, True]
    assert len(opened(tmp_path, where="available(npy)")) == 1
    assert rows.stats("txt")["unavailable"] == 5
    nothing = rows.head(0)
    assert nothing.get_many([])["__key__"] == []
    assert nothing.to_arrow().schema == rows.to_arrow().schema
    assert nothing.to_pandas().dtypes.to_dict() == rows.to_pandas().dtypes.to_dict()


def test_names_that_only_some_mapped_rows_have_are_an_error_that_names_row_and_remedy(tmp_path):
    optional_members(tmp_path)
    rows = opened(tmp_path).map(lambda row: {name: value for name, value in row.items() if value})
    with pytest.raises(UsageError, match=r"txt is in row 0 and not in row 1: return the same names"):
        rows.get_many([0, 1])
    with pytest.raises(UsageError, match="txt is in row 0 and not in row 1"):
        rows.to_pandas()


@pytest.mark.parametrize("name", present("bags", "lance", "parquet", "table", "tar", "zarr"))
def test_all_types_of_columns_stay_in_views_without_rows(tmp_path, name):
    source = unit_of_all_types(name, tmp_path / "unit", 2)
    rows = Dataset(source, range(2), tuple(source.schema.all))
    nothing, full = rows.head(0), rows.get_many([0, 1])
    assert {one: shape_of(column) for one, column in nothing.get_many([]).items()} == {
        one: shape_of(column) for one, column in full.items()
    }
    assert nothing.to_arrow().schema == rows.to_arrow().schema
    assert nothing.to_pandas().dtypes.to_dict() == rows.to_pandas().dtypes.to_dict()
    for one in source.schema.columns:
        assert nothing.stats(one)["type"] == rows.stats(one)["type"]
