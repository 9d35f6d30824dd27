"""Numbers that are missing in a row of splits are named before the file after the gap."""

import json

import pytest

from logloom.io.logs.log_list import LogFiles
from logloom.pipelines.doctor.missing_splits import missing_splits
from tests.forking import command
from tests.transforms.ros2_logs import SECOND, SPEED, START, speeds, write_log


def of_one(*names):
    """Findings of a log of several files."""
    return missing_splits([LogFiles("drive", tuple(f"/logs/{name}" for name in names))])


def of_each(*uris):
    """Findings of files that are logs by themselves."""
    return missing_splits([LogFiles(uri, (uri,)) for uri in uris])


def said(found):
    return {
        log: [one.message.partition(" missing: ")[2] for one in findings] for log, findings in found.items()
    }


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["bag_0.mcap", "bag_2.mcap"], ["bag_1.mcap"]),
        (
            ["bag_0.db3", "bag_1.db3", "bag_4.db3", "bag_5.db3", "bag_7.db3"],
            ["bag_2.db3, bag_3.db3", "bag_6.db3"],
        ),
        (["bag_8.bag", "bag_9.bag", "bag_10.bag", "bag_12.bag.active"], ["bag_11.bag"]),
        (["bag_008.mcap.zstd", "bag_010.mcap.zstd"], ["bag_009.mcap.zstd"]),
        (["bag_0.mcap", "bag_1.mcap", "bag_2.mcap"], None),
        (["bag_1.mcap", "bag_2.mcap", "metadata.yaml"], None),
        (["front_0.mcap", "rear_2.mcap"], None),
        (["drive-2024-11-20.mcap", "drive-2024-11-22.mcap"], None),
        (["run_101500.mcap", "run_103000.mcap"], None),
        (["bag_0.mcap"], None),
    ],
)
def test_files_of_one_log_are_splits(names, missing):
    assert said(of_one(*names)) == ({"drive": missing} if missing else {})


@pytest.mark.parametrize(
    ("uris", "missing"),
    [
        (["/a/bag/bag_0.mcap", "/a/bag/bag_2.mcap"], {"/a/bag/bag_2.mcap": ["bag_1.mcap"]}),
        (
            ["/a/x_2024-01-31-10-20-30_0.bag", "/a/x_2024-01-31-10-20-30_2.bag"],
            {"/a/x_2024-01-31-10-20-30_2.bag": ["x_2024-01-31-10-20-30_1.bag"]},
        ),
        (["/a/takes/take_0.mcap", "/a/takes/take_2.mcap"], {}),
        (["/a/bag/bag_0.mcap", "/b/bag/bag_2.mcap"], {}),
    ],
)
def test_files_that_are_logs_are_splits_if_a_recorder_named_them(uris, missing):
    assert said(of_each(*uris)) == missing


def test_the_remedy_has_the_line_of_the_recipe():
    ((one,),) = of_one("bag_0.mcap", "bag_2.mcap").values()
    assert (one.kind, one.severity, one.uri, one.recipe) == (
        "missing",
        "note",
        "/logs/bag_2.mcap",
        "rows: {require: [COLUMN]}",
    )
    assert one.message == "1 split before it is missing: bag_1.mcap"
    ((other,),) = of_each("/a/bag/bag_0.mcap", "/a/bag/bag_3.mcap").values()
    assert other.message == "2 splits before it are missing: bag_1.mcap, bag_2.mcap"
    assert other.recipe == "log_id: '{parent}'"
    ((mixed,),) = of_each("/a/bag/bag_0.mcap", "/a/bag/bag_3.mcap", "/a/bag/other.mcap").values()
    assert mixed.recipe == ""


def test_doctor_names_the_missing_split_of_a_recording(tmp_path):
    for number in (0, 2):
        messages = speeds(20, start=START + number * 2 * SECOND)
        write_log(tmp_path / f"bag/bag_{number}.mcap", {"/can": (SPEED, messages)})
    done = command("doctor", "bag/*.mcap", "--json", cwd=tmp_path)
    first, second = json.loads(done.stdout)["logs"]
    assert (done.returncode, first["healthy"], second["healthy"], second["damaged"]) == (
        0,
        True,
        False,
        False,
    )
    (finding,) = second["findings"]
    assert (finding["kind"], finding["recipe"]) == ("missing", "log_id: '{parent}'")
    shown = command("doctor", "bag/*.mcap", cwd=tmp_path).stdout
    assert "missing: bag_1.mcap\n    copy missing files again; in the recipe, `log_id: '{parent}'`" in shown
