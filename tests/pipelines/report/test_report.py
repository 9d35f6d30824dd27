"""The data of `logloom report`, and what is made of it: pages, cards, Croissant metadata."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
import yaml

import logloom.datasets
from logloom.errors import DatasetError
from logloom.io.catalog import log_statistics
from logloom.io.catalog.manifest import open_root, read_manifest
from logloom.io.catalog.manifest_digest import write_digest
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.version_files import version_file
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.report import logs, samples
from logloom.pipelines.report import report as report_module
from logloom.pipelines.report.card import card_of
from logloom.pipelines.report.charts import map_of
from logloom.pipelines.report.croissant import croissant_of
from logloom.pipelines.report.logs import MAX_LINES, MAX_TROUBLES
from logloom.pipelines.report.page import _facts, _series, page_of
from logloom.pipelines.report.report import report_of
from logloom.pipelines.report.samples import (
    MAX_POINTS,
    MAX_SAMPLES,
    MAX_TRACKS,
    Track,
    _drawn_points,
    _reach,
    _sample,
    _small_row,
    evenly,
)
from logloom.pipelines.stats.stats import column_statistics, statistics_of
from logloom.pipelines.verify import verify
from logloom.pipelines.version_rows import RowsOfLogs, is_cloud
from logloom.pipelines.versions.rollback import plan_drop
from logloom.schema import ColumnType
from tests.absent import needs
from tests.forking import command
from tests.pipelines.conftest import FULL_OUTPUT, build_at, restate


@pytest.fixture
def root(built, tmp_path):
    """A copy of the built version, to be changed."""
    copy = tmp_path / "elsewhere" / "root"
    shutil.copytree(built, copy, ignore=shutil.ignore_patterns("v????????"))
    return copy


@pytest.fixture(scope="module")
def report(built):
    """Of the built version."""
    return report_at(built)


@pytest.fixture
def _few_samples(monkeypatch):
    """Rows are read and drawn for samples that nothing is asked of."""
    monkeypatch.setattr(samples, "MAX_SAMPLES", 2)


def report_at(root, version="latest"):
    return report_of(*open_root(Store.at(str(root)), version))


def with_logs(root, count):
    """Makes of version 1 one of many logs, each like one of those that it has."""
    store = Store.at(str(root))
    manifest = read_manifest(store, 1)
    own = list(manifest.logs)
    records = (dataclasses.replace(own[n % len(own)], log_id=f"drive-{n:05}") for n in range(count))
    data = dataclasses.replace(manifest, logs=write_records(store, records)).to_bytes()
    store.replace(version_file(1), data)
    write_digest(store, 1, data)


def test_the_same_version_gives_the_same_page_wherever_it_lies(report, root):
    store, manifest = open_root(Store.at(str(root)))
    page = page_of(report_of(store, manifest))
    assert page.startswith(b"<!doctype html>")
    assert page == page_of(report)
    assert str(root.parent).encode() not in page


def test_a_report_says_what_the_rows_are(built, report):
    manifest = read_manifest(Store.at(str(built)))
    assert report.totals["rows"] == manifest.totals["rows"]
    assert [one.rows for one in report.splits] == [manifest.totals["rows"]]
    for line, record in zip(report.lines, manifest.logs, strict=True):
        assert (line.log_id, line.rows, line.dropped) == (record.log_id, record.rows, record.dropped)
        assert line.is_exact
        (first, last), *more = line.pieces
        ends = [last, *(stop for _, stop in more)]
        assert sum((stop - start) // 10**8 + 1 for start, stop in line.pieces) == line.rows
        assert (first < ends[0], line.gaps) == (True, len(more))
    found = report.samples
    assert found.place == "ego.position"
    assert len(found.rows) == MAX_SAMPLES
    assert [one.log_id for one in found.tracks] == ["drive-00", "drive-01"]
    one = found.rows[3]
    assert (list(one.images), list(one.clouds)) == (["camera.front"], ["lidar.points"])
    assert one.images["camera.front"].data.startswith(b"\xff\xd8\xff")
    assert found.reach > 10


def test_samples_are_the_rows_that_they_say(built, report):
    rows = logloom.datasets.open(str(built), output=FULL_OUTPUT)
    for one in report.samples.rows:
        row = rows[one.row]
        assert (one.log_id, one.timestamp) == (row["log_id"], row["timestamp"])
        assert one.place == pytest.approx(tuple(row["ego.position"][:2]))


@pytest.mark.usefixtures("_few_samples")
def test_statistics_of_splits_add_up_to_those_of_all(root):
    restate(root, lambda record: dataclasses.replace(record, split=record.log_id))
    report = report_at(root)
    whole = statistics_of(*open_root(Store.at(str(root))))
    assert report.statistics[""] == whole
    assert list(report.statistics) == ["", "drive-00", "drive-01"]
    assert report.statistics["drive-00"] == column_statistics(str(root), split="drive-00")


@pytest.mark.usefixtures("_few_samples")
def test_a_gap_in_a_log_is_a_gap_on_the_time_line(drive, tmp_path):
    where = 'where: "ego.speed < 9 or ego.speed > 9.5"'
    build_at(drive.recipe(**{"rows: {require:": f"rows: {{{where}, require:"}), tmp_path / "root")
    rows = logloom.datasets.open(str(tmp_path / "root"))
    for line in report_at(tmp_path / "root").lines:
        times = np.array([row["timestamp"] for row in rows if row["log_id"] == line.log_id])
        assert line.gaps == len(line.pieces) - 1 == (np.diff(times) > 150_000_000).sum() > 0
        assert line.planned > line.rows == sum((b - a) // 10**8 + 1 for a, b in line.pieces)


@pytest.mark.usefixtures("_few_samples")
def test_of_many_partitions_none_is_opened_for_the_time_line(root, monkeypatch):
    exact = report_at(root).lines
    monkeypatch.setattr(logs, "MAX_UNITS", 1)
    monkeypatch.setattr(logs, "_times", None)
    for line, whole in zip(report_at(root).lines, exact, strict=True):
        assert not line.is_exact
        assert line.gaps == 0
        (first, last) = line.pieces[0]
        assert first <= whole.pieces[0][0] < whole.pieces[-1][1] <= last


@pytest.mark.usefixtures("_few_samples")
def test_statistics_of_many_logs_are_of_some_unless_all_are_asked_for(root, monkeypatch):
    monkeypatch.setattr(report_module, "MAX_COUNTED", 10)
    monkeypatch.setattr(log_statistics, "MANY_LOGS", 1)
    with_logs(root, 30)
    report = report_at(root)
    assert (report.statistics[""].logs, report.uncounted) == (10, 20)
    assert "rows of 10 logs, evenly chosen by name; 20 others not counted" in page_of(report).decode()
    whole = report_of(*open_root(Store.at(str(root))), every_log=True)
    assert whole.statistics[""] == statistics_of(*open_root(Store.at(str(root))))


def test_statistics_are_the_same_however_many_processes_read_them(root, monkeypatch):
    with_logs(root, 150)
    store, manifest = open_root(Store.at(str(root)))
    alone = statistics_of(store, manifest)
    monkeypatch.setattr(verify, "_ALONE_S", -1)  # so that even a short reading has its processes
    assert statistics_of(store, manifest, num_workers=2) == alone


def test_a_page_of_ten_thousand_logs_is_bounded_and_says_what_it_leaves_out(root, monkeypatch):
    monkeypatch.setattr(report_module, "MAX_COUNTED", 60)  # charts are as large of how many logs ever
    with_logs(root, 10_000)
    report = report_at(root)
    assert (len(report.lines), len(report.samples.tracks), len(report.samples.rows)) == (
        MAX_LINES,
        MAX_TRACKS,
        MAX_SAMPLES,
    )
    page = page_of(report)
    assert len(page) < 5_000_000
    assert f"{MAX_LINES} of 10,000 logs" in page.decode()
    assert f"{10_000 - MAX_LINES:,} others not drawn" in page.decode()


@pytest.mark.usefixtures("_few_samples")
def test_logs_that_lost_messages_are_listed_the_worst_first(root):
    with_logs(root, MAX_TROUBLES + 10)
    restate(
        root,
        lambda record: dataclasses.replace(
            record, refused=int(record.log_id[-5:]), reasons=("<i>chunk</i> at byte 7", *["x"] * 6)
        ),
    )
    report = report_at(root)
    assert (report.troubled, len(report.troubles)) == (MAX_TROUBLES + 10, MAX_TROUBLES)
    assert [one.refused for one in report.troubles] == list(range(39, 9, -1))
    assert report.troubles[0].reasons_left_out == 3
    assert b"&lt;i&gt;chunk&lt;/i&gt; at byte 7" in page_of(report)


@pytest.mark.usefixtures("_few_samples")
def test_a_report_tells_what_changed_since_the_parent(root):
    build(plan_drop(Store.at(str(root)), ["drive-00"]))
    report = report_at(root)
    assert report.changes is not None
    assert list(report.changes.logs.gone) == ["drive-00"]
    assert [one.version for one in report.ancestors] == [2, 1]
    page = page_of(report).decode()
    assert "drive-00" in page[page.index('id="changes"') : page.index('id="lineage"')]
    first = report_at(root, 1)
    assert (first.changes, first.no_changes) == (None, "This is the first version.")


def test_a_version_of_purged_logs_is_shown_without_them(root):
    purge(str(root), ["drive-00"])
    report = report_at(root, 1)
    assert [one.log_id for one in report.lines] == ["drive-01"]
    assert {one.log_id for one in report.samples.rows} == {"drive-01"}
    assert report.statistics[""].logs == report.erased == 1
    assert "1 log was erased" in page_of(report).decode()


def test_damage_is_an_error_that_names_the_file(root):
    for path in root.glob("logs/*.parquet"):
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError, match=r"logs/\w+\.parquet: damaged"):
        report_at(root)


def test_the_command_writes_a_page_a_card_and_metadata(built, report, tmp_path):
    out = tmp_path / "page.html"
    done = command("report", str(built), "--out", str(out))
    assert (done.returncode, done.stdout.strip()) == (0, str(out))
    assert out.read_bytes() == page_of(report)
    done = command("report", str(built), "--card")
    assert done.stdout.encode() == card_of(*open_root(Store.at(str(built))))
    both = command("report", str(built), "--card", "--croissant")
    assert (both.returncode, both.stdout) == (2, "")
    nowhere = command("report", str(built), "--out", str(tmp_path / "no" / "page.html"))
    assert nowhere.returncode == 2


def test_the_head_of_a_card_says_which_files_are_of_which_split(built):
    needs("tar")  # which a card names
    text = card_of(*open_root(Store.at(str(built)))).decode()
    _, head, body = re.split(r"^---$", text, maxsplit=2, flags=re.MULTILINE)
    said = yaml.safe_load(head)
    (config,) = said["configs"]
    assert config["data_files"] == [{"split": "train", "path": "tar/all/*.tar"}]
    assert list((built / "v00000001").glob(config["data_files"][0]["path"]))
    assert said["size_categories"] == ["n<1K"]
    assert re.search(r"^Of \d+ ticks \d+ became rows\. ", body, re.MULTILINE)
    speed = column_statistics(str(built)).columns()["ego.speed"]
    assert f"| `ego.speed` | {speed['min']:.6g} |" in body
    assert f"| {speed['mean']:.6g} | {speed['std']:.6g} |" in body


def test_a_card_marks_columns_of_which_a_sample_was_counted(built):
    text = card_of(*open_root(Store.at(str(built)))).decode()
    found = column_statistics(str(built)).columns()
    sampled = {name: stats["left_out"] for name, stats in found.items() if stats.get("left_out")}
    assert "lidar.points" in sampled
    said = [
        f"* `{n}`: a sample of each value; {count:,} positions not looked at" for n, count in sampled.items()
    ]
    assert [line for line in text.splitlines() if "a sample of each value" in line] == said


def test_figures_of_one_have_a_noun_of_one(report):
    assert dict(_facts(report)).keys() >= {"rows", "logs", "columns", "split"}
    ones = dict.fromkeys(report.totals, 1) | {"ticks_planned": 2}
    nouns = ["row", "log", "log skipped", "columns", "split", "tick dropped", "message refused"]
    assert [noun for noun, _ in _facts(dataclasses.replace(report, totals=ones))] == nouns


def test_names_in_a_card_get_out_of_no_code(root):
    restate(root, lambda record: record, name="a`b|c\n---\n<script>")
    text = card_of(*open_root(Store.at(str(root)))).decode()
    assert yaml.safe_load(text.split("---\n")[1])["pretty_name"] == "a`b|c\\n---\\n<script>"
    assert "# ``a`b\\|c\\n---\\n<script>``, version 1" in text


@pytest.mark.parametrize("count", [2, 5000])
def test_mlcroissant_validates_and_loads_the_metadata(root, count, tmp_path):
    mlcroissant = pytest.importorskip("mlcroissant")
    with_logs(root, count)
    store, manifest = open_root(Store.at(str(root)))
    place = tmp_path / "croissant.json"
    place.write_bytes(croissant_of(store, manifest, str(tmp_path)))
    dataset = mlcroissant.Dataset(jsonld=str(place))
    assert dataset.metadata.issues.errors == set()
    sets = [one.id for one in dataset.metadata.record_sets]
    assert (sets == ["logs"]) == (count == 2)
    found = [
        (one[f"{name}/log_id"].decode(), one[f"{name}/rows"])
        for name in sets
        for one in dataset.records(name)
    ]
    assert sorted(found) == [(one.log_id, one.rows) for one in manifest.logs]


def test_metadata_names_the_columns(built):
    said = json.loads(croissant_of(*open_root(Store.at(str(built))), "/"))
    assert "ego.speed (float64)" in said["description"]


def test_numbers_are_chosen_evenly():
    for total in range(1, 40):
        for most in range(1, 40):
            found = evenly(total, most)
            assert len(found) == min(total, most)
            assert found == sorted(set(found))
            assert 0 <= found[0] <= found[-1] < total
            assert np.ptp(np.diff([-1, *found, total])[1:-1] if len(found) > 1 else [0]) <= 1


@pytest.mark.usefixtures("_few_samples")
def test_a_page_names_no_log_that_was_purged(root):
    restate(root, lambda record: dataclasses.replace(record, refused=1, reasons=(f"{record.log_id}: odd",)))
    build(plan_drop(Store.at(str(root)), ["drive-00"]))
    purge(str(root), ["drive-00"])
    for version in (1, 2):
        report = report_at(root, version)
        assert [one.log_id for one in report.troubles] == ["drive-01"]
        reasonless = dataclasses.replace(report, reason="", ancestors=())  # says "drop drive-00"
        assert b"drive-00" not in page_of(reasonless)


@pytest.mark.usefixtures("_few_samples")
def test_troubles_name_files_without_their_folders(root):
    said = ("file:///secret/plan/a.mcap, byte 7: damaged",)
    uris = ("file:///secret/plan/a.mcap",)
    restate(root, lambda record: dataclasses.replace(record, uris=uris, refused=1, reasons=said))
    assert report_at(root).troubles[0].reasons == ("a.mcap, byte 7: damaged",)
    assert b"secret" not in page_of(report_at(root))


def test_a_column_of_one_number_and_infinities_is_not_always_that_number():
    said = {"count": 3, "nan": 1, "infinite": 1, "min": 5.0, "max": 5.0, "mean": 5.0, "std": 0.0}
    series = _series("x", "x", said)
    assert (series.same, series.odd) == ("", "1 NaN, 1 infinite")
    assert _series("x", "x", said | {"nan": 0, "infinite": 0}).same == "5"


@pytest.mark.parametrize("apart", [5e-324, 1e-320, 1e-13])
def test_places_that_hardly_differ_are_no_map(apart):
    track = Track("a", ("all",), np.array([[0.0, 0.0], [apart, 0.0]]))
    assert map_of([track], []) is None
    assert map_of([track], [(1e6, 1e6)]) is not None


@pytest.mark.parametrize("size", [5e-324, 1e-30, 3e38, 1e300, np.inf, np.nan])
def test_clouds_of_any_size_have_a_reach(size):
    points = _drawn_points(np.full((4, 3), size))
    assert _reach([points]) == 0.0
    assert _reach([_drawn_points(np.ones((4, 3))), points]) == 1.0


def test_large_clouds_are_thinned():
    assert len(_drawn_points(np.zeros((3 * MAX_POINTS + 1, 4)))) <= MAX_POINTS


@pytest.mark.parametrize(("x", "fits"), [("<f4", True), ("<i2", True), ("S4", False), (("<f4", (2,)), False)])
def test_a_cloud_has_a_number_for_each_axis(x, fits):
    dtype = np.dtype([("x", x) if isinstance(x, str) else ("x", *x), ("y", "<f4")])
    assert is_cloud("scan", ColumnType(dtype, (None,)), {}) == fits


def test_an_image_that_does_not_decode_is_told_as_a_value(built):
    rows = RowsOfLogs(*open_root(Store.at(str(built))))
    ((_, record, number),) = rows.found([0])
    values = rows.row(record, number)
    whole = _small_row(0, "all", values, rows.schema, (), (), "")
    broken = _small_row(0, "all", {**values, "camera.front": b"\xff\xd8\xffnone"}, rows.schema, (), (), "")
    assert "camera.front" in whole.images
    assert "camera.front" not in broken.images
    shown = _sample(broken, ["camera.front"], (), 0.0, {})
    assert ("camera.front", "7 bytes (JPEG)") in [one[:2] for one in shown.values]
    assert "camera.front" not in [one[0] for one in _sample(whole, ["camera.front"], (), 0.0, {}).values]


@pytest.mark.parametrize(
    ("out", "code", "said"),
    [
        ("", 2, "is a folder"),
        ("no/page.html", 2, "its folder doesn't exist"),
        ("s3://bucket/page.html", 2, "on this machine"),
        ("x" * 300, 1, "name too long"),
        ("/dev/full", 1, "the disk is full"),
    ],
)
def test_a_place_where_no_page_can_stand_is_an_error_that_says_why(built, tmp_path, out, code, said):
    done = command("report", str(built), "--out", out if "//" in out else str(tmp_path / out))
    assert (done.returncode, done.stdout) == (code, "")
    assert said.lower() in done.stderr.lower()
    assert "internal" not in done.stderr


def test_a_root_in_memory_has_the_same_page(built, report):
    store = Store.at("memory://pages/root")
    for path in built.rglob("*"):
        if path.is_file() and not path.relative_to(built).parts[0].startswith("v0"):
            store.replace(path.relative_to(built).as_posix(), path.read_bytes())
    assert page_of(report_of(*open_root(store))) == page_of(report)
