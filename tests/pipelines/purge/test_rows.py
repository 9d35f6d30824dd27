"""Purging some time of a log: no output holds anything of it, and no build brings it back."""

import dataclasses
import pickle
import shutil

import pytest

import logloom.datasets
from logloom.errors import PurgedError, UsageError
from logloom.io.catalog.artifacts import LOG_FILES, PART, STATISTICS
from logloom.io.catalog.manifest import as_laid_out, read_manifest
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.tombstones import Tombstone, digest_of_log
from logloom.io.logs.interface import OpenOptions, TopicRequest
from logloom.io.logs.opening import open_log
from logloom.io.logs.redaction import RedactedLog
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.head.why import Explainer
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.purge.rows import ErasedTime
from logloom.pipelines.purge.targets import Found
from logloom.pipelines.repair.repair import repair
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.schema import MAX_TIME
from tests.absent import outputs_present
from tests.forking import command
from tests.pipelines.conftest import build_at
from tests.pipelines.roots import commit_version

SECOND = 10**9
OUTPUTS = outputs_present("""\
outputs:
  tar: {}
  zarr: {}
  table: {}
  bags: {}
  l5kit: {host: demo, translation: ego.position, rotation: ego.rotation}
partition: {rows: 10}
""")


@pytest.fixture(scope="module")
def erased(drive, tmp_path_factory):
    """A recipe, a root from which one second of the first log went, and which that is."""
    folder = tmp_path_factory.mktemp("erased")
    shutil.copytree(drive.logs[0].parent, folder / "logs")
    text = drive.text.replace(str(drive.logs[0].parent), str(folder / "logs"))
    recipe = Recipe.from_yaml(text[: text.index("outputs:")] + OUTPUTS, source="drive.yaml")
    root = folder / "root"
    build_at(recipe, root)
    record = read_manifest(Store.at(str(root))).logs[0]
    first = open_log(record.uris).summary.first
    time = ErasedTime(record.log_id, first + SECOND // 2, first + 3 * SECOND // 2)
    told = purge(str(root), [], [time], dry_run=True)
    done = purge(str(root), [], [time], reason="request 7")
    assert done.is_proven, done.left
    assert (told.rows, told.units) == (done.rows, done.units)
    assert done.rows == 5
    with pytest.raises(PurgedError, match="request 7"):
        logloom.datasets.open(root, version=1, output="tar")[0]
    build_at(recipe, root)
    return recipe, root, time


def test_no_output_holds_a_row_or_a_message_of_that_time(erased):
    _, root, time = erased
    manifest = read_manifest(Store.at(str(root)))
    assert manifest.logs[0].dropped["purged"] == 10
    ticks = set()
    for output in manifest.outputs:
        rows = logloom.datasets.open(root, output=output)
        own = [int(row["timestamp"]) for row in rows if row.get("log_id") == time.log]
        assert not any(time.start <= tick < time.stop for tick in own)
        ticks |= set(own)
    explainer = Explainer(Store.at(str(root)), manifest)
    whys = [explainer.why(manifest.logs[0], tick) for tick in ticks]
    used = [source for why in whys for one in why.lineages.values() for source in one.used]
    assert len(used) > 100
    assert not any(time.start <= at < time.stop for one in used for at in (one.time, one.log_time))


def test_what_the_logs_give_is_what_the_version_says_and_no_build_adds_it_again(erased):
    recipe, root, _ = erased
    report = verify(str(root), against_logs=True, num_workers=1)
    assert report.is_proven, report.findings
    assert verify(f"{root}", 1, num_workers=1).purged == 1
    said = command("verify", f"{root}@1", "--workers", "1").stderr
    assert "equal to its manifest; not counting 1 purged log" in said
    assert plan_build(recipe, str(root)).up_to_date
    assert not repair(str(root), num_workers=1, dry_run=True).damaged


def test_what_was_built_since_stays_when_the_same_time_is_purged_again(erased, tmp_path, monkeypatch):
    recipe, root, time = erased
    shutil.copytree(root, tmp_path / "root")
    again = str(tmp_path / "root")
    monkeypatch.chdir(root.parent)
    path = f"logs/{time.log}.mcap"
    done = purge(again, [], [dataclasses.replace(time, log=path)])
    assert (done.is_proven, done.logs, done.versions, done.units) == (True, [time.log], [1], 0)
    assert plan_build(recipe, again).up_to_date
    assert verify(again, num_workers=1).is_proven
    more = dataclasses.replace(time, stop=time.stop + SECOND)
    assert purge(again, [], [more], dry_run=True).versions == [1, 2]
    assert purge(again, [path], dry_run=True).versions == [1, 2]
    with pytest.raises(UsageError, match=r"no version has 'logs/none\.mcap';"):
        purge(again, ["logs/none.mcap"])


def test_statistics_that_came_out_the_same_stay_with_what_was_built_since(erased, tmp_path):
    _, root, time = erased
    shutil.copytree(root, tmp_path / "root")
    store = as_laid_out(Store.at(str(tmp_path / "root")))
    first, second = (next(iter(read_manifest(store, number).logs)) for number in (1, 2))
    assert first.log_id == second.log_id == time.log
    found = Found(store, [], [time])
    part = LOG_FILES[PART].name(first.part)
    assert (found.of(time.log), found.files()) == ([first], [*LOG_FILES[STATISTICS].of(first), part])
    found.records[1] = [dataclasses.replace(first, statistics=second.statistics)]
    assert found.files() == [part]


def test_a_plan_from_before_a_purge_of_a_log_that_stays_is_refused(erased, tmp_path):
    recipe, root, time = erased
    shutil.copytree(root, tmp_path / "root")
    before = plan_build(recipe, str(tmp_path / "root"))
    assert before.up_to_date
    purge(str(tmp_path / "root"), [], [dataclasses.replace(time, stop=time.stop + SECOND)])
    with pytest.raises(PurgedError, match="was purged since this build was planned; build again"):
        build(before)
    assert [log.task.log_id for log in plan_build(recipe, str(tmp_path / "root")).logs] == [time.log]


@pytest.mark.usefixtures("_settled_at_once")
def test_an_index_that_is_put_back_from_before_brings_nothing_back(quick_drive, tmp_path):
    shutil.copytree(quick_drive.logs[0].parent, tmp_path / "logs")
    text = quick_drive.text.replace(str(quick_drive.logs[0].parent), str(tmp_path / "logs"))
    recipe = Recipe.from_yaml(text[: text.index("outputs:")] + "outputs:\n  tar: {}\n", source="drive.yaml")
    root = tmp_path / "root"
    build_at(recipe, root)
    record = read_manifest(Store.at(str(root))).logs[0]
    first = open_log(record.uris).summary.first
    shutil.copytree(root / "index", tmp_path / "backup")
    assert (tmp_path / "backup/listing").exists()
    assert purge(
        str(root), [], [ErasedTime(record.log_id, first + SECOND // 2, first + 3 * SECOND // 2)]
    ).is_proven
    shutil.rmtree(root / "index", ignore_errors=True)
    shutil.copytree(tmp_path / "backup", root / "index")
    made = build_at(recipe, root).manifest
    assert made.logs[0].dropped["purged"] == 10
    shutil.rmtree(root / "index")
    shutil.copytree(tmp_path / "backup", root / "index")
    assert plan_build(recipe, str(root)).up_to_date
    assert verify(str(root), against_logs=True, num_workers=1).is_proven


def test_another_log_with_the_name_of_a_purged_one_is_built_and_named(quick_drive, tmp_path):
    shutil.copytree(quick_drive.logs[0].parent, tmp_path / "logs")
    text = quick_drive.text.replace(str(quick_drive.logs[0].parent), str(tmp_path / "logs"))
    recipe, root = Recipe.from_yaml(text, source="drive.yaml"), tmp_path / "root"
    build_at(recipe, root)
    first, second = sorted(tmp_path.glob("logs/*.mcap"))
    assert purge(str(root), [first.stem]).is_proven
    first.unlink()
    shutil.copy2(second, first)  # as one that was packed anew, its content is another
    plan = plan_build(recipe, str(root))
    warning, duplicate = plan.warnings
    assert duplicate.text.startswith(f"{first.stem}: same content as {second.stem}")
    assert warning.text.startswith(f"{first.stem}: a log of this name was purged.")
    assert [log.task.log_id for log in plan.logs] == [first.stem]


def test_a_unit_that_is_lost_afterwards_is_repaired_without_it(erased, tmp_path):
    _, root, _ = erased
    shutil.copytree(root, tmp_path / "root")
    store = Store.at(str(tmp_path / "root"))
    [lost, *_] = sorted((tmp_path / "root/parts/tar").glob("*/*/*.tar"))
    before = lost.read_bytes()
    lost.unlink()
    assert repair(store.uri, num_workers=1).is_sound
    assert lost.read_bytes() == before


def test_a_copy_of_the_log_under_another_name_lacks_that_time_too(erased, tmp_path):
    recipe, root, time = erased
    shutil.copytree(root, tmp_path / "root")
    copied = tmp_path / "logs/another.mcap"
    copied.parent.mkdir()
    shutil.copy2(next(p for p in (root.parent / "logs").iterdir() if p.stem == time.log), copied)
    plan = plan_build(
        recipe.model_copy(update={"logs": (str(copied),), "vanished": "drop"}), str(tmp_path / "root")
    )
    made = build(plan).manifest
    assert [(one.log_id, one.dropped["purged"]) for one in made.logs] == [("another", 10)]


def test_a_purged_log_under_another_name_is_left_out_and_named(quick_drive, tmp_path):
    shutil.copytree(quick_drive.logs[0].parent, tmp_path / "logs")
    text = quick_drive.text.replace(str(quick_drive.logs[0].parent), str(tmp_path / "logs"))
    recipe, root = Recipe.from_yaml(text, source="drive.yaml"), tmp_path / "root"
    build_at(recipe, root)
    gone, *others = sorted(path.stem for path in (tmp_path / "logs").iterdir())
    assert purge(str(root), [gone]).is_proven
    (tmp_path / f"logs/{gone}.mcap").rename(tmp_path / "logs/again.mcap")
    for hash in ("ends", "full"):
        plan = plan_build(recipe.model_copy(update={"hash": hash}), str(root))
        assert "again: left out, since it has the content of a log that was purged" in plan.notes
        assert plan.num_purged == 1
    made = build_at(recipe, root).manifest
    assert [record.log_id for record in made.logs] == others


def test_a_log_that_has_the_content_of_a_purged_one_is_named(tmp_path):
    store = Store.at(str(tmp_path / "root"))
    commit_version(store, 1, ["a", "b"])
    logs = read_manifest(store).logs
    same = [dataclasses.replace(record, content_id="the same") for record in logs]
    commit_version(store, 2, [], logs=write_records(store, same))
    done = purge(store.uri, ["a"], dry_run=True)
    assert done.left == ["b: has the same content as a; purge it, too"]


def test_what_cannot_be_erased_is_refused_before_anything_goes(drive, built, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(built, root)
    log_id = read_manifest(Store.at(str(root))).logs[0].log_id
    with pytest.raises(UsageError, match="nothing was recorded from 1 to 2: its messages run from"):
        purge(str(root), [], [ErasedTime(log_id, 1, 2)])
    with pytest.raises(UsageError, match="is empty"):
        ErasedTime(log_id, 2, 2)
    with pytest.raises(UsageError, match="nothing to erase"):
        purge(str(root))
    store = Store.at(str(tmp_path / "gone"))
    commit_version(store, 1, ["a"])
    with pytest.raises(UsageError, match=r"its files are needed to build its other rows again.*--log a"):
        purge(store.uri, [], [ErasedTime("a", 0, MAX_TIME)])
    assert not (root / "versions/purged").exists()
    for wrong in ("x", "x:..", "x:1..z", "x:2025-13-01T00:00:00Z..", f"x:{2**63}.."):
        said = command("purge", str(root), "--rows", wrong)
        assert said.returncode == 2
        assert "--rows" in said.stderr
    said = command("purge", str(root), "--rows", f"{log_id}:1970-01-01T00:00:00.5Z..", "--dry-run")
    assert said.returncode == 0, said.stderr


def test_what_was_erased_adds_up(erased):
    one = Tombstone("x", ("a",), (), (), "", (), (), (3,))
    more = Tombstone("x", (), (), (), "why", ((5, 9),), ("b",), ())
    both = one.merged(more).merged(Tombstone("x", (), (), (), "", ((1, 5),), (), ()))
    assert (both.ranges, both.contents, both.redacted, both.sizes) == (((1, 9),), ("a",), ("b",), (3,))
    assert both.merged(Tombstone("x", ("c",), (), (), "", (), (), ())).sizes == ()  # nobody knows all


def test_a_content_that_was_erased_as_a_whole_is_known_as_what_it_is(drive):
    """And so is left out, though some time was erased of another log of that name."""
    path = [str(drive.logs[0])]
    summary = open_log(path).summary
    some = ((summary.first, summary.first + 10**9),)
    name = digest_of_log("x")

    def content(redactions, log_id="x"):
        return open_log(path, OpenOptions(redactions=redactions), log_id).summary.content_id

    assert content({name: some}, "y") == summary.content_id
    assert content({name: some, summary.content_id: ()}) == summary.content_id
    assert content({name: some}) == content({summary.content_id: some}, "y") != summary.content_id


def test_a_static_column_takes_the_last_message_before_what_was_erased(drive):
    whole = open_log([str(drive.logs[0])])
    first, last = whole.summary.first, whole.summary.last
    log = _redacted(whole, (first + 10**9, last + 1))
    kept = whole.read({"/imu": TopicRequest(first, first + 10**9, ("log",))})["/imu"]
    assert log.last_message("/imu").position == [kept.position[-1]]
    assert len(_redacted(whole, (first, last + 1)).last_message("/imu")) == 0
    again = pickle.loads(pickle.dumps(log))
    assert again.summary.content_id == log.summary.content_id != whole.summary.content_id


def _redacted(log, *ranges) -> RedactedLog:
    return RedactedLog(log, "x", {digest_of_log("x"): ranges})
