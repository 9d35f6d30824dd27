"""The synthetic drives, read by the usual client: what they hold, and that it hangs together."""

import io

import numpy as np
import PIL.Image
import pytest
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

from logloom.demo import TOPICS, car_recipe, demo_recipe, make_drives
from logloom.errors import UsageError
from logloom.pipelines.demo import run_demo

SECONDS = 12.0


@pytest.fixture(scope="module")
def drives(logs_of):
    return sorted(logs_of(SECONDS, 1).iterdir())


@pytest.fixture(scope="module")
def messages(drives):
    """Topic to (decoded message, log time) of the first drive, in file order."""
    found = {topic.name: [] for topic in TOPICS}
    with drives[0].open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()], validate_crcs=True)
        for _, channel, record, message in reader.iter_decoded_messages(log_time_order=False):
            found[channel.topic].append((message, record.log_time))
    return found


def by_stamp(messages):
    """Stamps in seconds since the first, ascending, and the messages; each stamp once."""
    found = {stamp(message): message for message, _ in messages}
    stamps = sorted(found)
    return np.array([s - stamps[0] for s in stamps]) / 1e9, [found[s] for s in stamps]


def stamp(message):
    return message.header.stamp.sec * 10**9 + message.header.stamp.nanosec


def xy(vector):
    return vector.x, vector.y


def test_equal_seeds_give_equal_bytes_and_other_seeds_do_not(tmp_path):
    first = make_drives(tmp_path / "a", seconds=1, logs=2, seed=5)
    again = make_drives(tmp_path / "b", seconds=1, logs=2, seed=5)
    other = make_drives(tmp_path / "c", seconds=1, logs=1, seed=6)
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
    assert len({p.read_bytes() for p in [*first, *other]}) == 3


def test_every_topic_comes_at_about_its_rate(messages):
    for topic in TOPICS:
        expected = topic.rate * (SECONDS - topic.drop_out[1]) if topic.rate else 1
        assert len(messages[topic.name]) == pytest.approx(expected, rel=0.05), topic.name


def test_messages_are_late_and_out_of_order_by_at_most_40_ms(messages):
    for name, found in messages.items():
        delays = np.array([log_time - stamp(message) for message, log_time in found])
        assert delays.min() >= 0, name
        assert delays.max() <= 40_000_000, name
    stamps = np.array([stamp(message) for message, _ in messages["/imu"]])
    assert (np.diff(stamps) < 0).mean() > 0.1
    log_times = np.array([log_time for _, log_time in messages["/imu"]])
    assert (np.diff(log_times) < 0).any()


def test_some_messages_come_twice_and_some_sensors_fall_silent(messages):
    for topic in TOPICS:
        if topic.drop_out[1]:
            times, _ = by_stamp(messages[topic.name])
            assert np.diff(times).max() >= topic.drop_out[1], topic.name
    stamps = [stamp(message) for message, _ in messages["/imu"]]
    assert len(set(stamps)) < len(stamps)


def test_odometry_speed_and_yaw_are_the_derivatives_of_its_positions(messages):
    times, found = by_stamp(messages["/odom"])
    positions = np.array([xy(message.pose.pose.position) for message in found])
    velocity = np.gradient(positions, times, axis=0)[1:-1]
    speed = np.array([message.twist.twist.linear.x for message in found])[1:-1]
    np.testing.assert_allclose(np.hypot(*velocity.T), speed, atol=0.02)
    quaternions = [message.pose.pose.orientation for message in found[1:-1]]
    yaw = np.array([2 * np.arctan2(q.z, q.w) for q in quaternions])
    np.testing.assert_allclose(np.cos(np.arctan2(*velocity.T[::-1]) - yaw), 1, atol=1e-4)


def test_the_imu_feels_the_turns_and_pushes_that_odometry_shows(messages):
    times, found = by_stamp(messages["/odom"])
    start = stamp(found[0])
    imu = [message for message, _ in messages["/imu"]]
    when = np.array([stamp(message) - start for message in imu]) / 1e9
    inside = (when > times[1]) & (when < times[-2])
    turning = np.interp(when, times, [message.twist.twist.angular.z for message in found])
    speed = np.array([message.twist.twist.linear.x for message in found])
    along = np.interp(when, times, np.gradient(speed, times))
    across = turning * np.interp(when, times, speed)
    felt = np.array([(m.angular_velocity.z, *xy(m.linear_acceleration)) for m in imu])
    np.testing.assert_allclose(felt[inside], np.stack([turning, along, across], axis=1)[inside], atol=0.15)


def test_tracks_move_as_their_velocities_say(messages):
    times, found = by_stamp(messages["/tracks"])
    paths = {}
    for t, message in zip(times, found, strict=True):
        for agent in message.objects:
            paths.setdefault(agent.track_id, []).append((t, *agent.centroid, *agent.velocity, agent.yaw))
    assert len(paths) >= 5
    compared = 0
    for path in paths.values():
        t, x, y, vx, vy, yaw = np.array(path).T
        close = np.diff(t) < 0.15
        moved = np.stack([np.diff(x), np.diff(y)])[:, close] / np.diff(t)[close]
        mean = np.stack([vx[1:] + vx[:-1], vy[1:] + vy[:-1]])[:, close] / 2
        np.testing.assert_allclose(moved, mean, atol=0.1)
        np.testing.assert_allclose(yaw, np.arctan2(vy, vx), atol=1e-5)
        compared += close.sum()
    assert compared > 25 * SECONDS


def test_the_camera_shows_pictures_that_change_and_the_info_describes_them(messages):
    pictures = [
        np.asarray(PIL.Image.open(io.BytesIO(message.data)), np.float64)
        for message, _ in messages["/cam/front/compressed"][:30:10]
    ]
    ((info, _),) = messages["/cam/front/camera_info"]
    assert {picture.shape for picture in pictures} == {(info.height, info.width, 3)}
    assert all(np.abs(picture - pictures[0]).max() > 10 for picture in pictures[1:])
    assert all(picture.std() > 20 for picture in pictures)
    assert info.k[2] == info.width / 2


def test_lidar_points_lie_on_the_ground_or_on_others(messages):
    counts = set()
    for message, _ in messages["/lidar/top"][:20]:
        points = np.frombuffer(bytes(message.data), "<f4").reshape(-1, 4)
        assert len(points) == message.width == message.row_step // message.point_step
        counts.add(len(points))
        on_ground = points[:, 3] < 0.5
        assert np.abs(points[on_ground, 2]).max() < 0.1
        assert points[~on_ground, 2].min() > -0.1
        assert points[~on_ground, 2].max() < 2.0
    assert len(counts) > 5  # ragged
    assert 3000 < np.mean(list(counts)) < 5000


def test_each_traffic_light_shows_one_colour_at_a_time(messages):
    seen = set()
    for message, _ in messages["/lights"]:
        for light in {face.traffic_light_id for face in message.lights}:
            active = [f.face_id for f in message.lights if f.traffic_light_id == light and f.status[0] == 1]
            assert len(active) == 1
            seen.add(active[0])
    assert len(seen) == 6


def test_the_recipe_names_only_topics_that_the_drives_have(tmp_path):
    recipe = demo_recipe(tmp_path / 'with "quotes"')
    assert '\\"quotes\\"/*.mcap"]' in recipe
    for line in recipe.splitlines():
        if "topic: " in line:
            assert line.split("topic: ")[1].split(",")[0] in {topic.name for topic in TOPICS}


def test_a_demo_overwrites_nothing_but_an_earlier_demo(tmp_path):
    (tmp_path / "recipe.yaml").write_text("name: mine")
    (tmp_path / "car").mkdir()
    (tmp_path / "car/recipe.yaml").write_text(car_recipe(""))
    for folder, found in ((tmp_path, "car, recipe.yaml"), (tmp_path / "car", "recipe.yaml")):
        with pytest.raises(UsageError, match=f"{folder}: contains {found}, not an earlier demo; name a new"):
            run_demo(str(folder))
    assert (tmp_path / "recipe.yaml").read_text() == "name: mine"
