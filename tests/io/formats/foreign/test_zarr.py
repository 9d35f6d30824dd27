"""Zarr groups that zarr and xarray wrote: arrays along one axis as columns."""

import json
import pathlib
import pickle

import fsspec
import numpy as np
import pytest
import xarray
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import logloom.datasets
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.foreign import open_foreign
from tests.tier import examples

from .conftest import rows_of

DTYPES = ["<f4", ">f8", "u1", "<i8", ">u2", "?", "<M8[us]", "<c8"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_are_columns_with_units_and_descriptions(tmp_path, read, zarr_format):
    group = zarr.open_group(tmp_path / "set.zarr", mode="w", zarr_format=zarr_format)
    values = {"speed": np.arange(20.0), "Pose": np.arange(60, dtype=">f4").reshape(20, 3)}
    for name, value in values.items():
        group.create_array(name, data=value, chunks=(7, *value.shape[1:]))
    group["speed"].attrs.update(units="m s-1", long_name="over ground")
    group.create_array("version", data=np.int64(3))
    dataset, rows = read(tmp_path / "set.zarr")
    assert dataset.kind == "zarr"
    assert {name: str(ctype) for name, ctype in dataset.schema.columns.items()} == {
        "pose": "float32[3]",
        "speed": "float64",
    }
    speed = dataset.schema.columns["speed"]
    assert (speed.unit, speed.description) == ("m s-1", "over ground")
    assert [log.log_id for log in dataset.logs()] == ["set"]
    assert [row["speed"] for row in rows] == values["speed"].tolist()
    np.testing.assert_array_equal([row["pose"] for row in rows], values["Pose"])
    small = rows_of(pickle.loads(pickle.dumps(dataset)), ["pose"], max_bytes=30)
    np.testing.assert_array_equal([row["pose"] for row in small], values["Pose"])


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_dataset_of_xarray_has_its_times_and_leaves_out_coordinates_of_other_axes(
    tmp_path, read, zarr_format
):
    times = np.array(["2024-05-01T00:00:00", "2024-05-01T00:00:01", "2024-05-01T00:00:03"], "M8[ns]")
    before = xarray.Dataset(
        {
            "scan": (("timestamp", "beam"), np.arange(12.0).reshape(3, 4)),
            "name": ("timestamp", ["a", "été", ""]),
            "seen": ("timestamp", times + np.timedelta64(1, "ms")),
            "took": ("timestamp", np.array([1, 2, 3], "m8[s]").astype("m8[ns]")),
        },
        coords={"timestamp": times, "beam": [0.1, 0.2, 0.3, 0.4]},
    )
    before.to_zarr(tmp_path / "x.zarr", zarr_format=zarr_format)
    dataset, rows = read(tmp_path / "x.zarr")
    assert dataset.about.notes == ()
    assert set(dataset.schema.columns) == {"scan", "name", "seen", "took"}
    assert [row["timestamp"] for row in rows] == times.astype(np.int64).tolist()
    assert [row["seen"] for row in rows] == (times.astype(np.int64) + 10**6).tolist()
    assert [row["name"] for row in rows] == ["a", "été", ""]
    np.testing.assert_array_equal([row["scan"] for row in rows], before["scan"])


def test_groups_with_the_same_arrays_are_logs(tmp_path, read):
    root = zarr.open_group(tmp_path / "x.zarr", mode="w")
    for name, count in (("town/b", 3), ("town/a", 4), ("field", 2)):
        root.create_group(name).create_array("speed", data=np.full(count, count, "i2"), chunks=(2,))
    dataset, rows = read(tmp_path / "x.zarr")
    assert [log.log_id for log in dataset.logs()] == ["field", "town/a", "town/b"]
    assert [row["speed"] for row in rows] == [2] * 2 + [4] * 4 + [3] * 3
    root["field"].create_array("extra", data=np.ones(2))
    _, rows = read(tmp_path / "x.zarr")
    assert [row["extra.available"] for row in rows] == [True] * 2 + [False] * 7
    assert len(rows_of(open_foreign(str(tmp_path / "x.zarr"), columns=["speed"]))) == 9


def test_arrays_of_several_lengths_need_a_choice(tmp_path):
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    group.create_array("speed", data=np.zeros(4))
    group.create_array("other", data=np.zeros(5))
    with pytest.raises(UsageError, match=r"differ in length \(other: 5, speed: 4\)"):
        open_foreign(str(tmp_path / "x.zarr"))
    assert len(rows_of(open_foreign(str(tmp_path / "x.zarr"), columns=["speed"]))) == 4
    zarr.open_group(tmp_path / "empty.zarr", mode="w")
    with pytest.raises(UsageError, match="without arrays has no rows"):
        open_foreign(str(tmp_path / "empty.zarr"))


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("days since 1970-01-02", [86400 * 10**9, 3 * 86400 * 10**9]),
        ("milliseconds since 1970-01-01T00:00:01.5Z", [1_500_000_000, 1_502_000_000]),
        ("second since 1969-12-31 23:59:59 UTC", [-(10**9), 10**9]),
    ],
)
def test_times_since_a_date_become_nanoseconds_since_the_epoch(tmp_path, read, unit, times):
    array = zarr.open_group(tmp_path / "x.zarr", mode="w").create_array(
        "timestamp", data=np.array([0, 2], "i4")
    )
    array.attrs["units"] = unit
    _, rows = read(tmp_path / "x.zarr")
    assert [row["timestamp"] for row in rows] == times


def test_an_array_that_claims_more_rows_than_can_be_is_damaged(tmp_path):
    group = zarr.open_group(tmp_path / "set.zarr", mode="w", zarr_format=2)
    group.create_array("speed", data=np.arange(20.0))
    path = tmp_path / "set.zarr" / "speed" / ".zarray"
    path.write_text(json.dumps({**json.loads(path.read_text()), "shape": [1 << 70]}))
    for opened in (logloom.datasets.open, open_foreign):
        with pytest.raises(DatasetError, match=r"set\.zarr: its arrays claim 1180591620717411303424 rows"):
            opened(str(tmp_path / "set.zarr"))


def test_times_that_are_not_understood_are_refused_instead_of_misread(tmp_path):
    array = zarr.open_group(tmp_path / "x.zarr", mode="w").create_array("timestamp", data=np.array([0, 2]))
    for unit, calendar in (("fortnights since 1970-01-01", "standard"), ("days since 2000-01-01", "noleap")):
        array.attrs.update(units=unit, calendar=calendar)
        with pytest.raises(UsageError, match="column timestamp: it counts"):
            open_foreign(str(tmp_path / "x.zarr"))
    array.attrs.update(units="days since 2500-01-01", calendar="standard")
    with pytest.raises(UsageError, match=r"column timestamp: .* int64 ns can't store"):
        open_foreign(str(tmp_path / "x.zarr"))


def test_a_damaged_chunk_and_a_huge_one_are_errors_that_name_array_and_rows(tmp_path):
    group = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    group.create_array("speed", data=np.arange(100.0), chunks=(50,))
    (tmp_path / "x.zarr/speed/1").write_bytes(b"nothing that a codec knows")
    with pytest.raises(DatasetError, match=r"x.zarr/speed: rows 50 to 100"):
        open_foreign(str(tmp_path / "x.zarr"))
    group.create_array("wide", shape=(1 << 40,), chunks=(1 << 40,), dtype="f8")
    with pytest.raises(UsageError, match=r"x.zarr: column wide: chunks of .* bytes"):
        open_foreign(str(tmp_path / "x.zarr"), columns=["wide"])


@pytest.mark.parametrize("codec", [{"compressor": {"id": "pickle"}}, {"filters": [{"id": "pickle"}]}])
@pytest.mark.parametrize("dtype", ["<f8", "|O"])
def test_chunks_that_would_be_unpickled_are_refused(tmp_path, codec, dtype):
    class Evil:
        def __reduce__(self):
            return pathlib.Path.touch, (tmp_path / "ran",)

    group = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    group.create_array("speed", data=np.arange(4.0), chunks=(4,), compressors=None)
    metadata = tmp_path / "x.zarr/speed/.zarray"
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"dtype": dtype, **codec}))
    (tmp_path / "x.zarr/speed/0").write_bytes(pickle.dumps(Evil()))
    with pytest.raises((DatasetError, UsageError), match="pickle"):
        rows_of(open_foreign(str(tmp_path / "x.zarr")))
    assert not (tmp_path / "ran").exists()


def test_a_group_in_an_object_store_reads_equally(tmp_path):
    before = np.arange(30, dtype="i4").reshape(10, 3)
    zarr.open_group(tmp_path / "x.zarr", mode="w").create_array("pose", data=before, chunks=(4, 3))
    memory = fsspec.filesystem("memory")
    memory.put(f"{tmp_path}/x.zarr", "/foreign-zarr", recursive=True)
    rows = rows_of(open_foreign("memory://foreign-zarr"))
    np.testing.assert_array_equal([row["pose"] for row in rows], before)


@settings(max_examples=examples(0.5))
@given(st.data())
def test_any_arrays_come_back_as_they_were_written(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("zarr") / "x.zarr"
    rows = data.draw(st.integers(1, 9))
    zarr_format = data.draw(st.sampled_from([2, 3]))
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    before = {}
    for number in range(data.draw(st.integers(1, 3))):
        dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
        shape = (rows, *data.draw(st.lists(st.integers(1, 3), max_size=2)))
        values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        chunks = tuple(data.draw(st.integers(1, n)) for n in shape)
        group.create_array(f"c{number}", data=values, chunks=chunks)
        before[f"c{number}"] = values.astype("M8[ns]").astype("<i8") if dtype.kind == "M" else values
    after = rows_of(open_foreign(str(path)), max_bytes=data.draw(st.integers(1, 500)))
    for name, values in before.items():
        found = np.array([row[name] for row in after])
        assert found.dtype == values.dtype.newbyteorder("<")
        np.testing.assert_array_equal(found, values)
