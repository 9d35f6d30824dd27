"""Suggested column of a compressed video topic: its pictures, if they can be decoded here.

Here: `video_column`, and why there may be none.
Elsewhere: packets and previews (logloom.io.video), columns of other topics
(columns), columns of video in a build (logloom.transforms.rows.video_columns).
"""

from __future__ import annotations

import re

from logloom.errors import UsageError
from logloom.io.logs.interface import Log
from logloom.io.video.frames import check_decoder, pyav
from logloom.io.video.preview import glimpse, holds_video
from logloom.transforms.suggest.columns import Candidate, pictures

# Types of video that no column supports, as their messages don't declare a codec.
_OTHER_TYPE = re.compile(r"H26[45]|ffmpeg_image|theora", re.IGNORECASE)


def video_column(log: Log, topic: str) -> Candidate | str | None:
    """Return the column of a topic's pictures; why there is none, for people; None if a topic isn't video.

    A recipe uses the same log to decide whether a topic is video.

    Args:
        log: the first one with messages of the topic.

    Raises:
        LogReadError: the log is too damaged to decide whether the topic is video.
    """
    kind = log.summary.topics[topic].type
    if not holds_video(log, topic):
        return _without(kind, "record or transcode it as images") if _OTHER_TYPE.search(kind) else None
    try:
        pyav()
        seen = glimpse(log, topic)
        if seen is None:
            return _without(kind, "no packet of its beginning can be decoded; see `logloom doctor`")
        check_decoder(seen.codec)
    except UsageError as error:
        return _without(kind, f"{str(error).splitlines()[0]}; with it a column of `as: image` can be built")
    return pictures()


def _without(kind: str, why: str) -> str:
    return f"compressed video ({kind}): {why}"
