"""Deskewed clouds: a world scanned from a moving lidar comes out flat, in any partitioning, or not at all."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.feather as pa_feather
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import LogReadError, RecipeError, UsageError
from logloom.io.logs.messages.point_clouds import NO_TIME, TIME_UNITS, nanoseconds
from logloom.io.logs.opening import open_log
from logloom.recipe import Recipe
from logloom.resample.deskew import BLOCK, _distinct, deskewed
from logloom.resample.frame_tree import FOUND, REASONS, Extrapolation, FrameTree
from logloom.schema import MAX_TIME, NO_AGE
from logloom.transforms.build.commit import notes_on_frames
from logloom.transforms.rows import point_times
from logloom.transforms.rows.frames import read_frames
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.rows.point_times import CloudTimes, are_absolute, inferred_unit
from tests.resample.frames_reference import SlowTree, matrix_of
from tests.resample.test_frame_tree import a_random_tree, table_of
from tests.tier import by_tier
from tests.transforms.ros2_logs import (
    HEADER,
    QUATERNION,
    SECOND,
    SPEED,
    START,
    TF,
    VECTOR,
    header,
    speeds,
    transform,
    write_log,
)
from tests.transforms.rows.test_pose_lookups import built, recipe


def resolved(recipe, logs):
    """The plan of a recipe, and the texts of its notes."""
    plan, notes = resolve(recipe, logs)
    return plan, tuple(note.text for note in notes)


MS = SECOND // 1000
CLOUD = (
    "sensor_msgs/msg/PointCloud2",
    "std_msgs/Header header\nuint32 height\nuint32 width\nsensor_msgs/PointField[] fields\n"
    "bool is_bigendian\nuint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense\n"
    "================\nMSG: sensor_msgs/PointField\n"
    "string name\nuint32 offset\nuint8 datatype\nuint32 count\n" + HEADER,
)
ODOMETRY = (
    "nav_msgs/msg/Odometry",
    "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/PoseWithCovariance pose\n"
    "================\nMSG: geometry_msgs/PoseWithCovariance\ngeometry_msgs/Pose pose\n"
    "================\nMSG: geometry_msgs/Pose\ngeometry_msgs/Vector3 position\n"
    "geometry_msgs/Quaternion orientation\n" + HEADER + VECTOR + QUATERNION,
)
NUMBERS = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 8}
SWEEP = 100 * MS
MOUNT = (1.2, -0.3, 1.9), (0.02, -0.05, 0.3, 0.95)
# Planes n . p = c: the ground, and four walls that aren't square to the axes.
PLANES = [
    (np.array([0, 0, 1.0]), -0.5),
    *(
        (np.array([math.cos(angle), math.sin(angle), 0.1]) / math.hypot(1, 0.1), distance)
        for angle, distance in ((0.2, 60.0), (1.9, 45.0), (3.3, 50.0), (4.9, 55.0))
    ),
]


def place(t):
    """Of the car on the map at a time: 12 m/s on a line, 0.8 rad/s about a tilted axis."""
    seconds = (t - START) / SECOND
    axis = np.array([0.1, -0.05, 1.0])
    axis = axis / np.linalg.norm(axis) * math.sin(0.4 * seconds)
    return (12 * seconds, -3 * seconds, 0.2 * seconds), (*axis, math.cos(0.4 * seconds))


def lidar_on_map(t):
    return matrix_of(*place(t)) @ matrix_of(*MOUNT)


def scan(start, num_times=40, seed=0):
    """(n, 3) points in the frame of the lidar at the time of each, and these times, several points each."""
    rng = np.random.default_rng(seed)
    points, times = [], []
    for i in range(num_times):
        t = start + i * SWEEP // num_times
        pose = lidar_on_map(t)
        for elevation in (-0.3, -0.1, 0.05):
            turn = 2 * math.pi * i / num_times + rng.normal() * 0.01
            ray = np.array([math.cos(turn), math.sin(turn), elevation])
            origin, direction = pose[:3, 3], pose[:3, :3] @ ray
            reached = [(c - n @ origin) / (n @ direction) for n, c in PLANES]
            points.append(ray * min(r for r in reached if r > 0))
            times.append(t)
    return np.array(points), np.array(times)


def off_planes(points):
    """How far each point lies from the nearest plane."""
    return np.min([np.abs(points @ n - c) for n, c in PLANES], axis=0)


def cloud(stamp, points, name="t", times=None, kind="u4", xyz="f8", frame="lidar"):
    """A message whose points have a field with their times, as numbers of some kind."""
    fields = [(axis, f"<{xyz}") for axis in "xyz"] + ([(name, f"<{kind}")] if name else [])
    made = np.zeros(len(points), np.dtype(fields))
    for i, axis in enumerate("xyz"):
        made[axis] = points[:, i]
    if name:
        made[name] = times
    listed = [
        {"name": field, "offset": made.dtype.fields[field][1], "datatype": NUMBERS[dtype[1:]], "count": 1}
        for field, dtype in fields
    ]
    step = made.dtype.itemsize
    said = {"height": 1, "width": len(made), "is_bigendian": False, "point_step": step, "is_dense": True}
    message = {**said, "row_step": step * len(made), "fields": listed, "data": made.tobytes()}
    return stamp, {"header": {**header(stamp), "frame_id": frame}, **message}


def sweeps(count=8, write=lambda start, times: times - start, **how):
    """A sweep each 100 ms, stamped at its start."""
    made = []
    for i in range(count):
        start = START + 200 * MS + i * SWEEP
        points, times = scan(start, seed=i)
        made.append(cloud(start, points, times=write(start, times), **how))
    return made


def moving(stop=1300):
    """Transforms of the car, at uneven times."""
    rng = np.random.default_rng(5)
    stamps = [START + int(ms * MS) + int(rng.integers(0, 5 * MS)) for ms in range(0, stop, 20)]
    return [(t + 3 * MS, {"transforms": [transform(t, "map", "base", *place(t))]}) for t in stamps]


def topics(clouds, stop=1300):
    mounted = transform(0, "base", "lidar", *MOUNT)
    return {
        "/lidar": (CLOUD, clouds),
        "/tf": (TF, moving(stop)),
        "/tf_static": (TF, [(START, {"transforms": [mounted]})]),
        "/can": (SPEED, speeds(13)),
    }


def column(adapter="points", **said):
    keys = {"pose": "{tf: {from: lidar, to: map}}", **said}
    words = ", ".join(f"{key}: {value}" for key, value in keys.items())
    return (
        f'points: {{topic: /lidar, as: "{adapter}", resample: nearest, tolerance: 60ms, '
        f"deskew: {{{words}}}}}\n"
        "pose: {tf: {from: lidar, to: map}, as: matrix}"
    )


def xyz(points):
    return np.stack([points[axis] for axis in "xyz"], axis=1) if points.dtype.names else points[:, :3]


def on_map(rows, i, name="points"):
    points = xyz(rows[name][i]).astype(np.float64)
    return points @ rows["pose"][i][:3, :3].T + rows["pose"][i][:3, 3]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return open_log([write_log(tmp_path_factory.mktemp("logs") / "drive.mcap", topics(sweeps()))])


# --- the proof ------------------------------------------------------------------------------------------


def test_a_world_scanned_from_a_moving_lidar_comes_out_flat(log):
    plan, notes = resolved(recipe(column()), {"drive": log})
    (note,) = notes
    assert note == (
        "points: deskewed by 't' of points, uint32 in ns since the message time, as sweeps of 97.5 ms show"
    )
    rows, tallies = built(log, plan)
    available = np.flatnonzero(rows["points.available"])
    assert len(available) > 25
    for i in available:
        assert off_planes(on_map(rows, i)).max() < 1e-6
    told = note.replace("points: deskewed by", "times of the points of points:")
    assert [line for line in notes_on_frames(plan, tallies) if "points" in line] == [told]
    points, times = scan(START + 200 * MS)
    as_if_still = points @ lidar_on_map(times[0])[:3, :3].T + lidar_on_map(times[0])[:3, 3]
    assert off_planes(as_if_still).max() > 0.5


# What drivers write, and how: (field, kind, numbers of a sweep, unit).
VENDORS = [
    ("t", "u4", lambda start, times: times - start),
    ("time", "f4", lambda start, times: (times - start) / 1e9),
    ("time", "f4", lambda start, times: (times - times[-1]) / 1e9 * (times < times[-1])),
    ("timestamp", "f8", lambda start, times: times / 1e9),
    ("offset_time", "u4", lambda start, times: times - start),
    ("time_stamp", "f8", lambda start, times: (times - start) / 1e3),
    ("time_offset", "i4", lambda start, times: (times - start) // 1000),
    ("timestamp", "f8", lambda start, times: times.astype(np.float64)),
]


@pytest.mark.parametrize(("name", "kind", "write"), VENDORS)
def test_times_are_found_by_names_of_vendors_and_their_unit_by_what_they_span(tmp_path, name, kind, write):
    clouds = sweeps(3, write, name=name, kind=kind)
    if write is VENDORS[2][2]:  # counted back from the end, at which the cloud is stamped
        clouds = [
            cloud(times[-1], points, name, write(0, times), kind)
            for points, times in (scan(START + (200 + 100 * i) * MS, seed=i) for i in range(3))
        ]
    log = open_log([write_log(tmp_path / "drive.mcap", topics(clouds))])
    rows, _ = built(log, resolved(recipe(column()), {"drive": log})[0])
    assert rows["points.available"].sum() > 8
    # Seconds since 1970 in a float64 are exact to a quarter of a microsecond, in which the car drives 3 µm.
    limit = 1e-5 if name == "timestamp" else 1e-6
    for i in np.flatnonzero(rows["points.available"]):
        assert off_planes(on_map(rows, i)).max() < limit


@pytest.mark.parametrize("to", ["start", "end"])
def test_points_may_be_moved_to_the_time_of_the_first_or_the_last(log, to):
    rows, _ = built(log, resolved(recipe(column(to=to)), {"drive": log})[0])
    for i in np.flatnonzero(rows["points.available"]):
        stamp = int(rows["timestamp"][i] - rows["points.age"][i])
        times = scan(stamp)[1]
        pose = lidar_on_map(times[0] if to == "start" else times[-1])
        found = xyz(rows["points"][i]) @ pose[:3, :3].T + pose[:3, 3]
        assert off_planes(found).max() < 1e-6
    first = np.flatnonzero(rows["points.available"])[0]
    at = 0 if to == "start" else -1
    np.testing.assert_allclose(xyz(rows["points"][first])[at], scan(START + 200 * MS)[0][at], atol=1e-9)


def test_an_offset_shifts_the_times_of_points_whatever_these_count_from(log, tmp_path):
    since_1970 = sweeps(write=lambda start, times: times / 1e9, name="timestamp", kind="f8")
    other = open_log([write_log(tmp_path / "drive.mcap", topics(since_1970))])
    late = column().replace("tolerance: 60ms", "tolerance: 60ms, offset: 30ms")
    rows, _ = built(log, resolved(recipe(late), {"drive": log})[0])
    found, _ = built(other, resolved(recipe(late), {"drive": other})[0])
    np.testing.assert_array_equal(found["points.age"], rows["points.age"])
    for i in np.flatnonzero(rows["points.available"]):
        np.testing.assert_allclose(xyz(found["points"][i]), xyz(rows["points"][i]), atol=1e-4)
    plain, _ = built(log, resolved(recipe(column()), {"drive": log})[0])
    i = np.flatnonzero(rows["points.available"] & (rows["points.age"] + 30 * MS == plain["points.age"]))[0]
    assert np.abs(xyz(rows["points"][i]) - xyz(plain["points"][i])).max() > 0.1


@pytest.mark.parametrize(
    ("absolute", "ahead"), [(False, 37 * SECOND), (True, 37 * SECOND), (True, 1500 * SECOND - START)]
)
def test_a_clock_s_offset_counts_for_points_and_for_transforms(log, tmp_path, absolute, ahead):
    def moved(message):
        stamp = message["header"]["stamp"]
        time = stamp["sec"] * SECOND + stamp["nanosec"] + ahead
        return {**message, "header": {**message["header"], "stamp": header(time)["stamp"]}}

    write = (lambda start, times: times + ahead) if absolute else (lambda start, times: times - start)
    clouds = sweeps(write=write, kind="f8") if absolute else sweeps(write=write)
    said = topics([(t, moved(message)) for t, message in clouds])
    tf = [(t, {"transforms": [moved(one) for one in m["transforms"]]}) for t, m in said["/tf"][1]]
    other = open_log([write_log(tmp_path / "drive.mcap", {**said, "/tf": (TF, tf)})])
    offset = f"{{offset: {-ahead}ns}}"
    stated = f"time: {{topics: {{/lidar: {offset}, /tf: {offset}}}}}\n"
    plan = resolved(recipe(column(), more=stated), {"drive": other})[0]
    rows, _ = built(other, plan)
    expected, _ = built(log, resolved(recipe(column()), {"drive": log})[0])
    assert rows["pose"].tobytes() == expected["pose"].tobytes()
    assert rows["points.age"].tolist() == expected["points.age"].tolist()
    for i in np.flatnonzero(expected["points.available"]):
        np.testing.assert_allclose(xyz(rows["points"][i]), xyz(expected["points"][i]), atol=1e-4)
    assert expected["points.available"].sum() > 5


def test_odometry_tells_the_motion_as_transforms_do(log, tmp_path):
    said = topics(sweeps())
    odometry = []
    for t, message in said.pop("/tf")[1]:
        (one,) = message["transforms"]
        pose = {"position": one["transform"]["translation"], "orientation": one["transform"]["rotation"]}
        odometry.append((t, {"header": one["header"], "child_frame_id": "base", "pose": {"pose": pose}}))
    other = open_log([write_log(tmp_path / "drive.mcap", {**said, "/odom": (ODOMETRY, odometry)})])
    columns = column(pose="{topic: /odom}").replace("to: map}", "to: map, topics: /odom}")
    rows, _ = built(other, resolved(recipe(columns), {"drive": other})[0])
    expected, _ = built(log, resolved(recipe(column()), {"drive": log})[0])
    assert rows["points"].values.tobytes() == expected["points"].values.tobytes()
    assert rows["pose"].tobytes() == expected["pose"].tobytes()


def quaternion_of(m):
    """x, y, z and w of a rotation matrix: the eigenvector of Bar-Itzhack's matrix."""
    k = np.zeros((4, 4))
    k[:3, :3] = m + m.T - np.trace(m) * np.eye(3)
    k[3, :3] = k[:3, 3] = m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]
    k[3, 3] = np.trace(m)
    return np.linalg.eigh(k)[1][:, -1].tolist()


@pytest.mark.parametrize("child", by_tier(["lidar", "arm"], ["lidar", "imu", "arm"]))
def test_odometry_may_be_that_of_a_frame_that_is_mounted_on_the_base(tmp_path, child):
    # A driver's odometry is that of its own sensor, which has a second parent then: the base, by /tf_static.
    mounts = {"lidar": ("base", MOUNT), "imu": ("base", ((-0.4, 0.1, 0.6), (0.1, 0.0, -0.2, 0.9)))}
    mounts["arm"] = "imu", ((0.2, 0.3, -0.1), (0.0, 0.5, 0.0, 0.8))
    poses, name = np.eye(4), child
    while name != "base":
        name, mount = mounts[name]
        poses = matrix_of(*mount) @ poses
    odometry = []
    for stamp in range(START, START + 1300 * MS, 10 * MS):
        pose = matrix_of(*place(stamp)) @ poses
        turn = quaternion_of(pose[:3, :3])
        message = {
            "position": dict(zip("xyz", pose[:3, 3].tolist(), strict=True)),
            "orientation": dict(zip("xyzw", turn, strict=True)),
        }
        head = {**header(stamp), "frame_id": "odom"}
        odometry.append((stamp, {"header": head, "child_frame_id": child, "pose": {"pose": message}}))
    said = topics(sweeps())
    del said["/tf"]
    said["/tf_static"] = (
        TF,
        [(START, {"transforms": [transform(0, parent, name, *at) for name, (parent, at) in mounts.items()]})],
    )
    other = open_log([write_log(tmp_path / "drive.mcap", {**said, "/odom": (ODOMETRY, odometry)})])
    words = (
        column("points[x,y,z]", pose="{topic: /odom}")
        .partition("\n")[0]
        .replace("as:", "dtype: float64, as:")
    )
    rows, _ = built(other, resolved(recipe(words), {"drive": other})[0])
    seen = np.flatnonzero(rows["points.available"])
    assert len(seen) > 5
    for i in seen:
        found = rows["points"][i]
        pose = lidar_on_map(int(rows["timestamp"][i]))
        assert off_planes(found @ pose[:3, :3].T + pose[:3, 3]).max() < 1e-4
    parts, _ = built(other, resolved(recipe(words, 7), {"drive": other})[0], 1 << 13)
    assert parts["points"].values.tobytes() == rows["points"].values.tobytes()


def test_named_fields_are_moved_and_others_stay(log):
    rows, _ = built(log, resolved(recipe(column("points[z,time,x,y]")), {"drive": log})[0])
    whole, _ = built(log, resolved(recipe(column()), {"drive": log})[0])
    i = np.flatnonzero(rows["points.available"])[3]
    assert rows["points"][i].dtype == np.float32
    np.testing.assert_allclose(rows["points"][i][:, [2, 3, 0]], xyz(whole["points"][i]), atol=2e-5)
    np.testing.assert_array_equal(rows["points"][i][:, 1], whole["points"][i]["t"].astype(np.float32))


def test_deskewed_rows_are_the_same_in_any_partitioning(log):
    held = "{tf: {from: lidar, to: base, extrapolate: {hold: 20ms}, cache: 50ms}}"
    other = f'topic: /lidar, as: "points[x,y,z]", tolerance: 150ms, deskew: {{pose: {held}, to: end}}'
    columns = f"{column()}\nother: {{{other}}}"
    sizes = [(by_tier(7, 3), 1 << 20), (13, 1 << 13), (1000, 1 << 12)]
    for number, more in enumerate(
        ("rows: {require: [points, other]}\n", "", 'rows: {where: "points.age < 20000000"}\n')
    ):
        plan = resolved(recipe(columns, more=more), {"drive": log})[0]
        whole, tallies = built(log, plan)
        assert len(tallies) == 1
        for rows, max_bytes in by_tier([sizes[number]], sizes):
            parts, some = built(log, resolved(recipe(columns, rows, more), {"drive": log})[0], max_bytes)
            for name, values in whole.items():
                one, other = (v if isinstance(v, np.ndarray) else v.values for v in (values, parts[name]))
                assert one.tobytes() == other.tobytes(), (rows, name)
            assert list(notes_on_frames(plan, some)) == list(notes_on_frames(plan, tallies))


# --- arithmetic -----------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1))
def test_any_cloud_is_moved_as_each_point_alone_by_the_reference(seed):
    rng = np.random.default_rng(seed)
    transforms = a_random_tree(rng)
    tree, slow = FrameTree(table_of(transforms)), SlowTree(transforms)
    rule = Extrapolation(int(rng.choice([5, 20, 1000])))
    points = rng.normal(size=(3, int(rng.integers(1, 30)))) * 30
    times, to = rng.integers(0, 60, points.shape[1]), int(rng.integers(0, 60))

    def lookup(asked):
        assert len(asked) == len(np.unique(times)) + 1
        return tree.lookup("lidar", "map", asked, rule)

    found, reason = deskewed(points, times, to, lookup)
    poses = [slow.lookup("lidar", "map", int(t), rule.cache) for t in (*times, to)]
    missing = {pose for pose in poses if isinstance(pose, str)}
    assert (reason != FOUND) == bool(missing)
    if missing:
        assert REASONS[reason] in missing
        assert found is points
        return
    for i, pose in enumerate(poses[:-1]):
        expected = np.linalg.inv(poses[-1]) @ pose @ np.append(points[:, i], 1)
        np.testing.assert_allclose(found[:, i], expected[:3], atol=1e-8)
    some = rng.permutation(points.shape[1])[: len(times) // 2 + 1]
    again, _ = deskewed(points[:, some], times[some], to, lambda t: tree.lookup("lidar", "map", t, rule))
    assert again.tobytes() == np.ascontiguousarray(found[:, some]).tobytes()


@given(st.integers(0, 2**32 - 1))
def test_distinct_times_are_found_in_clouds_of_any_order(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.choice([1, 7, 300, 2000]))
    reach = int(rng.choice([10, 10**6, 10**9, 2**62 - 1]))
    kinds = rng.integers(START - reach, START + reach, int(rng.choice([1, 5, 200])))
    rng.shuffle(kinds)
    clouds = [
        rng.choice(kinds, count),
        np.sort(rng.choice(kinds, count)),
        np.resize(kinds, count),
        rng.integers(START, START + reach, count),
        np.arange(count),
        kinds[:0],
    ]
    for times in clouds:
        distinct, which = _distinct(times)
        expected, inverse = np.unique(times, return_inverse=True)
        np.testing.assert_array_equal(distinct, expected)
        np.testing.assert_array_equal(np.arange(len(times)) if which is None else which, inverse)


def test_large_clouds_and_far_maps_lose_nothing():
    far = 5e6  # coordinates of a national grid
    turns = [
        ("lidar", "map", s, (far + s, -far, 0), (0, 0, math.sin(s / 9), math.cos(s / 9))) for s in (1, 2)
    ]
    near = [("lidar", "map", s, (s, 0, 0), turn) for _, _, s, _, turn in turns]
    rng = np.random.default_rng(0)
    points, times = rng.normal(size=(3, 2 * BLOCK + 7)) * 50, rng.integers(1, 3, 2 * BLOCK + 7)
    moved = []
    for transforms in (turns, near):
        tree = FrameTree(table_of(transforms))
        moved.append(
            deskewed(points, times, 1, lambda t, tree=tree: tree.lookup("lidar", "map", t, Extrapolation(9)))
        )
    np.testing.assert_allclose(moved[0][0], moved[1][0], atol=1e-12)


@given(
    st.sampled_from(list(TIME_UNITS)),
    st.sampled_from(["<f4", "<f8", "<i4", "<u4", "<i8", "<u8", ">f8", "<i2"]),
    st.binary(min_size=64, max_size=64),
)
def test_any_numbers_are_times_or_none(unit, kind, data):
    values = np.frombuffer(data, kind)
    scale = TIME_UNITS[unit]
    for value, found in zip(values.tolist(), nanoseconds(values, unit).tolist(), strict=True):
        if not math.isfinite(value) or abs(value) > MAX_TIME // scale - 2:
            if not (math.isfinite(value) and abs(value * scale - found) <= scale):
                assert found == NO_TIME
            continue
        whole = math.floor(value)
        assert found == whole * scale + round((value - whole) * scale)


# --- what can't be deskewed -----------------------------------------------------------------------------


def test_a_cloud_whose_points_lack_a_pose_is_unavailable_and_counted(tmp_path):
    log = open_log([write_log(tmp_path / "drive.mcap", topics(sweeps(), stop=700))])
    plan = resolved(recipe(column()), {"drive": log})[0]
    rows, tallies = built(log, plan)
    known = rows["points.available"]
    skewed = column().replace(", deskew: {pose: {tf: {from: lidar, to: map}}}", "")
    lost = (built(log, resolved(recipe(skewed), {"drive": log})[0])[0]["points.available"] & ~known).sum()
    for i in range(len(known)):
        if known[i]:
            assert off_planes(on_map(rows, i)).max() < 1e-6
        else:
            assert len(rows["points"][i]) == 0
            assert rows["points.age"][i] == NO_AGE
    assert known.any()
    assert lost
    (told,) = [line for line in notes_on_frames(plan, tallies) if line.startswith("points: ")]
    assert told == f"points: {lost} ticks without all points' poses of lidar in map: future {lost}"
    required = resolved(recipe(column(), more="rows: {require: [points]}\n"), {"drive": log})[0]
    kept, some = built(log, required)
    assert len(kept["timestamp"]) == known.sum()
    assert kept["points"].values.tobytes() == rows["points"].take(np.flatnonzero(known)).values.tobytes()
    (tally,) = some
    assert tally.dropped == {"require points": len(known) - known.sum()}


def test_times_far_from_their_cloud_make_it_unavailable(tmp_path):
    clouds = sweeps(5)
    points, times = scan(START + 400 * MS)
    clouds[2] = cloud(START + 400 * MS, points, times=(times - START - 400 * MS) * 20)
    log = open_log([write_log(tmp_path / "drive.mcap", topics(clouds))])
    plan = resolved(recipe(column()), {"drive": log})[0]
    rows, tallies = built(log, plan)
    lost = np.abs(rows["timestamp"] - (START + 400 * MS)) < 45 * MS
    assert not rows["points.available"][lost].any()
    (told,) = [line for line in notes_on_frames(plan, tallies) if line.startswith("points: ")]
    assert "points' times 4" in told


def test_points_that_were_not_measured_stay_as_they_are(tmp_path):
    clouds = []
    for i in range(3):
        start = START + (200 + 100 * i) * MS
        points, times = scan(start)
        numbers = times / 1e9
        points[5], numbers[5] = 0, 0
        points[6], numbers[6] = np.nan, np.nan
        points[7], numbers[7] = (np.inf, 0, 0), 1e300
        clouds.append(cloud(start, points, "timestamp", numbers, "f8"))
    log = open_log([write_log(tmp_path / "drive.mcap", topics(clouds))])
    rows, _ = built(log, resolved(recipe(column()), {"drive": log})[0])
    i = np.flatnonzero(rows["points.available"])[0]
    found = xyz(rows["points"][i])
    assert found[5].tolist() == [0, 0, 0]
    assert np.isnan(found[6]).all()
    assert found[7].tolist() == [np.inf, 0, 0]
    measured = np.delete(np.arange(len(found)), [5, 6, 7])
    assert off_planes(on_map(rows, i)[measured]).max() < 1e-5


def test_empty_clouds_are_there(tmp_path):
    clouds = sweeps(4)
    clouds[1] = cloud(clouds[1][0], np.empty((0, 3)), times=np.empty(0))
    log = open_log([write_log(tmp_path / "drive.mcap", topics(clouds))])
    rows, _ = built(log, resolved(recipe(column()), {"drive": log})[0])
    at = np.flatnonzero(rows["timestamp"] == START + 300 * MS)[0]
    assert rows["points.available"][at]
    assert len(rows["points"][at]) == 0


def test_a_cloud_that_lacks_the_field_is_named(tmp_path):
    clouds = sweeps(4)
    points, _ = scan(clouds[1][0])
    clouds[1] = cloud(clouds[1][0], points, name="")
    log = open_log([write_log(tmp_path / "drive.mcap", topics(clouds))])
    plan = resolved(recipe(column("points[x,y,z]")), {"drive": log})[0]
    with pytest.raises(
        LogReadError, match="the cloud has no field 't' with the times of its points; it has x, y, z"
    ):
        built(log, plan)


@pytest.mark.parametrize(
    ("how", "said", "mistake"),
    [
        ({"name": ""}, {}, "points have no field with a usual name for times; they have x, y, z"),
        ({}, {"time": "tt"}, "points have no field 'tt'; did you mean t?"),
        (
            {"write": lambda start, times: times * 0},
            {},
            "times of points in 't' are equal in each cloud, so they show no unit; "
            "write `unit: ` and one of s, ms, us, ns (log drive)",
        ),
        (
            {"kind": "f8", "write": lambda start, times: (times - start) * 4},
            {},
            "times of points in 't' span 3.9e+08 in a cloud, which is about 100 ms, the period of the topic, "
            "in no unit; write `unit: ` and one of s, ms, us, ns (log drive)",
        ),
        (
            {"kind": "f8", "write": lambda start, times: times - start + 7e12},
            {},
            "times of points in 't', in ns, are neither within 1 s of 0 nor near their message",
        ),
        (
            {},
            {"unit": "s"},
            "times of points in 't', in s, are neither within 1 s of 0 nor near their message",
        ),
        ({"xyz": "i2"}, {}, "points have no x, y and z that are floats; they have x, y, z, t"),
        (
            {},
            {"pose": "{tf: {from: lidr, to: map}}"},
            "deskew.pose.tf.from: no transform has the frame 'lidr'",
        ),
        ({}, {"pose": "{topic: /odm}"}, "points.deskew.pose.topic: the log has no topic '/odm'"),
        ({}, {"pose": "{topic: /can}"}, "deskew.pose.topic: /can has no stamped transforms"),
    ],
)
def test_what_no_cloud_tells_is_a_mistake(tmp_path, how, said, mistake):
    log = open_log([write_log(tmp_path / "drive.mcap", topics(sweeps(3, **how)))])
    with pytest.raises(RecipeError) as caught:
        resolved(recipe(column(**said)), {"drive": log})
    assert mistake in str(caught.value)


@pytest.mark.parametrize("unit", [{}, {"unit": "s"}])
def test_clouds_without_points_at_the_end_of_a_log_tell_nothing(tmp_path, unit):
    since_1970 = sweeps(8, lambda start, times: times / 1e9, name="timestamp", kind="f8")
    none = np.zeros((5, 3))
    empty = [cloud(START + 2 * i * SECOND, none, "timestamp", np.zeros(5), "f8") for i in (1, 2, 3)]
    log = open_log([write_log(tmp_path / "drive.mcap", topics([*since_1970, *empty]))])
    plan, notes = resolved(recipe(column(**unit)), {"drive": log})
    assert any("'timestamp' of points, float64 in s since the Unix epoch" in note for note in notes)
    rows, _ = built(log, plan)
    found = [i for i in np.flatnonzero(rows["points.available"]) if xyz(rows["points"][i]).any()]
    assert len(found) > 25
    for i in found:
        assert off_planes(on_map(rows, i)).max() < 1e-5
    only = open_log([write_log(tmp_path / "only.mcap", topics(empty))])
    plan, notes = resolved(recipe(column(**unit)), {"only": only})
    assert notes == ("points: deskewed by 'timestamp', but no cloud has points",)
    rows, _ = built(only, plan)
    assert {
        len(points) for points, there in zip(rows["points"], rows["points.available"], strict=True) if there
    } == {5}


def test_little_of_a_log_is_held_while_the_last_cloud_with_points_is_looked_for(tmp_path, monkeypatch):
    none = np.zeros((20_000, 3))
    empty = [cloud(START + 2 * SECOND + i * SWEEP, none, times=np.zeros(20_000)) for i in range(40)]
    log = open_log([write_log(tmp_path / "drive.mcap", topics([*sweeps(2), *empty]))])
    size = len(empty[0][1]["data"])
    monkeypatch.setattr(point_times, "_MAX_READ", 5 * size)
    held, plain = [], log.read

    def watched(requests):
        found = plain(requests)
        held.extend(len(messages) for topic, messages in found.items() if topic == "/lidar")
        return found

    monkeypatch.setattr(log, "read", watched)
    _, notes = resolved(recipe(column()), {"drive": log})
    assert any("'t' of points, uint32 in ns since the message time" in note for note in notes)
    assert max(held) <= 7
    assert sum(held) <= 2 * 42


def test_a_stated_unit_and_field_are_taken(tmp_path):
    slow = sweeps(3, lambda start, times: (times - start) // 1000 * 1000 / 1e3, name="stamp", kind="f8")
    log = open_log([write_log(tmp_path / "drive.mcap", topics(slow))])
    plan, notes = resolved(recipe(column(time="stamp", unit="us")), {"drive": log})
    assert (
        "points: deskewed by 'stamp' of points, float64 in us since the message time, as set in the recipe"
        in notes
    )
    assert plan.columns[0].deskew.unit == "us"


# --- the unit of points' times ---------------------------------------------------------------------------


def with_last(count, spread):
    """Full sweeps, of which the last has few points that were measured close together."""
    clouds = sweeps(8)
    points, _ = scan(clouds[-1][0], seed=7)
    own = (np.linspace(0, spread, count)).astype(np.int64)
    clouds[-1] = cloud(clouds[-1][0], points[:count], times=own)
    return clouds, (points[:count], clouds[-1][0] + own)


@pytest.fixture(scope="module")
def whole(log):
    """Rows of the drive in one partition."""
    return built(log, resolved(recipe(column()), {"drive": log})[0])[0]


LAST = [(4, 400_000), (1, 0), (5, 0), (2, 90)]


@pytest.mark.parametrize(
    ("count", "spread", "rows"),
    by_tier(
        [(*last, rows) for last, rows in zip(LAST, [9, 1000, 1000, 9], strict=True)],
        [(*last, rows) for last in LAST for rows in (3, 1000)],
    ),
)
def test_a_last_cloud_of_few_points_changes_nothing_of_the_others(tmp_path, whole, count, spread, rows):
    clouds, (points, times) = with_last(count, spread)
    other = open_log([write_log(tmp_path / "drive.mcap", topics(clouds))])
    plan, (note,) = resolved(recipe(column(), rows), {"drive": other})
    assert "uint32 in ns since the message time, as sweeps of 97.5 ms show" in note
    found, _ = built(other, plan)
    stamps = found["timestamp"] - found["points.age"]
    for i in np.flatnonzero(found["points.available"]):
        if stamps[i] != clouds[-1][0]:
            assert found["points"][i].tobytes() == whole["points"][i].tobytes()
        else:
            on = [(lidar_on_map(int(t)) @ [*point, 1])[:3] for point, t in zip(points, times, strict=True)]
            np.testing.assert_allclose(on_map(found, i), on, atol=1e-6)
    assert found["points.available"].sum() == whole["points.available"].sum()


def test_a_log_of_single_points_is_deskewed_if_the_unit_doesn_t_matter_or_is_stated(tmp_path):
    single = [cloud(stamp, scan(stamp)[0][:1], times=[0]) for stamp, _ in sweeps(8)]
    log = open_log([write_log(tmp_path / "zero.mcap", topics(single))])
    rows, _ = built(log, resolved(recipe(column()), {"drive": log})[0])
    assert rows["points.available"].sum() > 20
    late = [cloud(stamp, scan(stamp)[0][:1], times=[30 * MS]) for stamp, _ in sweeps(8)]
    log = open_log([write_log(tmp_path / "late.mcap", topics(late))])
    with pytest.raises(RecipeError, match="are equal in each cloud, so they show no unit; write `unit: `"):
        resolved(recipe(column()), {"drive": log})
    rows, _ = built(log, resolved(recipe(column(unit="ns")), {"drive": log})[0])
    assert rows["points.available"].sum() > 20


def test_single_points_with_times_since_1970_show_their_unit(tmp_path):
    single = [
        cloud(stamp, scan(stamp)[0][:1], "timestamp", [stamp / 1e9 + 0.03], "f8") for stamp, _ in sweeps(8)
    ]
    log = open_log([write_log(tmp_path / "drive.mcap", topics(single))])
    _, (note,) = resolved(recipe(column()), {"drive": log})
    assert "'timestamp' of points, float64 in s since the Unix epoch" in note


@pytest.mark.parametrize("name", ["", "other"])
def test_a_last_cloud_without_times_is_not_asked_for_their_field(tmp_path, name):
    clouds = sweeps(8)
    points, times = scan(clouds[-1][0])
    clouds[-1] = cloud(clouds[-1][0], points, name=name, times=times - clouds[-1][0])
    log = open_log([write_log(tmp_path / "drive.mcap", topics(clouds))])
    plan, (note,) = resolved(recipe(column("points[x,y,z]")), {"drive": log})
    assert "'t' of points, uint32 in ns since the message time, as sweeps of 97.5 ms show" in note
    with pytest.raises(LogReadError, match="the cloud has no field 't' with the times of its points; it has"):
        built(log, plan)  # of that message alone


def test_an_ambiguous_log_is_left_out_and_doesn_t_stop_the_plan_of_others(tmp_path, log):
    odd = open_log([write_log(tmp_path / "odd", topics(sweeps(3, lambda start, times: times * 0)))])
    lenient = recipe(column(), more="on_error: skip\n")
    plan, (note,) = resolved(lenient, {"a": odd, "b": log})
    assert "are equal in each cloud, so they show no unit; write `unit: `" in note
    assert built(log, plan)[0]["points.available"].any()
    with pytest.raises(LogReadError, match="are equal in each cloud"):
        built(odd, plan)
    rows, (tally,) = built(odd, plan, on_error="salvage")  # the column is unavailable in that log
    assert not rows["points.available"].any()
    (refusal,) = tally.columns["points"].refused
    assert "are equal in each cloud" in refusal.reason
    assert refusal.num_messages == 3


@given(
    st.sampled_from(list(TIME_UNITS)),
    st.integers(10 * MS, 1000 * MS),
    st.lists(st.tuples(st.floats(0.01, 1.2), st.integers(50, 300)), min_size=1, max_size=20),
    st.lists(st.tuples(st.floats(0, 1e4), st.integers(1, 4)), max_size=10),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_a_unit_is_found_in_any_order_however_short_a_few_clouds_are(
    unit, period, full, short, is_absolute, random
):
    if unit == "ns" and is_absolute:
        return  # float64 has no nanoseconds since 1970; drivers write integers, as above
    scale, count = TIME_UNITS[unit], sum(points for _, points in full)
    few = [(lasts, points) for lasts, points in short if sum(n for _, n in short) < count / 2]
    seen = []
    for i, (lasts, points) in enumerate([*full, *few]):
        stamp = START + i * period
        low = stamp / scale if is_absolute else 0.0
        seen.append(CloudTimes(low, low + lasts * period / scale, points, stamp))
    assert inferred_unit(seen, [period], SECOND, 2 * SECOND) == unit
    assert are_absolute(seen[: len(full)], unit, 2 * SECOND, 4 * SECOND) == is_absolute
    random.shuffle(seen)
    assert inferred_unit(seen, [period], SECOND, 2 * SECOND) == unit


def test_a_silence_or_a_wrong_log_time_doesn_t_change_the_unit(tmp_path):
    clouds = sweeps(8)
    far = [(stamp + 30 * 86400 * SECOND, message) for stamp, message in clouds[4:]]
    log = open_log([write_log(tmp_path / "drive.mcap", {"/lidar": (CLOUD, clouds[:4] + far)})])
    wanted = resolved(recipe(column()), {"drive": open_log([write_log(tmp_path / "a", topics(clouds))])})[0]
    assert point_times.point_times(log, wanted.columns[0]).unit == "ns"


# --- logs of several drivers, and points that are no clouds ----------------------------------------------


def test_rows_do_not_depend_on_the_logs_that_are_built_beside(tmp_path, log):
    """Of one fleet, whose drivers write other fields, units and origins."""
    said = {
        "a-seconds": sweeps(3, lambda start, times: (times - start) / 1e9, name="time", kind="f4"),
        "b-since-1970": sweeps(3, lambda start, times: times / 1e9, name="time", kind="f8"),
        "c-nanoseconds": sweeps(3),
    }
    logs = {name: open_log([write_log(tmp_path / name, topics(clouds))]) for name, clouds in said.items()}
    together, (note, *_) = resolved(recipe(column("points[x,y,z]")), logs)
    assert note.startswith("points: deskewed by 'time' of points, float32 in s since the message time")
    assert note.endswith("show (log a-seconds; each log uses its own clouds)")
    for name, found in logs.items():
        alone, _ = resolved(recipe(column("points[x,y,z]")), {name: found})
        rows, tallies = built(found, together)
        expected, _ = built(found, alone)
        assert rows["points"].values.tobytes() == expected["points"].values.tobytes()
        assert rows["points.available"].sum() > 8
        for i in np.flatnonzero(rows["points.available"]):
            assert off_planes(on_map(rows, i)).max() < 3e-5  # float32 at 60 m
        lines = notes_on_frames(together, tallies)
        (told,) = [line for line in lines if line.startswith("times of the points")]
        assert {"a": "float32 in s since the m", "b": "float64 in s since the U", "c": "uint32 in ns"}[
            name[0]
        ] in told


def test_a_log_whose_own_clouds_tell_no_unit_is_named(tmp_path, log):
    odd = open_log([write_log(tmp_path / "odd", topics(sweeps(3, lambda start, times: times * 0)))])
    plan, _ = resolved(recipe(column()), {"a": log, "b": odd})
    with pytest.raises(LogReadError, match=r"odd: /lidar: times of points in 't' are equal in each cloud"):
        built(odd, plan)
    stated, _ = resolved(recipe(column(unit="ns")), {"a": log, "b": odd})
    assert built(odd, stated)[0]["points.available"].any()


def write_transforms(path, said, stamp, time="timestamp", unit=None):
    """Transforms as a table has them, a row each; their times as timestamps, or as integers of so many ns."""

    def parts(which, names):
        return pa.array([{name: one["transform"][which][name] for name in names} for one in said])

    made = {
        time: pa.array(stamp, pa.timestamp("ns")) if unit is None else [at // unit for at in stamp],
        "parent_frame_id": [one["header"]["frame_id"] for one in said],
        "child_frame_id": [one["child_frame_id"] for one in said],
        "translation": parts("translation", "xyz"),
        "rotation": parts("rotation", "xyzw"),
    }
    path.parent.mkdir(exist_ok=True)
    pa_feather.write_feather(pa.table(made), str(path))


@pytest.mark.parametrize(
    ("time", "unit"), [("timestamp_ns", 1), ("timestamp_us", 1000), ("timestamp", 1000), ("stamp", None)]
)
def test_transforms_in_tables_have_the_times_of_their_rows(tmp_path, time, unit):
    said = [message["transforms"][0] for _, message in moving()]
    stamps = [t // MS * MS for t, _ in moving()]
    found = []
    for name, *how in (("plain",), ("other", time, unit)):
        write_transforms(tmp_path / name / "tf.feather", said, stamps, *how)
        log = open_log([str(tmp_path / name / "tf.feather")])
        found.append(read_frames(log, ["/tf"], []).table)
    assert len(found[0].stamp) == len(said)
    np.testing.assert_array_equal(found[0].stamp, found[1].stamp)
    np.testing.assert_array_equal(found[0].pose, found[1].pose)


def test_a_table_without_transforms_is_told_which_columns_they_have(tmp_path):
    pa_feather.write_feather(pa.table({"timestamp_ns": [START], "x": [1.0]}), str(tmp_path / "tf.feather"))
    log = open_log([str(tmp_path / "tf.feather")])
    with pytest.raises(UsageError, match=r"^/tf has no stamped transforms: rows of a table need parent_f"):
        read_frames(log, ["/tf"], [])


@pytest.mark.parametrize(
    ("field", "write"),
    [
        ("rows", lambda start, times: pa.array(times, pa.timestamp("ns"))),
        ('["rows[].z", "rows[].t", "rows[].x", "rows[].y"]', lambda start, times: pa.array(times / 1e9)),
        ("rows", lambda start, times: pa.array(times - start, pa.uint32())),
        ('["rows[].x", "rows[].y", "rows[].z"]', lambda start, times: pa.array((times - start) / 1e6)),
    ][: by_tier(2, 4)],
)
def test_sweeps_that_are_tables_are_deskewed(tmp_path, field, write):
    folder = tmp_path / "lidar"
    folder.mkdir()
    said = [message["transforms"][0] for _, message in moving()]
    write_transforms(tmp_path / "tf.feather", said, [t - 3 * MS for t, _ in moving()])
    write_transforms(tmp_path / "tf_static.feather", [transform(0, "base", "lidar", *MOUNT)], [START])
    for i in range(8):
        start = START + 200 * MS + i * SWEEP
        points, times = scan(start, seed=i)
        columns = {axis: points[:, k] for k, axis in enumerate("xyz")}
        made = pa.table({**columns, "t": write(start, times), "kind": pa.array(["wall"] * len(times))})
        pa_feather.write_feather(made, str(folder / f"{start}.feather"))
    log = open_log([str(path) for path in tmp_path.glob("**/*.feather")])
    wanted = column().replace('as: "points"', f"field: {field}")
    rows, _ = built(log, resolved(recipe(wanted), {"drive": log})[0])
    available = np.flatnonzero(rows["points.available"])
    assert len(available) > 25
    limit = 1e-5 if "rows[].t" in field else 1e-6
    for i in available:
        points = rows["points"][i]
        moved = points if points.dtype.names else points[:, [2, 3, 0] if "rows[].t" in field else [0, 1, 2]]
        assert off_planes(xyz(moved) @ rows["pose"][i][:3, :3].T + rows["pose"][i][:3, 3]).max() < limit
    if field == "rows":
        assert set(rows["points"][available[0]]["kind"].tolist()) == {"wall"}
    short, _ = built(log, resolved(recipe(wanted, 3), {"drive": log})[0])
    assert short["points"].values.tobytes() == rows["points"].values.tobytes()


@pytest.mark.parametrize(
    ("columns", "mistake"),
    [
        ("a: {topic: /l, as: points, deskew: {}}", "columns.a.deskew.pose: "),
        (
            "a: {topic: /l, as: points, deskew: {pose: {}}}",
            "write {tf: {from: lidar_top, to: map}} or {topic:",
        ),
        ("a: {topic: /l, as: points, deskew: {pose: {topic: /o}, to: tock}}", "did you mean tick?"),
        (
            "a: {topic: /l, as: points, deskew: {pose: {topic: /o}, unit: h}}",
            "columns.a.deskew.unit: no such",
        ),
        ("a: {topic: /l, as: points, deskew: {pose: {topic: /o}, tim: t}}", "did you mean time?"),
        (
            'a: {topic: /l, as: "points[x,y]", deskew: {pose: {topic: /o}}}',
            "`deskew` moves x, y and z of points",
        ),
        ("a: {topic: /l, as: image, deskew: {pose: {topic: /o}}}", "`deskew` moves x, y and z of points"),
        (
            'a: {topic: /l, field: ["p[].x", "p[].y"], deskew: {pose: {topic: /o}}}',
            "`deskew` moves x, y and z of points",
        ),
        (
            'a: {topic: /l, field: ["p[].x", "q[].y", "p[].z"], deskew: {pose: {topic: /o}}}',
            "`deskew` moves x, y and z of points",
        ),
        (
            "a: {topic: /l, as: points, resample: static, deskew: {pose: {topic: /o}}}",
            "`deskew` has no meaning with resample: static; write nearest or previous",
        ),
        (
            "a: {topic: /l, as: points, deskew: {pose: {topic: /l}}}",
            "`deskew` can't use its pose from /l; name a topic of nav_msgs/Odometry",
        ),
        (
            "a: {topic: /l, as: points, deskew: {pose: {topic: /tf_static}}}",
            "`deskew` can't use its pose from /tf_static; name a topic of nav_msgs/Odometry",
        ),
        (
            'a: {topic: /l, as: "points[x,y,z]", dtype: int32, deskew: {pose: {topic: /o}}}',
            "`deskew` has no meaning with dtype: int32",
        ),
    ],
)
def test_a_mistake_of_the_recipe_is_told_with_its_place(columns, mistake):
    with pytest.raises(RecipeError) as caught:
        recipe(columns)
    assert mistake in str(caught.value)


def test_a_recipe_that_deskews_is_read_back_as_it_was_written():
    made = recipe(column(time="t", unit="ns", to="end", within="500ms"))
    assert Recipe.from_yaml(made.to_yaml()) == made
    assert Recipe.model_validate(made.identity_json()) == made
