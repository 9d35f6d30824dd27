"""Cameras and depth cameras from their logs to rows: as they are suggested, planned and built."""

import struct

import numpy as np
import pytest

import logloom.datasets
from logloom.errors import LogloomError, RecipeError
from logloom.io.logs.match import group_logs
from logloom.io.logs.opening import open_log
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.column_warnings import column_warnings
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.transforms.suggest.recipe import suggest
from tests.io.logs.messages.test_compressed_images import encoded_png, encoded_rvl
from tests.io.logs.messages.test_picture_structure import picture
from tests.transforms.ros2_logs import COMPRESSED, IMAGE, SECOND, START, header, write_log

NUM = 12
TIMES = [START + i * SECOND // 10 for i in range(NUM)]
RECIPE = """\
name: cameras
logs: ["{path}"]
clock: {{rate: 10}}
on_error: {on_error}
columns:
  camera: {{topic: /camera, as: image{keys}, resample: nearest, tolerance: {tolerance}}}
outputs:
  tar: {{}}
"""


def raw(time, encoding, pixels, step=None):
    height, width = pixels.shape[:2]
    step = pixels.strides[0] if step is None else step
    sent = {"height": height, "width": width, "encoding": encoding, "is_bigendian": 0, "step": step}
    return {"header": header(time), **sent, "data": pixels.tobytes()}


def packed(time, form, data):
    return {"header": header(time), "format": form, "data": data}


def depth(time, form, values):
    size = struct.pack("<II", values.shape[1], values.shape[0])
    body = size + encoded_rvl(values.ravel()) if form.endswith("rvl") else encoded_png(values)
    return packed(time, form, struct.pack("<iff", 0, 1000.0, 2.0) + body)


def numbered(i, dtype=np.uint16, shape=(6, 8)):
    return (np.arange(np.prod(shape)).reshape(shape) * 11 + i).astype(dtype)


def depths(form):
    return [(t, depth(t, form, numbered(i))) for i, t in enumerate(TIMES)]


def suggested(path):
    logs = {files.log_id: open_log(files.uris) for files in group_logs([path])}
    text = suggest(logs)
    return Recipe.from_yaml(text), text


def test_cameras_are_suggested_with_dtype_and_shape_and_build(tmp_path):
    nothing = {"height": 0, "width": 0, "encoding": "", "is_bigendian": 0, "step": 0, "data": b""}
    late = [(t, raw(t, "mono8", numbered(i, np.uint8))) for i, t in enumerate(TIMES)]
    late[0] = (TIMES[0], {"header": header(TIMES[0]), **nothing})
    sizes = [(t, raw(t, "mono8", numbered(i, np.uint8, (6, 8 + i % 2)))) for i, t in enumerate(TIMES)]
    path = write_log(
        tmp_path / "drive.mcap",
        {
            "/late": (IMAGE, late),
            "/sizes": (IMAGE, sizes),
            "/step": (IMAGE, [(t, raw(t, "16SC1", numbered(i, np.int16), 0)) for i, t in enumerate(TIMES)]),
            "/rvl": (COMPRESSED, depths("16UC1; compressedDepth rvl")),
            "/metres": (COMPRESSED, depths("32FC1; compressedDepth")),
            "/mixed": (
                IMAGE,
                [(t, raw(t, "mono16" if i else "16SC1", numbered(i))) for i, t in enumerate(TIMES)],
            ),
        },
    )
    recipe, text = suggested(path)
    found = {name: (column.adapter, column.dtype, column.shape) for name, column in recipe.columns.items()}
    assert found == {
        "late": ("image", "uint8", (6, 8, 1)),
        "sizes": ("image", "uint8", None),
        "step": ("image", "int16", (6, 8, 1)),
        "rvl": ("image", "uint16", (6, 8, 1)),
        "metres": ("image", "float32", (6, 8, 1)),
    }
    assert "left out: images of several dtypes: int16, uint16" in text
    root = str(tmp_path / "root")
    done = build(plan_build(recipe, root), num_workers=1)
    assert verify(root, against_logs=True, num_workers=1).is_proven
    (record,) = done.manifest.logs
    assert record.refused == 0
    rows = list(logloom.datasets.open(root))
    assert len(rows) == NUM
    for i, row in enumerate(rows):
        np.testing.assert_array_equal(
            row["late"][:, :, 0], numbered(i or 1, np.uint8)
        )  # the second is nearest
        np.testing.assert_array_equal(row["sizes"][:, :, 0], numbered(i, np.uint8, (6, 8 + i % 2)))
        np.testing.assert_array_equal(row["step"][:, :, 0], numbered(i, np.int16))
        np.testing.assert_array_equal(row["rvl"][:, :, 0], numbered(i))
        values = numbered(i).astype(np.float32)
        with np.errstate(all="ignore"):
            metres = np.where(values == 0, np.float32(np.nan), np.float32(1000) / (values - np.float32(2)))
        np.testing.assert_array_equal(row["metres"][:, :, 0], metres)


def planned(tmp_path, keys, on_error="fail", messages=None, kind=IMAGE, tolerance="50ms"):
    sent = messages or [(t, raw(t, "mono16", numbered(i))) for i, t in enumerate(TIMES)]
    path = write_log(tmp_path / "drive.mcap", {"/camera": (kind, sent)})
    text = RECIPE.format(path=path, keys=keys, on_error=on_error, tolerance=tolerance)
    recipe = Recipe.from_yaml(text, source="r.yaml")
    return plan_build(recipe, str(tmp_path / "root"))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("", "its pixels are uint16, the column uint8; set dtype: uint16"),
        (", dtype: int16", "its pixels are uint16, the column int16; set dtype: uint16"),
        (
            ", dtype: uint16, shape: [6, 9, 1]",
            r"are \(6, 8, 1\), the column's \(6, 9, 1\); set shape: \[6, 8, 1\] \(or none, if it changes\)",
        ),
        (", shape: [6, 9, 1]", r"; set shape: \[6, 8, 1\] \(or none, if it changes\), dtype: uint16"),
        (
            ", dtype: uint16, resize: [3, 4]",
            r"are \(3, 4, 1\), the column's \(3, 4, 3\); set shape: \[3, 4, 1\]",
        ),
    ],
)
def test_a_plan_refuses_a_column_that_the_first_image_does_not_fit(tmp_path, keys, words):
    with pytest.raises(
        RecipeError, match=rf"r.yaml:6: columns.camera: the first image of /camera .*{words} \(drive\)"
    ):
        planned(tmp_path, keys)
    for on_error in ("skip", "salvage"):
        (warning,) = column_warnings(planned(tmp_path, keys, on_error))
        assert warning.text.startswith("drive: column camera: the first image of /camera doesn't fit: ")


@pytest.mark.parametrize("in_logs", [1, 2])
def test_depth_in_millimetres_and_in_metres_is_suggested_in_metres(tmp_path, in_logs):
    sent = [
        (t, raw(t, "32FC1", numbered(i, np.float32)) if i % 2 else raw(t, "16UC1", numbered(i)))
        for i, t in enumerate(TIMES)
    ]
    for number in range(in_logs):
        own = [one for i, one in enumerate(sent) if in_logs == 1 or i % 2 == number]
        write_log(tmp_path / f"logs/{number}.mcap", {"/depth": (IMAGE, own)})
    text = suggest({files.log_id: open_log(files.uris) for files in group_logs([str(tmp_path / "logs")])})
    recipe = Recipe.from_yaml(text)
    column = recipe.columns["depth"]
    assert (column.adapter, column.dtype, column.unit, column.shape) == ("image", "float32", "m", (6, 8, 1))
    root = str(tmp_path / "root")
    done = build(plan_build(recipe, root), num_workers=1)
    assert sum(record.refused for record in done.manifest.logs) == 0
    seen = {float(row["depth"][-1, -1, 0]) for row in logloom.datasets.open(root)}
    last = 47 * 11
    assert seen == {float(np.float32(last + i if i % 2 else (last + i) / 1000)) for i in range(NUM)}


def test_a_plan_accepts_columns_that_images_fit(tmp_path):
    fitting = (", dtype: uint16", ", dtype: uint16, shape: [6, 8, 1]", ", encode: png")
    for keys in (*fitting, ", dtype: uint16, resize: [3, 4], shape: [3, 4, 1]"):
        assert column_warnings(planned(tmp_path, keys)) == []


def test_the_first_image_is_the_first_with_pixels(tmp_path):
    sent = [(t, raw(t, "mono8", numbered(i, np.uint8))) for i, t in enumerate(TIMES)]
    empty = raw(0, "mono16", numbered(0)[:0])
    late = [(START - 9 * SECOND, empty), (START - 7 * SECOND, empty), *sent]
    late = [(t, m | {"header": header(t)}) for t, m in late]
    assert planned(tmp_path, ", shape: [6, 8, 1]", messages=late).num_partitions
    only_empty = [(t, empty | {"header": header(t)}) for t in TIMES]
    assert planned(tmp_path, ", shape: [6, 8, 1]", messages=only_empty).num_partitions


def test_broken_and_empty_pictures_are_refused_and_counted_and_their_rows_have_the_neighbour_or_none(
    tmp_path,
):
    whole = picture()
    sent = [(t, packed(t, "jpeg", whole)) for t in TIMES]
    sent[3] = (TIMES[3], packed(TIMES[3], "jpeg", whole[: len(whole) // 2]))
    sent[7] = (TIMES[7], packed(TIMES[7], "jpeg", b""))
    for tolerance, lacking in (("50ms", [3, 7]), ("150ms", [])):
        done = build(planned(tmp_path, "", "salvage", sent, COMPRESSED, tolerance), num_workers=1)
        (record,) = done.manifest.logs
        assert record.refused == 2
        rows = list(logloom.datasets.open(str(tmp_path / "root")))
        assert [i for i, row in enumerate(rows) if not row["camera"].size] == lacking


MM = np.array([[0, 1, 1500], [2501, 40000, 65535]], np.uint16)
METRES = np.array([[np.nan, 0.0015, 1.5], [2.5005, np.inf, -1]], np.float32)


def two_takes(tmp_path, second=None):
    """A take with depth in millimetres, and one in metres an hour later."""
    later = [time + 3600 * SECOND for time in TIMES]
    write_log(tmp_path / "a.mcap", {"/camera": (IMAGE, [(t, raw(t, "16UC1", MM)) for t in TIMES])})
    second = second or (IMAGE, [(t, raw(t, "32FC1", METRES)) for t in later])
    write_log(tmp_path / "b.mcap", {"/camera": second})
    return str(tmp_path / "*.mcap")


def takes(path, keys, tmp_path, on_error="fail"):
    text = RECIPE.format(path=path, keys=keys, tolerance="50ms", on_error=on_error)
    return plan_build(Recipe.from_yaml(text), str(tmp_path / "root"))


@pytest.mark.parametrize("keys", ["", ", dtype: uint16", ", dtype: float32"])
def test_depth_of_two_types_is_an_error_of_the_plan_with_both_logs_and_the_line(tmp_path, keys):
    path = two_takes(tmp_path)
    with pytest.raises(RecipeError) as caught:
        takes(path, keys, tmp_path)
    (line,) = str(caught.value).splitlines()
    assert "images are uint16 in log a but float32 in log b;" in line
    assert "write `dtype: float32, unit: m` or `dtype: uint16, unit: mm`, which convert it" in line


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            ", dtype: float32, unit: m, shape: [2, 3, 1]",
            (np.where(MM == 0, np.nan, MM / 1000), METRES.astype(np.float64)),
        ),
        (
            ", dtype: float32, unit: mm",
            (np.where(MM == 0, np.nan, MM.astype(np.float64)), METRES.astype(np.float64) * 1000),
        ),
        (", dtype: uint16, unit: mm", (MM, [[0, 2, 1500], [2500, 0, 0]])),
    ],
)
def test_depth_of_two_types_is_converted_to_the_unit_of_the_column(tmp_path, keys, expected):
    build(takes(two_takes(tmp_path), keys, tmp_path), num_workers=1)
    rows = logloom.datasets.open(str(tmp_path / "root"))
    dtype = np.float32 if "float32" in keys else np.uint16
    for i in range(2 * NUM):
        found = rows[i]["camera"]
        assert found.dtype == dtype
        assert np.array_equal(found[:, :, 0], np.asarray(expected[i // NUM]).astype(dtype), equal_nan=True)


def test_compressed_depth_is_converted_as_raw_depth_is(tmp_path):
    later = [time + 3600 * SECOND for time in TIMES]
    form = "16UC1; compressedDepth png"
    path = two_takes(tmp_path, (COMPRESSED, [(t, depth(t, form, MM)) for t in later]))
    build(takes(path, ", dtype: float32, unit: m", tmp_path), num_workers=1)
    rows = logloom.datasets.open(str(tmp_path / "root"))
    metres = np.where(MM == 0, np.nan, MM / 1000).astype(np.float32)
    assert all(np.array_equal(rows[i]["camera"][:, :, 0], metres, equal_nan=True) for i in range(2 * NUM))


def test_depth_beyond_the_type_is_a_refused_image(tmp_path):
    later = [time + 3600 * SECOND for time in TIMES]
    far = [(t, raw(t, "32FC1", METRES + (100 if i == 3 else 0))) for i, t in enumerate(later)]
    path = two_takes(tmp_path, (IMAGE, far))
    keys = ", dtype: uint16, unit: mm"
    with pytest.raises(
        LogloomError, match=r"its depth of 102501 mm doesn't fit uint16; write `dtype: float32, unit: m`"
    ):
        build(takes(path, keys, tmp_path), num_workers=1)
    manifest = build(takes(path, keys, tmp_path, "skip"), num_workers=1).manifest
    assert [record.status for record in manifest.logs] == ["whole", "salvaged"]
    assert sum(record.refused for record in manifest.logs) == 1


def test_an_existing_dataset_of_one_type_names_the_lines_that_convert(tmp_path):
    write_log(tmp_path / "a.mcap", {"/camera": (IMAGE, [(t, raw(t, "16UC1", MM)) for t in TIMES])})
    build(takes(str(tmp_path / "*.mcap"), ", dtype: uint16", tmp_path), num_workers=1)
    with pytest.raises(
        RecipeError, match=r"set dtype: float32, or for depth `dtype: float32, unit: m` or .* \(b\)"
    ):
        takes(two_takes(tmp_path), ", dtype: uint16", tmp_path)


@pytest.mark.parametrize("keys", [", dtype: uint16, unit: mm", ", dtype: float32, unit: m"])
def test_resizing_mixes_no_depth_with_pixels_that_have_none(tmp_path, keys):
    """The halves of a picture without depth on the left stay apart, whatever its type."""
    depth = np.array([[0, 1000, 2000, 4000]] * 4, np.uint16)
    metres = np.where(depth == 0, np.nan, depth / 1000).astype(np.float32)
    pictures = {"a": ("16UC1", depth), "b": ("32FC1", metres)}
    for name, (encoding, pixels) in pictures.items():
        times = TIMES if name == "a" else [time + 3600 * SECOND for time in TIMES]
        write_log(
            tmp_path / f"{name}.mcap", {"/camera": (IMAGE, [(t, raw(t, encoding, pixels)) for t in times])}
        )
    where = str(tmp_path / "*.mcap")
    with pytest.raises(RecipeError, match=r"\(2, 2, 1\), the column's \(2, 2, 3\); set shape: \[2, 2, 1\] "):
        takes(where, f"{keys}, resize: [2, 2]", tmp_path)
    build(takes(where, f"{keys}, resize: [2, 2], shape: [2, 2, 1]", tmp_path), num_workers=1)
    far = (1000 + 3 * 2000 + 3 * 4000) / 7  # of a triangle that doesn't reach the first pixel
    none, far = (0, round(far)) if "mm" in keys else (np.nan, np.float32(far / 1000))
    for row in logloom.datasets.open(str(tmp_path / "root")):
        np.testing.assert_allclose(row["camera"][:, :, 0], [[none, far]] * 2, rtol=1e-6)
