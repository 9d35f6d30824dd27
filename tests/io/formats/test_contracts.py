"""Every format keeps what formats promise."""

import dataclasses

from logloom.io.formats.annotations.format import AnnotationsFormat
from logloom.io.formats.bags.format import BagsFormat
from logloom.io.formats.l5kit.format import L5KitFormat
from logloom.io.formats.l5kit.mapping import MAPPED_SCHEMA
from logloom.io.formats.lance.format import LanceFormat
from logloom.io.formats.lerobot.format import LeRobotFormat
from logloom.io.formats.parquet.format import ParquetFormat
from logloom.io.formats.table.format import TableFormat
from logloom.io.formats.tar.format import TarFormat
from logloom.io.formats.zarr.format import ZarrFormat
from logloom.testing import AssembledContract, FormatContract
from tests.io.formats.annotations import making
from tests.io.formats.l5kit.making import OPTIONS, make_rows
from tests.io.formats.lerobot import making as lerobot
from tests.io.formats.lerobot import test_video as lerobot_video
from tests.io.formats.lerobot.test_splits import split_up, with_splits


class TestTar(FormatContract):
    format = TarFormat()
    options = TarFormat.Options(ext={"camera.front": "jpg"})


class TestBags(FormatContract):
    format = BagsFormat()
    options = BagsFormat.Options(types={"camera.front": "jpg"})


class TestBagsOfTheThirdGeneration(FormatContract):
    format = BagsFormat()
    options = BagsFormat.Options(generation=3)


class TestParquet(FormatContract):
    format = ParquetFormat()
    options = ParquetFormat.Options(images={"camera.front": "jpg"}, row_group_bytes=300)


class TestLance(AssembledContract):
    format = LanceFormat()
    options = LanceFormat.Options(images={"camera.front": "jpg"})


class TestTable(AssembledContract):
    format = TableFormat()
    options = TableFormat.Options(index=["speed"])


class TestZarr(AssembledContract):
    format = ZarrFormat()


class TestZarrOfFormat2(AssembledContract):
    format = ZarrFormat()
    options = ZarrFormat.Options(format=2)


class TestL5Kit(AssembledContract):
    format = L5KitFormat()
    options = OPTIONS
    schema = MAPPED_SCHEMA

    def make_block(self, schema, rows, seed):
        return dataclasses.replace(make_rows(rows, seed, log_id="car/drive"), partition="p3")


class TestLeRobot(AssembledContract):
    format = LeRobotFormat()
    options = lerobot.options()
    schema = lerobot.SCHEMA
    period = lerobot.STEP

    def make_block(self, schema, rows, seed):
        return lerobot.make_block(rows, seed)


class TestLeRobotWithVideo(AssembledContract):
    format = LeRobotFormat()
    options = lerobot_video.options()
    schema = lerobot_video.SCHEMA
    period = lerobot.STEP

    def make_block(self, schema, rows, seed):
        return dataclasses.replace(lerobot_video.make_block(rows, seed, "car/drive"), partition="p3")


class TestLeRobotWithSplits(TestLeRobot):
    schema = with_splits(lerobot.SCHEMA)

    def make_block(self, schema, rows, seed):
        return split_up(super().make_block(schema, rows, seed), ["train", "val", ""] * rows)


class TestAnnotations(AssembledContract):
    format = AnnotationsFormat()
    options = making.options()
    schema = making.SCHEMA
    knows_lengths = False  # of the files that infos name

    def make_block(self, schema, rows, seed):
        return dataclasses.replace(making.make_block(rows, seed), partition="p3")
