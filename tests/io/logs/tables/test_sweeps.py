"""Folders of tables whose files are called by their times: each file is one message of the folder's topic."""

import pathlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logloom.datasets
from logloom.errors import LogReadError, RecipeError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, FieldSpec, OpenOptions, TopicRequest
from logloom.io.logs.opening import open_log
from logloom.io.logs.table_files.name_times import name_problem, time_in
from logloom.io.logs.tables.sweeps import stamps_of
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.recipe.logs import expand_logs
from tests.io.logs.tables.test_tables import SUFFIXES, write
from tests.pipelines.conftest import build_at

START = 315_968_434_060_167_000
TIMES = START + np.arange(12) * 100_000_000
ALL = TopicRequest(MIN_TIME, MAX_TIME, ("header", "log"))


def sweep(number):
    """So many points more than the sweep before, and what they were taken for."""
    rng = np.random.default_rng(number)
    count = 5 * number
    points = {name: rng.normal(size=count).astype(np.float32) for name in "xyz"}
    return pd.DataFrame(
        {
            **points,
            "intensity": rng.integers(0, 255, count).astype(np.uint8),
            "category": [f"class {i % 3} ü" for i in range(count)],
        }
    )


def table(number):
    """`sweep`, whose types don't depend on how many points there are."""
    kinds = {**dict.fromkeys("xyz", pa.float32()), "intensity": pa.uint8(), "category": pa.string()}
    return pa.Table.from_pandas(sweep(number), pa.schema(list(kinds.items())), preserve_index=False)


def write_sweeps(folder, suffix=".feather", times=TIMES):
    folder.mkdir(parents=True, exist_ok=True)
    return [str(write(table(i), folder / f"{t}{suffix}", rows=7)) for i, t in enumerate(times)]


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_each_file_is_a_message_of_the_topic_of_its_folder(tmp_path, suffix):
    log = open_log(write_sweeps(tmp_path / "drive" / "lidar", suffix))
    (topic,) = log.summary.topics
    info = log.summary.topics[topic]
    assert (topic, info.num_messages, info.first, info.last) == ("/lidar", 12, TIMES[0], TIMES[-1])
    messages = log.read({topic: ALL})[topic]
    assert messages.time.tolist() == TIMES.tolist()
    points = messages.take(FieldSpec(("rows[].x", "rows[].y", "rows[].z")), np.arange(12))
    classes = messages.take(FieldSpec(("rows[].category",), strings=12), np.arange(12))
    for i in range(12):
        np.testing.assert_array_equal(points[i], sweep(i)[["x", "y", "z"]].to_numpy())
        assert classes[i].tolist() == sweep(i)["category"].tolist()
    assert log.places(topic, messages.position[3:4])[0].uri.endswith(f"{TIMES[3]}{suffix}")


def test_csv_is_read_alike(tmp_path):
    log = open_log(write_sweeps(tmp_path / "lidar", ".csv")[1:])
    found = log.read({"/lidar": ALL})["/lidar"].take(FieldSpec(("rows[].x", "rows[].y")), np.arange(11))
    np.testing.assert_allclose(found[4], sweep(5)[["x", "y"]].to_numpy(), rtol=1e-6)


def test_a_message_that_is_asked_for_costs_its_own_file_alone(tmp_path):
    paths = write_sweeps(tmp_path / "lidar")
    log = open_log(paths)
    messages = log.read({"/lidar": TopicRequest(TIMES[4], TIMES[5] + 1, ("log",))})["/lidar"]
    assert messages.time.tolist() == TIMES[4:6].tolist()
    for path in [*paths[:4], *paths[6:]]:
        pathlib.Path(path).unlink()
    assert [len(one) for one in messages.take(FieldSpec(("rows[].x",)), np.arange(2))] == [20, 25]


RECIPE = """
name: swept
logs: ["{folder}/*/*.feather", "{folder}/*/lidar/*.feather", "!**/calibration.feather"]
log_id: {{match: '/(?P<drive>drive-[0-9])/', as: "{{drive}}"}}
clock: {{topic: /poses}}
columns:
  pose: {{topic: /poses, field: [tx, ty], resample: exact}}
  sweep: {{topic: /lidar, field: rows, strings: 12, resample: nearest, tolerance: 50ms}}
  points: {{topic: /lidar, field: ["rows[].x", "rows[].y", "rows[].z"], resample: nearest, tolerance: 50ms}}
partition: {{rows: {rows}}}
outputs: {{table: {{}}}}
"""


@pytest.fixture(scope="module")
def drives(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drives")
    for number in range(2):
        write_sweeps(folder / f"drive-{number}" / "lidar")
        poses = pd.DataFrame({"timestamp_ns": TIMES + 1_000_000, "tx": np.arange(12.0), "ty": 0.0})
        write(poses, folder / f"drive-{number}" / "poses.feather")
        write(pd.DataFrame({"fx": [1.0]}), folder / f"drive-{number}" / "calibration.feather")
    return folder


def test_a_recipe_joins_sweeps_and_tables_and_leaves_out_what_has_no_time(drives, tmp_path):
    build_at(Recipe.from_yaml(RECIPE.format(folder=drives, rows=3)), tmp_path / "root")
    found = logloom.datasets.open(str(tmp_path / "root"))
    assert [row["log_id"] for row in found] == ["drive-0"] * 12 + ["drive-1"] * 12
    for i, row in enumerate(found):
        expected = sweep(i % 12)
        np.testing.assert_array_equal(row["points"], expected[["x", "y", "z"]].to_numpy())
        assert row["sweep"]["intensity"].dtype == np.uint8
        assert row["sweep"]["category"].tolist() == expected["category"].tolist()
    assert not verify(str(tmp_path / "root"), against_logs=True, num_workers=1).findings


def test_what_is_left_out_is_left_out_of_folders_and_of_files(drives):
    text = RECIPE.format(folder=drives, rows=9)
    logs = {log.log_id: log.uris for log in expand_logs(Recipe.from_yaml(text))}
    assert {len(uris) for uris in logs.values()} == {13}
    fewer = Recipe.from_yaml(text.replace("!**/calibration.feather", "!drive-1/**"))
    assert sorted(log.log_id for log in expand_logs(fewer, str(drives))) == ["drive-0"]
    said = {"logs": [f"{drives}/drive-0/", "!**/cal*.feather"], "log_id": "{stem}"}
    (log,) = expand_logs(Recipe.model_validate(fewer.identity_json() | said))
    assert [uri.rsplit("/", 1)[-1] for uri in log.uris] == ["poses.feather"]
    with pytest.raises(RecipeError, match="contains only exclusions"):
        expand_logs(Recipe.model_validate(fewer.identity_json() | {"logs": ["!**/cal*.feather"]}))


def test_tables_without_times_are_listed_at_once(drives):
    kept = [str(path) for path in sorted((drives / "drive-0").glob("**/*.feather"))]
    write(pd.DataFrame({"a": [1.0]}), drives.parent / "other.feather")
    with pytest.raises(LogReadError) as caught:
        open_log([*kept, str(drives.parent / "other.feather")]).summary  # noqa: B018
    said = str(caught.value)
    assert "2 tables of the log have neither a time column" in said
    assert "calibration.feather, other.feather" in said
    assert '"!**/NAME.feather"' in said
    with pytest.raises(LogReadError, match=r"calibration.feather: has no time column .* leave them out"):
        open_log(kept).summary  # noqa: B018
    salvaged = open_log(kept, OpenOptions("salvage")).summary
    assert sorted(salvaged.topics) == ["/lidar", "/poses"]
    assert len(salvaged.refusals) == 1


NO_TIMES = [
    *("99999999999999999999999", "9223372036854775807000", "9999999999999999999", "12345678"),
    *("0000000000170000000", "1700000000.5", "-1700000000", "1e18", "1700000000000000000 (1)"),
    *("\N{FULLWIDTH DIGIT ONE}700000000", "\N{ARABIC-INDIC DIGIT ONE}700000000", "lidar", "1_700_000_000"),
]


@pytest.mark.parametrize("name", NO_TIMES)
def test_a_name_that_is_no_time_is_an_error_and_never_a_wrong_time(tmp_path, name):
    assert stamps_of([name]) is None
    paths = write_sweeps(tmp_path / "lidar")[1:3]
    paths.append(str(write(table(3), tmp_path / "lidar" / f"{name}.feather")))
    with pytest.raises(LogReadError, match="times as names"):
        open_log(paths).summary  # noqa: B018


def test_names_of_several_units_are_no_times(tmp_path):
    (tmp_path / "lidar").mkdir()
    paths = [str(write(table(1), tmp_path / "lidar" / f"{t}.feather")) for t in (1700000000, 1700000001000)]
    with pytest.raises(LogReadError, match="times as names"):
        open_log(paths).summary  # noqa: B018


@given(st.lists(st.integers(0, 2**64) | st.integers(10**17, MAX_TIME), min_size=1, max_size=5))
def test_any_numbers_are_times_of_one_unit_or_none(numbers):
    found = stamps_of([str(number) for number in numbers])
    if found is not None:
        (factor,) = {stamp // number for stamp, number in zip(found, numbers, strict=True)}
        assert factor in (1, 10**3, 10**6, 10**9)
        assert all(10**17 <= stamp <= MAX_TIME for stamp in found)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_table_with_times_of_its_own_keeps_its_topic_whatever_it_is_called(tmp_path, suffix):
    rows = pd.DataFrame({"timestamp_ns": TIMES, "speed": np.arange(12.0)})
    log = open_log([str(write(rows, tmp_path / f"1700000000{suffix}"))])
    assert {name: info.num_messages for name, info in log.summary.topics.items()} == {"/1700000000": 12}


def test_offsets_of_points_are_no_times_of_rows(tmp_path):
    (tmp_path / "lidar").mkdir()
    paths = [
        str(write(sweep(i).assign(time=0.01), tmp_path / "lidar" / f"{TIMES[i]}.feather")) for i in (1, 2)
    ]
    assert open_log(paths).summary.topics["/lidar"].num_messages == 2


def test_sensors_whose_folders_have_one_name_are_not_mixed(tmp_path):
    paths = write_sweeps(tmp_path / "left" / "lidar") + write_sweeps(tmp_path / "right" / "lidar")
    with pytest.raises(LogReadError, match=r"left/lidar and .*right/lidar: .* which overlap"):
        open_log(paths).summary  # noqa: B018
    parts = write_sweeps(tmp_path / "a" / "lidar", times=TIMES[:6]) + write_sweeps(
        tmp_path / "b" / "lidar", times=TIMES[6:]
    )
    assert open_log(parts).summary.topics["/lidar"].num_messages == 12


def test_sweeps_with_other_columns_and_damaged_ones_name_their_file(tmp_path):
    paths = write_sweeps(tmp_path / "lidar")
    write(pd.DataFrame({"range": [1.0]}), pathlib.Path(paths[5]))
    with pytest.raises(LogReadError, match=f"{TIMES[5]}.feather: has other columns"):
        open_log(paths).summary  # noqa: B018
    pathlib.Path(paths[5]).write_bytes(b"ARROW1 and no more")
    with pytest.raises(LogReadError, match=f"{TIMES[5]}.feather"):
        open_log(paths).summary  # noqa: B018
    salvaged = open_log(paths, OpenOptions("salvage")).summary
    assert salvaged.topics["/lidar"].num_messages == 11
    assert len(salvaged.refusals) == 1


def test_categories_and_lists_in_sweeps(tmp_path):
    (tmp_path / "lidar").mkdir()
    paths = []
    for i, classes in enumerate((["a", "b", "a"], ["c"])):
        made = pa.table(
            {"kind": pa.array(classes).dictionary_encode(), "corners": pa.array([[1.0, 2.0]] * len(classes))}
        )
        paths.append(str(write(made, tmp_path / "lidar" / f"{TIMES[i]}.parquet", rows=2)))
    messages = open_log(paths).read({"/lidar": ALL})["/lidar"]
    found = messages.take(FieldSpec(("rows[].kind",), strings=4), np.arange(2))
    assert [one.tolist() for one in found] == [["a", "b", "a"], ["c"]]
    corners = messages.take(FieldSpec(("rows[].corners",)), np.arange(2))
    assert [[one.tolist() for one in row] for row in corners] == [[[1.0, 2.0]] * 3, [[1.0, 2.0]]]


NAMED = [
    ("{ns}", "1700000000000000001", 1_700_000_000_000_000_001),
    ("lidar_{ns}", "lidar_000000000000000005", 5),
    ("lidar_{us}.feather", "lidar_1532402927647951", 1_532_402_927_647_951_000),
    ("lidar_{ms}", "lidar_1700000000123.25", 1_700_000_000_123_250_000),
    ("{s}", "1305031102.175304", 1_305_031_102_175_304_000),
    ("{s}_{ns}", "1305031102_000000007", 1_305_031_102_000_000_007),
    ("{s}.{us}", "1305031102.175304", 1_305_031_102_175_304_000),
    ("*__LIDAR_TOP__{us}*", "n015-2018-07-24__LIDAR_TOP__1532402927647951.pcd", 1_532_402_927_647_951_000),
    ("*_{s}", "a.b(c)+_1700000000", 1_700_000_000 * 10**9),
]


@pytest.mark.parametrize(("pattern", "stem", "time"), NAMED)
def test_a_pattern_says_where_in_a_name_its_time_stands(pattern, stem, time):
    assert name_problem(pattern) is None
    assert time_in(f"s3://bucket/lidar/{stem}.feather?signed=1", [pattern]) == time
    assert time_in(f"lidar/{stem}-.feather", [pattern.removesuffix("*")]) is None


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("lidar", "has no time"),
        ("{ns}_{ns}", "order units from long to short"),
        ("{ns}_{s}", "order units from long to short"),
        ("{s}{ns}", "put text between"),
        ("{s}*0{ns}", "put text between"),
        ("{hour}", "{hour} is unknown"),
        ("{ns", "{ is unknown"),
        ("lidar/{ns}", "have no /"),
        ("*a*b*{ns}", "more than 2"),
    ],
)
def test_a_pattern_that_says_no_time_is_refused_with_its_line(pattern, said):
    text = RECIPE.format(folder="x", rows=3) + f'time:\n  max_delay: 1s\n  name: "{pattern}"\n'
    with pytest.raises(RecipeError) as caught:
        Recipe.from_yaml(text)
    assert str(caught.value).startswith("recipe.yaml:14: time.name[0]: ")
    assert said in str(caught.value)


@given(st.integers(0, 2**65), st.sampled_from(["s", "ms", "us", "ns"]))
def test_a_named_time_is_exact_or_an_error(number, unit):
    factor = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    if number * factor > MAX_TIME:
        with pytest.raises(LogReadError, match="after the year 2262"):
            time_in(f"x/{number}.csv", [f"{{{unit}}}"])
    else:
        assert time_in(f"x/{number}.csv", [f"{{{unit}}}"]) == number * factor


def write_named(folder, count=4):
    """Sweeps whose points have times of their own, so that only their names tell what they are."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        str(write(sweep(i + 1).assign(timestamp=TIMES[i]), folder / f"lidar_{TIMES[i] // 1000}.feather"))
        for i in range(count)
    ]


BY_NAME = OpenOptions(time_names=("lidar_{us}",))


def test_tables_whose_names_fit_are_sweeps_whatever_their_columns_are(tmp_path):
    paths = write_named(tmp_path / "lidar")
    assert len(open_log(paths).summary.topics) == 4  # each point a message
    info = open_log(paths, BY_NAME).summary.topics["/lidar"]
    assert (info.num_messages, info.first, info.last) == (4, TIMES[0], TIMES[3])
    poses = write(pd.DataFrame({"timestamp_ns": TIMES, "tx": 0.0}), tmp_path / "lidar" / "poses.feather")
    stamped = write_sweeps(tmp_path / "radar", times=TIMES[:3])
    log = open_log([*paths, str(poses), *stamped], BY_NAME)
    assert {name: t.num_messages for name, t in log.summary.topics.items()} == {
        "/lidar": 4,
        "/poses": 12,
        "/radar": 3,
    }


@pytest.mark.parametrize("pattern", ["*{s}*z", "{s}*z", "*{ns}*"])
def test_a_name_of_very_many_digits_is_compared_at_once(pattern):
    """An engine that goes back takes the cube of the length: hours."""
    assert time_in("1" * 20_000 + ".x", [pattern.replace("*{ns}*", "*{ns}*z")]) is None


@pytest.mark.parametrize(
    ("name", "pattern", "time"),
    [
        ("a12b34", "a*{ns}", 12),  # the first that fits, as few characters as may be before it
        ("é(1)\udcff_1700000000.5", "é(1)\udcff_{s}", 1_700_000_000_500_000_000),
        ("\ud800.5\n_7", "\ud800.5*_{us}", 7000),
        ("lidar.x_7", "lidar_x_{us}", None),
    ],
)
def test_names_are_compared_character_by_character_whatever_they_hold(name, pattern, time):
    assert time_in(name, [pattern + "*" if time == 12 else pattern]) == time


def test_a_file_whose_name_does_not_fit_is_named(tmp_path):
    paths = write_named(tmp_path / "lidar")
    odd = str(write(sweep(3).assign(timestamp=TIMES[5]), tmp_path / "lidar" / "lidar_5b.feather"))
    with pytest.raises(LogReadError, match=r"lidar_5b.feather: has the columns of lidar_\d+.feather"):
        open_log([*paths, odd], BY_NAME).summary  # noqa: B018
    plain = str(write(sweep(3), tmp_path / "lidar" / f"{TIMES[3]}.feather"))
    with pytest.raises(LogReadError, match=rf"{TIMES[3]}.feather: has no time column .* time: \{{name:"):
        open_log([*paths, plain], BY_NAME).summary  # noqa: B018
    twice = str(write(sweep(3), tmp_path / "lidar" / f"lidar_0{TIMES[0] // 1000}.feather"))
    with pytest.raises(LogReadError, match=r"its name has the time of"):
        open_log([*paths, twice], BY_NAME).summary  # noqa: B018
    with pytest.raises(LogReadError, match=r"lidar_1700000000_1000000000.feather: .* units .* add up"):
        time_in("lidar_1700000000_1000000000.feather", ["lidar_{s}_{ns}"])


def test_a_recipe_says_how_names_tell_times(tmp_path):
    write_named(tmp_path / "drive-0" / "lidar")
    poses = pd.DataFrame({"timestamp_ns": TIMES + 1_000_000, "tx": np.arange(12.0), "ty": 0.0})
    write(poses, tmp_path / "drive-0" / "poses.feather")
    text = RECIPE.format(folder=tmp_path, rows=3).replace(', "!**/calibration.feather"', "")
    named = text + 'time: {name: "lidar_{us}"}\n'
    recipe = Recipe.from_yaml(named)
    assert Recipe.model_validate(recipe.identity_json()) == recipe
    build_at(recipe, tmp_path / "root")
    points = [row["points"] for row in logloom.datasets.open(str(tmp_path / "root"))]
    for i in range(4):
        np.testing.assert_array_equal(points[i], sweep(i + 1)[["x", "y", "z"]].to_numpy())
    assert not verify(str(tmp_path / "root"), against_logs=True, num_workers=1).findings
    build_at(Recipe.from_yaml(named.replace("us", "ns")), tmp_path / "root")  # other times, other rows
    far = [row["points"] for row in logloom.datasets.open(str(tmp_path / "root"))]
    assert [len(points) for points in far] == [0] * len(far)
    with pytest.raises(RecipeError, match=r"recipe.yaml:12: time.name\[0\]: no file of .* 'radar_\{us\}'"):
        expand_logs(Recipe.from_yaml(named.replace("lidar_{us}", "radar_{us}")))


@pytest.mark.parametrize("is_told", [True, False])
def test_a_sweep_that_is_renamed_is_taken_at_its_new_time(tmp_path, is_told):
    folder = tmp_path / "lidar"
    paths = write_named(folder) if is_told else write_sweeps(folder, times=TIMES[:4])
    pattern = "lidar_{us}" if is_told else ""
    recipe = Recipe.from_yaml(
        f'name: named\nlogs: {tmp_path}/lidar/*.feather\nlog_id: "{{parent}}"\n'
        + f'time: {{name: "{pattern}"}}\n' * is_told
        + "clock: {topic: /lidar}\noutputs: {table: {}}\n"
        'columns: {x: {topic: /lidar, field: "rows[].x", resample: exact}}\n'
    )
    build_at(recipe, tmp_path / "root")
    moved = TIMES[1] + 5_000_000
    path = pathlib.Path(paths[1])
    path.rename(path.with_stem(f"lidar_{moved // 1000}" if is_told else str(moved)))
    build_at(recipe, tmp_path / "root")
    found = [row["timestamp"] for row in logloom.datasets.open(str(tmp_path / "root"))]
    assert found == [TIMES[0], moved, *TIMES[2:4]]
