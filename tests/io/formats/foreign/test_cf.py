"""Zarr arrays encoded by the CF conventions: opened and converted as xarray decodes them, or refused."""

import contextlib
import json
import warnings

import numpy as np
import pytest
import xarray
import zarr
from hypothesis import given
from hypothesis import strategies as st

import logloom.datasets
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.foreign import open_foreign
from tests.absent import needs
from tests.cases import case
from tests.forking import command
from tests.tier import by_tier

from .conftest import rows_of

needs("zarr")
FORMATS = pytest.mark.parametrize("zarr_format", [2, 3])


def packed(path, zarr_format):
    values = [np.nan, 273.5, 274.0]
    texts = {"units": "K", "long_name": "of the air", "standard_name": "air_temperature"}
    attributes = {**texts, "valid_min": -99, "flags": [1, 2]}
    dataset = xarray.Dataset({"temp": ("time", values, attributes)}, coords={"time": np.arange(3)})
    chosen = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 273.0, "_FillValue": -999}
    dataset.to_zarr(path, zarr_format=zarr_format, consolidated=False, encoding={"temp": chosen})


@FORMATS
def test_values_that_xarray_packed_open_as_they_were(tmp_path, zarr_format, read):
    packed(tmp_path / "x", zarr_format)
    _, converted = read(tmp_path / "x")
    for rows in (logloom.datasets.open(tmp_path / "x"), converted):
        found = np.array([row["temp"] for row in rows])
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, [np.nan, 273.5, 274.0])


@FORMATS
def test_a_conversion_keeps_the_attributes_that_remain_true(tmp_path, zarr_format):
    packed(tmp_path / "x", zarr_format)
    done = command("convert", tmp_path / "x", tmp_path / "y", "--format", "zarr", "--plain")
    assert done.returncode == 0, done.stderr
    (group,) = zarr.open_group(tmp_path / "y", mode="r").groups()
    attributes = dict(group[1]["temp"].attrs)
    attributes.pop("_ARRAY_DIMENSIONS", None)
    assert attributes == {
        "units": "K",
        "long_name": "of the air",
        "standard_name": "air_temperature",
        "flags": [1, 2],
    }
    np.testing.assert_array_equal(group[1]["temp"][:], [np.nan, 273.5, 274.0])
    dataset = logloom.datasets.open(tmp_path / "y")
    assert dict(dataset.schema.columns["temp"].attributes)["standard_name"] == '"air_temperature"'


def write(path, zarr_format, values, attributes, fill=None):
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    more = {"dimension_names": ["row"]} if zarr_format == 3 else {}
    array = group.create_array("v", data=values, fill_value=fill, **more)
    array.attrs.update(attributes if zarr_format == 3 else {**attributes, "_ARRAY_DIMENSIONS": ["row"]})
    return path


def of_xarray(path):
    """The values of xarray, times as int64 ns; None without values, or for other objects."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = xarray.open_zarr(path, consolidated=False)["v"].values
        except (ValueError, TypeError, OverflowError, KeyError, AttributeError, ImportError):
            return None  # of dates out of range, which it hands to cftime, too
    if found.dtype.kind in "mM":
        return found.astype(f"{found.dtype.kind}8[ns]").view(np.int64)
    return None if found.dtype.kind == "O" else found


def of_logloom(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            rows = logloom.datasets.open(path)
            return None if "v" not in rows.columns else np.array([row["v"] for row in rows])
        except DatasetError:  # a time that int64 ns can't hold, told by its value
            return None


def check(path, original=None):
    """Compares what both make of a store; xarray of another one of the same values, where it has a fault."""
    expected, found = of_xarray(original or path), of_logloom(path)
    if found is None:
        with pytest.raises((UsageError, DatasetError), match="column v"):
            open_foreign(str(path))
        return False
    assert expected is not None
    assert found.dtype == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, expected)
    converted = np.array([row["v"] for row in rows_of(open_foreign(str(path)))])
    np.testing.assert_array_equal(converted, found)
    return True


I2 = np.array([-999, 0, 1, 7, -3], "i2")
F4 = np.array([1e20, 0.1, np.nan, -999, 7], "f4")
KEPT = [
    (I2, {"scale_factor": 0.5, "add_offset": 273.0, "_FillValue": -999}),
    (I2, {"scale_factor": 0.1}),
    (I2, {"add_offset": 3.0, "missing_value": 7}),
    (I2, {"add_offset": 3}),
    (I2, {"scale_factor": 2}),
    (I2, {"_FillValue": -999}),
    (I2, {"missing_value": [7, -3]}),
    (I2, {"missing_value": -3, "_FillValue": -999}),
    (I2, {"_FillValue": -999, "units": "m"}),
    (I2.astype("i4"), {"_FillValue": -999}),
    (I2.astype("i8"), {"_FillValue": -999, "scale_factor": 1e-3}),
    (I2.astype(">i4"), {"scale_factor": 0.5, "add_offset": 1.0}),
    (np.array([-1, 0, 5, 100], "i1"), {"_Unsigned": "true"}),
    (np.array([-1, 0, 5, 100], "i1"), {"_Unsigned": "true", "_FillValue": -1, "scale_factor": 0.5}),
    (np.array([255, 0, 5, 100], "u1"), {"_Unsigned": "false"}),
    (F4, {"missing_value": -999}),
    (F4, {"missing_value": -999.0, "scale_factor": 0.5}),
    (F4.astype("f8"), {"missing_value": 1e20}),
    (F4.astype("f2"), {"missing_value": 7}),
    (np.array([0, 1, 1], "i1"), {"dtype": "bool"}),
    (np.array([0, 2, -(2**63)]), {"units": "hours since 2026-03-01", "calendar": "standard"}),
    (np.array([0, 2, -5], "i4"), {"units": "Days since 1999-1-1 0:0:0", "_FillValue": -5}),
    (np.array([0, 2, 9], "u8"), {"units": "seconds since 1970-01-01T00:00:01.25Z"}),
    (np.array([0.5, np.nan, 1.1], "f4"), {"units": "days since 2000-01-01 12:00", "calendar": "gregorian"}),
    (np.array([0.5, 1e-9, 12345.6789]), {"units": "seconds since 1960-01-01"}),
    (np.array([1, 2, -9], "i2"), {"units": "hours since 2000-01-01", "scale_factor": 0.25, "_FillValue": -9}),
    (np.array([1, 3, -(2**63)]), {"units": "seconds", "dtype": "timedelta64[ms]"}),
    (np.array([1, 3, -7]), {"units": "milliseconds", "dtype": "timedelta64[ns]", "_FillValue": -7}),
    (np.array([1, 3]), {"units": "seconds"}),
]


def test_values_and_types_are_those_that_xarray_gives(tmp_path):
    for number, (values, attributes) in enumerate(KEPT):
        for zarr_format in by_tier([2 + number % 2], [2, 3]):
            with case(values, attributes, zarr_format):
                assert check(write(tmp_path / f"{number}-{zarr_format}", zarr_format, values, attributes))


@pytest.mark.parametrize(
    ("count", "unit", "calendar", "time"),
    [
        (730119, "days since 0001-01-01", "proleptic_gregorian", "2000-01-01"),
        (3506328, "hours since 1600-01-01", "standard", "2000-01-01"),
    ],
)
def test_dates_that_nanoseconds_can_not_hold_may_be_what_whole_numbers_are_counted_from(
    tmp_path, count, unit, calendar, time
):
    path = write(tmp_path / "x", 3, np.array([count]), {"units": unit, "calendar": calendar})
    assert of_logloom(path)[0].astype("M8[ns]") == np.datetime64(time)
    path = write(tmp_path / "y", 3, np.array([count + 0.5]), {"units": unit, "calendar": calendar})
    assert of_logloom(path) is None


@pytest.mark.parametrize("values", [np.arange(3, dtype="i4"), np.arange(3.0), np.arange(3, dtype="u1")])
def test_the_fill_value_of_format_2_is_missing_where_axes_have_names(tmp_path, values):
    assert check(write(tmp_path / "x", 2, values, {}, fill=1))
    plain = zarr.open_group(tmp_path / "y", mode="w", zarr_format=2)
    plain.create_array("v", data=values, fill_value=1)  # which xarray doesn't open, and zarr fills nothing
    np.testing.assert_array_equal(of_logloom(tmp_path / "y"), values)


REFUSED = [
    (I2, {"_FillValue": -999, "scale_factor": 2}, "whole scale_factor"),
    (I2, {"scale_factor": "0.5"}, "no number"),
    (I2, {"scale_factor": [0.5]}, "no number"),
    (I2, {"missing_value": "none"}, "a fill value that is no number"),
    (I2, {"_FillValue": 1e400}, "no int16"),
    (I2, {"units": "fortnights since 1970-01-01"}, "isn't understood"),
    (I2, {"units": "days since 2000-13-01"}, "isn't understood"),
    (I2, {"units": "days since 2000-01-01", "calendar": "noleap"}, "isn't understood"),
    (I2, {"units": "days since 0001-01-01"}, "calendars before"),
    (I2, {"units": "seconds", "_FillValue": -999}, "xarray returns"),
    (np.array([True, False]), {"_FillValue": True}, "bool values"),
    (np.array(["a", ""]), {"missing_value": ""}, "values that"),
]


@pytest.mark.parametrize(("values", "attributes", "words"), REFUSED)
def test_what_is_no_plain_number_in_xarray_is_refused_by_name(tmp_path, values, attributes, words):
    path = write(tmp_path / "x", 3, values, attributes)
    zarr.open_group(path)["v"].attrs.update(attributes)
    zarr.open_group(path).create_array("ok", data=np.arange(len(values)), dimension_names=["row"])
    for columns in (["v"], ["v", "ok"]):
        with pytest.raises(UsageError, match=f"column v: .*{words}"):
            open_foreign(str(path), columns=columns)
        with pytest.raises(UsageError, match=f"column v: .*{words}"):
            logloom.datasets.open(path, columns=columns)
    converted = open_foreign(str(path))
    assert rows_of(converted)[1]["ok"] == 1
    assert words in converted.left_out["v"]
    with pytest.warns(UserWarning, match=f"left out, since they can't be read: v: .*{words}"):
        assert logloom.datasets.open(path).columns == ("ok",)


@given(data=st.data())
def test_any_encoding_is_decoded_as_by_xarray_or_refused(tmp_path_factory, data):
    dtype = np.dtype(
        data.draw(st.sampled_from(["i1", "u1", "<i2", ">i2", "u4", "i8", "u8", "f2", "f4", ">f8"]))
    )
    small = st.integers(0 if dtype.kind == "u" else -9, 9)
    values = np.array(data.draw(st.lists(small, min_size=1, max_size=6))).astype(dtype)
    number = st.sampled_from([0.5, 2.0, 0.1, 1e-3, 3, -2])
    attributes = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "scale_factor": number,
                "add_offset": number,
                "missing_value": small,
                "units": st.sampled_from(
                    ["m", "days since 2000-01-01", "seconds since 1969-07-20T20:17:40", "hours"]
                ),
                "calendar": st.sampled_from(["standard", "proleptic_gregorian", "360_day"]),
                "_Unsigned": st.sampled_from(["true", "false"]),
            },
        )
    )
    zarr_format = data.draw(st.sampled_from([2, 3]))
    fill = data.draw(st.none() | small) if zarr_format == 2 else None
    if zarr_format == 3 and dtype.kind in "iu" and data.draw(st.booleans()):
        attributes["_FillValue"] = data.draw(small)
    folder, original = tmp_path_factory.mktemp("x"), None
    if dtype == ">i2" and attributes.get("_Unsigned") == "true":  # xarray swaps the bytes of the fill value
        original = write(folder / "little", zarr_format, values.astype("<i2"), attributes, fill)
    check(write(folder / "x", zarr_format, values, attributes, fill), original)


def test_names_of_axes_that_are_none_are_as_if_they_were_not_there(tmp_path):
    path = write(tmp_path / "x", 2, I2, {})
    zarr.open_group(path)["v"].attrs["_ARRAY_DIMENSIONS"] = [["row"]]
    np.testing.assert_array_equal(of_logloom(path), I2)


def test_attributes_of_any_kind_are_decoded_or_an_error(tmp_path):
    packed(tmp_path / "x", 3)
    path = tmp_path / "x" / "temp" / "zarr.json"
    good = json.loads(path.read_text())
    for name in ("scale_factor", "add_offset", "_FillValue", "missing_value", "units", "dtype", "_Unsigned"):
        for value in (None, True, [], {}, [[1]], "", "x", 10**400, {"a": 1}):
            path.write_text(json.dumps({**good, "attributes": {**good["attributes"], name: value}}))
            with contextlib.suppress(UsageError, DatasetError):
                rows_of(open_foreign(str(tmp_path / "x")))
