"""Matched sets by ROS's own message_filters; runs where that is. Each line of stdin is a log, in JSON:

    {"topics": [[stamp, ...], ...], "within": ns}

Prints a JSON list for each line: the sets in the order in which they came out, a stamp of each topic.
"""

import json
import sys

import rospy
from message_filters import ApproximateTimeSynchronizer, SimpleFilter
from std_msgs.msg import Header


class Stamped:
    def __init__(self, stamp):
        self.header = Header(stamp=stamp)


def sets_of(topics, within):
    sources = [SimpleFilter() for _ in topics]
    synchronizer = ApproximateTimeSynchronizer(sources, queue_size=1000, slop=0)
    synchronizer.slop = rospy.Duration(0, within)  # from seconds as a float it may lose a nanosecond
    sets = []
    synchronizer.registerCallback(lambda *found: sets.append([one.header.stamp.to_nsec() for one in found]))
    for stamp, topic in sorted((stamp, k) for k, stamps in enumerate(topics) for stamp in stamps):
        sources[topic].signalMessage(Stamped(rospy.Time(0, stamp)))
    return sets


rospy.rostime.set_rostime_initialized(True)
for line in sys.stdin:
    print(json.dumps(sets_of(**json.loads(line))), flush=True)
