"""Suggested policies: nothing is interpolated that can't be."""

import pytest

from logloom.io.logs.interface import TopicInfo
from logloom.io.logs.messages.ros.languages import parse
from logloom.transforms.suggest.columns import MAX_COLUMNS, candidates
from tests.transforms.ros2_logs import HEADER, QUATERNION, VECTOR

POSES = (
    "================\nMSG: geometry_msgs/Pose\ngeometry_msgs/Point position\n"
    "geometry_msgs/Quaternion orientation\n"
    "================\nMSG: geometry_msgs/PoseWithCovariance\ngeometry_msgs/Pose pose\n"
    "float64[36] covariance\n"
    "================\nMSG: geometry_msgs/Twist\n"
    "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular\n"
    "================\nMSG: geometry_msgs/TwistWithCovariance\ngeometry_msgs/Twist twist\n"
    "float64[36] covariance\n"
    "================\nMSG: geometry_msgs/Transform\ngeometry_msgs/Vector3 translation\n"
    "geometry_msgs/Quaternion rotation\n"
    "================\nMSG: geometry_msgs/Point\nfloat64 x\nfloat64 y\nfloat64 z\n"
)
STANDARD = HEADER + VECTOR + QUATERNION + POSES


def suggested(kind, definition):
    """{suffix: (field, policy, unit)}"""
    info = TopicInfo("/topic", kind, "cdr", "ros2msg", (definition + STANDARD).encode(), 1, 0, 0)
    found = candidates(info, parse(info))
    return {
        column.suffix: (column.keys["field"], column.policy, column.keys.get("unit", ""))
        for column in found.columns
        if not column.is_text
    }, found.left_out


POSITION, ROTATION = ("linear", "m"), ("slerp", "")
STANDARD_TYPES = {
    "geometry_msgs/msg/Pose": (
        "geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation\n",
        {"position": ("position", *POSITION), "rotation": ("orientation", *ROTATION)},
    ),
    "geometry_msgs/msg/PoseStamped": (
        "std_msgs/Header header\ngeometry_msgs/Pose pose\n",
        {"position": ("pose.position", *POSITION), "rotation": ("pose.orientation", *ROTATION)},
    ),
    "geometry_msgs/msg/PoseWithCovarianceStamped": (
        "std_msgs/Header header\ngeometry_msgs/PoseWithCovariance pose\n",
        {"position": ("pose.pose.position", *POSITION), "rotation": ("pose.pose.orientation", *ROTATION)},
    ),
    "geometry_msgs/msg/TransformStamped": (
        "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/Transform transform\n",
        {
            "translation": ("transform.translation", *POSITION),
            "rotation": ("transform.rotation", *ROTATION),
        },
    ),
    "nav_msgs/msg/Odometry": (
        "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/PoseWithCovariance pose\n"
        "geometry_msgs/TwistWithCovariance twist\n",
        {
            "position": ("pose.pose.position", *POSITION),
            "rotation": ("pose.pose.orientation", *ROTATION),
            "linear_velocity": ("twist.twist.linear", "linear", "m s-1"),
            "angular_velocity": ("twist.twist.angular", "linear", "rad s-1"),
        },
    ),
    "geometry_msgs/msg/Twist": (
        "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular\n",
        {
            "linear_velocity": ("linear", "linear", "m s-1"),
            "angular_velocity": ("angular", "linear", "rad s-1"),
        },
    ),
    "sensor_msgs/msg/Imu": (
        "std_msgs/Header header\ngeometry_msgs/Quaternion orientation\nfloat64[9] orientation_covariance\n"
        "geometry_msgs/Vector3 angular_velocity\ngeometry_msgs/Vector3 linear_acceleration\n",
        {
            "orientation": ("orientation", *ROTATION),
            "angular_velocity": ("angular_velocity", "linear", "rad s-1"),
            "linear_acceleration": ("linear_acceleration", "linear", "m s-2"),
        },
    ),
    "turtlesim/msg/Pose": (
        "float32 x\nfloat32 y\nfloat32 theta\nfloat32 linear_velocity\nfloat32 angular_velocity\n",
        {
            "x": ("x", *POSITION),
            "y": ("y", *POSITION),
            "theta": ("theta", "angle", "rad"),
            "linear_velocity": ("linear_velocity", "linear", "m s-1"),
            "angular_velocity": ("angular_velocity", "linear", "rad s-1"),
        },
    ),
    "geometry_msgs/msg/PointStamped": (
        "std_msgs/Header header\ngeometry_msgs/Point point\n",
        {"": ("point", *POSITION)},
    ),
}


@pytest.mark.parametrize("kind", STANDARD_TYPES)
def test_standard_types_get_the_policy_and_unit_of_each_part(kind):
    definition, expected = STANDARD_TYPES[kind]
    assert suggested(kind, definition)[0] == expected


def test_a_type_that_nobody_knows_is_read_by_its_sub_messages_and_names():
    columns, left_out = suggested(
        "car_msgs/msg/State",
        "std_msgs/Header header\ngeometry_msgs/Pose base\nfloat32 yaw_rate\nfloat32 steeringAngle\n"
        "float32 heading_deg\nfloat64[9] rotation_matrix\nfloat64[3] gains\nbool on\nint8 gear\n"
        "float32 status\nfloat32[] ranges\nfloat64[36] pose_covariance\nstring note\n"
        "float64 imu_qx\nfloat64 imu_qy\nfloat64 imu_qz\nfloat64 imu_qw\n",
    )
    assert {suffix: policy for suffix, (_, policy, _) in columns.items()} == {
        "base.position": "linear",
        "base.rotation": "slerp",
        "yaw_rate": "linear",
        "steering_angle": "linear",
        "heading_deg": "nearest",
        "rotation_matrix": "nearest",
        "gains": "linear",
        "on": "nearest",
        "gear": "nearest",
        "status": "nearest",
        "ranges": "nearest",
        "imu_q": "slerp",
    }
    assert columns["imu_q"][0] == ["imu_qx", "imu_qy", "imu_qz", "imu_qw"]
    assert list(left_out.values()) == [["pose_covariance"]]


def test_a_quaternion_in_another_order_is_read_as_x_y_z_w():
    columns, _ = suggested(
        "car_msgs/msg/Tilt",
        "car_msgs/Turn turn\n================\nMSG: car_msgs/Turn\n"
        "float64 w\nfloat64 x\nfloat64 y\nfloat64 z\n",
    )
    assert columns == {"turn": (["turn.x", "turn.y", "turn.z", "turn.w"], "slerp", "")}


def test_more_columns_than_anyone_reads_are_listed_and_left_out():
    columns, left_out = suggested("car_msgs/msg/Wide", "".join(f"float32 f{i}\n" for i in range(40)))
    assert len(columns) == MAX_COLUMNS
    (names,) = left_out.values()
    assert names == [f"f{i}" for i in range(MAX_COLUMNS, 40)]


def test_numbers_of_a_sub_message_are_rotations_by_its_name_but_never_angles():
    columns, _ = suggested(
        "car_msgs/msg/Attitude",
        "geometry_msgs/Vector3 rpy\ngeometry_msgs/Vector3 orientation\ngeometry_msgs/Vector3 rpy_rates\n"
        "car_msgs/Steering steering_angle\nfloat64[4] q\n"
        "================\nMSG: car_msgs/Steering\nfloat64 value\nfloat64 rate\n",
    )
    assert columns == {
        "rpy": ("rpy", "linear", ""),
        "orientation": ("orientation", "nearest", ""),
        "rpy_rates": ("rpy_rates", "linear", ""),
        "steering_angle": ("steering_angle", "linear", ""),
        "q": ("q", "nearest", ""),
    }


def test_a_heading_is_an_angle_by_the_definition_of_its_type_wherever_that_stands():
    pose = "================\nMSG: {}/Pose2D\nfloat64 x\nfloat64 y\nfloat64 theta\n"
    for package, policy in (("geometry_msgs", "angle"), ("car_msgs", "linear")):
        within, _ = suggested("car_msgs/msg/Where", f"{package}/Pose2D at\n" + pose.format(package))
        assert within["at.theta" if policy == "angle" else "at"][1] == policy
