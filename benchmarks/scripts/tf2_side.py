"""tf2's buffer in Python as a side of `benchmarks.tf`: fills it once, then looks up one time after the other.

    python tf2_side.py tf2 FOLDER ROWS

FOLDER/transforms.json is what tests/interop/tf2_lookups.py takes. Needs what `make interop` puts in
.cache/tf2.
"""

import json
import pathlib
import sys

import rospy
import tf2_py
from answering import serve
from geometry_msgs.msg import TransformStamped


class Tf2Side:
    def __init__(self, folder):
        asked = json.loads((folder / "transforms.json").read_text())
        self.buffer = tf2_py.BufferCore(rospy.Duration(100_000))
        for child, parent, stamp, position, quaternion in asked["transforms"]:
            message = TransformStamped()
            message.header.stamp = rospy.Time(0, stamp or 0)
            message.header.frame_id, message.child_frame_id = parent, child
            place, turn = message.transform.translation, message.transform.rotation
            place.x, place.y, place.z = position
            turn.x, turn.y, turn.z, turn.w = quaternion
            put = self.buffer.set_transform_static if stamp is None else self.buffer.set_transform
            put(message, "benchmark")
        self.times = [rospy.Time(0, time) for time in asked["times"]]

    def lookups(self):
        yield
        for time in self.times:
            self.buffer.lookup_transform_core("map", "lidar", time)

    def close(self):
        pass


serve(Tf2Side(pathlib.Path(sys.argv[2])))
