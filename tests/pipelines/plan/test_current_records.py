"""Records of logs that stay are told by columns; what columns say is what keys say."""

import os
import shutil
from dataclasses import replace

import pytest

from logloom.io.catalog.manifest import open_root
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.version_files import version_file
from logloom.io.logs.log_list import LogFiles, LogList, print_of
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan import current_records
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from tests.transforms.ros2_logs import SPEED, speeds, write_log

pytestmark = pytest.mark.usefixtures("_settled_at_once")

NAMES = ["a", "b", "c", "d e", "f-\u00e9", 'g"h']
SPLIT = "split: {train: 0.5, val: 0.5}\n"


@pytest.fixture
def archive(tmp_path):
    (tmp_path / "logs").mkdir()
    for number, name in enumerate(NAMES):
        write_log(tmp_path / f"logs/{name}.mcap", {"/can": (SPEED, speeds(count=12 + number))})
    build(planned(tmp_path, SPLIT))
    return tmp_path


def planned(archive, more="", column="{topic: /can, field: speed}", **choices):
    text = f"name: t\nlogs: ['logs/*.mcap']\nclock: {{rate: 10}}\ncolumns:\n  speed: {column}\n"
    text += "outputs: {tar: {}}\nvanished: drop\n"
    return plan_build(Recipe.from_yaml(text + more), str(archive / "root"), base=str(archive), **choices)


@pytest.fixture
def keys(monkeypatch) -> list[str]:
    """Logs whose keys are made; one key stands for all that look alike."""
    made: list[str] = []
    plain = current_records.task_of

    def task_of(job, logs, row, files):
        made.append(files.log_id)
        return plain(job, logs, row, files)

    monkeypatch.setattr(current_records, "task_of", task_of)
    monkeypatch.setattr(current_records, "_KEYS", 1)
    return made


def test_one_key_tells_of_all_logs_of_which_columns_say_the_same(archive, keys):
    assert planned(archive, SPLIT).up_to_date
    # One was opened, names of two are escaped in records, and one stands for the others.
    assert sorted(keys) == ["a", "b", "f-\u00e9", 'g"h']


CHANGES = {
    "nothing": (SPLIT, {}),
    "shares of splits": ("split: {train: 0.2, val: 0.8}\n", {}),
    "the order of splits": ("split: {val: 0.5, train: 0.5}\n", {}),
    "no splits": ("", {}),
    "a column": (SPLIT, {"column": "{topic: /can, field: speed, resample: next}"}),
}


@pytest.mark.parametrize("what", [*CHANGES, "content", "a name", "a log less"])
def test_columns_say_what_keys_say(archive, keys, monkeypatch, what):
    more, choices = CHANGES.get(what, (SPLIT, {}))
    logs = archive / "logs"
    if what == "content":
        write_log(logs / "c.mcap", {"/can": (SPEED, speeds(count=30))})
    elif what == "a name":
        shutil.move(logs / "c.mcap", logs / "z.mcap")
    elif what == "a log less":
        os.remove(logs / "b.mcap")
    seen = []
    for count in (1, len(NAMES)):
        monkeypatch.setattr(current_records, "_KEYS", count)
        plan = planned(archive, more, sample=None, **choices)
        seen.append(([log.task for log in plan.logs], plan.dropped, plan.kept, plan.up_to_date))
    assert seen[0] == seen[1]
    assert seen[0][3] == (what == "nothing")


@pytest.mark.parametrize("others", [{"b", "d e"}, {"b", 'g"h', "f-\u00e9"}, {"c"}])
def test_where_some_keys_are_others_all_are_made(archive, monkeypatch, others):
    store, before = open_root(Store.at(str(archive / "root")))
    logs = write_records(
        store,
        (replace(one, key="another") if one.log_id in others else one for one in before.logs),
    )
    store.create(version_file(2), replace(before, version=2, parent=1, logs=logs).to_bytes())
    for count in (1, 2, len(NAMES)):
        monkeypatch.setattr(current_records, "_KEYS", count)
        plan = planned(archive, SPLIT)
        found = {log.task.log_id for log in plan.logs}
        assert found == others if count > 1 or "b" in others else found <= others
        assert not plan.up_to_date or not found


def test_names_that_no_utf_8_has_come_back(tmp_path):
    name = os.fsdecode(b"/logs/\xff.mcap")
    log = LogFiles("x", (name, "\ud800"), ("size 1, ETag 2", "size 3, ETag 4"))
    found = LogList.of([log])
    assert list(found) == [log]
    assert found[0] == log
    assert found.prints.tobytes().hex() == print_of(log)


def test_files_of_one_log_id_are_one_log_and_logs_come_in_order():
    found = LogList.of(LogFiles(name, (uri,), ("",)) for name, uri in [("b", "1"), ("a", "3"), ("b", "2")])
    logs = found.joined(lambda log_id, some: LogFiles(log_id, tuple(uri for log in some for uri in log.uris)))
    assert [(log.log_id, log.uris) for log in logs] == [("a", ("3",)), ("b", ("1", "2"))]
    assert logs.rows_of(["b", "x"]).tolist() == [1, -1]
