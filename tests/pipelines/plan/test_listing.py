"""A listing decides: which logs a plan opens, and which it takes for those that a build opened before."""

import itertools
import os
import pathlib
import shutil
import types
from collections import Counter

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3
from fsspec.implementations.memory import MemoryFileSystem

from logloom.errors import LogReadError, RecipeError, UsageError
from logloom.io.logs import folders, listings
from logloom.io.logs.files import sidecars
from logloom.io.logs.opening import open_log
from logloom.pipelines.build.build import build
from logloom.pipelines.plan import logs as plan_logs
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.plan.summary import plan_summary
from logloom.pipelines.purge.purge import purge
from logloom.recipe import Recipe
from tests.io.logs.rosbag2.test_rosbag2 import db3_file
from tests.transforms.ros2_logs import SECOND, SPEED, START, speeds, write_log

pytestmark = pytest.mark.usefixtures("_settled_at_once")

NUMBERS = itertools.count()
MEMORY = "index/listing"


@pytest.fixture
def asked(monkeypatch) -> Counter[str]:
    """What an object store in memory, which tells ETags, is asked for."""
    counts: Counter[str] = Counter()
    plain = {name: getattr(MemoryFileSystem, name) for name in ("ls", "find", "info", "cat_file")}

    def tagged(fs, info):
        if info["type"] == "directory":
            return info
        return info | {"ETag": f'"{blake3(fs.store[info["name"]].getvalue()).hexdigest()}"'}

    def ls(self, path, detail=True, **kwargs):
        counts["ls"] += 1
        found = plain["ls"](self, path, detail=True, **kwargs)
        return [tagged(self, info) if detail else info["name"] for info in found]

    def find(self, path, *args, detail=False, **kwargs):
        counts["find"] += 1
        found = plain["find"](self, path, *args, detail=True, **kwargs)
        return {name: tagged(self, info) for name, info in found.items()} if detail else list(found)

    def info(self, path, **kwargs):
        counts["info"] += 1
        return tagged(self, plain["info"](self, path, **kwargs))

    def cat_file(self, path, *args, **kwargs):
        counts["cat_file"] += 1
        return plain["cat_file"](self, path, *args, **kwargs)

    for ask in (ls, find, info, cat_file):
        monkeypatch.setattr(MemoryFileSystem, ask.__name__, ask)
    return counts


def recipe(logs: str, more: str = "", column: str = "{topic: /can, field: speed}") -> Recipe:
    text = f"name: t\nlogs: ['{logs}']\nclock: {{rate: 10}}\ncolumns:\n  speed: {column}\n"
    text += "outputs: {tar: {}}\n"
    return Recipe.from_yaml(text + more, source="drive.yaml")


def logs_in(folder: pathlib.Path, *names: str, count: int = 12) -> None:
    """Logs that differ in size, and in their bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        topics = {"/can": (SPEED, speeds(count=count + number))} if count else {}
        write_log(folder / f"{name}.mcap", topics)


@pytest.fixture
def archive(tmp_path) -> pathlib.Path:
    logs_in(tmp_path / "logs", "a", "b", "c")
    return tmp_path


def planned(archive: pathlib.Path, *more: str, logs: str = "logs/*.mcap", **choices):
    return plan_build(recipe(logs, *more), str(archive / "root"), base=str(archive), **choices)


def built(archive: pathlib.Path, *more: str, **choices):
    return build(planned(archive, *more, **choices)).manifest


def test_logs_that_are_listed_as_they_were_are_not_opened_but_for_one_that_the_recipe_is_held_to(
    archive, opened
):
    first = built(archive)
    assert opened == ["a", "b", "c"]
    plan = planned(archive)
    assert plan.up_to_date
    assert plan.opened == ("a",)
    assert opened[3:] == ["a"]
    logs_in(archive / "logs", "d")
    plan = planned(archive)
    assert [log.task.log_id for log in plan.logs] == ["d"]
    summary = plan_summary(plan)
    assert summary["logs_opened"] == 2
    assert summary["recipe_held_to"] == ["a"]
    assert opened[4:] == ["d", "a"]
    second = build(plan).manifest
    assert list(second.logs)[:3] == list(first.logs)
    assert planned(archive).up_to_date


def test_versions_have_the_same_bytes_whether_or_not_anything_is_remembered(archive, tmp_path):
    built(archive)
    logs_in(archive / "logs", "d")
    shutil.copytree(archive / "root", tmp_path / "other" / "root")
    (tmp_path / "other/root" / MEMORY).unlink()
    recipes = [recipe(f"{archive}/logs/*.mcap")] * 2
    for root, own in zip((archive / "root", tmp_path / "other/root"), recipes, strict=True):
        build(plan_build(own, str(root)))
    names = ["versions/00000001.json", "versions/00000002.json"]
    for name in names:
        assert (archive / "root" / name).read_bytes() == (tmp_path / "other/root" / name).read_bytes()


def test_beside_a_tombstone_only_logs_like_the_purged_one_are_looked_at(archive, monkeypatch):
    built(archive)
    assert purge(str(archive / "root"), ["b"]).is_proven  # with what is remembered
    (archive / "logs/b.mcap").rename(archive / "logs/z.mcap")
    assert [log.log_id for log in built(archive).logs] == ["a", "c"]
    looked = []
    real = plan_logs.PlanLogs._is_purged
    monkeypatch.setattr(
        plan_logs.PlanLogs,
        "_is_purged",
        lambda self, row, log: looked.append(log.log_id) or real(self, row, log),
    )
    plan = planned(archive)
    assert [log.task.log_id for log in plan.logs] == []
    assert set(looked) == {*plan.opened, "z"}
    assert "c" not in looked
    assert any(note.startswith("z: left out, since it has the content of a log") for note in plan.notes)


@pytest.mark.parametrize(("settled", "seen"), [(60 * SECOND, ["b"]), (-3600 * SECOND, [])])
def test_other_bytes_of_the_same_size_written_in_the_same_tick_are_seen(archive, monkeypatch, settled, seen):
    monkeypatch.setattr(listings, "SETTLED_NS", settled)
    path = archive / "logs/b.mcap"
    before, size = path.stat(), path.stat().st_size
    built(archive)
    write_log(path, {"/can": (SPEED, [(t, {**value, "gear": 7}) for t, value in speeds(count=13)])})
    assert path.stat().st_size == size

    # As on a disk whose times are so coarse that nothing in the listing has changed. Without a margin, a
    # stamp would be believed that says nothing.
    def stat(name):
        return before if str(name) == str(path) else os.stat(name)

    monkeypatch.setattr(listings, "os", types.SimpleNamespace(stat=stat, scandir=os.scandir))
    assert [log.task.log_id for log in planned(archive).logs] == seen


def test_a_file_written_again_with_its_old_time_of_change_is_opened(archive, opened):
    built(archive)
    path = archive / "logs/b.mcap"
    before, data = path.stat(), path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(LogReadError, match=r"b\.mcap"):
        planned(archive)


def test_a_touched_log_of_equal_bytes_is_opened_and_its_record_stays(archive, opened):
    built(archive)
    opened.clear()
    os.utime(archive / "logs/b.mcap")
    plan = planned(archive)
    assert plan.up_to_date
    assert sorted(opened) == ["a", "b"]
    build(plan)
    opened.clear()
    assert planned(archive).up_to_date
    assert opened == ["a"]


def test_a_replaced_log_is_built_again(archive, opened):
    built(archive)
    shutil.copy2(archive / "logs/c.mcap", archive / "logs/b.mcap")
    plan = planned(archive)
    assert [log.task.log_id for log in plan.logs] == ["b"]


def test_moved_logs_are_opened_and_vanished_ones_refused_or_kept(archive, opened):
    built(archive)
    opened.clear()
    (archive / "logs").rename(archive / "moved")
    plan = planned(archive, logs="moved/*.mcap")
    assert sorted(opened) == ["a", "b", "c"]
    assert [log.task.log_id for log in plan.logs] == ["a", "b", "c"]  # their records name other URIs
    assert build(plan).built == 0
    (archive / "moved/b.mcap").unlink()
    plan = planned(archive, "vanished: keep\n", logs="moved/*.mcap")
    assert plan.dropped == ("b",)
    assert plan.opened == ("a",)
    assert {record.log_id: record.status for record in build(plan).manifest.logs}["b"] == "kept"


def test_another_recipe_opens_what_it_builds(archive, opened):
    built(archive)
    opened.clear()
    other = recipe("logs/*.mcap", column="{topic: /can, field: gear}")
    plan = plan_build(other, str(archive / "root"), base=str(archive))
    assert len(plan.logs) == 3
    assert sorted(opened) == ["a", "b", "c"]


def test_a_name_that_another_output_can_not_hold_is_said_before_anything_is_built(tmp_path):
    logs_in(tmp_path / "logs", "A", "__b__")
    text = "name: t\nlogs: [logs/*.mcap]\nclock: {rate: 10}\ncolumns:\n  speed: {topic: /can, field: speed}\n"
    first = Recipe.from_yaml(text + "outputs: {table: {}}\n", source="drive.yaml")
    build(plan_build(first, str(tmp_path / "root"), base=str(tmp_path)))
    other = Recipe.from_yaml(text + "outputs: {tar: {}}\n", source="drive.yaml")
    with pytest.raises(UsageError, match="'__b__' can't name tar members"):
        plan_build(other, str(tmp_path / "root"), base=str(tmp_path))


def test_what_some_logs_lack_is_said_of_those_that_were_not_opened_too(archive, opened):
    write_log(archive / "logs/quiet.mcap", {"/other": (SPEED, speeds(count=12))})
    first = planned(archive)
    assert any("1 log (quiet) has no message of /can" in note for note in first.notes)
    build(first)
    opened.clear()
    again = planned(archive)
    assert again.notes == first.notes
    assert again.up_to_date
    assert opened == ["a"]
    with pytest.raises(RecipeError, match=r"1 log \(quiet\) has no message of /can.*missing: fail"):
        plan_build(
            recipe("logs/*.mcap", column="{topic: /can, field: speed, missing: fail}"),
            str(archive / "root"),
            base=str(archive),
        )


def test_hash_full_reads_all_logs_each_time(archive, opened):
    built(archive, "hash: full\n")
    assert not (archive / "root" / MEMORY).exists()
    opened.clear()
    assert planned(archive, "hash: full\n").up_to_date
    assert opened == ["a", "b", "c"]


def test_a_trial_with_a_limit_forgets_nothing(archive, opened):
    built(archive)
    before = (archive / "root" / MEMORY).read_bytes()
    build(planned(archive, "vanished: drop\n", limit=1))
    assert (archive / "root" / MEMORY).read_bytes() == before


def test_what_is_remembered_may_be_lost_damaged_or_nonsense(archive, opened):
    built(archive)
    path = archive / "root" / MEMORY
    good = path.read_bytes()
    store = sidecars.Sidecars(str(path.parent), {})
    data = store.load("listing")
    assert data is not None
    one = data["profiles"][0]["/can"]
    lies = [
        data | {"kinds": np.array([0, 1, 0], "<i4").tobytes()},
        data | {"kinds": data["kinds"][:-1]},
        data | {"prints": data["prints"][::-1]},
        data | {"contents": b""},
        data | {"profiles": []},
        data | {"profiles": [{"/can": one[:-1]}]},
        data | {"profiles": [{"/can": [*one[:-1], "yes"]}]},
        data | {"profiles": [["/can"]]},
        data | {"orders": [[0, [1, 0]], [1, [3]]]},
        data | {"orders": [[0, [1, 0]], [1, [1, 0]], [2, [1, 0]]]},
        data | {"unfinished": [[0, ["x"]]]},
        data | {"bags": [1]},
        data | {"topics": None},
        {},
    ]
    for lie in lies:
        path.unlink()
        store.save("listing", lie)
        opened.clear()
        assert planned(archive).up_to_date, lie
        assert opened == ["a", "b", "c"], lie
    for bad in (b"", good[:-1], good[:40] + bytes([good[40] ^ 1]) + good[41:]):
        path.unlink()
        path.write_bytes(bad)
        opened.clear()
        assert planned(archive).up_to_date
        assert opened == ["a", "b", "c"]
    path.unlink()
    assert build(planned(archive)).manifest.version == 1
    assert path.read_bytes() == good


def test_what_is_remembered_wrongly_of_topics_or_content_builds_nothing_wrong(archive, opened):
    built(archive)
    path = archive / "root" / MEMORY
    store = sidecars.Sidecars(str(path.parent), {})
    data = store.load("listing")
    assert data is not None
    type_, *rest = data["profiles"][0]["/can"]
    for lie in (
        {"contents": bytes(96)},
        {"profiles": [{}]},
        {"profiles": [{"/can": [type_, *rest[:-1], False]}]},
        {"profiles": [{"/can": ["other", "json", *rest[1:]]}]},
    ):
        store.save("listing", data | lie)
        plan = planned(archive)
        assert plan.up_to_date, lie
        assert plan.kept.logs == 3


@pytest.mark.parametrize("on_error", ["skip", "fail"])
def test_a_log_that_goes_once_it_is_listed_is_unreadable(archive, monkeypatch, on_error):
    built(archive, f"on_error: {on_error}\n")

    def open_or_not(uris, *more):
        pathlib.Path(archive / "logs/a.mcap").unlink(missing_ok=True)
        return open_log(uris, *more)

    monkeypatch.setattr(plan_logs, "open_log", open_or_not)
    if on_error == "fail":
        with pytest.raises(LogReadError, match=r"a\.mcap: there is no such file"):
            planned(archive, "on_error: fail\n")
        return
    plan = planned(archive, "on_error: skip\n")
    assert [record.log_id for record in plan.unreadable] == ["a"]
    assert plan.opened == plan.samples == ("b",)


@pytest.mark.parametrize("beside", ["-wal", "-journal"])
def test_what_a_recorder_left_beside_a_bag_is_said_although_the_bag_stays(tmp_path, beside):
    (tmp_path / "logs").mkdir()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        db3_file(tmp_path / name).rename(tmp_path / f"logs/{name}.db3")
    rates = recipe("logs/*.db3", column="{topic: /imu, field: angular_velocity.x}")
    build(plan_build(rates, str(tmp_path / "root"), base=str(tmp_path)))
    if beside == "-wal":
        with open(tmp_path / "logs/b.db3", "r+b") as file:
            file.seek(18)
            file.write(b"\2\2")
        build(plan_build(rates, str(tmp_path / "root"), base=str(tmp_path)))
    (tmp_path / f"logs/b.db3{beside}").write_bytes(b"what the recorder wrote last")
    plan = plan_build(rates, str(tmp_path / "root"), base=str(tmp_path))
    assert plan.opened == ("a", "b")
    assert any("b.db3: " in note and f"the file {beside} beside it" in note for note in plan.notes)


def test_a_root_that_takes_nothing_more_has_its_logs_opened_again(archive, opened, monkeypatch):
    def refuse(self, name, data):
        raise OSError("read-only")

    monkeypatch.setattr(sidecars.Sidecars, "save", refuse)
    assert built(archive).version == 1
    assert planned(archive).up_to_date


def on_store(archive: pathlib.Path) -> str:
    """The archive's logs in an object store."""
    bucket = f"memory://listing-{next(NUMBERS)}"
    for path in sorted((archive / "logs").iterdir()):
        fsspec.filesystem("memory").pipe_file(f"{bucket}/logs/{path.name}", path.read_bytes())
    return bucket


def test_the_requests_of_a_plan_do_not_grow_with_the_logs_that_stay(archive, tmp_path, asked):
    requests = []
    for more in ((), [f"drive-{number:03}" for number in range(30)]):
        logs_in(archive / "logs", *more)
        bucket = on_store(archive)
        own, root = recipe(f"{bucket}/logs/*.mcap"), str(tmp_path / f"root-{len(more)}")
        build(plan_build(own, root))
        asked.clear()
        assert plan_build(own, root).up_to_date
        requests.append(dict(asked))
    assert requests[0] == requests[1]
    assert sum(requests[0].values()) < 15, requests


def test_an_object_that_was_uploaded_again_is_opened_and_other_bytes_are_built(
    archive, tmp_path, asked, opened
):
    bucket, fs = on_store(archive), fsspec.filesystem("memory")
    own, root = recipe(f"{bucket}/logs/*.mcap"), str(tmp_path / "root")
    build(plan_build(own, root))
    opened.clear()
    fs.pipe_file(f"{bucket}/logs/b.mcap", (archive / "logs/b.mcap").read_bytes())
    assert plan_build(own, root).up_to_date
    assert opened == ["a"]
    fs.pipe_file(f"{bucket}/logs/b.mcap", (archive / "logs/c.mcap").read_bytes())
    opened.clear()
    assert [log.task.log_id for log in plan_build(own, root).logs] == ["b"]
    assert opened == ["b", "a"]


def test_a_store_that_tells_neither_etag_nor_time_has_its_logs_opened(archive, tmp_path, opened):
    own, root = recipe(f"{on_store(archive)}/logs/*.mcap"), str(tmp_path / "root")
    build(plan_build(own, root))
    opened.clear()
    assert plan_build(own, root).up_to_date
    assert opened == ["a", "b", "c"]


def split_log(folder: pathlib.Path, *names: str) -> None:
    """A recording in several files, of which the last by name is the first in time."""
    folder.mkdir(parents=True)
    for number, name in enumerate(reversed(names)):
        messages = speeds(start=START + number * 10 * SECOND, count=12)
        write_log(folder / name, {"/can": (SPEED, messages)})


def test_a_log_of_several_files_is_told_by_all_of_them(tmp_path, opened):
    split_log(tmp_path / "logs/drive", "one.mcap", "two.mcap")
    more = 'log_id: "{parent}"\n'
    manifest = built(tmp_path, more, logs="logs/*/*.mcap")
    (record,) = manifest.logs
    assert [pathlib.Path(uri).name for uri in record.uris] == ["two.mcap", "one.mcap"]
    logs_in(tmp_path / "logs/single", "x")
    built(tmp_path, more, logs="logs/*/*.mcap")
    opened.clear()
    plan = planned(tmp_path, more, logs="logs/*/*.mcap")
    assert plan.up_to_date
    assert plan.opened == ("drive",)
    os.utime(tmp_path / "logs/drive/two.mcap")
    split_log(tmp_path / "other", "three.mcap")
    plan = planned(tmp_path, more, logs="logs/*/*.mcap")
    assert plan.up_to_date
    assert plan.opened == ("drive",)
    write_log(
        tmp_path / "logs/drive/three.mcap", {"/can": (SPEED, speeds(start=START + 60 * SECOND, count=12))}
    )
    plan = planned(tmp_path, more, logs="logs/*/*.mcap")
    assert [log.task.log_id for log in plan.logs] == ["drive"]


def test_the_metadata_of_a_bag_that_stays_is_not_read_again(tmp_path, opened, monkeypatch):
    looked = []
    plain = folders.missing_files
    monkeypatch.setattr(folders, "missing_files", lambda *args: looked.append(args) or plain(*args))
    for bag in ("bag-a", "bag-b"):
        logs_in(tmp_path / "logs" / bag, "x_0")
        text = "rosbag2_bagfile_information:\n  relative_file_paths: [x_0.mcap]\n"
        (tmp_path / "logs" / bag / "metadata.yaml").write_text(text)
    manifest = built(tmp_path, logs="logs/*")
    assert [record.log_id for record in manifest.logs] == ["bag-a", "bag-b"]
    assert len(looked) == 2
    opened.clear()
    plan = planned(tmp_path, logs="logs/*")
    assert plan.up_to_date
    assert len(looked) == 2
    assert plan.opened == ("bag-a",)
    (tmp_path / "logs/bag-b/metadata.yaml").write_text(text.replace("x_0.mcap", "x_0.mcap, x_1.mcap"))
    with pytest.raises(LogReadError, match=r"x_1\.mcap"):
        planned(tmp_path, logs="logs/*")


def test_a_table_with_text_is_opened_each_time_since_it_may_name_files(tmp_path, opened):
    for drive in ("a", "b"):
        folder = tmp_path / "logs" / drive
        folder.mkdir(parents=True)
        columns = {"timestamp_ns": [START + i * SECOND for i in range(3)], "speed": [1.0, 2.0, 3.0]}
        if drive == "b":
            columns["image"] = ["0.jpg", "1.jpg", "2.jpg"]
        pq.write_table(pa.table(columns), folder / "can.parquet")
    built(tmp_path, logs="logs/*")
    opened.clear()
    assert planned(tmp_path, logs="logs/*").up_to_date
    assert opened == ["can", "can"]  # b, and a for the recipe
    (tmp_path / "logs/b/0.jpg").write_bytes(b"came later")
    plan = planned(tmp_path, logs="logs/*")
    assert [log.task.log_id for log in plan.logs] == ["b"]
