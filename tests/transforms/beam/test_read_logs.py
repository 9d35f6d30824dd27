"""Rows of a recipe in anybody's pipeline: those of a build, and what became of the other logs."""

import pickle
import shutil

import apache_beam as beam
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.testing.util import assert_that, equal_to

import logloom.datasets
from logloom.blocks import Block
from logloom.demo import demo_recipe
from logloom.errors import InputError, LogReadError, RecipeError, UsageError
from logloom.io.formats.registry import by_preference, format_named, format_names
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.transforms.beam import log_rows
from logloom.transforms.beam.log_rows import IncompleteLog
from logloom.transforms.beam.read_logs import ReadFromLogs

OUTPUT = next(name for name in by_preference(format_names()) if format_named(name).keeps_columns)
FEW = """name: few
clock: {rate: 10}
columns:
  ego.position: {topic: /odom, field: pose.pose.position, resample: linear}
  imu: {topic: /imu, field: angular_velocity, resample: window, window: [-100ms, 0ms]}
rows: {require: [ego.position]}
"""


@pytest.fixture
def drives(logs_of, tmp_path):
    """Two logs that are whole, one that ends early, one with a broken chunk, and a file that is no log."""
    folder = tmp_path / "drives"
    folder.mkdir()
    first, second = sorted(logs_of(2, 2).glob("*.mcap"))
    shutil.copy2(first, folder / "a.mcap")
    shutil.copy2(second, folder / "b.mcap")
    data = first.read_bytes()
    (folder / "cut.mcap").write_bytes(data[: len(data) * 2 // 3])
    middle = bytearray(second.read_bytes())
    at = len(middle) * 2 // 3
    middle[at : at + 64] = bytes(64)
    (folder / "hurt.mcap").write_bytes(middle)
    (folder / "none.mcap").write_bytes(b"no log, but a note that somebody left")
    return folder


def recipe_of(on_error, logs='"*.mcap"', more="", text=FEW):
    more += f"\npartition: {{rows: 5}}\noutputs: {{{OUTPUT}: {{}}}}\n"
    return Recipe.from_yaml(f"{text}\nlogs: [{logs}]\non_error: {on_error}\n{more}")


def built_rows(recipe, drives, root):
    built = build(plan_build(recipe, str(root), base=str(drives)), num_workers=1)
    rows = logloom.datasets.open(str(root), output=OUTPUT)
    names = [*rows.schema.columns]
    return {record.log_id: record for record in built.manifest.logs}, {
        (row["log_id"], int(row["timestamp"])): [bytes_of(row[name]) for name in names] for row in rows
    }


def bytes_of(value):
    return value if isinstance(value, bytes | str) else value.tobytes()


def kept_in(path):
    """A check that keeps the elements, for this process: functions are pickled for workers."""
    return lambda elements: path.write_bytes(pickle.dumps(list(elements))) and None


def read_by(transform, folder):
    """The rows and incomplete logs that a pipeline with a transform gives, and its counters."""
    rows, refused = folder / "rows.pickle", folder / "refused.pickle"
    pipeline = beam.Pipeline("FnApiRunner")
    read = pipeline | transform
    if isinstance(read, tuple):
        assert_that(read.refused, kept_in(refused), label="refused")
        read = read.rows
    else:
        refused.write_bytes(pickle.dumps([]))
    assert_that(read, kept_in(rows), label="rows")
    result = pipeline.run()
    counted = {
        metric.key.metric.name: metric.committed
        for metric in result.metrics().query(MetricsFilter().with_namespace("logloom"))["counters"]
    }
    incomplete = {log.log_id: log for log in pickle.loads(refused.read_bytes())}
    return pickle.loads(rows.read_bytes()), incomplete, counted


def values_of(blocks, schema):
    found = {}
    for block in blocks:
        for number in range(len(block)):
            row = block.row(number, schema)
            found[row["log_id"], int(row["timestamp"])] = [bytes_of(row[name]) for name in schema.columns]
    assert len(found) == sum(map(len, blocks))
    return found


def test_a_pipeline_is_made_before_its_logs_are_there_and_reads_them_twice(logs_of, tmp_path):
    folder = tmp_path / "later"
    recipe = recipe_of("fail")
    pipeline = beam.Pipeline("FnApiRunner")
    for label in ("one", "two"):
        blocks = pipeline | label >> ReadFromLogs(recipe, str(folder))
        assert blocks.element_type is Block
        assert_that(blocks, kept_in(tmp_path / label), label=f"check {label}")
    shutil.copytree(logs_of(2, 2), folder)
    pipeline.run()
    one, two = (sorted(map(len, pickle.loads((tmp_path / label).read_bytes()))) for label in ("one", "two"))
    assert one == two
    assert sum(one) > 10


def test_rows_come_beside_the_logs_that_are_not_whole(drives):
    recipe = recipe_of("{skip: 60%}")
    with beam.Pipeline("FnApiRunner") as pipeline:
        read = pipeline | ReadFromLogs(recipe, str(drives)).with_exception_handling()
        logs = read.rows | beam.Map(lambda block: block.log_id) | beam.Distinct()
        assert_that(logs, equal_to(["a", "b"]), "rows")
        refused = read.refused | beam.Map(lambda log: (log.log_id, log.status, len(log.reasons)))
        skipped = [("cut", "skipped", 1), ("hurt", "skipped", 1), ("none", "skipped", 1)]
        assert_that(refused, equal_to(skipped), "refused")


def check_contained(recipe, drives, tmp_path):
    """Compare rows and incomplete logs with those of a build; return the transform and the rows."""
    records, wanted = built_rows(recipe, drives, tmp_path / "root")
    source = ReadFromLogs(recipe, str(drives))
    blocks, refused, counted = read_by(source.with_exception_handling(), tmp_path)
    assert values_of(blocks, source.schema) == wanted
    assert refused.keys() == {log for log, record in records.items() if record.status != "whole"}
    assert len(refused) == 3
    for log_id, log in refused.items():
        assert isinstance(log, IncompleteLog)
        record = records[log_id]
        assert (log.uris, log.status) == (record.uris, record.status)
        if log.status == "skipped":
            assert log.reasons == record.reasons
        else:
            assert log.reasons == record.reasons[-len(log.reasons) :]
    statuses = [log.status for log in refused.values()]
    assert counted["rows"] == len(wanted)
    assert counted["logs"] == len(records)
    for status in set(statuses):
        assert counted[f"logs_{status}"] == statuses.count(status)
    return source, wanted


def test_rows_of_all_kinds_and_salvaged_logs_are_those_of_a_build(drives, tmp_path):
    head, _ = demo_recipe(drives).split("outputs:")
    text = "\n".join(line for line in head.splitlines() if not line.startswith("logs:"))
    check_contained(recipe_of("salvage", text=text), drives, tmp_path)


def test_logs_beyond_the_sample_are_opened_where_their_rows_are_made_and_skipped(
    drives, tmp_path, monkeypatch
):
    shutil.move(drives / "none.mcap", drives / "0.mcap")  # the sample of one can't be read
    monkeypatch.setattr(log_rows, "SAMPLE", 1)
    source, wanted = check_contained(recipe_of("{skip: 60%}"), drives, tmp_path)
    plain, _, _ = read_by(source, tmp_path)
    assert values_of(plain, source.schema) == wanted


def test_a_damaged_log_fails_the_job_under_fail_or_is_refused_and_a_copy_left_out(drives, tmp_path):
    recipe = recipe_of("fail")
    _, wanted = built_rows(recipe_of("fail", "a.mcap, b.mcap"), drives, tmp_path / "root")
    with pytest.raises(LogReadError) as of_build:
        plan_build(recipe, str(tmp_path / "other"), base=str(drives))
    source = ReadFromLogs(recipe, str(drives))
    with pytest.raises(LogReadError) as raised:
        _ = source.schema
    assert str(of_build.value) in str(raised.value)
    shutil.copy2(drives / "a.mcap", drives / "c.mcap")
    source = ReadFromLogs(recipe_of("fail", more="duplicates: keep_first"), str(drives))
    blocks, refused, counted = read_by(source.with_exception_handling(), tmp_path)
    assert values_of(blocks, ReadFromLogs(recipe_of("fail", "a.mcap"), str(drives)).schema) == wanted
    statuses = dict.fromkeys(("cut", "hurt", "none"), "refused")
    assert {log.log_id: log.status for log in refused.values()} == {**statuses, "c": "duplicate"}
    assert refused["c"].reasons == ("same content as a",)
    assert "hurt.mcap: " in refused["hurt"].reasons[0]
    assert "at byte" in refused["hurt"].reasons[0]
    assert counted["logs_refused"] == 3


def test_damage_within_a_log_fails_the_job_where_rows_are_made(drives, tmp_path):
    with pytest.raises(LogReadError, match=r"hurt\.mcap"):
        read_by(ReadFromLogs(recipe_of("fail", "a.mcap, hurt.mcap"), str(drives)), tmp_path)


@pytest.mark.parametrize("on_error", ["fail", "skip", "salvage"])
def test_a_file_that_is_missing_is_a_mistake_as_in_builds(drives, tmp_path, on_error):
    recipe = recipe_of(on_error, "a.mcap, gone.mcap")
    with pytest.raises(RecipeError) as of_build:
        plan_build(recipe, str(tmp_path / "root"), base=str(drives))
    for transform in (reading := ReadFromLogs(recipe, str(drives)), reading.with_exception_handling()):
        with pytest.raises(RecipeError, match=r"gone\.mcap") as raised:
            _ = transform.schema
        assert str(of_build.value) in str(raised.value)


def test_more_skipped_logs_than_the_budget_allows_fail_the_job(drives, tmp_path):
    source = ReadFromLogs(recipe_of("{skip: 50%}"), str(drives))
    with pytest.raises(LogReadError, match=r"3 of 5 logs skipped, over the budget of 50\.00%: cut, hurt"):
        read_by(source.with_exception_handling(), tmp_path)


def test_if_no_log_can_be_read_the_job_fails(drives):
    source = ReadFromLogs(recipe_of("skip", "none.mcap"), str(drives))
    with pytest.raises(LogReadError, match=r"none\.mcap"):
        _ = source.with_exception_handling().schema


def test_copies_may_be_refused(drives):
    shutil.copy2(drives / "a.mcap", drives / "c.mcap")
    recipe = recipe_of("fail", "a.mcap, b.mcap, c.mcap", "duplicates: fail")
    with pytest.raises(InputError, match="c has the content of a"):
        _ = ReadFromLogs(recipe, str(drives)).schema


def test_a_mistake_of_the_recipe_fails_a_contained_job_too(drives, tmp_path):
    recipe = recipe_of("skip", "a.mcap, b.mcap").to_yaml().replace("/odom", "/odometry")
    source = ReadFromLogs(Recipe.from_yaml(recipe), str(drives)).with_exception_handling()
    with pytest.raises(RecipeError, match="/odometry"):
        read_by(source, tmp_path)


def test_blocks_without_bytes_are_refused(drives):
    with pytest.raises(UsageError, match="max_bytes 0: a block has at least one byte"):
        ReadFromLogs(recipe_of("fail"), str(drives), max_bytes=0)
