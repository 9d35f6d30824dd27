"""Logs that a table lists, and logs that may still be written."""

import datetime
import os
import pathlib
import shutil
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import logloom.io.formats.table as tt
from logloom.digests import share_of
from logloom.errors import RecipeError, UsageError
from logloom.io.catalog.entries import unit_folder
from logloom.io.catalog.manifest import as_laid_out, read_manifest
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.plan.summary import plan_summary
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.versions.diff import LogChanges
from logloom.pipelines.versions.rollback import plan_drop
from logloom.recipe import Recipe
from logloom.recipe.logs import expand_logs
from logloom.transforms.build.settings import BuildSettings
from tests.absent import needs
from tests.pipelines.conftest import build_at

COLUMNS = {"split": ["train", "val"], "city": ["Zurich", None], "rain": [0.5, None], "night": [True, None]}


OUTPUTS = "  tar: {columns: [ego.position]}\n"
FED = """  l5kit: {translation: ego.position, rotation: ego.rotation}
  table: {columns: [ego.position, ego.speed], index: [ego.speed]}
"""


def listing(drive, folder, said="uri: path", suffix=".parquet", outputs=OUTPUTS, **columns):
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
    text = f"{drive.text[: drive.text.index('outputs:')]}outputs:\n{outputs}"
    (line,) = [line for line in text.splitlines() if line.startswith("logs:")]
    return Recipe.from_yaml(text.replace(line, f"logs: {{table: '{folder}/drives{suffix}', {said}}}"))


def test_what_the_table_says_of_a_log_decides_its_split(drive, tmp_path):
    """Logs of one city are in one split, whatever they are called; what is said later moves them."""
    split = 'split: {train: 0.5, val: 0.5, by: "{city}-{night}"}\n'

    def recipe(*cities):
        said = {"city": cities, "night": [True, True]}
        return listing(
            drive, tmp_path / "a", "uri: path, index: [city, night]", outputs=OUTPUTS + split, **said
        )

    shares = recipe("Bern", "Bern").split.shares
    told = {city: share_of(f"{city}-true", shares) for city in ("Bern", "Zug", "Chur", "Zermatt", "Visp")}
    one, other = "Bern", next(city for city, split in told.items() if split != told["Bern"])
    empty = BuildSettings(allow_empty=True)
    manifest = build_at(recipe(one, one), tmp_path / "root", settings=empty).manifest
    assert [record.split for record in manifest.logs] == [told[one]] * 2
    assert verify(str(tmp_path / "root")).findings == ()
    built = build_at(recipe(one, other), tmp_path / "root")
    assert [record.split for record in built.manifest.logs] == [told[one], told[other]]
    assert build_at(recipe(one, other), tmp_path / "root").manifest.version == built.manifest.version
    with pytest.raises(RecipeError, match=r"split.by: \{town\} is unknown.*\{log_id\}.*\{city\}, \{night\}"):
        Recipe.from_yaml(
            "name: x\nlogs: {table: a.csv, uri: path, index: [city, night]}\nclock: {rate: 1}\n"
            'columns: {a: {topic: /a, field: x}}\nsplit: {train: 1, by: "{town}"}\noutputs: {table: {}}\n'
        )


def test_a_column_called_as_a_part_of_the_uri_leaves_splits_as_they_were(drive, tmp_path):
    split = 'split: {train: 0.5, val: 0.5, by: "{parent}"}\n'
    said = {"parent": ["here", "there"]}
    recipe = listing(drive, tmp_path / "a", "uri: path, index: [parent]", outputs=FED + split, **said)
    settings = BuildSettings(allow_empty=True)
    manifest = build_at(recipe, tmp_path / "root", settings=settings).manifest
    folder = share_of(os.path.basename(os.path.dirname(manifest.logs[0].uris[0])), recipe.split.shares)
    assert [record.split for record in manifest.logs] == [folder] * 2


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".csv"])
def test_a_table_lists_the_logs_their_names_and_their_splits(drive, tmp_path, suffix):
    recipe = listing(drive, tmp_path / "a", "uri: path, log_id: name, split: split", suffix)
    found = expand_logs(recipe)
    assert [(log.log_id, log.split) for log in found] == [("monday/one", "train"), ("two", "val")]
    assert found[0].uris == (str(tmp_path / "a" / drive.logs[0].name),)
    plain = expand_logs(listing(drive, tmp_path / "a", suffix=suffix))
    assert [(log.log_id, log.split) for log in plain] == [(log.stem, "") for log in drive.logs]


def test_a_plan_tells_how_many_files_its_logs_are_of(drive, tmp_path):
    recipe = listing(drive, tmp_path / "a", "uri: path, log_id: name", name=["one", "one"])
    summary = plan_summary(plan_build(recipe, str(tmp_path / "root")))
    assert (summary["logs_to_read"], summary["files_to_read"]) == (1, 2)


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("city == 'Zurich'", ["monday/one"]),
        ("rain < 2", ["monday/one"]),
        ("not available(night)", ["two"]),
        ("split in ['val', 'train'] and not available(rain)", ["two"]),
        ("driven > '2026-01-01' and rain * 2 < 3 and len(city) > 5", ["monday/one"]),
        ("not driven > '2026-02-01'", ["monday/one"]),
    ],
)
def test_a_filter_over_the_tables_columns_chooses_logs(drive, tmp_path, where, names):
    driven = pa.array([datetime.datetime(2026, 1, 2), None])
    said = f'uri: path, log_id: name, where: "{where}"'
    recipe = listing(drive, tmp_path / "a", said, driven=driven)
    assert [log.log_id for log in expand_logs(recipe)] == names


@pytest.mark.parametrize(
    "where",
    ["gear == 0", "not gear == 1", "gear in (0, 5)", "gear != 9007199254740992", "not night", "town == ''"],
)
def test_a_null_of_a_table_passes_no_filter(drive, tmp_path, where):
    """Whole numbers with nulls beside them aren't rounded to floats."""
    gear = 2**53 + 1 if "9007" in where else 0
    nulls = {"gear": pa.array([gear, None]), "night": pa.array([False, None]), "town": pa.array(["", None])}
    found = expand_logs(listing(drive, tmp_path / "a", f'uri: path, log_id: name, where: "{where}"', **nulls))
    assert [log.log_id for log in found] == ["monday/one"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_large_integers_of_a_table_are_compared_exactly(drive, tmp_path, suffix):
    said = f"uri: path, log_id: name, where: car == {2**63 + 1}"
    cars = pa.array([2**63 + 1, 2**63 + 3], pa.uint64())
    found = expand_logs(listing(drive, tmp_path / "a", said, suffix, car=cars))
    assert [log.log_id for log in found] == ["monday/one"]


@pytest.mark.parametrize(
    ("said", "columns", "problem"),
    [
        ("uri: pth", {}, r"uri: no column 'pth'; did you mean path"),
        ("uri: path, split: city", {}, r"row 2: city is None; expected a text"),
        ("uri: rain", {}, r"row 1: rain is 0.5; expected a text"),
        ("uri: path, where: 'town == 3'", {}, r"no column 'town'; there are "),
        ("uri: path, split: city, where: 'not available(night)'", {}, r"row 2: city is None"),
        (
            "uri: path, where: 'rain > 9'",
            {},
            r"^recipe\.yaml:\d+: logs\.where: .*drives\.parquet: where: none of 2 rows matches 'rain > 9'$",
        ),
        (
            "uri: path, where: 'rain > 9'",
            {name: [] for name in ("path", "name", "split", "city", "rain", "night")},
            r"^recipe\.yaml:\d+: logs\.table: .*drives\.parquet: the table has no rows, and so lists no",
        ),
        ("uri: path, where: 'city < 3'", {}, "a text is compared with a number"),
        ("uri: path, where: 'city.x < 3'", {}, "no column 'city.x'"),
        ("uri: path", {"path": ["gone.mcap", "drive-01.mcap"]}, r"gone\.mcap"),
        ("uri: path, log_id: name", {"name": ["..", "b"]}, "can't be a log_id"),
        ("uri: path, split: split", {"split": ["a/b", "c"]}, "split 'a/b' is not a name"),
        ("uri: path, split: split", {"path": ["drive-00.mcap"] * 2}, "two rows that differ in other columns"),
    ],
)
def test_a_table_that_makes_no_sense_is_named_with_its_row(drive, tmp_path, said, columns, problem):
    with pytest.raises(RecipeError, match=problem):
        expand_logs(listing(drive, tmp_path / "a", said, **columns))


def test_a_damaged_or_missing_table_is_named(drive, tmp_path):
    recipe = listing(drive, tmp_path / "a")
    path = tmp_path / "a" / "drives.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RecipeError, match=r"drives\.parquet: not a table, or a damaged one"):
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


def test_hosts_of_scenes_and_columns_of_the_index_come_from_the_table(drive, tmp_path):
    said = "uri: path, host: car, index: [city, rain, night, passes]"
    recipe = partial(listing, drive, tmp_path / "a", said, outputs=FED, passes=[3, 4])
    root = tmp_path / "root"
    made = build_at(recipe(car=["red", "blue"]), root).manifest
    folder = root / "v00000001"
    scenes = ChunkedDataset(str(folder / "l5kit/all.zarr")).open().scenes[:]
    assert list(dict.fromkeys(map(str, scenes["host"]))) == ["red", "blue"]
    index = tt.read_index(str(root))
    told = index.groupby("log_id", observed=True)[["city", "rain", "night", "passes"]].first()
    assert told.loc["drive-00"].to_list() == ["Zurich", 0.5, True, 3]
    assert told.loc["drive-01"].to_list()[0::2] == ["", False]
    assert np.isnan(told.loc["drive-01"]["rain"])
    assert [index[name].dtype.name for name in told] == ["category", "float64", "bool", "int64"]
    zurich = tt.read_index(str(root), columns=["ego.speed", "city"], where="city == 'Zurich' and passes < 4")
    assert len(zurich) == made.logs[0].rows
    assert tt.row_loader(zurich).get_row(0, columns=["ego.speed"])["log_id"] == "drive-00"
    assert tt.verify(str(folder / "table/all")) == []
    assert verify(str(root), 1, num_workers=1).findings == ()
    assert Recipe.model_validate(made.recipe) == recipe(car=["red", "blue"])
    assert plan_build(recipe(car=["red", "blue"]), str(root)).up_to_date


def test_another_value_makes_indices_and_scenes_anew_and_no_unit(drive, tmp_path):
    recipe = partial(listing, drive, tmp_path / "a", "uri: path, host: car, index: city", outputs=FED)
    root = tmp_path / "root"
    first = build_at(recipe(car=["red", "blue"]), root)
    moved = plan_build(recipe(car=["red", "blue"], city=["Zurich", "Bern"]), str(root))
    assert [log.task.log_id for log in moved.logs] == ["drive-01"]
    second = build(moved, num_workers=1)
    assert second.built == 0 < second.reused
    parts = [{part.output: part.identity for part in one.manifest.assembled} for one in (first, second)]
    assert parts[0]["l5kit"] == parts[1]["l5kit"]  # it doesn't ask for the city
    assert parts[0]["table"] != parts[1]["table"]
    assert set(tt.read_index(str(root)).city) == {"Zurich", "Bern"}
    assert set(tt.read_index(f"{root}@1").city) == {"Zurich", ""}
    changes = LogChanges.between(first.manifest.logs, second.manifest.logs)
    assert changes.by_kind == {"catalogue": 1, "recipe or content": 1}
    fresh = build_at(recipe(car=["red", "blue"], city=["Zurich", "Bern"]), tmp_path / "fresh").manifest
    assert fresh.logs == second.manifest.logs
    assert fresh.assembled == second.manifest.assembled


def test_a_column_whose_kind_changes_beside_rows_that_stay_is_named_when_a_build_is_planned(drive, tmp_path):
    said, outputs = "uri: path, index: [city, passes]", FED + "vanished: keep\n"
    recipe = partial(listing, drive, tmp_path / "a", outputs=outputs)
    root = str(tmp_path / "root")
    build_at(recipe(said, passes=[3, None]), tmp_path / "root")
    fewer = said + ", where: 'rain < 2'"  # which drive-01 isn't
    assert plan_build(recipe(fewer, passes=[2.5, 4.0]), root).dropped == ("drive-01",)
    assert plan_build(recipe(fewer, passes=["three", "four"]), root)  # it had no number
    build_at(recipe(said, passes=[3, 4]), tmp_path / "root")
    named = (
        r"a/drives\.parquet: index: passes of \S+drive-00.mcap is 'three', a text, .* of drive-01 .* with 4,"
    )
    with pytest.raises(UsageError, match=named):
        plan_build(recipe(fewer, passes=["three", "four"]), root)
    with pytest.raises(UsageError, match=r"passes of \S+ is True, a truth, but .*vanished: drop"):
        plan_build(recipe(fewer, passes=[True, False]), root)
    # All of its rows are built with what the table says now.
    whole = build_at(recipe(said, passes=["three", "four"]), tmp_path / "root").manifest
    assert whole.logs.totals["logs"] == 2
    assert set(tt.read_index(root).passes) == {"three", "four"}


def test_damaged_datasets_are_repaired_with_what_the_table_said(drive, tmp_path):
    recipe = listing(drive, tmp_path / "a", "uri: path, host: car, index: city", outputs=FED, car=["r", "b"])
    root = tmp_path / "root"
    made = build_at(recipe, root).manifest
    for part in made.assembled:
        folder = as_laid_out(Store.at(str(root))).path_of(unit_folder(part.output, part.identity))
        max(filter(pathlib.Path.is_file, folder.rglob("*")), key=lambda path: path.stat().st_size).unlink()
    (tmp_path / "a" / "drives.parquet").unlink()
    assert verify(str(root), 1, num_workers=1).findings
    assert repair(str(root), num_workers=1).is_sound
    assert verify(str(root), 1, num_workers=1).findings == ()


@pytest.mark.parametrize(
    ("said", "outputs", "columns", "problem"),
    [
        ("uri: path, host: city", OUTPUTS, {}, "logs.host: is for the output l5kit"),
        ("uri: path, index: city", OUTPUTS, {}, "logs.index: is for the output table"),
        ("uri: path, index: [ego.speed]", FED, {}, "'ego.speed' is a column of the rows"),
        ("uri: path, host: town", FED, {}, "host: no column 'town'"),
        ("uri: path, index: town", FED, {}, "index: no column 'town'"),
        ("uri: path, host: city", FED, {}, "row 2: city is None"),
        ("uri: path, host: name", FED, {"name": ["a", "b" * 17]}, "row 2: the host 'b+' has more than 16"),
        ("uri: path, index: name", FED, {"name": [["a"], ["b"]]}, "index: name is list.*; expected text"),
        (
            "uri: path, index: n",
            FED,
            {"n": [2**60 + 1, None]},
            r"n has missing numbers.*float64.*; fill them",
        ),
        (
            "uri: path, host: car",
            FED.replace("l5kit: {", "l5kit: {host: me, "),
            {"car": ["a", "b"]},
            "leave out one of the two",
        ),
        (
            "uri: path, log_id: car, index: name",
            FED,
            {"car": ["a", "a"]},
            "its host or index differ from those of the log's other files",
        ),
    ],
)
def test_what_a_table_can_not_say_for_outputs_is_named(drive, tmp_path, said, outputs, columns, problem):
    if "is for the output" in problem:
        needs(problem.split()[-1])
    with pytest.raises(RecipeError, match=problem):
        expand_logs(listing(drive, tmp_path / "a", said, outputs=outputs, **columns))


def test_a_log_that_may_still_be_written_waits_for_a_later_build(drive, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    for log in drive.logs:
        shutil.copy(log, logs)
    line = next(line for line in drive.text.splitlines() if line.startswith("logs:"))
    text = drive.text.replace(line, f'logs: ["{logs}/*.mcap"]').split("outputs:")[0]
    text += "outputs:\n  tar: {columns: [ego.position]}\n"
    # Their inodes changed just now, so that all of them have to wait; a later listing finds them settled.
    with pytest.raises(UsageError, match=r"none of 2 logs is to be built: 2 may still be .*again later$"):
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
    plan = plan_build(Recipe.from_yaml(f"{text}settle: 30m\n"), str(tmp_path / "root"))
    assert plan.up_to_date  # all logs wait
    assert (plan.num_unsettled, plan.kept.logs, plan.opened) == (2, 2, ())
    other = text.replace("{rate: 10}", "{rate: 5}")
    assert other != text
    with pytest.raises(UsageError, match=rf"1 log waits .* another recipe \({two.stem}\)"):
        plan_build(Recipe.from_yaml(f"{other}settle: 1ns\n"), str(tmp_path / "root"))
    with pytest.raises(UsageError, match=r"2 logs wait .* another recipe"):
        plan_build(Recipe.from_yaml(f"{other}settle: 30m\n"), str(tmp_path / "root"))
    build(plan_drop(Store.at(str(tmp_path / "root")), [one.stem]))
    two.write_bytes(b"")
    with pytest.raises(UsageError, match=r"1 may still be written.*; 1 left the dataset by `logloom drop`"):
        plan_build(Recipe.from_yaml(f"{text}settle: 30m\n"), str(tmp_path / "root"))
