"""LeRobot keeps what formats promise."""

import dataclasses

from logloom.io.formats.lerobot.format import LeRobotFormat
from logloom.testing import AssembledContract
from tests.io.formats.lerobot import making
from tests.io.formats.lerobot import test_video as video
from tests.io.formats.lerobot.test_splits import split_up, with_splits


class TestLeRobotWithSplits(AssembledContract):
    format = LeRobotFormat()
    options = making.options()
    schema = with_splits(making.SCHEMA)
    period = making.STEP

    def make_block(self, schema, rows, seed):
        block = making.make_block(rows, seed)
        return split_up(block, ["train"] * 4 + ["val", "", ""] + ["val"] * rows)


class TestLeRobotWithVideo(AssembledContract):
    format = LeRobotFormat()
    options = video.options()
    schema = video.SCHEMA
    period = making.STEP

    def make_block(self, schema, rows, seed):
        return dataclasses.replace(video.make_block(rows, seed, "car/drive"), partition="p3")
