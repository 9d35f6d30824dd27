"""The output `tar` of a recipe: its options, and units through the format's interface."""

import pytest

from logloom.io.formats.interface import UnitContext
from logloom.io.formats.tar.format import FORMAT
from logloom.schema import BYTES, STRING, ColumnType, Schema
from tests.io.formats.rows import digests, random_block

SCHEMA = Schema(
    {
        "camera.front": BYTES,
        "lidar.points": ColumnType("<f4", (None, 4)),
        "speed": ColumnType("<f4"),
        "note": STRING,
    },
    ("camera.front", "speed"),
)
CONTEXT = UnitContext("car/drive", "drive.mcap", "p3", "all")


def options(**given):
    return FORMAT.Options(**given)


def test_options_that_fit_have_no_problems():
    assert FORMAT.check(options(ext={"camera.front": "jpg", "lidar.points": "npy"}), SCHEMA) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ext": {"camera.frnt": "jpg"}}, "camera.front"),
        ({"ext": {"lidar.points": "jpg"}}, "npy"),
        ({"ext": {"speed": "npy"}}, "meta.json"),
        ({"ext": {"note": "txt"}}, "meta.json"),
        ({"ext": {"camera.front": "../x"}}, "extension"),
        ({"ext": {"camera.front": "JPG"}}, "extension"),
        ({"columns": ["lidar.*"], "ext": {"camera.front": "jpg"}}, "camera.front"),
        ({"columns": ["radar.*"]}, "radar"),
    ],
)
def test_each_option_that_does_not_fit_is_one_line(given, words):
    (line,) = FORMAT.check(options(**given), SCHEMA)
    assert words in line
    assert "\n" not in line


def test_a_log_id_that_cannot_name_members_is_one_line():
    assert FORMAT.check_log(options(), "car.1/drive", "drive.mcap") == []
    (line,) = FORMAT.check_log(options(), "../up", "up.mcap")
    assert "../up" in line


def test_a_unit_reads_back_through_the_format(tmp_path):
    chosen = options(columns=["camera.*", "speed"], ext={"camera.front": "jpg"})
    block = random_block(SCHEMA, 5, 0)
    writer = FORMAT.writer(tmp_path, SCHEMA, chosen, CONTEXT)
    writer.append(block)
    entry = writer.close()
    reader = FORMAT.reader(str(tmp_path), SCHEMA, chosen, entry, storage_options={})
    assert list(reader.schema.columns) == ["camera.front", "speed"]
    assert digests(list(reader.blocks()), reader.schema) == digests([block], reader.schema)
    assert FORMAT.view(12, ["entry.json", "shard.tar"]) == {"shard.tar": "000012.tar"}
