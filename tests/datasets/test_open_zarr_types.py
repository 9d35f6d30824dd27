"""Zarr arrays of others open as columns whatever they hold, and what can't is named."""

import json
import pickle
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray
import zarr

import logloom.datasets
from logloom.errors import DatasetError, UsageError
from tests.absent import needs

needs("zarr")

STAMPS = np.array(["2026-01-01T00:00:00.000000001", "NaT", "2026-01-03", "1969-12-31"], "M8[ns]")
TEXTS = ["a", "Straße 7", "", "東京"]


def write(folder, zarr_format):
    group = zarr.open_group(folder, mode="w", zarr_format=zarr_format)
    group.create_array("when", data=STAMPS)
    group.create_array("day", data=STAMPS.astype("M8[D]"))
    group.create_array("took", data=np.arange(8).reshape(4, 2).astype("m8[us]"))
    texts = group.create_array("text", shape=(4,), chunks=(2,), dtype=str)
    texts[:] = np.array(TEXTS, object)
    pairs = group.create_array("pair", shape=(4, 2), chunks=(2, 2), dtype=str)
    pairs[:] = np.array([[text, text * 2] for text in TEXTS], object)
    group.create_array("rate", data=np.array(10.0))
    return group


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_times_and_texts_of_zarr_python_are_columns(tmp_path, zarr_format):
    write(tmp_path / "z", zarr_format)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = logloom.datasets.open(tmp_path / "z")
    assert {name: str(ctype) for name, ctype in rows.schema.columns.items()} == {
        "day": "int64", "pair": "object[2]", "text": "string", "took": "int64[2]", "when": "int64",
    }  # fmt: skip
    assert {name for name, ctype in rows.schema.columns.items() if ctype.unit == "ns"} == {
        "day", "took", "when",
    }  # fmt: skip
    assert [row["text"] for row in rows] == TEXTS
    assert type(rows[1]["text"]) is str
    assert rows[0]["when"] == STAMPS[0].astype(np.int64)
    assert rows[3]["pair"].tolist() == ["東京", "東京東京"]
    batch = rows.get_many([3, 0, 3])
    np.testing.assert_array_equal(batch["when"], STAMPS[[3, 0, 3]].view(np.int64))
    np.testing.assert_array_equal(batch["took"], 1000 * np.array([[6, 7], [0, 1], [6, 7]]))
    assert batch["text"] == ["東京", "a", "東京"]
    assert rows.left_out == {"rate": "a scalar, no entry for each row"}
    again = pickle.loads(pickle.dumps(rows))
    assert again[1]["text"] == "Straße 7"
    assert again.left_out == rows.left_out


def test_rows_that_a_window_lacks_have_the_default_of_integers(tmp_path):
    write(tmp_path / "z", 3)
    padded = logloom.datasets.open(tmp_path / "z").window([-1, 0], on_edge="pad", max_gap=None)
    assert padded[0]["when"].tolist() == [0, STAMPS[0].astype(np.int64)]
    assert padded[0]["text"] == ["", "a"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_dataset_of_xarray_opens_with_its_times_and_its_labels(tmp_path, zarr_format):
    times = pd.date_range("2026-03-01", periods=3, freq="h")
    dataset = xarray.Dataset(
        {
            "x": (("time", "axis"), np.arange(6.0).reshape(3, 2)),
            "label": ("time", np.array(["car", "", "ein Rad"], object)),
            "took": ("time", pd.to_timedelta([1, 2, 3], "s")),
        },
        coords={"time": times, "axis": [1, 2], "site": 7},
    )
    dataset.to_zarr(tmp_path / "x", zarr_format=zarr_format)
    rows = logloom.datasets.open(tmp_path / "x")
    assert rows.columns == ("label", "time", "took", "x")
    assert [row["label"] for row in rows] == ["car", "", "ein Rad"]
    assert [row["time"] for row in rows] == times.as_unit(
        "ns"
    ).asi8.tolist()  # stored as "hours since 2026-03-01"
    assert [row["took"] for row in rows] == [10**9, 2 * 10**9, 3 * 10**9]
    assert rows.left_out == {
        "axis": "the coordinate of another axis",
        "site": "a scalar, no entry for each row",
    }


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_that_zarr_cannot_open_is_named_and_the_others_are_rows(tmp_path, zarr_format):
    write(tmp_path / "z", zarr_format)
    name = "zarr.json" if zarr_format == 3 else ".zarray"
    shutil.copytree(tmp_path / "z" / "when", tmp_path / "z" / "odd")
    metadata = json.loads((tmp_path / "z" / "odd" / name).read_text())
    metadata |= (
        {"data_type": "quaternion"} if zarr_format == 3 else {"dtype": "|O", "filters": [{"id": "pickle"}]}
    )
    (tmp_path / "z" / "odd" / name).write_text(json.dumps(metadata))
    with pytest.warns(UserWarning, match=r"left out, since they can't be read: odd: ") as told:
        rows = logloom.datasets.open(tmp_path / "z")
    assert told[0].filename == __file__
    assert "odd" not in rows.columns
    assert "text" in rows.columns
    assert set(rows.left_out) == {"odd", "rate"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logloom.datasets.open(tmp_path / "z", columns=["text"])  # whoever chooses others knows
    with pytest.raises(UsageError, match="column odd: No Zarr data type"):
        logloom.datasets.open(tmp_path / "z", columns=["odd"])
    (tmp_path / "z" / "odd" / name).write_text("{")
    with pytest.raises(DatasetError, match="no zarr group that can be read"):
        logloom.datasets.open(tmp_path / "z")


def test_a_chunk_that_zarr_cannot_decode_is_an_error_that_names_the_array(tmp_path):
    write(tmp_path / "z", 3)
    (chunk, *_) = [
        path for path in (tmp_path / "z" / "text").rglob("*") if path.name != "zarr.json" and path.is_file()
    ]
    chunk.write_bytes(b"\0\1\2")
    with pytest.raises(DatasetError, match=r"z/text: rows 0 to 4 can't be read"):
        logloom.datasets.open(tmp_path / "z").get_many(range(4))


def test_times_can_be_compared_sorted_and_counted(tmp_path):
    write(tmp_path / "z", 3)
    rows = logloom.datasets.open(tmp_path / "z")
    assert [row["text"] for row in rows.filter("when >= '2026-01-01T00:00:00.000000001'")] == ["a", ""]
    ordered = STAMPS[[1, 3, 0, 2]].view(np.int64).tolist()  # NaT's bits are the smallest int64
    assert [row["when"] for row in rows.sort_by("when")] == ordered
    assert rows.unique("day").tolist() == [*ordered[:2], ordered[2] - 1, ordered[3]]
