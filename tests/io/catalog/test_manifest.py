"""Manifests, log parts and entries: canonical bytes, and clear words where they are damaged."""

import dataclasses
import io
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3

from logloom.errors import DatasetError, UsageError
from logloom.io.catalog import assembled_outputs
from logloom.io.catalog.assembled_outputs import (
    AssembledEntry,
    SharedPortion,
    find_assembled,
    publish_assembled,
)
from logloom.io.catalog.entries import Entry, FileEntry, find_entry, read_log_part, write_log_part
from logloom.io.catalog.manifest import (
    Assembled,
    Manifest,
    open_root,
    read_assembled,
    read_manifest,
    resolve_version,
    split_root,
    units_of,
)
from logloom.io.catalog.manifest_digest import check_digest, digest_file, write_digest
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.pages import LogRecord, page_of, table_of
from logloom.io.catalog.records import LogRecords
from logloom.io.catalog.tags import change_tags
from logloom.io.catalog.version_files import version_file
from logloom.io.storage.metadata import canonical, sealed
from logloom.io.storage.store import Store
from logloom.testing.processes import in_fork
from tests.cases import case
from tests.files import flip


def make_entry(partition: str = "0-10", start: int = 0) -> Entry:
    return Entry(
        output="tar",
        identity=f"id{partition}",
        log_id="drive",
        content_id="c0",
        partition=partition,
        start=start,
        stop=start + 10,
        rows=3,
        files=(FileEntry("shard.tar", 10240, "ab"),),
        columns={"timestamp": "12"},
        unit={"rows": 3},
        tally={"planned": 3, "dropped": {}},
        software={"logloom": "1"},
        statistics="",
    )


LOG = LogRecord("drive", ("/logs/drive.mcap",), "c0", "all", "k", "whole", "p", 3, 3, {}, 0, units=1)


def make_manifest(version: int = 1, logs: LogRecords | None = None) -> Manifest:
    return Manifest(
        version=version,
        parent=None,
        name="n",
        recipe={"columns": {}},
        schema={"columns": [], "sampled": []},
        plan="x",
        outputs={"tar": {}},
        logs=LogRecords(None, [page_of(table_of([LOG]))[0]]) if logs is None else logs,
        assembled=(),
        totals={"rows": 3},
        verified="all",
        software={"logloom": "0"},
        parent_digest="",
        trusted={},
        reason="",
        dependencies={},
    )


def test_a_manifest_comes_back_equal(tmp_path):
    store = Store.at(str(tmp_path))
    manifest = make_manifest(logs=write_records(store, [LOG]))
    store.create(version_file(1), manifest.to_bytes())
    assert open_root(store)[1] == read_manifest(store) == manifest
    assert list(read_manifest(store).logs) == [LOG]
    assert read_manifest(store, 1) == manifest
    assert read_manifest(store, "1") == manifest


def test_a_log_part_comes_back_equal_and_its_name_is_its_content(tmp_path):
    store = Store.at(str(tmp_path))
    entries = [make_entry(), make_entry("10-20", 10)]
    part = write_log_part(store, entries)
    assert list(read_log_part(store, part)) == entries
    assert write_log_part(store, entries) == part


def test_units_with_rows_of_some_outputs_come_in_order_and_without_what_is_left_out(tmp_path):
    store = Store.at(str(tmp_path))
    other, empty = (
        dataclasses.replace(make_entry("10-20", 10), output="zarr"),
        dataclasses.replace(make_entry("20-30", 20), rows=0),
    )
    first, last = make_entry(), make_entry("30-40", 30)
    log = dataclasses.replace(LOG, part=write_log_part(store, [first, other, empty, last]))
    assert [entry for _, entry in units_of(store, [log], ["tar"])] == [first, last]
    (found, *_) = [entry for _, entry in units_of(store, [log], ["tar"], left_out=["files", "tally"])]
    assert found == dataclasses.replace(first, files=(), tally={})


@pytest.mark.parametrize("name", ["output", "rows"])
def test_a_unit_without_output_or_rows_is_named_where_units_of_an_output_are_asked_for(tmp_path, name):
    store = Store.at(str(tmp_path))
    part = write_row(store, {**plain(make_entry()), name: None})
    with pytest.raises(DatasetError, match=rf"parquet: row 0: {name}"):
        list(units_of(store, [dataclasses.replace(LOG, part=part)], ["tar"]))


def test_a_log_part_is_read_by_no_thread_that_outlives_the_read(tmp_path):
    part = write_log_part(Store.at(str(tmp_path)), [make_entry()])

    def threads_after_reading():
        before = set(os.listdir("/proc/self/task"))
        read_log_part(Store.at(str(tmp_path)), part)
        return set(os.listdir("/proc/self/task")) - before

    assert not in_fork(threads_after_reading)  # where Arrow has no threads yet


def test_a_flipped_byte_in_a_log_part_is_found(tmp_path):
    store = Store.at(str(tmp_path))
    part = write_log_part(store, [make_entry()])
    flip(tmp_path / "logs" / f"{part}.parquet")
    with pytest.raises(DatasetError, match=r"parquet: damaged"):
        read_log_part(store, part)


def test_a_missing_log_part_names_its_file(tmp_path):
    with pytest.raises(DatasetError, match=r"logs/abc\.parquet.*missing"):
        read_log_part(Store.at(str(tmp_path)), "abc")


def plain_manifest():
    """A manifest as JSON."""
    return json.loads(make_manifest().to_bytes())


def test_a_manifest_of_a_newer_format_is_refused_by_its_number():
    assert plain_manifest()["format"] == 1
    data = canonical(plain_manifest() | {"format": 2, "surprise": 1})
    message = r"^v\.json: format 2, this release of logloom reads up to 1; install a newer one$"
    with pytest.raises(DatasetError, match=message):
        Manifest.from_bytes(data, "v.json")


def test_a_manifest_without_a_field_is_damaged():
    for name in sorted(json.loads(make_manifest().to_bytes())):
        with pytest.raises(DatasetError, match=rf"^v\.json: not a manifest of logloom: {name}: is missing"):
            Manifest.from_bytes(canonical(edited(plain_manifest(), (name,), ...)), "v.json")


def test_an_entry_without_a_field_is_damaged(tmp_path):
    store = Store.at(str(tmp_path))
    for name in sorted(make_entry().to_json()):
        store.replace("parts/tar/x/entry.json", canonical(edited(plain(make_entry()), (name,), ...)))
        with pytest.raises(DatasetError, match=rf"entry\.json: {name}: is missing; `logloom repair"):
            find_entry(store, "tar", "x")


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff", b'{"format": 1}'])
def test_what_is_no_manifest_is_named(data):
    with pytest.raises(DatasetError, match=r"v\.json: not a manifest"):
        Manifest.from_bytes(data, "v.json")


def test_asking_for_a_version_that_is_not_there_lists_those_that_are(tmp_path):
    store = Store.at(str(tmp_path))
    with pytest.raises(UsageError, match="logloom build"):
        resolve_version(store, "latest")
    store.create(version_file(1), make_manifest().to_bytes())
    change_tags(store, lambda tags: {"gold": 1})
    assert resolve_version(store, "gold") == 1
    with pytest.raises(UsageError, match=r"no version '7'; there are 1, gold"):
        resolve_version(store, "7")


def test_what_is_no_root_is_refused_by_what_it_is(tmp_path):
    (tmp_path / "drive.txt").write_bytes(b"")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/holiday.jpg").write_bytes(b"")
    for name, words in [
        ("drive.txt", "is a file; give a dataset's folder"),
        ("other", r"no version here, but holiday\.jpg"),
        ("nowhere", "there is no such file or folder; did you mean other"),
    ]:
        with case(name), pytest.raises(UsageError, match=words):
            open_root(Store.at(str(tmp_path / name)))
    with pytest.raises(UsageError, match="`logloom build RECIPE --to memory://nowhere`"):
        open_root(Store.at("memory://nowhere"))


def test_an_entry_that_is_not_json_names_the_command_that_repairs_it(tmp_path):
    store = Store.at(str(tmp_path))
    store.create("parts/tar/x/entry.json", b"{")
    with pytest.raises(DatasetError, match=r"parts/tar/x/entry\.json: not .*`logloom repair /.*` builds"):
        find_entry(store, "tar", "x")
    assert find_entry(store, "tar", "y") is None


def test_a_root_may_carry_a_version():
    assert split_root("/data/urban@7") == ("/data/urban", "7")
    assert split_root("/data/urban") == ("/data/urban", "latest")
    assert split_root("/data/me@home/urban") == ("/data/me@home/urban", "latest")


DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000
NAMES_THAT_LEAD_OUT = ["", ".", "..", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "a\\b", "a\0b", "a\nb"]


def edited(value, path, new):
    """A copy of a JSON value with another one at a path; `...` takes the key away."""
    copy = list(value) if isinstance(value, list) else dict(value)
    step, *rest = path
    if new is ... and not rest:
        del copy[step]
    else:
        copy[step] = edited(copy[step], rest, new) if rest else new
    return copy


def plain(value):
    return json.loads(canonical(dataclasses.asdict(value)))


OF_PAGES = [
    (("logs", 0, "size"), -1, r"logs\[0\]\.size: "),
    (("logs", 0, "size"), 2**40, "logs: .*the page from 'drive' on is too large"),
    (("logs", 0, "digest"), "../x", r"logs\[0\]\.digest: expected a name that stays in its folder"),
    (("logs", 0, "totals", "logs"), "1", r"logs\[0\]\.totals\.logs: expected a whole number"),
    (("logs", 0, "totals", "logs"), ..., "logs: .*the page from 'drive' on contains no, or too many logs"),
    (("logs", 0, "totals", "logs"), 10**9, "logs: .*the page from 'drive' on contains no, or too many logs"),
    (("logs", 0, "first"), "\ud800", r"logs\[0\]\.first: "),
    (("logs", 0, "last"), ..., r"logs\[0\]\.last: is missing"),
]
OF_MANIFESTS = [
    (("logs",), {}, "logs: expected a list, got an object"),
    (("outputs",), {"../x": {}}, "outputs.*stays in its folder"),
    (("schema",), None, "schema: expected an object, got null"),
    (("schema", "columns"), [{"name": "a"}], r"schema\.columns\[0\]\.dtype: is missing"),
    (
        ("schema", "columns"),
        [{"name": "a", "dtype": "O", "shape": [], "kind": "array"}],
        "schema: column 'a': not a dtype of a column: 'O'",
    ),
    (("recipe", "columns"), [], r"recipe\.columns: "),
    (("totals", "rows"), None, r"totals\.rows: expected a whole number, got null"),
    (("format",), "1", "format: expected a whole number"),
    (("format",), 0, "format: expected a whole number from 1 on, got 0"),
    (("format",), True, "format: expected a whole number"),
    (("parent",), "x", "parent: expected a whole number"),
    (("surprise",), 1, "surprise: is no field of this version of logloom"),
]


def test_a_manifest_with_a_wrong_field_names_the_file_and_the_field():
    for path, new, message in [*OF_PAGES, *OF_MANIFESTS]:
        data = canonical(edited(plain_manifest(), path, new))
        with (
            case(path, new),
            pytest.raises(DatasetError, match=rf"^v\.json: not a manifest of logloom: {message}"),
        ):
            Manifest.from_bytes(data, "v.json")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DEEP, "nested deeper than 100 levels"),
        (b'{"format": 1, "format": 2}', "'format' occurs twice"),
        (b'{"format": ' + b"9" * 5000 + b"}", "doesn't fit 64 bits"),
        (b'{"format": NaN}', "NaN is no number"),
        (b'{"format": 1e999}', "1e999 is no number"),
        (b'{"name": "\xff"}', "utf-8"),
    ],
)
def test_json_that_python_reads_but_no_dataset_holds_is_refused(data, message):
    with pytest.raises(DatasetError, match=rf"v\.json: .*{message}"):
        Manifest.from_bytes(data, "v.json")


def test_brackets_in_text_are_no_depth():
    manifest = dataclasses.replace(make_manifest(), name="[{" * 500 + '"\\')
    assert Manifest.from_bytes(manifest.to_bytes(), "v.json") == manifest


def test_a_manifest_of_another_version_is_refused(tmp_path):
    store = Store.at(str(tmp_path))
    store.create(version_file(2), make_manifest(1).to_bytes())
    with pytest.raises(DatasetError, match=r"00000002\.json: the manifest of version 1"):
        read_manifest(store)


def test_paths_of_logs_that_are_no_utf8_come_back(tmp_path):
    log = dataclasses.replace(LOG, uris=("/logs/\udcff.mcap",))
    assert list(write_records(Store.at(str(tmp_path)), [log])) == [log]


@pytest.mark.parametrize("name", NAMES_THAT_LEAD_OUT)
def test_an_entry_names_only_files_of_its_folder(tmp_path, name):
    store = Store.at(str(tmp_path))
    for identity, path in (("a", ("files", 0, "name")), ("b", ("identity",)), ("c", ("output",))):
        store.create(f"parts/tar/{identity}/entry.json", canonical(edited(plain(make_entry()), path, name)))
        with pytest.raises(DatasetError, match=r"entry\.json: .*stays in its folder.*logloom repair"):
            find_entry(store, "tar", identity)
        part = plain(make_entry())
        row = edited(part, path, name)
        with pytest.raises(DatasetError, match=r"parquet: row 0: .*stays in its folder"):
            list(read_log_part(store, write_row(store, row)))


def write_row(store: Store, row: dict) -> str:
    """A log's part of one unit, as an entry's JSON has it."""
    files = tuple(FileEntry(**file) for file in row["files"])
    return write_log_part(store, [Entry(**{**row, "files": files})])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("entry.json",), "is called entry.json"),
        (("a", "a"), "two files have one name"),
        (("a", "a/b"), "'a/b' is in a folder that is a file"),
    ],
)
def test_files_of_an_entry_do_not_get_into_each_others_way(tmp_path, names, message):
    store = Store.at(str(tmp_path))
    files = tuple(FileEntry(name, 1, "ab") for name in names)
    entry = dataclasses.replace(make_entry(), files=files)
    store.create("parts/tar/x/entry.json", canonical(entry.to_json()))
    with pytest.raises(DatasetError, match=rf"files: .*{message}"):
        find_entry(store, "tar", "x")
    portions = (dataclasses.replace(files[0], name="b", portion="p"), FileEntry("b", 1, "ab"))
    entry = dataclasses.replace(entry, identity="y", files=portions)
    store.create("parts/tar/y/entry.json", canonical(entry.to_json()))
    assert find_entry(store, "tar", "y") == entry


def test_a_log_part_with_other_columns_is_refused(tmp_path):
    buffer = io.BytesIO()
    pq.write_table(pa.table({"output": [1]}), buffer)
    part = blake3(buffer.getvalue()).hexdigest()
    store = Store.at(str(tmp_path))
    store.create(f"logs/{part}.parquet", buffer.getvalue())
    with pytest.raises(DatasetError, match="its columns are others"):
        read_log_part(store, part)


@pytest.mark.parametrize("tags", [[], {"gold": "1"}, {"gold": None}, {"gold": 2**70}])
def test_tags_that_make_no_sense_are_named(tmp_path, tags):
    store = Store.at(str(tmp_path))
    store.create(version_file(1), make_manifest().to_bytes())
    store.replace("versions/tags/00000001.json", sealed({"change": 1, "tags": tags}))
    with pytest.raises(DatasetError, match=r"tags/00000001\.json: "):
        read_manifest(store, "gold")


def test_the_entry_of_an_assembled_output_is_checked_against_its_version(tmp_path):
    store = Store.at(str(tmp_path))
    entry = AssembledEntry("zarr", "all", {"logs": 1}, 3, (FileEntry("zarr.json", 5, "ab"),), {})
    data = entry.to_bytes()
    part = Assembled("zarr", "all", "x", blake3(data).hexdigest(), 5, 3)
    with pytest.raises(DatasetError, match=r"entry\.json: missing"):
        read_assembled(store, part)
    assert find_assembled(store, "zarr", "x") is None
    store.create("parts/zarr/x/entry.json", data)
    assert read_assembled(store, part) == entry
    with pytest.raises(DatasetError, match="its bytes changed"):
        read_assembled(store, dataclasses.replace(part, entry="0" * 64))


def test_what_is_removed_between_its_entry_and_its_portions_is_not_there(tmp_path, monkeypatch):
    store = Store.at(str(tmp_path))
    portions = (SharedPortion("a", "b", "0" * 64, 5),)
    publish_assembled(store, "x", AssembledEntry("zarr", "all", {}, 3, (), {}, portions))
    assert find_assembled(store, "zarr", "x")[0].portions == portions
    read_portions = assembled_outputs._read_portions

    def removed(store, output, identity):
        for name in ("entry.json", "portions.json"):
            store.remove(f"parts/{output}/{identity}/{name}")
        return read_portions(store, output, identity)

    monkeypatch.setattr(assembled_outputs, "_read_portions", removed)
    assert find_assembled(store, "zarr", "x") is None


@pytest.mark.parametrize("portions", [5, None, {"a": 1}])
def test_portions_of_an_assembled_output_that_make_no_sense_are_named(tmp_path, portions):
    store = Store.at(str(tmp_path))
    entry = json.loads(AssembledEntry("zarr", "all", {}, 3, (), {}).to_bytes())
    store.create("parts/zarr/x/entry.json", canonical(entry | {"portions": portions}))
    with pytest.raises(DatasetError, match=r"entry\.json: portions: "):
        find_assembled(store, "zarr", "x")


@pytest.mark.parametrize("damage", [b"", b"  00000001.json", b"  00000002.json\n"])
def test_a_damaged_digest_beside_a_manifest_is_named(tmp_path, damage):
    store = Store.at(str(tmp_path))
    data = b"{}"
    write_digest(store, 1, data)
    assert check_digest(store, 1, data)
    store.replace(digest_file(1), blake3(data).hexdigest().encode() + damage)
    with pytest.raises(DatasetError, match=r"versions/00000001\.blake3: damaged"):
        check_digest(store, 1, data)
