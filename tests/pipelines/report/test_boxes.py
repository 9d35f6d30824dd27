"""Boxes on images of a page: where they are drawn, and when they are not."""

import math
import re

import numpy as np
import pytest

from logloom.pictures import Picture, thumbnail
from logloom.pipelines.report.boxes import MAX_BOXES, BoxColumns
from logloom.pipelines.report.cameras import distortion_of, projected
from logloom.recipe import Recipe
from logloom.schema import STRING, ColumnType

BOX = np.dtype(
    [("class", "<U16"), ("track", "<u4"), ("center", "<f8", 3), ("size", "<f4", 3), ("yaw", "<f4")]
)
FLAT = np.dtype([("class", "<U16"), ("bbox", "<f8", 4)])
F8 = np.dtype("f8")
TYPES = {
    "camera.front": ColumnType(np.dtype("u1"), (None,), "bytes"),
    "front.k": ColumnType(F8, (3, 3)),
    "front.d": ColumnType(F8, (None,)),
    "front.model": STRING,
    "front.size": ColumnType(np.dtype("u4"), (2,)),
    "front.extrinsics": ColumnType(F8, (4, 4)),
    "ego.position": ColumnType(F8, (3,)),
    "ego.rotation": ColumnType(F8, (4,)),
    "objects": ColumnType(BOX, (None,)),
}
RECIPE = """
name: boxes
logs: x.mcap
clock: {rate: 10}
columns:
  camera.front: {topic: /cam/front/image/compressed, as: image, resample: nearest}
  front: {calibration: {camera: /cam/front/image/camera_info, frame: base_link}}
  ego.position: {tf: {from: base_link, to: map}, as: position}
  ego.rotation: {tf: {from: base_link, to: map}, as: quaternion}
  objects: {table: labels.parquet, field: [class, track, center, size, yaw], frame: base_link}
"""
# The camera looks along base_link's x, from its origin: its x is -y, its y is -z.
AHEAD = np.array([[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]])
PICTURE = Picture(b"", "image/jpeg", 320, 240, (640, 480))


def boxes(*rows):
    return np.array([("car", 7, *row) for row in rows], BOX)


def row(**changed):
    """What a row says of a camera of 640 x 480 whose focal length is 180, and of a cube 10 m ahead."""
    values = {
        "front.k": np.array([[180.0, 0, 320], [0, 180, 240], [0, 0, 1]]),
        "front.d": np.zeros(5),
        "front.model": "plumb_bob",
        "front.size": np.array([480, 640], "u4"),
        "front.extrinsics": AHEAD,
        "ego.position": np.array([100.0, 50, 0]),
        "ego.rotation": np.array([0, 0, 0, 1.0]),
        "objects": boxes(((10, 0, 0), (2, 2, 2), 0)),
    }
    return {**values, **{name.replace("_", ".", 1): value for name, value in changed.items()}}


def drawn(values, text=RECIPE, types=TYPES, images=("camera.front",), picture=PICTURE):
    columns = BoxColumns(types, Recipe.from_yaml(text).identity_json())
    usable = {name: value for name, value in values.items() if name in columns.names}
    return columns.outlines("camera.front", images, usable, picture)


def edges(path):
    """The lines of a path, each from its smaller end, in order."""
    found = re.findall(r"M(\S+) (\S+)L(\S+) (\S+?)(?=M|$)", path)
    return sorted(tuple(sorted([(float(a), float(b)), (float(c), float(d))])) for a, b, c, d in found)


def square(half):
    """The edges of a square around the middle of the picture."""
    low, high = (160 - half, 120 - half), (160 + half, 120 + half)
    a, b, c, d = low, (low[0], high[1]), (high[0], low[1]), high
    return [(a, b), (a, c), (b, d), (c, d)]


def test_a_box_is_drawn_where_the_camera_sees_it():
    found = drawn(row())
    ((label, path),) = found.boxes
    assert (label, found.words) == ("car 7", "1 box")
    # Of the picture, half as large as the image, f is 90. The near face is 9 m ahead: 90 * 1 / 9 = 10 pixels
    # from the middle; the far one 11 m: 90 / 11 = 8.2.
    near, far = square(10.0), square(8.2)
    corners = [
        ((160 + x * 8.2, 120 + y * 8.2), (160 + x * 10, 120 + y * 10)) for x in (-1, 1) for y in (-1, 1)
    ]
    wanted = near + far + [tuple(sorted(pair)) for pair in corners]
    assert np.allclose(np.array(edges(path)), np.array(sorted(wanted)), atol=1e-9)


def test_yaw_turns_a_box_counter_clockwise():
    # 4 m long and 2 m wide, a quarter to the left: 4 m wide as the camera sees it, from 9 m on.
    found = drawn(row(objects=boxes(((10, 0, 0), (4, 2, 2), np.pi / 2))))
    x, y = np.array(edges(found.boxes[0][1])).reshape(-1, 2).T
    assert (x.min(), x.max(), y.min(), y.max()) == (140, 180, 110, 130)
    # A little to the left, the far end points to the left of the picture and the near one to the right.
    found = drawn(row(objects=boxes(((10, 0, 0), (4, 2, 2), 0.3))))
    x, _ = np.array(edges(found.boxes[0][1])).reshape(-1, 2).T
    cos, sin = math.cos(0.3), math.sin(0.3)
    places = [(10 + a * cos - b * sin, a * sin + b * cos) for a in (-2, 2) for b in (-1, 1)]
    across = [160 - 90 * left / ahead for ahead, left in places]
    assert np.allclose([x.min(), x.max()], [min(across), max(across)], atol=0.051)
    assert 160 - x.min() < x.max() - 160


def test_boxes_of_another_frame_come_by_the_poses_of_the_row():
    text = RECIPE.replace("yaw], frame: base_link", "yaw], frame: map")
    there = boxes(((110, 50, 0), (2, 2, 2), 0))
    assert drawn(row(objects=there), text) == drawn(row())
    turned = np.array([0, 0, np.sqrt(0.5), np.sqrt(0.5)])  # a quarter to the left: ahead is along y
    beside = boxes(((100, 60, 0), (2, 2, 2), np.pi / 2))
    assert drawn(row(objects=beside, ego_rotation=turned), text) == drawn(row())
    assert not drawn(row(objects=beside), text).boxes
    for gone in ("ego.position", "front.extrinsics"):
        left = {name: value for name, value in row(objects=there).items() if name != gone}
        assert not drawn(left, text).boxes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (", frame: base_link}\n", "}\n"),  # nobody says where boxes lie
        ("yaw], frame: base_link", "yaw], frame: odom"),  # nor where that is
        ("camera_info, frame: base_link", "camera_info"),  # no extrinsics
        ("/cam/front/image/camera_info", "/cam/left/camera_info"),  # of another camera
        # two calibrations beside the images
        ("  ego.position", "  other.k: {topic: /cam/front/image/info, as: camera_matrix}\n  ego.position"),
        ("size, yaw]", "size]"),
    ],
)
def test_without_calibration_or_frame_no_box_in_space_is_drawn(old, new):
    text = RECIPE.replace(old, new)
    assert text != RECIPE
    types = {name: ctype for name, ctype in TYPES.items() if name in Recipe.from_yaml(text).columns}
    if old == "size, yaw]":
        types["objects"] = ColumnType(np.dtype(BOX.descr[:-1]), (None,))
    if "other.k" in new:
        types["other.k"] = TYPES["front.k"]
    assert not drawn(row(), text, types).boxes


def test_the_camera_info_nearest_to_an_image_is_its_own():
    other = "  other: {calibration: {camera: /cam/front/camera_info}}\n  ego.position"
    assert drawn(row(), RECIPE.replace("  ego.position", other), {**TYPES, "other.k": TYPES["front.k"]}).boxes


NAN, HUGE = np.nan, 1e300


@pytest.mark.parametrize(
    "changed",
    [
        {"objects": boxes()},
        {"objects": boxes(((NAN, 0, 0), (2, 2, 2), 0))},
        {"objects": boxes(((np.inf, 0, 0), (2, 2, 2), 0))},
        {"objects": boxes(((HUGE, -HUGE, HUGE), (2, 2, 2), 0))},
        {"objects": boxes(((10, 0, 0), (2, NAN, 2), 0))},
        {"objects": boxes(((10, 0, 0), (2, 0, 2), 0))},
        {"objects": boxes(((10, 0, 0), (2, -2, 2), 0))},
        {"objects": boxes(((10, 0, 0), (np.inf, 2, 2), 0))},
        {"objects": boxes(((10, 0, 0), (2, 2, 2), NAN))},
        {"objects": boxes(((-10, 0, 0), (2, 2, 2), 0))},  # behind the camera
        {"objects": boxes(((10, 100, 0), (2, 2, 2), 0))},  # beside the picture
        {"objects": boxes(((1e9, 0, 0), (2, 2, 2), 0))},  # smaller than a tenth of a pixel
        {"front_k": np.zeros((3, 3))},
        {"front_k": np.full((3, 3), NAN)},
        {"front_k": np.full((3, 3), HUGE)},
        {"front_d": np.ones(3)},
        {"front_d": np.full(5, NAN)},
        {"front_d": np.array([0.1, 0, 0, 0, 0]), "front_model": "a lens of ours"},
        {"front_size": np.zeros(2, "u4")},
        {"front_size": np.array([480, 480], "u4")},  # of another image
        {"front_extrinsics": np.zeros((4, 4))},
        {"front_extrinsics": np.full((4, 4), NAN)},
        {"front_extrinsics": AHEAD * 2},
    ],
)
def test_what_cannot_be_seen_is_not_drawn(changed):
    with np.errstate(all="raise"):
        assert drawn(row(**changed)).boxes == ()


def test_a_box_around_the_camera_ends_at_the_border_of_the_picture():
    for size in ((2, 2, 2), (1e6, 2, 2), (2e3, 2e3, 1)):
        found = drawn(row(objects=boxes(((1, 0, 0.2), size, 0.1))))
        assert found.boxes
        for _, path in found.boxes:
            points = np.array(edges(path)).reshape(-1, 2)
            assert (points >= 0).all()
            assert (points <= [320, 240]).all()
            assert "e" not in path
            assert "-" not in path


def test_of_many_boxes_the_nearest_are_drawn_and_the_others_counted():
    many = boxes(*(((5 + number, 0, 0), (2, 2, 2), 0) for number in range(MAX_BOXES + 4)))
    found = drawn(row(objects=many[::-1].copy()))
    assert (len(found.boxes), found.left_out) == (MAX_BOXES, 4)
    assert found.words == f"{MAX_BOXES} of {MAX_BOXES + 4} boxes"
    widths = [np.ptp(np.array(edges(path))[..., 0]) for _, path in found.boxes]
    assert widths == sorted(widths, reverse=True)


def test_images_that_were_made_smaller_have_a_size_of_their_own():
    text = RECIPE.replace("as: image,", "as: image, resize: [100, 100],")
    square_picture = Picture(b"", "image/jpeg", 100, 100, (100, 100))
    ((_, path),) = drawn(row(), text, picture=square_picture).boxes
    x, y = np.array(edges(path)).reshape(-1, 2).T
    # f is 180 * 100 / 640 across and 180 * 100 / 480 down.
    assert np.allclose([np.ptp(x), np.ptp(y)], [2 * 180 / 9 * 100 / 640, 2 * 180 / 9 * 100 / 480], atol=0.11)
    sizeless = {name: ctype for name, ctype in TYPES.items() if name != "front.size"}
    assert not drawn(row(), text, sizeless, picture=square_picture).boxes
    assert drawn(row(), RECIPE, sizeless) == drawn(row())  # as large as the images themselves


def test_boxes_in_an_image_are_drawn_by_their_pixels():
    types = {"camera.front": TYPES["camera.front"], "labels": ColumnType(FLAT, (None,))}
    said = [
        ("car", (20, 40, 60, 80)),
        ("bus", (600, 400, 700, 500)),  # part of it outside
        ("sky", (NAN,) * 4),  # of the whole image
        ("odd", (60, 40, 20, 80)),
        ("far", (700, 0, 800, 10)),
        ("huge", (-HUGE, 100, HUGE, 200)),
    ]
    values = {"labels": np.array(said, FLAT)}
    text = RECIPE[: RECIPE.index("  front:")] + "  labels: {table: labels.parquet, field: [class, bbox]}\n"
    found = dict(drawn(values, text, types).boxes)
    a, b, c, d = (10.0, 20.0), (10.0, 40.0), (30.0, 20.0), (30.0, 40.0)
    assert edges(found["car"]) == [(a, b), (a, c), (b, d), (c, d)]
    assert edges(found["bus"]) == [((300.0, 200.0), (300.0, 240.0)), ((300.0, 200.0), (320.0, 200.0))]
    assert set(found) <= {"car", "bus", "huge"}
    # Of several cameras nobody knows which one it is, but by the column's name.
    both = ("camera.front", "camera.left")
    assert not drawn(values, text, types, both).boxes
    named = {"camera.front": types["camera.front"], "camera.front.bbox": ColumnType(F8, (None, 4))}
    values = {"camera.front.bbox": np.array([said[0][1]])}
    text = text.replace(
        "labels: {table: labels.parquet, field: [class, bbox]}", "camera.front.bbox: {table: a, field: bbox}"
    )
    assert edges(drawn(values, text, named, both).boxes[0][1]) == edges(found["car"])


def test_a_lens_bends_as_opencv_says():
    cv2 = pytest.importorskip("cv2")
    points = np.random.default_rng(0).uniform([-2, -1, 4], [2, 1, 9], (50, 3))
    k = np.array([[900.0, 0, 640], [0, 901, 360], [0, 0, 1]])
    still = np.zeros(3)
    for d in (
        [0.1, -0.02, 0.001, 0.002, 0.003],
        [0.3, 0.1, 1e-3, 2e-3, 0.01, 0.2, 0.05, 0.01],
        [0.1, -0.02, 0.001, 0.002],
    ):
        lens = distortion_of("rational_polynomial" if len(d) == 8 else "plumb_bob", np.array(d))
        wanted = cv2.projectPoints(points, still, still, k, np.array(d))[0][:, 0]
        assert np.allclose(projected(points, k, lens), wanted, atol=1e-6)
    d = np.array([0.01, -0.02, 0.003, 0.001])
    wanted = cv2.fisheye.projectPoints(points[:, None], still, still, k, d)[0][:, 0]
    assert np.allclose(projected(points, k, distortion_of("equidistant", d)), wanted, atol=1e-6)


def test_beyond_where_a_lens_model_turns_back_nothing_is_seen():
    lens = distortion_of("plumb_bob", np.array([-0.3, 0, 0, 0, 0]))  # r - 0.3 r³ grows up to r = 1.05
    assert np.isfinite(lens(np.array([1.0, 0.0]))).all()
    assert np.isnan(lens(np.array([1.1, 0.0]))).any()
    assert np.isnan(lens(np.array([3.0, 0.0]))).any()


def test_a_thumbnail_knows_how_large_its_image_was():
    assert thumbnail(np.zeros((480, 640, 3), np.uint8)).original == (640, 480)
