"""Which files are one ROS 2 bag, what its metadata.yaml may say, and splits that are missing."""

import pickle
import random
import shutil

import pytest
import zstandard
from rosbags.rosbag2 import StoragePlugin

from logloom.errors import LogloomError, LogReadError
from logloom.io.logs.bag_metadata import missing_files
from logloom.io.logs.interface import OpenOptions
from logloom.io.logs.match import group_logs
from logloom.io.logs.opening import open_log
from logloom.pipelines.info.info import describe
from tests.io.logs.making import SECOND, START, contents, read_all
from tests.io.logs.rosbag2.test_rosbag2 import write_bag
from tests.tier import by_tier

SALVAGE = OpenOptions(on_error="salvage")


def splits(tmp_path, count=3, plugin=StoragePlugin.MCAP, packed=()):
    """A bag of some splits without metadata.yaml, and all rows of its topic /imu."""
    folder = tmp_path / "drive"
    folder.mkdir()
    suffix, rows = plugin.name.lower().replace("sqlite3", "db3"), []
    for i in range(count):
        part = write_bag(tmp_path / "part", 40, plugin=plugin, start=START + i * 10 * SECOND)
        (path,) = part.glob(f"*.{suffix}")
        rows += contents(read_all(open_log([str(path)])))["/imu"]
        target = folder / f"drive_{i}.{suffix}"
        if i in packed:
            target = target.with_name(target.name + ".zstd")
            target.write_bytes(zstandard.compress(path.read_bytes()))
        else:
            shutil.move(path, target)
    return folder, rows


def metadata(*names):
    listed = "\n".join(f"    - {name}" for name in names)
    return f"rosbag2_bagfile_information:\n  version: 5\n  relative_file_paths:\n{listed}\n"


def rows_of(folder, options=OpenOptions()):  # noqa: B008 (immutable)
    (files,) = group_logs([str(folder)])
    return contents(read_all(open_log(files.uris, options)))["/imu"]


@pytest.mark.parametrize("plugin", [StoragePlugin.MCAP, StoragePlugin.SQLITE3])
def test_packed_and_plain_splits_are_one_log_with_or_without_metadata(tmp_path, plugin):
    folder, rows = splits(tmp_path, plugin=plugin, packed=[1])
    assert rows_of(folder) == rows
    uris = [str(path) for path in folder.iterdir()]
    assert contents(read_all(open_log(uris)))["/imu"] == rows
    suffix = {"MCAP": "mcap", "SQLITE3": "db3"}[plugin.name]
    (folder / "metadata.yaml").write_text(metadata(*(f"drive_{i}.{suffix}" for i in range(3))))
    assert rows_of(folder) == rows


def test_a_folder_of_several_recordings_is_no_bag(tmp_path):
    folder, _ = splits(tmp_path)
    (folder / "drive_2.mcap").rename(folder / "other_0.mcap")
    assert group_logs([str(folder)]).ids.to_pylist() == ["drive_0", "drive_1", "other_0"]
    assert len(group_logs([str(folder / "*.mcap")])) == 3


def test_a_missing_split_fails_with_its_name_and_salvage_uses_the_others(tmp_path):
    folder, rows = splits(tmp_path)
    (folder / "metadata.yaml").write_text(metadata("drive_0.mcap", "drive_1.mcap", "drive_2.mcap"))
    (folder / "drive_1.mcap").unlink()
    (files,) = group_logs([str(folder)])
    assert files.log_id == "drive"
    for mode in ("fail", "skip"):
        log = pickle.loads(pickle.dumps(open_log(files.uris, OpenOptions(on_error=mode))))
        with pytest.raises(LogReadError, match=r"drive_1.mcap: is missing, though metadata.yaml lists it"):
            read_all(log)
    with pytest.raises(LogReadError, match=r"drive_1.mcap: is missing"):
        describe([str(folder)], {})
    left = [row for row in rows if not START + 9 * SECOND < row[0] < START + 19 * SECOND]
    assert rows_of(folder, SALVAGE) == left
    (refusal,) = open_log(files.uris, SALVAGE).summary.refusals
    assert (refusal.uri, refusal.num_messages) == (str(folder / "drive_1.mcap"), 0)


@pytest.mark.parametrize("mode", ["fail", "skip", "salvage"])
def test_a_build_treats_a_missing_split_as_on_error_says(tmp_path, mode):
    from logloom.io.catalog.manifest import entries_of, read_manifest
    from logloom.io.storage.store import Store
    from logloom.pipelines.build.build import build
    from logloom.pipelines.plan.plan import plan_build
    from logloom.recipe import Recipe

    folder, _ = splits(tmp_path)
    (folder / "metadata.yaml").write_text(metadata("drive_0.mcap", "drive_1.mcap", "drive_2.mcap"))
    (folder / "drive_1.mcap").unlink()
    whole = write_bag(tmp_path / "whole", 20)
    recipe = Recipe.from_yaml(
        f"name: d\nlogs: [{folder}, {whole}]\nclock: {{rate: 10}}\non_error: {mode}\noutputs: {{tar: {{}}}}\n"
        "columns: {v: {topic: /imu, field: angular_velocity}}\n",
        source="test",
    )
    root = str(tmp_path / "root")
    if mode == "fail":
        with pytest.raises(LogloomError, match=r"drive_1\.mcap: is missing"):
            build(plan_build(recipe, root), num_workers=1)
        return
    build(plan_build(recipe, root), num_workers=1)
    store = Store.at(root)
    status = {record.log_id: record for record, _ in entries_of(store, read_manifest(store, 1).logs)}
    assert status["whole"].status == "whole"
    if mode == "salvage":
        assert status["drive"].status == "salvaged"
        assert any("drive_1.mcap: is missing" in reason for reason in status["drive"].reasons)


@pytest.mark.parametrize(
    ("listed", "present", "missing"),
    [
        (["a_0.db3"], ["a_0.db3"], []),
        (["a_0.db3", "a_1.db3"], ["a_0.db3"], ["a_1.db3"]),
        (["a_0.db3.zstd"], ["a_0.db3"], []),  # a recorder that died before it packed the file
        (["a_0.db3"], ["a_0.db3.zstd"], []),
        (["/home/robot/a/a_0.db3", "a\\\\a_1.db3"], ["a_0.db3", "a_1.db3"], []),
        (["a_0.db3", "a_1.db3"], ["b_0.db3", "b_1.db3"], []),  # renamed
        (["a_0.db3", "a_1.db3"], ["b_0.db3"], ["a_0.db3", "a_1.db3"]),
        (["a_0.db3"], ["a_0.db3", "a_1.db3"], []),
    ],
)
def test_names_are_compared_as_recorders_and_people_write_them(listed, present, missing):
    text = metadata(*(f'"{name}"' for name in listed))
    assert missing_files(text.encode(), present) == missing


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rosbag2_bagfile_information: [",
        "rosbag2_bagfile_information: 3",
        "rosbag2_bagfile_information: {relative_file_paths: {a: b}}",
        "rosbag2_bagfile_information: {relative_file_paths: [1, null, [a], {}]}",
        "rosbag2_bagfile_information: !!python/object/apply:os.system [true]",
        "rosbag2_bagfile_information: " + "[" * 5000,
        "rosbag2_bagfile_information: {relative_file_paths: [&a [x, x], *a, *a]}",
        "rosbag2_bagfile_information: {<<: [{relative_file_paths: [b]}]}",
    ],
)
def test_a_metadata_that_makes_no_sense_lists_nothing(text):
    assert missing_files(text.encode(), ["a_0.db3"]) == []


def test_mutated_metadata_lists_text_or_nothing():
    text = metadata("drive_0.mcap", "drive_1.mcap").encode()
    for seed in range(by_tier(200, 2400)):
        rng = random.Random(seed)
        data = bytearray(text)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(4)] = rng.choice([rng.randbytes(2), b"*&[{<", b"\n- ", b": !"])
        assert all(isinstance(name, str) for name in missing_files(bytes(data), ["drive_0.mcap"]))
