"""Versions side by side and one after the other: `versions`, `diff` and `tag`."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logloom.cli.terminal.alignment import table_lines
from logloom.cli.versions import _cells, _reasons
from logloom.errors import UsageError
from logloom.io.catalog import commit_times, log_statistics
from logloom.io.catalog.commit_times import read_times, times_file, write_times
from logloom.io.catalog.entries import read_log_part
from logloom.io.catalog.manifest import read_manifest, resolve_version
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.pages import LogRecord, page_file
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.removal_notes import removed_file
from logloom.io.catalog.removed_versions import PAST
from logloom.io.catalog.tags import read_tags
from logloom.io.catalog.tombstones import digest_of_log
from logloom.io.catalog.version_files import version_file
from logloom.io.logs.interface import MAX_TIME, MIN_TIME
from logloom.io.storage.store import Store
from logloom.pipelines.gc.gc import collect_garbage
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.stats import stats
from logloom.pipelines.stats.stats import column_statistics
from logloom.pipelines.versions import history
from logloom.pipelines.versions.diff import LogChanges, compare
from logloom.pipelines.versions.history import follow, versions
from logloom.pipelines.versions.tag import remove_tags, tag
from logloom.recipe import Keep, Recipe
from tests.forking import command
from tests.pipelines.conftest import build_at
from tests.pipelines.roots import age, commit_version
from tests.transforms.ros2_logs import SECOND, SPEED, START, speeds, write_log

JANUARY = 1_767_225_600  # 2026


def record(number: int, **changes) -> LogRecord:
    made = LogRecord(
        f"car-{number:06}",
        (f"/a/{number}.mcap",),
        f"c{number}",
        "all",
        "k",
        "whole",
        "",
        10,
        12,
        {},
        0,
        units=2,
    )
    return replace(made, **changes)


@pytest.fixture
def store(tmp_path):
    return Store.at(str(tmp_path / "root"))


@pytest.fixture(scope="module")
def grown(drive, tmp_path_factory):
    """Version 1 of one drive, version 2 of two with a split and another rate; not to be changed."""
    root = tmp_path_factory.mktemp("grown") / "root"
    build_at(drive.recipe(), root, limit=1)
    other = drive.recipe(**{"rate: 10": "rate: 4", "outputs:": "split: {train: 0.5, val: 0.5}\noutputs:"})
    build_at(other, root)
    return Store.at(str(root))


def test_a_version_says_when_and_by_which_build_it_was_made_and_what_changed(grown):
    second, first = versions(grown)
    assert (first.version, first.parent, first.changes) == (1, None, None)
    assert (second.version, second.parent) == (2, 1)
    assert second.changes == {"added": 1, "gone": 0, "changed": 1}
    assert second.engine == "direct"
    times = read_times(grown, 2)
    assert (second.started, second.committed) == (times.started, times.committed)
    assert 0 < times.committed - 3600 < times.started <= times.committed
    assert first.committed <= second.started
    assert second.run != first.run


def test_a_difference_names_logs_totals_and_lines_of_the_recipe(grown, drive):
    before, after = (read_manifest(grown, number) for number in (1, 2))
    found = compare(("a", "b"), before, after, 5)
    said = found.to_json()
    assert said["logs"]["counts"] == {"added": 1, "gone": 0, "changed": 1}
    assert said["logs"]["added"] == [drive.logs[1].stem]
    assert "split" in said["logs"]["changed"][0]["differs"]
    assert said["totals"]["logs"] == (1, 2)
    units = [one.logs.totals["units"] // len(one.outputs) for one in (before, after)]
    assert said["totals"]["partitions"] == tuple(units)
    assert {"-  rate: 10", "+  rate: 4", "+split:"} <= set(said["recipe"])
    assert not said["same"]
    assert not found.columns
    assert compare(("a", "a"), after, after).is_same


def test_a_log_is_followed_through_the_versions_that_have_it(grown, drive):
    later, earlier = follow(grown, drive.logs[0].stem)
    assert (earlier.versions, later.versions) == ((1,), (2,))
    assert earlier.record.uris == (str(drive.logs[0]),)
    assert earlier.record.content_id == later.record.content_id
    assert {unit.output for _, unit in later.units} == set(read_manifest(grown, 2).outputs)
    assert later.to_json()["units"][0]["identity"] == later.units[0][1].identity
    (only,) = follow(grown, drive.logs[1].stem)
    assert only.versions == (2,)
    with pytest.raises(UsageError, match="no version has a log 'drive-77'"):
        follow(grown, "drive-77")


def test_a_tag_names_a_version_until_it_is_moved_or_taken(grown, tmp_path):
    store = Store.at(str(tmp_path))
    for number in (1, 2):
        store.create(version_file(number), grown.read(version_file(number)))
    assert tag(store, 1, ["gold", "paper"]) == (1, {"gold": 1, "paper": 1})
    assert tag(store, "gold", ["gold"]) == (1, {"gold": 1, "paper": 1})
    with pytest.raises(UsageError, match="'gold' names version 1; use --move to move it"):
        tag(store, "latest", ["new", "gold"])
    assert "new" not in read_tags(store)
    assert tag(store, "latest", ["gold"], move=True)[1] == {"gold": 2, "paper": 1}
    assert resolve_version(store, "gold") == 2
    with pytest.raises(UsageError, match="no version has the tag 'silver'; there are gold, paper"):
        remove_tags(store, ["gold", "silver"])
    assert remove_tags(store, ["gold"]) == {"paper": 1}
    assert remove_tags(store, ["gold"]) == {"paper": 1}  # again, which changes nothing


def test_logs_that_came_went_or_changed_are_told_apart(store):
    before = write_records(store, [record(n) for n in range(6)])
    changed = {2: {"content_id": "other", "key": "other", "rows": 7}, 3: {"split": "val"}, 4: {"units": 3}}
    after = write_records(store, [record(n, **changed.get(n, {})) for n in range(1, 8)])
    found = LogChanges.between(before, after, 9)
    assert found.counts == {"added": 2, "gone": 1, "changed": 3}
    assert found.by_kind == {"content": 1, "split": 1, "rows": 1, "units": 1}
    assert found.added == ["car-000006", "car-000007"]
    assert found.gone == ["car-000000"]
    assert found.changed == [
        {"log_id": "car-000002", "differs": ["content", "rows"], "rows": [10, 7]},
        {"log_id": "car-000003", "differs": ["split"], "split": ["all", "val"]},
        {"log_id": "car-000004", "differs": ["units"], "units": [2, 3]},
    ]
    few = LogChanges.between(before, after, 1)
    assert (few.counts, few.by_kind) == (found.counts, found.by_kind)
    assert [few.added, few.gone, few.changed] == [found.added[:1], found.gone, found.changed[:1]]
    assert LogChanges.between(before, before).counts == {"added": 0, "gone": 0, "changed": 0}
    assert LogChanges.between(LogRecords(), after).counts == {"added": 7, "gone": 0, "changed": 0}


def test_pages_that_both_versions_have_are_not_read(store):
    logs = [record(n) for n in range(9000)]
    before = write_records(store, logs)
    after = write_records(store, [*logs, record(9000)])
    shared = {page.digest for page in before.pages} & {page.digest for page in after.pages}
    assert len(shared) == len(before.pages) - 1 > 1
    for page in before.pages[:-1]:
        store.path_of(page_file(page)).unlink()
    assert LogChanges.between(before, after).counts == {"added": 1, "gone": 0, "changed": 0}
    assert LogChanges.between(LogRecords.of(logs), LogRecords.of(logs[1:])).counts["gone"] == 1


def test_a_difference_names_columns_and_outputs(grown):
    after = read_manifest(grown, 2)
    columns = [{**column, "unit": "km"} for column in after.schema["columns"][1:]]
    other = replace(after, schema={"columns": columns, "sampled": []}, outputs={})
    changed = compare(("a", "b"), after, other)
    first = after.schema["columns"][0]["name"]
    assert changed.columns[first][1] is None
    assert all(pair[1].endswith(", km") for name, pair in changed.columns.items() if name != first)
    assert set(changed.outputs) == set(after.outputs)


def test_a_difference_tells_what_changed_in_statistics_and_a_log_has_its_own(grown, monkeypatch):
    root = grown.uri
    told = json.loads(command("diff", root, "1", "2", "--json").stdout)["statistics"]
    before, after = (column_statistics(root, version).columns() for version in (1, 2))
    for key in ("count", "min", "max", "mean"):
        pairs = [before["ego.speed"][key], after["ego.speed"][key]]
        assert told["ego.speed"].get(key, pairs) == pairs
        assert (key in told["ego.speed"]) == (pairs[0] != pairs[1])
        assert told["ego.position[1]"].get(key, [0, 0])[1] in (0, after["ego.position"][key][1])
    assert all(pair[0] != pair[1] for one in told.values() for pair in one.values())
    mean = [before["ego.speed"]["mean"], after["ego.speed"]["mean"]]
    for how in (["--all"], ["--all", "--md"]):
        shown = command("diff", root, "1", "2", *how).stdout
        assert f"mean {mean[0]:.6g} -> {mean[1]:.6g}" in shown
        assert ".age: " in shown
        assert "e+" not in shown
    assert "mean " not in command("diff", root, "1", "2").stdout
    assert json.loads(command("diff", root, "2", "2", "--json").stdout)["statistics"] == {}
    second, _ = json.loads(command("versions", root, "--log", "drive-00", "--json").stdout)
    (own,) = follow(grown, "drive-01")
    assert second["columns"]["ego.speed"] == follow(grown, "drive-00")[0].columns["ego.speed"]
    both = [second["columns"]["ego.speed"]["count"], own.columns["ego.speed"]["count"]]
    assert sum(both) == after["ego.speed"]["count"]
    assert f"ego.speed: {both[0]}, " in command("versions", root, "--log", "drive-00").stdout
    monkeypatch.setattr(stats, "MAX_LOGS", 1)
    monkeypatch.setattr(log_statistics, "MANY_LOGS", 1)
    both = read_manifest(grown, 1), read_manifest(grown, 2)
    stores = grown, Store.at(root, {"file": {}})
    assert stats.changed_statistics(stores, both, 1) is None
    assert stats.changed_statistics(stores, both) == stats.changes_of(before, after)
    assert json.loads(command("diff", root, "1", "2", "--statistics", "--json").stdout)["statistics"] == told


def test_a_difference_says_first_which_columns_splits_and_ranges_matter(grown, drive, tmp_path):
    said = json.loads(command("diff", grown.uri, "1", "2", "--json").stdout)
    before, after = (read_manifest(grown, number) for number in (1, 2))
    sizes = {"all": {"logs": -1, "rows": -before.logs[0].rows}}
    for one in after.logs:
        size = sizes.setdefault(one.split, {"logs": 0, "rows": 0})
        size["logs"], size["rows"] = size["logs"] + 1, size["rows"] + one.rows
    assert said["logs"]["splits"] == sizes
    assert f"  ~ all: -{before.logs[0].rows} rows, -1 logs" in command("diff", grown.uri).stdout
    build_at(drive.recipe(), tmp_path / "root", limit=1)
    silent = {
        "field: data, resample: nearest, tolerance: 50ms": "field: data, tolerance: 1ns",
        "camera.front, lidar.points]": "lidar.points]",
    }
    build_at(drive.recipe(**silent), tmp_path / "root", limit=1)
    said = json.loads(command("diff", str(tmp_path / "root"), "--json").stdout)
    (old, rows_before), (new, rows_after) = said["availability"]["camera.front"]
    assert (old, new) == (rows_before, 0)
    lines = command("diff", str(tmp_path / "root")).stdout.splitlines()
    heading = lines.index("less available")
    assert heading < lines.index("totals")
    assert lines[heading + 1] == f"  ~ camera.front: {old} of {rows_before} -> 0 of {rows_after} rows"


def test_bytes_of_a_version_are_those_of_its_units_and_assembled_outputs(grown, monkeypatch):
    second, _ = versions(grown)
    manifest = read_manifest(grown, 2)
    units = [entry for log in manifest.logs for entry in read_log_part(grown, log.part)]
    assert second.bytes == sum(u.size for u in units) + sum(part.size for part in manifest.assembled)
    assert second.units == len(units)
    monkeypatch.setattr(history, "MAX_PARTS", 1)
    assert [one.bytes is None for one in versions(grown)] == [True, False]
    assert [one.version for one in versions(grown, 1, count_bytes=True)] == [2]
    assert versions(grown, 1, count_bytes=False)[0].bytes is None


def test_a_version_without_the_notes_of_its_build_is_of_an_unknown_time(grown, tmp_path):
    root = tmp_path / "root"
    (root / "versions").mkdir(parents=True)
    for path in grown.path_of("versions").rglob("*.*"):
        target = root / path.relative_to(grown.path_of(""))
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    (root / version_file(1)).unlink()
    (root / times_file(2)).unlink()
    (root / removed_file(1)).touch()
    done = command("versions", str(root), "--no-bytes")
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(" 2 ")]
    assert "unknown" in line
    (one,) = versions(Store.at(str(root)), count_bytes=False)
    assert (one.started, one.run, one.changes) == (None, "", None)
    (root / removed_file(1)).unlink()
    (root / version_file(1)).write_bytes(b"{")
    done = command("versions", str(root), "--no-bytes")
    assert done.returncode == 3
    assert "version 1: " in done.stderr
    assert "Traceback" not in done.stderr


def nights(store, monkeypatch, days):
    """Versions, each committed on one of some days of January 2026, by number; None for an unknown one."""
    for number, (day, logs) in enumerate(days, 1):
        commit_version(store, number, logs)
        if day is not None:
            at = JANUARY + (day - 1) * 86400 + 3600
            monkeypatch.setattr(commit_times, "clock", lambda at=at: at)
            write_times(store, number, at - 600)
    monkeypatch.setattr(commit_times, "clock", lambda: JANUARY + 300 * 86400)


def test_a_day_names_its_last_version_unless_that_is_a_tag(store, monkeypatch):
    nights(store, monkeypatch, [(1, "a"), (1, "ab"), (3, "abc"), (7, "abcd")])
    assert resolve_version(store, "2026-01-01") == resolve_version(store, "2026-01-02") == 2
    assert read_manifest(store, "2026-01-05").version == 3
    with pytest.raises(UsageError, match="no version up to the end of 2025-12-31"):
        resolve_version(store, "2025-12-31")
    tag(store, 1, ["2026-01-05"])
    assert resolve_version(store, "2026-01-05") == 1
    with pytest.raises(UsageError, match="no version 9"):
        tag(store, 9, ["gold"])
    with pytest.raises(UsageError, match="no version '2026-02-30'"):
        resolve_version(store, "2026-02-30")
    store.replace(removed_file(2), b"")
    with pytest.raises(UsageError, match=r"version 2 \(2026-01-02\) was removed by `logloom gc`"):
        resolve_version(store, "2026-01-02")
    assert [one.version for one in versions(store, since="2026-01-03")] == [4, 3]
    assert [one.version for one in versions(store, since="2026-01-01")] == [4, 3, 1]
    assert [one.version for one in versions(store, since="2026-01-05")] == [4, 3, 1]  # the tag
    assert [one.version for one in versions(store, since="2026-01-08")] == []
    store.remove(times_file(4))
    assert [one.version for one in versions(store, since="2026-01-08")] == [4]


def test_commands_take_days(store, monkeypatch):
    nights(store, monkeypatch, [(1, "a"), (2, "ab"), (3, "bc")])
    said = json.loads(command("versions", store.uri, "--since", "2026-01-02", "--json").stdout)
    nothing = command("versions", store.uri, "--since", "2999-01-01")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert nothing.stderr == f"{store.uri}: no version since 2999-01-01\n"
    assert [one["version"] for one in said] == [3, 2]
    said = json.loads(command("diff", store.uri, "--since", "2026-01-01", "--json").stdout)
    assert (said["before"], said["after"]) == (f"{store.uri}@1", f"{store.uri}@3")
    assert (said["logs"]["added"], said["logs"]["gone"]) == (["b", "c"], ["a"])
    said = json.loads(command("diff", f"{store.uri}@2026-01-02", "--since", "1", "--json").stdout)
    assert (said["before"], said["after"]) == (f"{store.uri}@1", f"{store.uri}@2")
    done = command("diff", f"{store.uri}@1", f"{store.uri}@2", "--since", "1")
    assert done.returncode == 2
    assert "--since is compared with one version" in done.stderr
    assert purge(store.uri, ["a"]).is_proven
    done = command("diff", store.uri, "--since", "2026-01-01")
    assert f"- purged:{digest_of_log('a')[:16]}" in done.stdout
    assert "- a\n" not in done.stdout


def test_a_log_is_reported_without_the_versions_that_lie_between(store, monkeypatch):
    nights(store, monkeypatch, [(1, "a"), (2, "a"), (3, "a"), (4, "a")])
    tag(store, 2, ["gold"])
    collect_garbage(store.uri, keep=Keep(last=1))
    done = command("versions", store.uri, "--log", "a")
    assert "a in versions 2, 4\n" in done.stdout
    assert done.stderr == "versions 1, 3: had it, removed by `logloom gc`\n"


def test_which_versions_had_a_log_is_known_of_removed_ones_too(store, monkeypatch):
    nights(store, monkeypatch, [(1, "ab"), (2, "ab"), (3, "bc"), (4, "a"), (5, "c")])
    gone = read_manifest(store, 1).logs.pages[0]
    for _ in range(2):
        collect_garbage(store.uri, keep=Keep(last=1))
        assert [(one.versions, one.removed) for one in follow(store, "a")] == [((4,), True), ((1, 2), True)]
        stays = [(one.versions, one.removed) for one in follow(store, "c")]
        assert stays == [((5,), False), ((3,), True)]
        age(store.local, 30)
    assert not store.exists(page_file(gone))
    with pytest.raises(UsageError, match="no version has a log 'd'"):
        follow(store, "d")
    done = command("versions", store.uri, "--log", "a")
    assert (done.returncode, done.stderr) == (
        0,
        "version 4: had it, removed by `logloom gc`\nversions 1 to 2: had it, removed by `logloom gc`\n",
    )
    said = json.loads(command("versions", store.uri, "--log", "a", "--json").stdout)
    assert said == [{"versions": v, "problem": "", "removed": True} for v in ([4], [1, 2])]
    assert collect_garbage(store.uri).unknown == []
    store.remove(f"{PAST}/{gone.digest}")  # as of earlier software
    found = follow(store, "a")
    assert [(one.versions, bool(one.problem)) for one in found] == [((4,), False), ((1, 2), True)]
    assert command("versions", store.uri, "--log", "c").returncode == 0


def test_a_version_whose_manifest_is_lost_is_listed(tmp_path):
    store = Store.at(str(tmp_path / "root"))
    for number in (1, 2, 3):
        commit_version(store, number, ["a"])
    tag(store, 2, ["gold"])
    store.remove(version_file(2))
    done = command("versions", store.uri)
    assert done.returncode == 3
    assert "version 2 is gold" in done.stdout
    assert "the manifest of version 2 is lost" in done.stderr
    assert [one.version for one in versions(store) if one.problem] == [2]
    store.remove(version_file(3))
    assert [one.version for one in versions(store, 1)] == [3]
    store.remove(version_file(1))
    assert all(one.problem for one in versions(store))


def test_damage_is_told_of_the_version_that_has_it_and_of_no_other(tmp_path):
    store = Store.at(str(tmp_path / "root"))
    commit_version(store, 1, ["a"])
    second = commit_version(store, 2, ["a", "b"])
    commit_version(store, 3, ["a", "b", "c"])
    store.replace(page_file(second.logs.pages[0]), b"rot")
    done = command("versions", store.uri, "--json")
    assert done.returncode == 3
    third, damaged, first = json.loads(done.stdout)
    assert (third["problem"], third["logs"], third["changes"]) == ("", 3, None)
    assert "damaged" in damaged["problem"]
    assert {damaged[name] for name in ("parent", "logs", "rows", "units", "bytes", "changes")} == {None}
    assert (first["problem"], first["rows"]) == ("", 2)


def test_the_logs_of_a_version_are_listed_with_what_keeps_them_from_being_whole(tmp_path):
    store = Store.at(str(tmp_path / "root"))
    skipped = record(1, status="skipped", rows=0, reasons=("front.tf: 1 tick", "/a/1.mcap, byte 7: damaged"))
    logs = write_records(store, [record(0), skipped, record(2, splits={"train": 6, "val": 4}, split="all")])
    commit_version(store, 1, [], logs=logs, totals=logs.totals)
    commit_version(store, 2, ["a"])
    done = command("versions", f"{store.uri}@1", "--logs", "100", "--json")
    assert [tuple(one.values()) for one in json.loads(done.stdout)] == [
        ("car-000000", "all", "whole", 10, ""),
        ("car-000001", "all", "skipped", 0, "/a/1.mcap, byte 7: damaged (and 1 more reason)"),
        ("car-000002", "train, val", "whole", 10, ""),
    ]
    done = command("versions", f"{store.uri}@1", "--logs", "2")
    assert "car-000001" in done.stdout
    assert "car-000002" not in done.stdout
    assert "1 more log; --logs 3 lists all" in done.stderr
    assert "2 more" not in command("versions", store.uri, "--logs", "100").stderr
    second, first = versions(store)
    assert (second.statuses, first.statuses) == ({"whole": 1}, {"whole": 2, "skipped": 1})
    assert [_cells(one)[-1] for one in (second, first)] == ["+1 -3", "-, 1 skipped"]
    with pytest.raises(
        UsageError,
        match=r"no version has a log 'aa'; did you mean a\? `logloom versions .*` lists",
    ):
        follow(store, "aa")


def test_a_log_is_followed_past_versions_that_are_damaged_or_lost(tmp_path):
    store = Store.at(str(tmp_path / "root"))
    commit_version(store, 1, ["a"])
    second = commit_version(store, 2, ["a", "b"])
    for number in (3, 4, 5):
        commit_version(store, number, ["a", "c"])
    store.replace(page_file(second.logs.pages[0]), b"rot")
    store.remove(version_file(4))
    done = command("versions", store.uri, "--log", "a", "--json")
    assert done.returncode == 3
    found = json.loads(done.stdout)
    assert [one["versions"] for one in found] == [[5], [4], [3], [2], [1]]
    assert [one.get("status") for one in found] == ["whole", None, "whole", None, "whole"]
    assert "lost" in found[1]["problem"]
    assert "damaged" in found[3]["problem"]
    done = command("versions", store.uri, "--log", "a")
    assert "a in version 3" in done.stdout
    assert "version 2: " in done.stderr
    with pytest.raises(UsageError, match=r"(?s)no version has a log 'x'.*version 4: .* lost"):
        follow(store, "x")


def test_versions_that_say_the_same_of_a_log_are_told_as_one(store):
    from tests.io.catalog.test_manifest import make_manifest

    nights = [[record(1)], [record(1), record(2)], [record(2)], [record(1)], [record(1, rows=3)]]
    for number, logs in enumerate(nights, 1):
        manifest = make_manifest(number, write_records(store, logs))
        store.create(version_file(number), manifest.to_bytes())
    assert [one.versions for one in follow(store, "car-000001")] == [(5,), (4,), (1, 2)]


def test_the_commands_print_tables_markdown_and_json(grown):
    root = grown.uri
    said = json.loads(command("diff", root, "1", "2", "--json").stdout)
    assert said == json.loads(command("diff", f"{root}@1", f"{root}@2", "--json").stdout)
    assert said == json.loads(command("diff", root, "--json").stdout)
    assert "+ drive-01" in command("diff", root, "--md").stdout
    assert "```diff" in command("diff", root, "--md").stdout
    assert command("diff", f"{root}@1").returncode == 2
    assert command("diff", root, "1", "2", "3").returncode == 2
    assert "(+1)" in command("diff", root).stdout
    assert json.loads(command("versions", root, "--log", "drive-01", "--json").stdout)[0]["versions"] == [2]
    assert "version 2" in command("versions", root, "--log", "drive-01").stdout
    assert command("versions", root, "--log", "nothing").returncode == 2
    assert command("tag", root, "7").returncode == 2
    assert json.loads(command("versions", root, "--json").stdout)[0]["version"] == 2


def test_each_version_has_one_line_of_a_narrow_terminal(grown):
    tag(grown, 1, ["gold"])
    rows = [_cells(one) for one in versions(grown)]
    lines = list(
        table_lines(("version", "parent", "built", "run", "logs", "rows", "size", "changes"), rows, 80)
    )
    assert len(lines) == 4  # the head, a rule, and two versions
    assert "+1 ~1" in lines[2]
    said = command("versions", grown.uri).stdout
    remove_tags(grown, ["gold"])
    assert "version 1 is gold" in said


def test_a_root_with_a_version_where_a_bare_root_belongs_is_told_apart(grown, tmp_path):
    for verb, *rest in (
        ["versions"],
        ["versions", "--log", "drive-01"],
        ["drop", "drive-01"],
        ["tag", "gold", "--delete"],
    ):
        done = command(verb, f"{grown.uri}@1", *rest)
        assert done.returncode == 2
        assert "the root alone is expected here, without @1" in done.stderr
    done = command("drop", "--workers", "1", str(tmp_path / "nowhere"), "x")
    assert "there is no such file or folder" in done.stderr
    done = command("diff", grown.uri, "1")
    assert done.returncode == 2
    assert f"name another one, or write {grown.uri}@1 to compare it with its parent" in done.stderr


def test_units_that_are_open_in_time_say_so_in_json(grown):
    units = json.loads(command("versions", grown.uri, "--log", "drive-01", "--json").stdout)[0]["units"]
    entries = [unit for _, unit in follow(grown, "drive-01")[0].units]
    assert len(units) == len(entries)
    for said, entry in zip(units, entries, strict=True):
        assert said["start"] == (None if entry.start == MIN_TIME else entry.start)
        assert said["stop"] == (None if entry.stop == MAX_TIME else entry.stop)
    assert None in [unit["start"] for unit in units]
    assert None in [unit["stop"] for unit in units]


def test_log_says_how_much_was_refused_and_all_else_that_is_told(tmp_path):
    bad, good = speeds(12, delay=100 * SECOND), speeds(40, start=START + 10 * SECOND)
    write_log(tmp_path / "logs" / "a.mcap", {"/can": (SPEED, [*bad, *good])})
    labels = pa.table({"log_id": ["a"], "timestamp": [START + 1], "score": [0.5]})
    pq.write_table(labels, tmp_path / "t.parquet")
    text = (
        f"name: t\nlogs: {tmp_path}/logs/*\nclock: {{rate: 10}}\non_error: salvage\ncolumns:\n"
        f"  speed: {{topic: /can, field: speed}}\n  score: {{table: {tmp_path}/t.parquet, expect: one}}\n"
        "outputs: {tar: {columns: [speed]}}\n"
    )
    build_at(Recipe.from_yaml(text), tmp_path / "root")
    said = command("versions", str(tmp_path / "root"), "--log", "a").stdout
    assert "12 messages" in said
    assert "score: 1 of 1 label match no row" in said
    assert f"{tmp_path}/logs/a.mcap, byte" in said


def test_of_many_places_in_its_files_log_names_the_first_and_how_many_more_there_are():
    places = [f"/a/1.mcap, byte {number}: lost" for number in (7, 7, *range(8, 19))]
    told = list(_reasons(record(1, reasons=("a note", *places, "and 5 more, all listed in logs/x"))))
    assert told == [
        "a note",
        "/a/1.mcap, byte 7: lost (2 times)",
        *(f"/a/1.mcap, byte {number}: lost" for number in range(8, 12)),
        "and 5 more, all listed in logs/x",
        "… and 7 more places in its files, which --json lists",
    ]
