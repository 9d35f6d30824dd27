"""Versions of many logs: what looks at some rows reads the parts of a few logs, however many there are."""

import dataclasses

import numpy as np
import pytest

import logloom.datasets as ld
from logloom.errors import DatasetError
from logloom.io.catalog.entries import read_log_part
from logloom.io.catalog.manifest import read_manifest
from logloom.io.catalog.manifest_digest import write_digest
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.version_files import version_file
from logloom.io.storage.store import Store
from logloom.pipelines import view as views
from logloom.pipelines.build.build import build
from logloom.pipelines.head.head import head
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import sampled_logs, verify
from tests import faulty
from tests.faulty import ROOT
from tests.pipelines.conftest import one_log_in_faulty_store

OUTPUTS = "outputs:\n  tar: {}\n  bags: {}\n"


@pytest.fixture(scope="module")
def small(drive):
    """A version of one log, and another root with the same files, in a store that counts requests."""
    recipe = one_log_in_faulty_store(drive, OUTPUTS, rows=10)
    return build(plan_build(recipe, f"{ROOT}/root")).manifest


def grown(small, count: int) -> Store:
    """The root, its newest version of `count` logs; the parts of all but the first are lost."""
    store = Store.at(f"{ROOT}/root")
    (first,) = small.logs
    names = [f"{first.log_id}-{number:06d}" for number in range(1, count)]
    others = [
        dataclasses.replace(first, log_id=name, part=f"{number:064x}") for number, name in enumerate(names)
    ]
    logs = write_records(store, [first, *others])
    many = dataclasses.replace(small, version=count, logs=logs, totals=logs.totals)
    store.create(version_file(count), many.to_bytes())
    write_digest(store, count, many.to_bytes())
    return store


def requests_of(work) -> int:
    faulty.FaultyFiles.faults.set()
    work()
    return faulty.FaultyFiles.faults.requests


@pytest.mark.parametrize("output", ["tar", "bags"])
def test_opening_and_the_first_row_take_as_many_requests_of_a_thousand_logs_as_of_ten(small, output):
    counts = []
    for count in (10, 1000):
        store = grown(small, count)
        opened: list = []

        def open_it(store=store, count=count, opened=opened):
            opened.append(ld.open(store.uri, count, output))

        counts.append(
            (
                requests_of(open_it),
                requests_of(lambda opened=opened: opened[0][0]),
                requests_of(lambda store=store, count=count: head(store.uri, count, output=output, count=1)),
            )
        )
        assert len(opened[0]) == count * small.logs[0].rows
        assert str(opened[0]).splitlines()[1].endswith("…")
    assert counts[0] == counts[1]


def test_a_row_of_a_log_whose_part_is_lost_names_the_part(small):
    store = grown(small, 11)
    rows = ld.open(store.uri, 11, "tar")
    later = small.logs[0].rows
    with pytest.raises(
        DatasetError, match=rf"logs/{0:064x}\.parquet: a log's part of the manifest is missing"
    ):
        rows[later]
    with pytest.raises(DatasetError, match="missing"):
        head(store.uri, 11, output="tar", start=later)
    assert rows[0]["log_id"] == small.logs[0].log_id


def test_rows_of_a_part_that_holds_others_than_the_manifest_says_are_refused(small):
    store = grown(small, 12)
    (first,) = small.logs
    logs = write_records(store, [dataclasses.replace(first, rows=first.rows + 1)])
    wrong = dataclasses.replace(small, version=13, logs=logs, totals=logs.totals)
    store.create(version_file(13), wrong.to_bytes())
    write_digest(store, 13, wrong.to_bytes())
    with pytest.raises(
        DatasetError, match=rf"{first.part}\.parquet: its units in tar have \d+ rows, the manif"
    ):
        ld.open(store.uri, 13, "tar")[0]


def test_a_sample_of_many_logs_looks_at_few_of_them(small, monkeypatch):
    store = grown(small, 1000)
    chosen, share = sampled_logs(1000, 1000, "sample:0.001")
    assert len(chosen) == 64
    assert float(share.removeprefix("sample:")) == pytest.approx(0.001 / 0.064)
    assert sampled_logs(1000, 1000, "sample:0.001") == (chosen, share)
    asked = []
    real = LogRecords.columns
    monkeypatch.setattr(LogRecords, "columns", lambda logs, *names: asked.append(names) or real(logs, *names))
    lost = verify(store.uri, 1000, sample="sample:0.001", num_workers=1).findings
    assert asked == []  # for these are of all logs
    names = [
        record.log_id
        for record in read_manifest(store, 1000).logs.take(chosen)
        if record.part != small.logs[0].part
    ]
    assert [finding.log_id for finding in lost if "is missing" in finding.message] == names


@pytest.mark.parametrize("count", [64, 65, 5000])
def test_the_share_of_units_that_a_sample_looks_at_is_the_one_asked_for(count):
    for share in (0.0001, 0.05, 1.0):
        logs, within = sampled_logs(3, count, f"sample:{share}")
        of_units = float(within.removeprefix("sample:"))
        assert 0 < of_units <= 1.0 + 1e-9
        assert len(logs) / count * of_units == pytest.approx(share, rel=0.05)
        assert len(logs) == count or count > 64
        assert np.all(np.diff(logs) > 0)


def test_parts_say_of_their_entries_no_more_than_rows_take_when_brief(small):
    store = Store.at(f"{ROOT}/root")
    whole, brief = (read_log_part(store, small.logs[0].part, brief=brief) for brief in (False, True))
    assert [dataclasses.replace(entry, columns={}, tally={}) for entry in whole] == list(brief)
    assert whole[-1] == list(whole)[-1]
    assert brief.nbytes < whole.nbytes


def test_a_version_of_many_units_is_given_a_view_when_somebody_asks(drive, tmp_path, monkeypatch):
    monkeypatch.setattr(views, "MAX_UNITS", 3)
    told: list[str] = []
    root = str(tmp_path / "root")
    made = build(plan_build(drive.recipe(), root), on_message=told.append)
    (message,) = [one for one in told if "no view" in one]
    assert f"`logloom view {root}@1` makes it" in message
    assert made.view == ""
    assert not (tmp_path / "root" / "v00000001").exists()
    assert build(plan_build(drive.recipe(), root), view="link").view.endswith("v00000001")
