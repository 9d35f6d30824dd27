"""Logs that a table lists, and logs that may still be written."""

import os
import shutil
import time

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from logloom.errors import RecipeError, UsageError
from logloom.io.manifest import read_manifest
from logloom.io.storage import Store
from logloom.pipelines.plan import plan_build
from logloom.pipelines.plan_summary import plan_summary
from logloom.pipelines.verify import verify
from logloom.recipe import Recipe
from logloom.recipe.logs import expand_logs
from tests.pipelines.conftest import build_at

COLUMNS = {"split": ["train", "val"], "city": ["Zurich", None], "rain": [0.5, None], "night": [True, None]}


def listing(drive, folder, said="uri: path", suffix=".parquet", **columns):
    """A recipe over a table that lists the logs of a drive, beside copies of them."""
    folder.mkdir(exist_ok=True)
    for log in drive.logs:
        shutil.copy2(log, folder)
    rows = {"path": [log.name for log in drive.logs], "name": ["monday/one", "two"], **COLUMNS, **columns}
    table = pa.table(rows)
    write = {
        ".parquet": pa.parquet.write_table,
        ".feather": pa.feather.write_feather,
        ".csv": pa.csv.write_csv,
    }
    write[suffix](table, str(folder / f"drives{suffix}"))
    text = drive.text[: drive.text.index("outputs:")] + "outputs:\n  tar: {columns: [ego.position]}\n"
    (line,) = [line for line in text.splitlines() if line.startswith("logs:")]
    return Recipe.from_yaml(text.replace(line, f"logs: {{table: '{folder}/drives{suffix}', {said}}}"))


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".csv"])
def test_a_table_lists_the_logs_their_names_and_their_splits(drive, tmp_path, suffix):
    recipe = listing(drive, tmp_path / "a", "uri: path, log_id: name, split: split", suffix)
    found = expand_logs(recipe)
    assert [(log.log_id, log.split) for log in found] == [("monday/one", "train"), ("two", "val")]
    assert found[0].uris == (str(tmp_path / "a" / drive.logs[0].name),)
    plain = expand_logs(listing(drive, tmp_path / "a", suffix=suffix))
    assert [(log.log_id, log.split) for log in plain] == [(log.stem, "") for log in drive.logs]


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("city == 'Zurich'", ["monday/one"]),
        ("rain < 2", ["monday/one"]),
        ("not night", ["two"]),
        ("split in ['val', 'train'] and not rain < 2", ["two"]),
        ("rain > 9", []),
    ],
)
def test_a_filter_over_the_tables_columns_chooses_logs(drive, tmp_path, where, names):
    recipe = listing(drive, tmp_path / "a", f'uri: path, log_id: name, where: "{where}"')
    assert [log.log_id for log in expand_logs(recipe)] == names


@pytest.mark.parametrize(
    ("said", "columns", "problem"),
    [
        ("uri: pth", {}, r"uri: no column 'pth'; there are path, name"),
        ("uri: path, split: city", {}, r"row 1: city is None; expected a text"),
        ("uri: rain", {}, r"row 0: rain is 0.5; expected a text"),
        ("uri: path, where: 'town == 3'", {}, r"no column 'town'; did you mean 'rain'\?|no column 'town'"),
        ("uri: path, where: 'city < 3'", {}, "a text is compared with a number"),
        ("uri: path", {"path": ["gone.mcap", "drive-01.mcap"]}, r"gone\.mcap"),
        ("uri: path, log_id: name", {"name": ["..", "b"]}, "can't be a log_id"),
        ("uri: path, split: split", {"split": ["a/b", "c"]}, "split 'a/b' is no name"),
        ("uri: path, split: split", {"path": ["drive-00.mcap"] * 2}, "two rows with other names or splits"),
    ],
)
def test_a_table_that_makes_no_sense_is_named_with_its_row(drive, tmp_path, said, columns, problem):
    with pytest.raises(RecipeError, match=problem):
        expand_logs(listing(drive, tmp_path / "a", said, **columns))


def test_a_damaged_or_missing_table_is_named(drive, tmp_path):
    recipe = listing(drive, tmp_path / "a")
    path = tmp_path / "a" / "drives.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RecipeError, match=r"drives\.parquet: no table, or a damaged one"):
        expand_logs(recipe)
    path.unlink()
    with pytest.raises(RecipeError, match=r"drives\.parquet: there is no such table"):
        expand_logs(recipe)


def test_a_version_of_listed_logs_is_whole_and_follows_the_table(drive, tmp_path):
    said = "uri: path, log_id: name, split: split"
    root = tmp_path / "root"
    made = build_at(listing(drive, tmp_path / "a", said), root).manifest
    assert [(log.log_id, log.split) for log in made.logs] == [("monday/one", "train"), ("two", "val")]
    assert (root / "v00000001" / "tar" / "train").is_dir()
    assert verify(str(root), 1, num_workers=1).findings == ()
    plan = plan_build(listing(drive, tmp_path / "a", said), str(root))
    assert plan.up_to_date
    assert set(plan_summary(plan)["splits"]) == {"train", "val"}
    assert plan_summary(plan)["warnings"] == []
    moved = plan_build(listing(drive, tmp_path / "a", said, split=["train", "train"]), str(root))
    assert [log.task.log_id for log in moved.logs] == ["two"]
    stored = read_manifest(Store.at(str(root))).recipe
    assert stored["logs"]["split"] == "split"
    assert Recipe.model_validate(stored).logs == listing(drive, tmp_path / "a", said).logs


def test_a_log_that_may_still_be_written_waits_for_a_later_build(drive, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    for log in drive.logs:
        shutil.copy(log, logs)
    line = next(line for line in drive.text.splitlines() if line.startswith("logs:"))
    text = drive.text.replace(line, f'logs: ["{logs}/*.mcap"]').split("outputs:")[0]
    text += "outputs:\n  tar: {columns: [ego.position]}\n"
    # Their inodes changed just now, so that all of them have to wait; a later listing finds them settled.
    with pytest.raises(UsageError, match="none of 2 logs is to be built: 2 may still be written"):
        plan_build(Recipe.from_yaml(f"{text}settle: 30m\n"), str(tmp_path / "root"))
    plan = plan_build(Recipe.from_yaml(f"{text}settle: 1ns\n"), str(tmp_path / "root"))
    assert (len(plan.logs), plan.num_unsettled) == (2, 0)
    one, two = sorted(logs.iterdir())
    os.utime(two, (time.time() + 5, time.time() + 5))
    plan = plan_build(Recipe.from_yaml(f"{text}settle: 1ns\n"), str(tmp_path / "root"))
    assert [log.task.log_id for log in plan.logs] == [one.stem]
    assert plan_summary(plan)["logs_unsettled"] == 1
    assert any(two.stem in note and "left for a later build" in note for note in plan.notes)
    build_at(Recipe.from_yaml(text), tmp_path / "root")
    two.write_bytes(two.read_bytes()[:-100])
    os.utime(two, (time.time() + 5, time.time() + 5))
    plan = plan_build(Recipe.from_yaml(f"{text}settle: 1ns\n"), str(tmp_path / "root"))
    assert plan.up_to_date  # what the version has of it stays, neither gone nor read
    assert plan.num_unsettled == 1
