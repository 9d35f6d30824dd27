"""Cameras and depth cameras from their logs to rows: as they are suggested, planned and built."""

import struct

import numpy as np
import pytest

import logloom.datasets
from logloom.errors import RecipeError
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
