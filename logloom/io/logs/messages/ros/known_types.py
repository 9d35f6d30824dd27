"""Definitions of ROS 2 types that a log uses and doesn't bring, as bags written before Iron.

Here: `described`, which takes them from the `rosbags` package where that is installed.
Elsewhere: reading definitions (logloom.io.logs.messages.definitions).
"""

from __future__ import annotations

from dataclasses import replace

from logloom.errors import UnknownEncodingError
from logloom.io.logs.interface import TopicInfo


def described(info: TopicInfo) -> TopicInfo:
    """The same topic with the definition of its type, as the latest ROS 2 has it.

    Raises:
        UnknownEncodingError: nobody knows the type.
    """
    missing = f"the log doesn't define {info.type}"
    try:
        from rosbags.typesys import Stores, get_typestore
        from rosbags.typesys.store import TypesysError
    except ImportError as error:
        raise UnknownEncodingError(
            f"{missing}; `pip install rosbags` brings the definitions of ROS's own types, and bags recorded "
            "with ROS 2 Iron or later hold all they use"
        ) from error
    try:
        text, _ = get_typestore(Stores.LATEST).generate_msgdef(info.type, ros_version=2)
    except (TypesysError, KeyError) as error:
        raise UnknownEncodingError(
            f"{missing}, and it is none of ROS's own types. Convert the bag where its package is installed: "
            "`ros2 bag convert` of ROS 2 Iron or later writes definitions into it. Or leave the topic out"
        ) from error
    return replace(info, definition_encoding="ros2msg", definition=text.encode())
