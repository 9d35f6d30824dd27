"""Bags split by ROS 1's recorder are one log, however they are given; other numbered bags aren't."""

import pytest

import logloom as ll
from logloom.errors import LogReadError, UsageError
from logloom.io.logs.match import check_files, group_logs
from logloom.io.logs.opening import open_log
from logloom.io.logs.rosbag1.splits import files_of_folder, recordings
from logloom.pipelines.build.build import build
from logloom.pipelines.info.info import suggested_recipe
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe.logs import expand_logs
from tests.cases import case
from tests.io.logs.making import Message, ros1_payload, write_bag
from tests.io.logs.rosbag1.test_rosbag1 import without_index

START, SECOND = 1_700_000_000_000_000_000, 10**9


def message(topic, time, body):
    return Message(topic, time, time, time, ros1_payload(time, body))


def split(folder, *names, seconds=5):
    """Writes a recording of /imu at 10 Hz, five seconds a file; /map is in the first file alone."""
    for number, name in enumerate(names):
        times = range(
            START + number * seconds * SECOND, START + (number + 1) * seconds * SECOND, SECOND // 10
        )
        messages = [message("/imu", time, b"i%d" % i) for i, time in enumerate(times)]
        if number == 0:
            messages.insert(0, message("/map", START, b"map"))
        write_bag(folder / name, messages)
    return [str(folder / name) for name in names]


def test_names_of_splits_are_grouped_by_prefix_date_and_number():
    dated = [
        "x_2026-11-21-08-30-00_0.bag",
        "x_2026-11-21-08-31-00_1.bag",
        "x_2026-11-21-08-32-00_2.bag.active",
    ]
    later = ["x_2026-11-21-09-00-00_0.bag", "x_2026-11-21-09-01-00_1.bag"]
    for names, found in [
        (["a_0.bag", "a_10.bag", "a_2.bag"], {"a.bag": ["a_0.bag", "a_2.bag", "a_10.bag"]}),
        (["a_0.bag", "a_2.bag"], {"a.bag": ["a_0.bag", "a_2.bag"]}),
        (["a_0.bag", "b_1.bag"], {}),
        (["a_1.bag", "a_2.bag"], {}),  # bags that people number
        (["a_0.bag"], {}),
        (["a_0.mcap", "a_1.mcap"], {}),
        (["_0.bag", "_1.bag"], {}),
        (["a_0.orig.bag", "a_1.orig.bag"], {}),
        (dated, {"x_2026-11-21-08-30-00.bag": dated}),
        (dated[1:], {"x_2026-11-21-08-31-00.bag": dated[1:]}),
        ([*dated, *later], {"x_2026-11-21-08-30-00.bag": dated, "x_2026-11-21-09-00-00.bag": later}),
        # of two recorders that were started together
        ([f"2026-11-21-08-3{i}-0{k}_{i}.bag" for i in range(3) for k in range(2)], {}),
        ([*dated, later[1]], {}),
        (["2026-11-21-08-30-00_0.bag", "2026-11-21-08-31-00_1.bag"],
         {"2026-11-21-08-30-00.bag": ["2026-11-21-08-30-00_0.bag", "2026-11-21-08-31-00_1.bag"]}),
    ]:  # fmt: skip
        with case(names):
            assert recordings(names) == recordings(names[::-1]) == found


def test_a_folder_is_one_log_if_all_its_bags_are_splits_of_one_recording():
    for names, found in [
        (["a_0.bag", "a_1.bag.active", "notes.txt"], ["a_0.bag", "a_1.bag.active"]),
        (["a_1.bag", "a_2.bag"], ["a_1.bag", "a_2.bag"]),
        (["a_0.bag"], ["a_0.bag"]),
        (["a_0.bag", "b.bag"], []),
        (["a_0.bag", "b_1.bag"], []),
        (["a_0.bag", "a_1.bag", "a_1.bag.active"], []),
        (["x_2026-11-21-08-30-00_0.bag", "x_2026-11-21-08-31-00_0.bag"], []),
    ]:
        with case(names):
            assert files_of_folder(names) == found


def test_splits_are_one_log_as_a_folder_as_a_glob_and_file_by_file(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    uris = split(
        folder, "x_2023-11-14-22-13-20_0.bag", "x_2023-11-14-22-13-25_1.bag", "x_2023-11-14-22-13-30_2.bag"
    )
    write_bag(tmp_path / "other.bag", [message("/imu", START, b"o")])
    for given, log_id in [
        ([str(folder)], "run"),
        ([str(folder / "*.bag")], "x_2023-11-14-22-13-20"),
        ([str(folder / "*")], "x_2023-11-14-22-13-20"),
        (uris[::-1], "x_2023-11-14-22-13-20"),
    ]:
        with case(given):
            (files,) = group_logs(given)
            assert (files.log_id, list(files.uris)) == (log_id, uris)
            recipe = ll.Recipe.model_validate(RECIPE | {"logs": [*given, str(tmp_path / "other.bag")]})
            assert [(log.log_id, len(log.uris)) for log in expand_logs(recipe)] == [("other", 1), (log_id, 3)]


RECIPE = {
    "name": "splits",
    "logs": [],
    "clock": {"rate": 10},
    "columns": {"size": {"topic": "/map", "field": "data", "resample": "static"}},
    "outputs": {"tar": {}},
}


def test_an_expression_names_each_split_and_an_exclusion_leaves_one_out(tmp_path):
    uris = split(tmp_path, "a_0.bag", "a_1.bag", "a_2.bag")
    named = {"match": "(?P<name>[^/]+)[.]bag$", "as": "{name}"}
    for more, found in [
        ({"log_id": named}, ["a_0", "a_1", "a_2"]),
        ({}, ["a"]),
        ({"logs": [*uris, "!**/a_[12].bag"]}, ["a_0"]),
    ]:
        with case(more):
            recipe = ll.Recipe.model_validate(RECIPE | {"logs": uris} | more)
            assert [log.log_id for log in expand_logs(recipe)] == found


def test_numbered_bags_that_overlap_are_refused_with_the_log_id_that_tells_them_apart(tmp_path):
    split(tmp_path, "a_0.bag", "a_1.bag", seconds=5)
    split(tmp_path, "a_1.bag")
    (files,) = group_logs([str(tmp_path)])
    with pytest.raises(UsageError, match=r"not one recording: `log_id: \{match: .*` makes each file a log"):
        check_files(files, open_log)


@pytest.mark.parametrize("later", [5, 7200])
def test_numbered_bags_that_are_far_apart_are_one_log_with_a_warning(tmp_path, later):
    split(tmp_path, "a_0.bag")
    times = range(START + later * SECOND, START + (later + 5) * SECOND, SECOND // 10)
    write_bag(tmp_path / "a_1.bag", [message("/imu", time, b"i") for time in times])
    recipe = ll.Recipe.model_validate(RECIPE | {"logs": [str(tmp_path / "*.bag")]})
    plan = plan_build(recipe, str(tmp_path / "root"))
    for warnings in (plan.warnings, build(plan).warnings):
        found = [(one.kind, one.is_doubtful) for one in warnings]
        assert found == ([("splits", False)] if later > 600 else [])
    if plan.warnings:
        assert (
            "a_0.bag: its files are one recording by their names, but 1 h 59 min apart; "
            in plan.warnings[0].text
        )
        named = ll.Recipe.from_yaml(f"{recipe.to_yaml()}\n{plan.warnings[0].line}\n")
        assert [log.log_id for log in expand_logs(named)] == ["a_0.bag", "a_1.bag"]


def test_the_suggested_recipe_of_splits_salvages_the_active_file_and_keeps_what_is_latched(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    split(folder, "x_0.bag", "x_1.bag", "x_2.bag")
    torn = without_index(folder / "x_2.bag")
    torn.write_bytes(torn.read_bytes()[:-700])
    torn.rename(folder / "x_2.bag.active")
    with pytest.raises(LogReadError, match=r"x_2.bag.active: .*repair the file .* or set on_error: salvage"):
        open_log(group_logs([str(folder)])[0].uris).summary  # noqa: B018
    notes = []
    (tmp_path / "recipe.yaml").write_text(suggested_recipe([str(folder)], {}, on_note=notes.append))
    assert any("x_2.bag.active: is still being written, its recorder crashed" in note for note in notes)
    assert "on_error: salvage" in (tmp_path / "recipe.yaml").read_text()
    ll.build(tmp_path / "recipe.yaml", tmp_path / "root")
    rows = ll.open(tmp_path / "root")
    assert {row["log_id"] for row in rows} == {"run"}
    assert {bytes(row["map.data"]) for row in rows} == {b"map"}
    values = [bytes(row["imu.data"]) for row in rows]
    assert 140 < len(values) <= 150
    assert values == [b"i%d" % (i % 50) for i in range(len(values))]
