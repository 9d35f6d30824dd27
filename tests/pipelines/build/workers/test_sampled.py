"""Many new logs: the driver opens a sample, workers open the others, and versions have the same bytes."""

import json
import pathlib
import shutil

import pyarrow as pa
import pyarrow.csv
import pytest

from logloom.errors import LogReadError, RecipeError
from logloom.io.storage.store import Store
from logloom.pipelines import status
from logloom.pipelines.build import build as job
from logloom.pipelines.build.build import build
from logloom.pipelines.build.progress import Meter, UnitLooker, Watch
from logloom.pipelines.plan.build_plan import BuildPlan
from logloom.pipelines.plan.logs import PlanLogs
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.plan.summary import in_words, plan_summary
from logloom.recipe import Recipe
from logloom.transforms.build import build_warnings, outcomes
from tests.absent import needs
from tests.forking import command
from tests.transforms.ros2_logs import SECOND, SPEED, START, speeds, write_log

pytestmark = pytest.mark.usefixtures("_settled_at_once")

NAMES = tuple(f"car-{number}" for number in range(7))
OTHER_SPEED = ("demo_msgs/msg/Speed", "int32 speed\nint32 gear\n")


def written(folder: pathlib.Path) -> pathlib.Path:
    for number, name in enumerate(NAMES):
        write_log(folder / f"{name}.mcap", {"/can": (SPEED, speeds(count=12 + number))})
    return folder


@pytest.fixture
def archive(once, tmp_path) -> pathlib.Path:
    shutil.copytree(once(written), tmp_path / "logs")
    return tmp_path


def planned(
    archive: pathlib.Path, *more: str, root: str = "root", sample: int | None = 2, **choices
) -> BuildPlan:
    lines = f"name: t\nlogs: [logs/*.mcap]\nclock: {{rate: {choices.pop('rate', 10)}}}\ncolumns:\n"
    lines += "  speed: {topic: /can, field: speed"
    column, outputs = choices.pop("column", ""), choices.pop("outputs", "tar: {}")
    text = f"{lines}{column}}}\noutputs: {{{outputs}}}\n" + "".join(more)
    recipe = Recipe.from_yaml(text, source="drive.yaml")
    return plan_build(recipe, str(archive / root), base=str(archive), sample=sample, **choices)


def files(root: pathlib.Path) -> dict[str, bytes]:
    """All files of a root that versions are made of, but for their times."""
    found = (path for path in root.rglob("*") if path.is_file() and ".times." not in path.name)
    names = {path: str(path.relative_to(root)) for path in found}
    return {
        n: path.read_bytes() for path, n in names.items() if not n.startswith(("index/", "runs/", "tmp/"))
    }


def test_a_version_has_the_same_bytes_whoever_opens_its_logs(archive, opened):
    (archive / "logs/split").mkdir()
    for number, part in enumerate(("two", "one")):  # the second file by name is the first by time
        messages = speeds(start=START + number * 2 * SECOND, count=12)
        write_log(archive / f"logs/split/{part}.mcap", {"/can": (SPEED, messages)})
    more = (
        "split: {train: 0.5, val: 0.5, by: '{stem}'}\n",
        "log_id: {match: 'logs/(?P<name>[^/.]*)', as: '{name}'}\n",
    )
    plans = []
    for root, sample in (("all", None), ("some", 2)):
        opened.clear()
        text = (
            "name: t\nlogs: ['logs/*.mcap', 'logs/split/*.mcap']\nclock: {rate: 10}\n"
            "columns:\n  speed: {topic: /can, field: speed}\npartition: {rows: 10}\noutputs: {table: {}}\n"
        )
        recipe = Recipe.from_yaml(text + "".join(more), source="drive.yaml")
        plans.append(plan_build(recipe, str(archive / root), base=str(archive), sample=sample))
        build(plans[-1])
    assert [len(plan.left) for plan in plans] == [0, len(NAMES) - 1]
    assert {*opened} == {NAMES[0], "one", "two"}
    assert files(archive / "all") == files(archive / "some")
    assert (archive / "all/index/listing").read_bytes() == (archive / "some/index/listing").read_bytes()


@pytest.mark.parametrize("group", [1, 100])
def test_a_table_says_the_splits_of_logs_that_workers_open_too(archive, monkeypatch, group):
    monkeypatch.setattr(job, "GROUP", group)
    splits = ["train", "val", "val", "train", "val", "train", "train"]
    table = pa.table({"path": [f"logs/{name}.mcap" for name in NAMES], "part": splits})
    pa.csv.write_csv(table, str(archive / "drives.csv"))
    text = (
        "name: t\nlogs: {table: drives.csv, uri: path, split: part}\nclock: {rate: 10}\n"
        "columns:\n  speed: {topic: /can, field: speed}\noutputs: {tar: {}}\n"
    )
    recipe = Recipe.from_yaml(text, source="drive.yaml")
    for root, sample in (("all", None), ("some", 2)):
        plan = plan_build(recipe, str(archive / root), base=str(archive), sample=sample)
        shown = plan_summary(plan)
        assert {name: found["logs"] for name, found in shown["splits"].items()} == {"train": 4, "val": 3}
        assert [log.split for log in build(plan).manifest.logs] == splits
    assert files(archive / "all") == files(archive / "some")


def test_what_workers_opened_is_remembered_and_the_next_night_opens_what_is_new(archive, opened):
    plan = planned(archive)
    assert (len(plan.logs), len(plan.left)) == (2, 5)
    assert any("opened 2 of 7 logs to check the recipe (car-0, car-6)" in note for note in plan.notes)
    build(plan)
    opened.clear()
    assert planned(archive).up_to_date
    assert opened == ["car-0"]
    write_log(archive / "logs/new.mcap", {"/can": (SPEED, speeds(count=12))})
    again = planned(archive)
    assert ([log.task.log_id for log in again.logs], list(again.left), again.kept.logs) == (["new"], [], 7)


def test_another_recipe_opens_a_sample_of_what_it_builds_again(archive, opened):
    build(planned(archive))
    opened.clear()
    plan = planned(archive, column=", resample: nearest")
    assert (len(plan.logs), len(plan.left)) == (3, 4)  # car-0 for the recipe, and two of the others
    assert sorted(set(opened)) == ["car-0", "car-1", "car-6"]
    second = build(plan).manifest
    assert second.version == 2
    build(planned(archive, column=", resample: nearest", root="other", sample=None))
    others = files(archive / "other")
    assert {n for n in others if n.startswith("logs/")} <= files(archive / "root").keys()
    assert planned(archive, column=", resample: nearest").up_to_date


def test_logs_that_a_version_has_are_compared_before_anything_is_built(archive, opened):
    build(planned(archive))
    (archive / "root/index/listing").unlink()
    opened.clear()
    assert planned(archive).up_to_date
    assert sorted(opened) == sorted(NAMES)


def builds(archive: pathlib.Path) -> list[str]:
    """The states of the builds into its root, the latest first."""
    return [one.state for one in status.builds(Store.at(str(archive / "root")))]


@pytest.mark.parametrize("hash", ["ends", "full"])
def test_a_build_leaves_comparing_to_workers_and_makes_the_version_that_the_command_would(
    archive, opened, hash
):
    more = f"hash: {hash}\n"
    build(planned(archive, more))
    (archive / "root/index/listing").unlink(missing_ok=True)
    for count, name in ((30, "car-3"), (31, "new")):
        write_log(archive / f"logs/{name}.mcap", {"/can": (SPEED, speeds(count=count))})
    shutil.copytree(archive / "root", archive / "other")
    build(planned(archive, more, root="other"))
    opened.clear()
    plan = planned(archive, more, compare=False)
    assert sorted(opened) == ["car-0", "new"]
    assert [task.log_id for task in plan.compared] == [f"car-{number}" for number in range(1, 7)]
    assert (plan_summary(plan)["logs_reused"], plan_summary(plan)["logs_left_to_workers"]) == (7, 6)
    assert any("of 6 logs of the latest version that changed" in note for note in plan.notes)
    done = build(plan)
    assert (done.manifest.version, done.built) == (2, 2)
    assert files(archive / "root") == files(archive / "other")
    if hash == "ends":
        assert (archive / "root/index/listing").read_bytes() == (archive / "other/index/listing").read_bytes()


@pytest.mark.parametrize("outputs", ["table: {}", "zarr: {}"])
def test_a_build_that_finds_no_log_changed_commits_nothing_and_says_so(archive, opened, outputs, monkeypatch):
    (archive / "logs/car-3.mcap").write_bytes(b"no log at all")
    arguments = {"outputs": outputs, "compare": False}
    first = build(planned(archive, "on_error: skip\n", **arguments)).manifest
    before = files(archive / "root")
    (archive / "root/index/listing").unlink()
    monkeypatch.setattr(job, "GROUP", 1)  # tasks go by files
    plan = planned(archive, "on_error: skip\n", **arguments)
    assert not plan.up_to_date
    done = build(plan)
    assert (done.manifest, done.built, done.reused) == (first, 0, 0)
    assert files(archive / "root") == before
    assert builds(archive) == ["unchanged", "committed"]
    kept = {path.suffix for path in (archive / "root/runs/00000002").iterdir() if path.is_file()}
    assert kept <= {".json", ".jsonl"}
    opened.clear()
    assert planned(archive, "on_error: skip\n", **arguments).up_to_date  # by what its workers saw
    assert sorted(opened) == ["car-0", "car-3"]
    shutil.copy2(archive / "logs/car-4.mcap", archive / "logs/new.mcap")
    assert build(planned(archive, "on_error: skip\n", **arguments)).manifest.version == 2
    assert builds(archive)[0] == "committed"


def test_a_log_that_is_back_is_built_by_workers_that_compare(archive):
    more = "vanished: keep\n"
    build(planned(archive, more))
    (archive / "logs/car-3.mcap").rename(archive / "car-3.mcap")
    assert build(planned(archive, more)).manifest.logs.statuses == {"whole": 6, "kept": 1}
    (archive / "car-3.mcap").rename(archive / "logs/car-3.mcap")
    (archive / "root/index/listing").unlink()
    assert build(planned(archive, more, compare=False)).manifest.logs.statuses == {"whole": 7}


@pytest.mark.parametrize("sample", [None, 2])
def test_an_unreadable_log_fails_the_build_or_is_left_out_alike(archive, sample):
    (archive / "logs/car-3.mcap").write_bytes(b"no log at all")
    with pytest.raises(LogReadError, match=r"car-3\.mcap: "):
        build(planned(archive, sample=sample))
    manifest = build(planned(archive, "on_error: skip\n", sample=sample)).manifest
    assert manifest.logs.statuses == {"whole": 6, "skipped": 1}
    (record,) = [one for one in manifest.logs if one.status == "skipped"]
    assert record.log_id == "car-3"
    assert "car-3.mcap" in record.reasons[0]
    assert planned(archive, "on_error: skip\n", sample=sample).up_to_date


def test_a_skipped_log_has_the_same_record_whoever_found_it_unreadable(archive):
    (archive / "logs/car-3.mcap").write_bytes(b"no log at all")
    for root, sample in (("all", None), ("some", 2)):
        build(planned(archive, "on_error: skip\n", root=root, sample=sample))
    assert files(archive / "all") == files(archive / "some")


def test_a_log_that_disagrees_fails_with_its_name_and_the_recipe_s_line_as_in_a_plan(archive, opened):
    write_log(archive / "logs/car-3.mcap", {"/can": (OTHER_SPEED, speeds(count=12))})
    said = r"drive\.yaml:5: columns\.speed\.field: logs disagree .*: float64 in .* but int32 in log car-3"
    with pytest.raises(RecipeError, match=said):
        planned(archive, sample=None)
    with pytest.raises(LogReadError, match=said):
        build(planned(archive))
    assert not (archive / "root/versions").exists()
    # What the build has seen, the next plan knows.
    opened.clear()
    with pytest.raises(RecipeError, match=r"float64 in log car-0 but int32 in log car-3"):
        planned(archive)


@pytest.mark.parametrize("on_error", ["skip", "salvage"])
def test_a_log_that_disagrees_is_contained_alike_whoever_opens_it(archive, on_error):
    write_log(archive / "logs/car-3.mcap", {"/can": (OTHER_SPEED, speeds(count=12))})
    more = f"on_error: {on_error}\n"
    for root, sample in (("all", None), ("some", 2)):
        manifest = build(planned(archive, more, root=root, sample=sample)).manifest
        (record,) = [one for one in manifest.logs if one.log_id == "car-3"]
        assert "its type is int32 in this log, and float64 in the dataset" in record.reasons[0]
        assert (record.status, record.rows > 0) == (
            ("skipped", False) if on_error == "skip" else ("salvaged", True)
        )
        assert manifest.logs.statuses == {"whole": 6, record.status: 1}
        assert planned(archive, more, root=root, sample=sample).up_to_date
    assert files(archive / "all") == files(archive / "some")
    write_log(archive / "logs/new.mcap", {"/can": (OTHER_SPEED, speeds(count=12))})
    manifest = build(planned(archive, more, root="some")).manifest
    assert manifest.logs.statuses == {"whole": 6, record.status: 2}


def test_a_log_without_a_topic_that_none_may_lack_fails_the_build(archive):
    write_log(archive / "logs/car-3.mcap", {"/other": (SPEED, speeds(count=12))})
    with pytest.raises(LogReadError, match=r"drive\.yaml:5: .*1 log \(car-3\) has no message of /can"):
        build(planned(archive, column=", missing: fail"))
    manifest = build(planned(archive)).manifest
    assert manifest.totals["logs"] == 7


def test_a_topic_that_the_sample_lacks_is_looked_for_in_more_logs(archive, opened):
    for name in NAMES[:2] + NAMES[3:]:
        write_log(archive / f"logs/{name}.mcap", {"/other": (SPEED, speeds(count=12))})
    plan = planned(archive)
    assert NAMES[2] in plan.opened
    for root, sample in (("all", None), ("some", 2)):
        build(planned(archive, root=root, sample=sample))
    assert files(archive / "all") == files(archive / "some")
    with pytest.raises(RecipeError, match="none of the 7 logs has topic '/lidar'"):
        planned(archive, "time: {topics: {/lidar: log}}\n", root="none")


def test_a_mistake_that_no_other_log_could_mend_is_said_without_opening_them(archive, opened):
    needs("tar")
    with pytest.raises(RecipeError, match=r"outputs\.tar"):
        planned(archive, outputs="tar: {ext: {speed: jpg}}")
    assert sorted(opened) == ["car-0", "car-6"]


def test_figures_of_a_plan_follow_from_the_sample_and_all_opens_all(archive):
    exact, guessed = plan_summary(planned(archive, sample=None)), plan_summary(planned(archive))
    assert (exact["logs_left_to_workers"], guessed["logs_left_to_workers"]) == (0, 5)
    assert [plan[f"{what}_to_read"] for plan in (exact, guessed) for what in ("logs", "files")] == [7] * 4
    assert guessed["rows_at_most"] == pytest.approx(exact["rows_at_most"], rel=0.2)
    assert guessed["partitions"] == exact["partitions"] == 7
    assert guessed["message_bytes"] == pytest.approx(exact["message_bytes"], rel=0.2)


def test_people_are_told_which_figures_are_guessed(archive):
    guessed, exact = planned(archive), planned(archive, sample=None)
    for plan, about, at_least in ((guessed, "about ", "at least "), (exact, "", "")):
        shown = {n: in_words(n, v, is_guessed=plan.is_guessed) for n, v in plan_summary(plan).items()}
        assert (shown["logs_to_read"], shown["partitions"]) == ("7", f"{about}7")
        assert shown["units_finished"] == f"{at_least}0"
        assert shown["rows_at_most"].startswith(about)
        assert shown["splits"].startswith(f"all at most {about}")


def test_no_split_is_said_to_get_no_row_before_workers_have_opened_its_logs(archive):
    for delay, name in ((1000, NAMES[0]), (2000, NAMES[-1])):  # between two ticks
        write_log(archive / f"logs/{name}.mcap", {"/can": (SPEED, speeds(start=START + delay, count=1))})
    plan = planned(archive)
    assert plan.num_ticks == 0
    assert plan_summary(plan)["warnings"] == []
    assert build(plan).manifest.totals["rows"] > 0


def test_progress_of_logs_that_workers_open_is_told_by_what_they_find(archive, monkeypatch):
    plan, exact = planned(archive), planned(archive, sample=None)
    meters = []

    class Remembering(Watch):
        def __enter__(self):
            super().__enter__()
            meters.append(self._meter)
            return self

        def __exit__(self, *error):
            self._look()
            super().__exit__(*error)

    monkeypatch.setattr(Store, "remove_all", lambda store, name: None)  # marks of what was read back stay
    looker = UnitLooker(plan)
    assert list(looker.new()) == []
    build(plan, watch=Remembering)
    (meter,) = meters
    assert meter.total == pytest.approx(meter.built) == exact.message_bytes
    far = Meter(plan.work)
    for note in looker.new():
        far.take(note, 0.0)
    assert far.built == pytest.approx(far.total)


@pytest.mark.parametrize("group", [1, 3])
def test_tasks_and_what_is_remembered_go_by_files_where_logs_are_many(archive, monkeypatch, group):
    build(planned(archive, root="graph"))
    monkeypatch.setattr(job, "GROUP", group)
    monkeypatch.setattr(outcomes, "GROUP", group)
    plan = planned(archive, root="staged")
    assert job.prepared(plan).staged
    build(plan)
    assert files(archive / "graph") == files(archive / "staged")
    left_over = [path.name for path in (archive / "staged/runs/00000001").iterdir() if path.is_file()]
    assert all(name.endswith(".json") for name in left_over), left_over
    listed = [(archive / root / "index/listing").read_bytes() for root in ("graph", "staged")]
    assert listed[0] == listed[1]


def test_what_a_failed_build_opened_need_not_be_opened_again(archive, opened):
    shutil.copy2(archive / "logs/car-1.mcap", archive / "logs/car-9.mcap")
    (archive / "logs/car-3.mcap").write_bytes(b"no log at all")
    with pytest.raises(LogReadError):
        build(planned(archive))
    (archive / "logs/car-3.mcap").unlink()
    logs = PlanLogs(
        planned(archive).job.held_to or Recipe.from_yaml(""), planned(archive).job.store, str(archive)
    )
    assert logs.num_remembered == 7


def test_a_plan_warns_of_a_log_with_a_stray_message_and_plans_nothing_for_it(archive):
    days = [*speeds(count=12), *speeds(start=START + 2 * 86400 * SECOND, count=1)]
    before = planned(archive, sample=None)
    write_log(archive / "logs/car-3.mcap", {"/can": (SPEED, days)})
    after = planned(archive, sample=None)
    (warning,) = after.warnings
    assert "1 message outside the recording, logged 1 day after the rest" in warning.text
    assert after.num_partitions == before.num_partitions  # the log was there before


def test_a_plan_warns_of_a_log_with_far_more_partitions_than_messages(archive, monkeypatch):
    monkeypatch.setattr(build_warnings, "MANY", 20)
    step = 3000 * SECOND  # within an hour, so that there are rows between
    rare = [message for k in range(3) for message in speeds(start=START + k * step, count=1)]
    write_log(archive / "logs/car-3.mcap", {"/can": (SPEED, rare)})
    plan = planned(archive, "partition: {rows: 30}\n", sample=None, rate=0.1)
    (warning,) = plan.warnings
    assert "car-3.mcap: 21" in warning.text
    assert "partitions for 3 messages: its log times are 0.1 days apart" in warning.text
    of_times = [one for one in build(plan).warnings if one.kind == "times"]
    assert of_times == [*plan.warnings]  # of its workers the same


def test_a_command_whose_workers_find_no_log_changed_is_up_to_date_for_all_who_ask(archive, tmp_path):
    for number in range(70):  # more than the command opens
        topics = {"/can": (SPEED, speeds(count=20 + number))}
        write_log(archive / f"logs/more-{number:02}.mcap", topics)
    text = "name: t\nlogs: [logs/*.mcap]\nclock: {rate: 10}\nhash: full\ncolumns:\n"
    (archive / "drive.yaml").write_text(
        f"{text}  speed: {{topic: /can, field: speed}}\noutputs: {{tar: {{}}}}\n"
    )
    root, events = str(archive / "root"), tmp_path / "events.jsonl"
    ask = ["build", str(archive / "drive.yaml"), "--to", root, "--json", "--openlineage", str(events)]
    for up_to_date in (False, True):
        done = command(*ask)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert (said["version"], said["up_to_date"], said["logs"]) == (1, up_to_date, 77)
    assert "workers open the others, and rebuild those of 13 logs" in done.stderr
    assert "up to date: version 1" in done.stderr
    ends = [json.loads(line) for line in events.read_text().splitlines()][1::2]
    versions = [end["outputs"][0]["facets"]["version"]["datasetVersion"] for end in ends]
    assert (versions, {end["eventType"] for end in ends}) == (["1", "1"], {"COMPLETE"})
    assert builds(archive) == ["unchanged", "committed"]
    assert command("status", root, "--wait").returncode == 0
