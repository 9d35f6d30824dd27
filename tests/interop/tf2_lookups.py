"""Lookups by ROS's own tf2; runs where tf2 is. Each line of stdin asks for some, in JSON:

    {"transforms": [[child, parent, stamp or null, position, quaternion], ...],
     "lookups": [[source, target, time], ...]}

Prints a JSON list for each line: of each lookup [x, y, z, qx, qy, qz, qw], or why there is none.
"""

import json
import sys

import rospy
import tf2_py
from geometry_msgs.msg import TransformStamped


def buffer_of(transforms):
    buffer = tf2_py.BufferCore(rospy.Duration(1000))
    for child, parent, stamp, position, quaternion in transforms:
        message = TransformStamped()
        message.header.stamp = rospy.Time(0, stamp or 0)
        message.header.frame_id, message.child_frame_id = parent, child
        place, turn = message.transform.translation, message.transform.rotation
        place.x, place.y, place.z = position
        turn.x, turn.y, turn.z, turn.w = quaternion
        (buffer.set_transform_static if stamp is None else buffer.set_transform)(message, "test")
    return buffer


def lookup(buffer, source, target, time):
    try:
        found = buffer.lookup_transform_core(target, source, rospy.Time(0, time)).transform
    except tf2_py.ExtrapolationException as error:
        return (
            "future"
            if "into the future" in str(error)
            else "past"
            if "into the past" in str(error)
            else "alone"
        )
    except (tf2_py.ConnectivityException, tf2_py.LookupException):
        return "no path"
    place, turn = found.translation, found.rotation
    return [place.x, place.y, place.z, turn.x, turn.y, turn.z, turn.w]


for line in sys.stdin:
    asked = json.loads(line)
    known = buffer_of(asked["transforms"])
    print(json.dumps([lookup(known, *each) for each in asked["lookups"]]), flush=True)
