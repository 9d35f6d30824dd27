"""LeRobot datasets of rows that are split: episodes of one split each, split by split."""

import dataclasses
import itertools
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logloom.datasets
from logloom.blocks import Ragged
from logloom.errors import DatasetError, UsageError
from logloom.io.formats.lerobot import LeRobotReader
from logloom.io.formats.lerobot.format import FORMAT
from logloom.schema import STRING, Schema
from tests.io.formats.lerobot import making, test_video
from tests.io.formats.lerobot.test_dataset import episodes_of, frames_of, info_of

SPLITS = "train val train val train"


def with_splits(schema):
    return Schema({**schema.columns, "split": STRING}, schema.sampled)


def split_up(block, splits):
    """The rows with a split for each."""
    texts = [split.encode() for split in splits[: len(block)]]
    columns = {**block.columns, "split": Ragged.from_bytes(texts)}
    return dataclasses.replace(block, columns=columns)


def made(tmp_path):
    """Two logs, the first in two units, and the split of each row; the last row is in none."""
    blocks = [making.make_block(6, 0), making.make_block(5, 1, frames=[6, 7, 8, 10, 11])]
    blocks.append(making.make_block(4, 2, "van"))
    splits = [["train"] * 3 + ["val"] * 3, ["val", "train", "train", "train", "test"]]
    splits.append(["train", "val", "val", ""])
    own = [split_up(block, names) for block, names in zip(blocks, splits, strict=True)]
    folder, plan = making.assemble(tmp_path, own, schema=with_splits(making.SCHEMA))
    return folder, plan, own, [name for names in splits for name in names]


def test_episodes_have_rows_of_one_split_and_info_tells_which_are_of_each(tmp_path):
    folder, _, _, _ = made(tmp_path)
    episodes = episodes_of(folder)
    told = [(one["split"], one["log_id"], one["log_row"], one["length"]) for one in episodes]
    assert told == [
        ("test", "car/drive", 10, 1),
        ("train", "car/drive", 0, 3),
        ("train", "car/drive", 7, 2),  # which a gap ends
        ("train", "car/drive", 9, 1),
        ("train", "van", 0, 1),
        ("val", "car/drive", 3, 4),  # of two units
        ("val", "van", 1, 2),
        (None, "van", 3, 1),
    ]
    assert info_of(folder)["splits"] == {"test": "0:1", "train": "1:5", "val": "5:7"}
    frames = frames_of(folder)
    assert frames["index"] == [*range(15)]
    assert frames["frame_index"] == [row for one in episodes for row in range(one["length"])]
    starts = [one["dataset_from_index"] for one in episodes]
    assert starts == [0, *itertools.accumulate(one["length"] for one in episodes)][:-1]


def test_no_file_of_data_holds_rows_of_two_splits(tmp_path):
    folder, _, _, _ = made(tmp_path)
    files = {}
    for one in episodes_of(folder):
        files.setdefault(one["data/file_index"], set()).add(one["split"])
    assert sorted(map(str, files.values())) == sorted(str({name}) for name in ("test", "train", "val", None))


def test_rows_come_by_log_and_time_with_their_split(tmp_path):
    folder, plan, blocks, splits = made(tmp_path)
    reader = LeRobotReader(str(folder))
    stamps = np.concatenate([block.timestamp for block in blocks])
    assert reader.stamps.tolist() == stamps.tolist()
    order = np.random.default_rng(0).permutation(15)
    batch = reader.take(order, ("action", "task", "split", "observation.images.wide"))
    assert batch["timestamp"].tolist() == stamps[order].tolist()
    assert batch["split"] == [splits[number] for number in order]
    speeds = np.concatenate([block.columns["speed"] for block in blocks])
    np.testing.assert_array_equal(batch["action"], speeds[order])
    for most in (1, 1 << 30):
        found = list(reader.blocks(["action", "split"], most))
        assert np.concatenate([block.timestamp for block in found]).tolist() == stamps.tolist()
        np.testing.assert_array_equal(np.concatenate([block.columns["action"] for block in found]), speeds)
    assert list(FORMAT.assembled_problems(str(folder), plan.unit, None)) == []


def test_a_copy_opens_by_split_filters_by_it_and_keeps_windows_within(tmp_path):
    folder, _, _, splits = made(tmp_path)
    copy = shutil.copytree(folder, tmp_path / "copy")
    rows = logloom.datasets.open(str(copy))
    assert [row["split"] for row in rows] == splits
    for name in ("train", "val", "test"):
        part = logloom.datasets.open(str(copy), split=name)
        assert [row["timestamp"] for row in part] == [
            row["timestamp"] for row, split in zip(rows, splits, strict=True) if split == name
        ]
        assert len(logloom.datasets.open(str(copy), where=f"split == '{name}'")) == len(part)
    windows = rows.select(["split", "action"]).window([-1, 0], max_gap=None)
    assert windows
    assert all(len(set(window["split"])) == 1 for window in windows)
    with pytest.raises(UsageError, match=r"no split 'trian'.*train"):
        logloom.datasets.open(str(copy), split="trian")


@pytest.mark.parametrize(("codec", "gop"), [("h264", 5), ("av1", 2)])
def test_videos_begin_a_run_where_the_split_changes_and_frames_are_the_encoders(codec, gop, tmp_path):
    blocks = [test_video.make_block(7, 0), test_video.make_block(5, 2, "van")]
    splits = [["b", "b", "a", "a", "a", "b", "b"], ["a", "b", "b", "b", "a"]]
    own = [split_up(block, names) for block, names in zip(blocks, splits, strict=True)]
    folder, plan = test_video.assemble(
        tmp_path, own, test_video.options(codec, gop), with_splits(test_video.SCHEMA)
    )
    assert [one["length"] for one in episodes_of(folder)] == [3, 1, 1, 2, 2, 3]
    reader = LeRobotReader(str(folder))
    order = np.random.default_rng(0).permutation(12)
    for number, key in enumerate((test_video.FRONT, test_video.WIDE)):
        expected = np.stack(test_video.staged_frames(tmp_path / "root", number))
        np.testing.assert_array_equal(reader.take(order, (key,))[key], expected[order])
        whole = np.concatenate([block.columns[key] for block in reader.blocks([key])])
        np.testing.assert_array_equal(whole, expected)
    assert list(FORMAT.assembled_problems(str(folder), plan.unit, None)) == []


def test_a_staged_unit_gives_back_the_splits_of_its_rows(tmp_path):
    schema = with_splits(making.SCHEMA)
    block = split_up(making.make_block(5, 0), SPLITS.split())
    (unit,) = making.stage(tmp_path, [block], schema=schema)
    reader = FORMAT.reader(str(tmp_path / unit.folder), schema, making.options(), unit.unit)
    (found,) = reader.blocks(["split"], start=1, stop=4)
    assert [text.tobytes().decode() for text in found.columns["split"]] == SPLITS.split()[1:4]
    with pytest.raises(DatasetError, match="splits of other segments"):
        FORMAT.reader(str(tmp_path), schema, making.options(), {**unit.unit, "splits": ["a"]})


def test_single_frames_between_borders_are_no_clock_of_another_rate(tmp_path):
    block = split_up(making.make_block(5, 0), SPLITS.split())
    folder, _ = making.assemble(tmp_path, [block], schema=with_splits(making.SCHEMA))
    assert [one["length"] for one in episodes_of(folder)] == [1] * 5


def test_a_feature_called_split_is_in_the_way_of_rows_splits_alone():
    chosen = making.options(features={"split": "speed"})
    assert FORMAT.check(chosen, making.SCHEMA) == []
    (problem,) = FORMAT.check(chosen, with_splits(making.SCHEMA))
    assert "features: split: rows are split" in problem


def test_without_splits_all_episodes_are_of_train_and_tell_none(tmp_path):
    folder, _ = making.assemble(tmp_path, [making.make_block(3, 0)])
    assert json.loads((folder / "meta/info.json").read_text())["splits"] == {"train": "0:1"}
    (episode,) = episodes_of(folder)
    assert not {"split", "log_row"} & set(episode)


@pytest.mark.parametrize(
    ("column", "values", "what"),
    [
        ("log_row", [None] * 8, "log_row is no number"),
        ("log_row", [-1] * 8, "log_row is no number"),
        ("log_row", [0] * 8, "two episodes begin with the same row"),
        ("split", [1] * 8, "split is no text"),
    ],
)
def test_splits_that_make_no_sense_are_an_error_that_names_the_folder(column, values, what, tmp_path):
    folder, _, _, _ = made(tmp_path)
    path = folder / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    kind = pa.int64() if column == "log_row" or values[0] == 1 else pa.string()
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, pa.array(values, kind)), path)
    with pytest.raises(DatasetError, match=what) as told:
        list(LeRobotReader(str(folder)).blocks())
    assert str(folder) in str(told.value)
