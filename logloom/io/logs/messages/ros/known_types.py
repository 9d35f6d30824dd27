"""Definitions of ROS 2 types that a log lacks, as in bags written before Iron.

Here: `described`, which takes them from the `rosbags` package if installed.
Elsewhere: reading definitions (logloom.io.logs.messages.definitions).
"""

from __future__ import annotations

from dataclasses import replace

from logloom.errors import UnknownEncodingError
from logloom.io.logs.interface import TopicInfo


def described(info: TopicInfo) -> TopicInfo:
    """Add the definition of its type to a topic, as of the latest ROS 2.

    Raises:
        UnknownEncodingError: the type is unknown.
    """
    missing = f"the log doesn't define {info.type}"
    try:
        from rosbags.typesys import Stores, get_typestore
        from rosbags.typesys.store import TypesysError
    except ImportError as error:
        raise UnknownEncodingError(
            f"{missing}; `pip install rosbags` provides the definitions of ROS's own types, and bags "
            "recorded with ROS 2 Iron or later contain all of them"
        ) from error
    try:
        text, _ = get_typestore(Stores.LATEST).generate_msgdef(info.type, ros_version=2)
    except (TypesysError, KeyError) as error:
        raise UnknownEncodingError(
            f"{missing}, and it isn't one of ROS's own types; convert the bag on a machine with its package: "
            "`ros2 bag convert` of ROS 2 Iron or later adds definitions; or leave the topic out"
        ) from error
    return replace(info, definition_encoding="ros2msg", definition=text.encode())
