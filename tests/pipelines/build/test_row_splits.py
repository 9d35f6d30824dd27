"""Recipes that split single rows: by place, by time and by a column, in every output that keeps columns."""

import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest

import logloom.datasets as logloom_datasets
from logloom.datasets.splits.separation import version_splits
from logloom.errors import DatasetError, RecipeError, UsageError
from logloom.io.catalog.manifest import open_root, read_manifest
from logloom.io.catalog.pages import LogRecord, records_of, table_of
from logloom.io.storage.store import Store
from logloom.pipelines.convert.convert import convert
from logloom.pipelines.convert.plan import plan_convert
from logloom.pipelines.convert.sources import open_source
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.plan.summary import in_words, plan_summary
from logloom.pipelines.report import report as report_module
from logloom.pipelines.report.card import card_of
from logloom.pipelines.report.page import page_of
from logloom.pipelines.report.report import report_of
from logloom.pipelines.stats.splits import built_splits, empty_row_splits
from logloom.pipelines.stats.stats import column_statistics
from logloom.pipelines.verify import verify as verify_module
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.view import files_of
from logloom.recipe import Recipe
from logloom.statistics.columns import Statistics
from logloom.text import human_duration
from tests.absent import present
from tests.cases import case
from tests.once import copied
from tests.pipelines.conftest import build_at, restate
from tests.pipelines.test_commands import logloom

SHARES = {"train": 0.5, "val": 0.3, "test": 0.2}
NAMES = "train: 0.5, val: 0.3, test: 0.2"
PLACE = f"split: {{{NAMES}, by: place, position: ego.position, cell: 8m, gap: 1m}}\n"
TIME = f"split: {{{NAMES}, by: time, cell: 1s, gap: 200ms}}\n"
NEAREST = {"m": "nearest", "s": "nearest_in_time"}
FORMATS = dict.fromkeys(present("tar", "zarr", "parquet", "table"), "{}")
_FEW = """
  ego.position: {topic: /odom, field: pose.pose.position, resample: linear, unit: m}
  ego.speed: {topic: /odom, field: twist.twist.linear.x}
  beats: {topic: /imu, field: angular_velocity.z, resample: count, window: [-50ms, 0ms]}
"""


@pytest.fixture(scope="module")
def drive(long_drive):
    return long_drive


def few(drive, outputs="tar: {}", rows=20):
    """The recipe with columns that are quick to build."""
    head = drive.text[: drive.text.index("columns:")]
    return f"{head}columns:{_FEW}outputs: {{{outputs}}}\npartition: {{rows: {rows}}}\n"


def told(rows):
    """What tells rows apart, in order, with their splits."""
    return [(row["log_id"], int(row["timestamp"]), row["split"]) for row in rows]


@pytest.fixture(scope="module")
def plain(drive, root_of):
    """The same rows, not split."""
    return logloom_datasets.open(root_of(Recipe.from_yaml(few(drive))))


@pytest.fixture(scope="module")
def split_root(drive, root_of):
    outputs = ", ".join(f"{name}: {options}" for name, options in FORMATS.items())
    return root_of(Recipe.from_yaml(few(drive, outputs) + PLACE))


@pytest.fixture(scope="module")
def time_root(drive, root_of):
    return root_of(Recipe.from_yaml(few(drive) + TIME))


def expected(plain, **asked):
    parts = logloom_datasets.split(plain, SHARES, **asked)
    index = {name: part.index for name, part in parts.items()}
    return sorted(
        (log_id, stamp, name)
        for name, one in index.items()
        for log_id, stamp in zip(one["log_id"], one["timestamp"], strict=True)
    )


def by_place(plain):
    return expected(plain, by="place", position="ego.position", cell=8, gap=1)


def test_a_build_splits_rows_as_training_would_for_any_partitions_and_in_any_format(
    drive, plain, split_root, tmp_path
):
    wanted = by_place(plain)
    assert 0 < len(wanted) < len(plain)
    assert len({name for *_, name in wanted}) > 1
    build_at(Recipe.from_yaml(few(drive, rows=1000) + PLACE), tmp_path / "one")
    for root, formats in ((split_root, FORMATS), (tmp_path / "one", ["tar"])):
        for output in formats:
            rows = logloom_datasets.open(root, output=output)
            assert told(rows) == wanted, output
            assert rows.index["split"].tolist() == [name for *_, name in wanted]
            for name in SHARES:
                part = logloom_datasets.open(root, output=output, split=name)
                assert told(part) == [one for one in wanted if one[2] == name]
    found = verify(str(split_root), against_logs=True, num_workers=1)
    assert not found.findings


def test_what_a_version_says_of_the_rows_of_its_splits(split_root, plain, capsys):
    manifest = read_manifest(Store.at(str(split_root)), 1)
    wanted = by_place(plain)
    for record in manifest.logs:
        own = [name for log_id, _, name in wanted if log_id == record.log_id]
        assert record.split == "all"
        assert record.splits == {name: own.count(name) for name in sorted(set(own))}
        assert record.planned == record.rows + sum(record.dropped.values())
    left_out = len(plain) - len(wanted)
    dropped = manifest.logs.dropped
    assert dropped["split gap"] + dropped["split without ego.position"] == left_out
    assert min(dropped.values()) > 0
    found = version_splits(str(split_root), "ego.position")
    assert list(found.counts) == list(SHARES)
    assert {name: one["rows"] for name, one in found.counts.items()} == {
        name: sum(one[2] == name for one in wanted) for name in SHARES
    }
    assert (found.left_out, found.guaranteed, found.of_rows) == (left_out, "1m", True)
    assert min(pair.metres for pair in found.nearest) >= 1
    assert built_splits(manifest) == found.counts
    empty = [name for name, one in found.counts.items() if not one["rows"]]
    warnings = empty_row_splits(found.counts)
    assert [text.partition(":")[0] for text in warnings] == [f"split {name!r} gets no row" for name in empty]
    page = report_of(*open_root(Store.at(str(split_root))))
    counted = {one.name: one.rows for one in page.splits}
    assert b"train" in page_of(page)
    card = card_of(*open_root(Store.at(str(split_root)))).decode()
    assert "split: rows\n" in card
    assert "path: tar/all/*.tar" in card
    assert counted == {name: one["rows"] for name, one in found.counts.items() if one["rows"]}


def test_a_version_is_measured_by_the_position_or_the_time_of_its_recipe(split_root, time_root):
    found = version_splits(str(split_root), None)
    assert found == version_splits(str(split_root), "ego.position")
    assert len(found.nearest) == 3
    shown = logloom("stats", split_root, "--splits").stdout
    assert f"train and val: {found.nearest[0].metres:.6g} m apart" in " ".join(shown.split())
    rows = logloom_datasets.open(time_root)
    stamps = {name: [row["timestamp"] for row in rows if row["split"] == name] for name in SHARES}
    told_of = version_splits(str(time_root), None)
    for pair in told_of.nearest_in_time:
        one, other = (np.array(stamps[name], np.int64) for name in pair.splits)
        apart = np.abs(one[:, None] - other[None, :])
        assert pair.apart == (apart.min() / 1e9 if apart.size else math.inf)
        assert pair.apart >= 0.2
        if pair.rows:
            assert abs(pair.rows[0][1] - pair.rows[1][1]) == apart.min()
    assert any(math.isfinite(pair.apart) for pair in told_of.nearest_in_time)
    (first, *_) = json.loads(logloom("stats", time_root, "--splits", "--json").stdout)["nearest_in_time"]
    assert first["splits"] == ["train", "val"]


@pytest.mark.parametrize(
    ("made", "unit", "bound", "more"), [("split_root", "m", 1.0, "8m"), ("time_root", "s", 0.2, "1s")]
)
def test_a_version_keeps_the_bound_of_its_rule_and_rows_that_break_it_are_told(
    request, tmp_path, made, unit, bound, more
):
    root = copied(request.getfixturevalue(made), tmp_path / "root")
    said = json.loads(logloom("stats", root, "--splits", "--json").stdout)
    pairs = [pair["metres" if unit == "m" else "seconds"] for pair in said[NEAREST[unit]]]
    measured = min(apart for apart in pairs if apart is not None)
    assert said["least"] == {"bound": bound, "unit": unit, "measured": measured, "is_kept": True}
    lengths = {length: human_duration(round(length * 1e9)) for length in (bound, measured)}
    if unit == "m":
        lengths = {length: f"{length:.9g} m" for length in lengths}
    kept = f"the bound of {lengths[bound]}, which the version's rule sets, is kept"
    assert kept in " ".join(logloom("stats", root, "--splits").stdout.split())
    manifest = read_manifest(Store.at(str(root)), 1)
    split = {**manifest.recipe["split"], "gap": more}  # as if its rows were cut by a larger gap
    restate(root, lambda record: record, recipe={**manifest.recipe, "split": split})
    told_of = logloom("stats", root, "--splits", "--json")
    assert told_of.returncode == 3
    assert json.loads(told_of.stdout)["least"]["is_kept"] is False
    assert f"rows of two splits are {lengths[measured]} apart" in " ".join(told_of.stderr.split())
    assert "`logloom verify`" in told_of.stderr
    assert " is kept" not in logloom("stats", root, "--splits").stdout


def test_a_version_without_the_column_of_positions_is_counted_alone(drive, tmp_path):
    text = few(drive, "bags: {columns: [ego.speed]}") + PLACE
    build_at(Recipe.from_yaml(text), tmp_path / "root")
    found = version_splits(str(tmp_path / "root"), None)
    assert (found.nearest, found.guaranteed) == ((), "1m")
    shown = logloom("stats", tmp_path / "root", "--splits").stdout
    assert "m apart (" not in shown
    assert "wasn't measured" in shown
    assert json.loads(logloom("stats", tmp_path / "root", "--splits", "--json").stdout)["least"] == {
        "bound": 1.0,
        "unit": "m",
        "measured": None,
        "is_kept": None,
    }


def test_views_filters_windows_and_copies_keep_to_splits(split_root, tmp_path):
    rows = logloom_datasets.open(split_root, output="tar")
    train = logloom_datasets.open(split_root, split="train")
    assert list(rows.index["split"].cat.categories) == sorted(SHARES)
    others = logloom_datasets.open(split_root, split=["val", "test"])
    assert len(train) + len(others) == len(rows)
    assert told(logloom_datasets.open(split_root, where="split == 'train'")) == told(train)
    for view in (rows, train, others):
        windows = view.window([-1, 0], max_gap=None)
        assert len(windows) < len(view)
        assert all(len(set(window["split"])) == 1 for window in windows)
    both = logloom_datasets.concat([train, rows.take(4)])
    assert both.index["split"].tolist() == [row["split"] for row in both]
    assert all(len(set(window["split"])) == 1 for window in both.window([-1, 0], max_gap=None))
    mixed = logloom_datasets.mix({"a": (train, 0.5), "b": (others, 0.5)}, seed=1)
    assert {mixed[number]["split"] for number in range(20)} <= set(SHARES)

    folder = split_root / "v00000001" / "tar" / "all"
    assert len(logloom_datasets.open(folder)) == len(rows)
    assert told(logloom_datasets.open(folder, split="train")) == told(train)
    shutil.copytree(folder, tmp_path / "copy")
    copy = logloom_datasets.open(tmp_path / "copy", split="train")
    assert told(copy) == told(train)
    assert told(logloom_datasets.open(tmp_path / "copy", where="split == 'train'")) == told(train)
    with pytest.raises(UsageError, match=r"no split 'trian'.*train"):
        logloom_datasets.open(tmp_path / "copy", split="trian")
    with pytest.raises(UsageError, match=r"no split 'trian'.*train"):
        logloom_datasets.open(split_root, split="trian")
    frame = pd.concat(map(pd.read_parquet, sorted((split_root / "v00000001/parquet/all").glob("*.parquet"))))
    assert frame["split"].tolist() == [row["split"] for row in rows]


def test_a_conversion_keeps_the_splits_of_rows(split_root, tmp_path):
    convert(plan_convert(open_source(str(split_root)), str(tmp_path / "other"), "bags"))
    made = logloom_datasets.open(tmp_path / "other", split="train")
    assert told(made) == told(logloom_datasets.open(split_root, split="train"))
    assert [one.splits for one in read_manifest(Store.at(str(tmp_path / "other")), 1).logs] == [
        one.splits for one in read_manifest(Store.at(str(split_root)), 1).logs
    ]


def test_what_takes_whole_files_says_that_rows_are_split(split_root):
    store = Store.at(str(split_root))
    with pytest.raises(UsageError, match="single rows are split, by their column `split`"):
        files_of(store, read_manifest(store, 1), split="train")


def test_statistics_of_a_split_of_rows_are_those_of_its_rows(split_root, monkeypatch):
    whole = column_statistics(str(split_root))
    parts = []
    for name in SHARES:
        rows = logloom_datasets.open(split_root, split=name)
        if not len(rows):
            continue
        found = column_statistics(str(split_root), split=name, num_workers=1)
        assert (found.splits, found.rows) == ((name,), len(rows))
        assert found.logs == len(set(rows.index["log_id"]))
        said = found.columns()
        assert said["ego.speed"] == rows.stats("ego.speed")
        assert said["ego.speed.age"] == rows.stats("ego.speed.age")
        speeds = np.array([row["ego.speed"] for row in rows])
        assert (said["ego.speed"]["count"], said["ego.speed"]["max"]) == (len(rows), speeds.max())
        assert said["ego.speed"]["mean"] == pytest.approx(speeds.mean(), rel=1e-15)
        some = column_statistics(str(split_root), split=name, columns=["beats"], every_value=True)
        assert some.columns() == {key: said[key] for key in ("beats", "beats.age")}
        parts.append(found.statistics)
    assert len(parts) > 1
    assert Statistics.merged(parts) == whole.statistics
    monkeypatch.setattr(verify_module, "_ALONE_S", -1)  # even a short reading has its processes
    assert column_statistics(str(split_root), split=name, num_workers=2) == found
    with pytest.raises(UsageError, match=r"no split 'trian'; did you mean train"):
        column_statistics(str(split_root), split="trian")


def test_a_page_tells_columns_by_split_of_rows_and_which_split_each_sample_is_in(split_root, monkeypatch):
    page = report_of(*open_root(Store.at(str(split_root))))
    names = [one.name for one in page.splits]
    assert list(page.statistics) == ["", *names]
    assert page.statistics[""] == column_statistics(str(split_root))
    assert page.statistics["train"] == column_statistics(str(split_root), split="train")
    of_row = [split for *_, split in told(logloom_datasets.open(split_root, output="table"))]
    assert [one.split for one in page.samples.rows] == [of_row[one.row] for one in page.samples.rows]
    records = list(read_manifest(Store.at(str(split_root)), 1).logs)
    assert [line.splits for line in page.lines] == [tuple(record.splits) for record in records]
    html = page_of(page).decode()
    assert '<option value="train">train</option>' in html
    assert "Splits are of single rows" not in html
    several = "\n".join(records[0].splits)
    assert "\n" in several
    assert f'data-in="{several}"' in html
    monkeypatch.setattr(report_module, "MAX_READ", 1000)
    large = report_of(*open_root(Store.at(str(split_root))))
    assert list(large.statistics) == [""]
    assert "it requires reading rows of more than" in page_of(large).decode()
    asked = report_of(*open_root(Store.at(str(split_root))), every_log=True)
    assert asked.statistics == page.statistics


@pytest.mark.parametrize(("options", "may_lack"), [("{}", False), ("{columns: [ego.speed]}", True)])
def test_a_plan_notes_outputs_that_may_lack_the_splits_of_rows(drive, tmp_path, options, may_lack):
    recipe = Recipe.from_yaml(few(drive, f"tar: {options}") + TIME)
    notes = plan_build(recipe, str(tmp_path / "root")).notes
    assert (
        any("output tar doesn't have all columns, so perhaps no `split`" in one for one in notes) == may_lack
    )


def test_an_empty_split_is_warned_of_and_statistics_of_the_other_read_no_log(drive, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    lonely = "split: {train: 0.999999, val: 0.000001, by: time, cell: 1h, gap: 1s}\n"
    recipe.write_text(few(drive) + lonely)
    plan = plan_build(Recipe.load(str(recipe)), str(tmp_path / "root"))
    summary = plan_summary(plan)
    every = {"logs": len(drive.logs), "rows_at_most": plan.num_ticks}
    assert summary["splits"] == {"train": every, "val": every}
    told_people = in_words("splits", summary["splits"])
    bound = f"at most {plan.num_ticks} rows of {len(drive.logs)} logs"
    assert told_people == f"train {bound}, val {bound}"  # a row falls into one of them, nobody knows which
    assert summary["warnings"] == []
    assert any("single rows are split, by time" in note for note in plan.notes)
    built = logloom("build", recipe, "--to", tmp_path / "root", "--json", "--quiet")
    said = json.loads(built.stdout)
    assert said["splits"]["val"] == {"logs": 0, "rows": 0}
    assert said["splits"]["train"] == {"logs": len(drive.logs), "rows": said["rows"]}
    (warning,) = said["warnings"]
    assert "split 'val' gets no row" in warning
    assert built.stderr.count(warning) == 1
    again = plan_summary(plan_build(Recipe.load(str(recipe)), str(tmp_path / "root")))
    assert again["up_to_date"]
    assert again["splits"]["train"]["rows_at_most"] == said["rows"]
    shown = json.loads(logloom("stats", tmp_path / "root", "--splits", "--json").stdout)
    assert shown["splits"] == said["splits"]
    assert (shown["gap"], shown["warnings"]) == ("1s", said["warnings"])
    # All rows of each log are in one split, so its statistics are those of the log.
    found = column_statistics(str(tmp_path / "root"), split="train")
    assert (found.read, found.logs) == (0, len(drive.logs))
    assert found.statistics == column_statistics(str(tmp_path / "root")).statistics
    read = column_statistics(str(tmp_path / "root"), split="train", every_value=True)
    assert (read.read, read.columns()) == (len(drive.logs), found.columns())


def test_rows_are_split_by_time_and_by_a_column_as_training_would(drive, plain, time_root, tmp_path):
    build_at(Recipe.from_yaml(few(drive) + f"split: {{{NAMES}, by: {{column: beats}}}}\n"), tmp_path / "root")
    for root, asked in (
        (time_root, {"by": "time", "cell": 1, "gap": 0.2}),
        (tmp_path / "root", {"by": "beats"}),
    ):
        rows = logloom_datasets.open(root)
        with case(asked):
            assert told(rows) == expected(plain, **asked)
            assert len(set(rows.index["split"])) > 1


def test_logs_that_arrive_leave_the_rows_of_others_where_they_are(drive, tmp_path):
    text = few(drive) + PLACE
    one = text.replace("*.mcap", drive.logs[0].name)
    assert one != text
    build_at(Recipe.from_yaml(one), tmp_path / "root")
    before = told(logloom_datasets.open(tmp_path / "root"))
    first = read_manifest(Store.at(str(tmp_path / "root")), 1).logs[0]
    built = build_at(Recipe.from_yaml(text), tmp_path / "root")
    assert built.manifest.logs[0] == first
    assert len(built.manifest.logs) == len(drive.logs)
    assert before == [one for one in told(logloom_datasets.open(tmp_path / "root")) if one in before]


NO_SENSE = [
    (
        "{a: 1, by: place, position: ego.positoin, cell: 5m}",
        r":\d+: split.position: no column 'ego.positoin'; did",
    ),
    (
        "{a: 1, by: place, position: ego.speed, cell: 5m}",
        r":\d+: split.position: ego.speed is float64; a pos",
    ),
    (
        "{a: 1, by: place, position: degrees, cell: 5m}",
        r":\d+: split.position: degrees is .* in deg; pos.*degrees",
    ),
    (
        "{a: 1, by: place, position: ego.position, cell: 5m, gap: 6m}",
        r":\d+: split: .*at least as large as the gap",
    ),
    ("{a: 1, by: place, position: ego.position, cell: 0m}", "must be larger than 0"),
    ("{a: 1, by: place, position: ego.position}", "by: place needs a `cell`"),
    ("{a: 1, by: place, cell: 5m}", "by: place needs a `position`"),
    ("{a: 1, by: place, position: ego.position, cell: 500}", r":\d+: split.cell: 500 has no unit.*500m"),
    ("{a: 1, by: place, position: ego.position, cell: 5s}", "unknown unit 's'; there are mm"),
    ("{a: 1, by: place, position: ego.position, cell: -5m}", "is negative"),
    ("{a: 1, by: place, position: ego.position, cell: .inf}", "is not a distance; write it like 500m"),
    ("{a: 1, by: time, cell: 5m, position: ego.position}", "position: goes with by: place"),
    ("{a: 1, by: time, cell: 5km}", "unknown unit 'km'"),
    ("{a: 0.5, b: 0.4, by: time, cell: 5m}", r"shares sum to 0\.9, not to 1"),
    ("{a: 1, by: {column: city}}", r":\d+: split.by.column: no column 'city'"),
    ("{a: 1, by: {column: ego.speed}}", "ego.speed is float64; rows are split by a column of texts"),
    ("{a: 1, by: {column: }}", "split.by.column"),
    ("{a: 1, by: {column: beats, cell: 5m}}", "cell: unknown key"),
    ("{a: 1, by: {column: beats}, cell: 5m}", "cell: goes with by: place and by: time"),
    ("{a: 1, cell: 5m}", "cell: goes with by: place and by: time"),
    ('{a: 1, by: "{beats}"}', "{column: beats} splits rows by that column"),
    ("{a: 1, by: [place]}", "split.by"),
]


def test_a_split_that_makes_no_sense_is_a_mistake_of_its_line(drive, tmp_path):
    text = few(drive)
    text = text.replace(
        "outputs:", "  degrees: {topic: /odom, field: pose.pose.position, unit: deg}\noutputs:"
    )
    for split, why in NO_SENSE:
        with case(split), pytest.raises(RecipeError, match=why):
            plan_build(Recipe.from_yaml(f"{text}split: {split}\n"), str(tmp_path / "root"))


def test_a_column_called_split_is_in_the_way_of_rows_splits_alone(drive):
    text = few(drive).replace("ego.speed:", "split:")
    with pytest.raises(
        RecipeError, match=r":\d+: columns.split: the split of rows is stored in a column split"
    ):
        Recipe.from_yaml(text + PLACE)
    assert Recipe.from_yaml(f'{text}split: {{a: 1, by: "{{parent}}"}}\n').row_split is None


def test_recipes_that_split_logs_or_rows_are_stored(drive):
    recipe = Recipe.from_yaml(few(drive) + "split: {b: 0.5, a: 0.5}\n")
    assert recipe.identity_json()["split"].items() >= {"by": "log_id", "b": "0.5", "a": "0.5"}.items()
    assert Recipe.model_validate(recipe.identity_json()) == recipe
    split = Recipe.from_yaml(few(drive) + PLACE)
    assert Recipe.from_yaml(split.to_yaml()) == split
    assert Recipe.model_validate(split.identity_json()) == split
    assert list(Recipe.model_validate(split.identity_json()).split.shares) == list(SHARES)


def test_damaged_counts_of_splits_are_refused(split_root, tmp_path):
    record = LogRecord("a", ("a.mcap",), "c", "all", "k", "whole", "", 3, 3, {}, 0)
    table = table_of([record])
    assert records_of(table, "x") == [record]
    root = shutil.copytree(split_root, tmp_path / "root")

    def lie(record):
        counts = {name: count + 1 for name, count in record.splits.items()}
        return LogRecord(**{**vars(record), "splits": counts})

    restate(root, lie)
    assert any("counted splits" in finding.message for finding in verify(str(root), num_workers=1).findings)
    damaged = table.set_column(table.schema.get_field_index("splits"), "splits", [['{"../up": -1}']])
    with pytest.raises(DatasetError, match="row 0"):
        records_of(damaged, "x")
