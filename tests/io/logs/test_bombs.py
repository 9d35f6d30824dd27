"""Small files that hold, or claim to hold, very much: refused before memory is taken."""

import io
import sqlite3
import struct

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zstandard
from PIL import Image

from logloom.errors import LogReadError
from logloom.io.logs.files import compression, container
from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, FieldSpec, OpenOptions, TopicRequest
from logloom.io.logs.log_list import LogFiles
from logloom.io.logs.messages import images
from logloom.io.logs.messages.values import UnfitError
from logloom.io.logs.opening import open_log
from logloom.io.logs.rosbag2 import local_copies
from logloom.io.logs.table_files.arrow_sizes import record_batches
from logloom.io.logs.table_files.files import table_file
from logloom.pipelines.doctor.doctor import examine
from logloom.pipelines.doctor.findings import NOTES
from tests.io.logs.making import (
    Message,
    everything,
    read_all,
    ros1_payload,
    toy_payload,
    write_bag,
    write_mcap,
)

pytestmark = pytest.mark.usefixtures("toy")
MIB = 1 << 20
SALVAGE = OpenOptions("salvage")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Limits as they are, but for what any packed bytes may hold: bombs of a MiB are made in no time."""
    monkeypatch.setattr(compression, "FREE_BYTES", MIB // 8)
    monkeypatch.setattr(container, "FREE_FILE_BYTES", MIB)
    monkeypatch.setattr(local_copies, "FREE_UNPACKED", MIB)
    CHUNKS.clear()


def zeros(count, size, payload=toy_payload):
    return [Message("/a", i + 1, i + 1, i + 1, payload(i + 1, bytes(size))) for i in range(count)]


def verdict(path):
    CHUNKS.clear()
    found = examine(LogFiles("drive", (str(path),)), SALVAGE)
    return {finding.kind for finding in found.findings} - set(NOTES)


@pytest.mark.parametrize("options", [{}, {"index_types": ["NONE"]}], ids=["indexed", "scanned"])
def test_an_mcap_chunk_that_unpacks_to_far_more_than_it_takes_is_refused(tmp_path, options):
    path = write_mcap(tmp_path / "drive.mcap", zeros(1, MIB // 2), chunk_size=MIB, **options)
    assert path.stat().st_size < 2000
    with pytest.raises(
        LogReadError, match=r"bytes declare an uncompressed size of \d+, more than 256 times as many"
    ):
        read_all(open_log([str(path)]))
    assert verdict(path) == {"damaged" if not options else "unreadable"}  # a scan finds nothing else


@pytest.mark.parametrize("name", ["bz2", "lz4"])
def test_a_bag_chunk_that_unpacks_to_far_more_than_it_takes_is_refused(tmp_path, name, monkeypatch):
    if name == "lz4":  # which can't be that tight
        monkeypatch.setattr(compression, "MAX_RATIO", 100)
    messages = zeros(1, MIB, ros1_payload)
    path = write_bag(tmp_path / "drive.bag", messages, compression=name, chunk_size=2 * MIB)
    with pytest.raises(
        LogReadError, match=r"bytes declare an uncompressed size of \d+, more than \d+ times as many"
    ):
        read_all(open_log([str(path)]))
    assert verdict(path) == {"damaged"}


@pytest.mark.parametrize("options", [{}, {"index_types": ["NONE"]}], ids=["indexed", "scanned"])
def test_many_chunks_that_hold_too_much_together_are_refused_as_one(tmp_path, options):
    path = write_mcap(tmp_path / "drive.mcap", zeros(20, 100_000), chunk_size=1, **options)
    stored = path.stat().st_size
    read_all(open_log([str(path)]))  # as many as are allowed
    assert "unreadable" not in verdict(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(container, "MAX_FILE_RATIO", 100)
        for options in (OpenOptions(), SALVAGE):
            with pytest.raises(
                LogReadError, match=rf"its {stored} bytes declare \d+ uncompressed bytes or more"
            ):
                read_all(open_log([str(path)], options))
        assert verdict(path) == {"unreadable"}


def test_a_bag_whose_chunks_hold_more_than_its_index_lets_expect_is_refused_when_read(tmp_path, monkeypatch):
    messages = zeros(30, 100_000, ros1_payload)
    path = write_bag(tmp_path / "drive.bag", messages, compression="bz2", chunk_size=1)
    monkeypatch.setattr(container, "MAX_FILE_RATIO", 10)
    log = open_log([str(path)])
    with pytest.raises(LogReadError, match="bytes declare"):
        log.read({"/a": everything()})
    assert verdict(path) == {"unreadable"}


def test_a_packed_bag_that_unpacks_to_far_more_is_refused_before_the_disk_is_full(tmp_path):
    path = tmp_path / "drive.db3.zstd"
    path.write_bytes(zstandard.ZstdCompressor().compress(b"SQLite format 3\0" + bytes(8 * MIB)))
    with pytest.raises(LogReadError, match=r"its \d+ bytes expand to more than 1048576"):
        _ = open_log([str(path)]).summary


def test_a_sqlite_bag_that_computes_its_messages_has_none_larger_than_itself(tmp_path):
    path = tmp_path / "drive.db3"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE topics(id INTEGER, name TEXT, type TEXT, serialization_format TEXT)")
        database.execute("INSERT INTO topics VALUES (1, '/a', 'toy/Message', 'toy')")
        database.execute(
            "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, "
            "data BLOB GENERATED ALWAYS AS (zeroblob(500000000)) VIRTUAL)"
        )
        database.execute("INSERT INTO messages(topic_id, timestamp) VALUES (1, 5)")
    with pytest.raises(LogReadError, match="its table `messages` has the columns"):
        _ = open_log([str(path)]).summary
    assert verdict(path) == {"unreadable"}


def test_packed_messages_in_packed_chunks_hold_no_more_than_the_file_allows(tmp_path):
    inner = zstandard.ZstdCompressor().compress(bytes(100_000))
    messages = [Message("/a", i + 1, i + 1, 0, inner) for i in range(50)]
    path = write_mcap(
        tmp_path / "drive.mcap",
        messages,
        chunk_size=MIB,
        encoding="cdr",
        schema=("a/msg/A", "ros2msg", b"int8 x"),
    )
    with pytest.raises(LogReadError, match="more than max_chunk_bytes or the compressed size allows"):
        read_all(open_log([str(path)]))
    assert "damaged" in verdict(path)


def test_an_index_that_claims_too_much_is_not_believed_when_salvaging(tmp_path):
    path = write_mcap(tmp_path / "drive.mcap", zeros(3, 100), enable_crcs=False)
    data = bytearray(path.read_bytes())
    (row,) = open_log([str(path)]).parts[0].index.stretches
    claim = struct.pack("<QQ", 0, int(row["size"]))[8:]
    at = data.rindex(claim)
    data[at : at + 8] = struct.pack("<Q", 1 << 60)
    path.write_bytes(data)
    with pytest.raises(LogReadError, match="bytes declare"):
        _ = open_log([str(path)]).summary
    assert len(read_all(open_log([str(path)], SALVAGE))["/a"]) == 3


TIMES = [n * 1_000_000_000 for n in range(1, 1001)]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_a_table_of_texts_that_repeat_beyond_all_measure_is_refused(tmp_path, kind):
    path = tmp_path / "a.parquet"
    table = pa.table({"timestamp_ns": TIMES, "value": pa.array(["x" * 100_000] * 1000, kind)})
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 100_000
    assert len(open_log([str(path)]).read({"/a": everything()})["/a"]) == 1000
    with pytest.raises(LogReadError, match="row group 0, once it is decoded, requires 100000000 bytes"):
        table_file(str(path), OpenOptions()).read(0, ["value"])
    assert "damaged" in verdict(path)


def test_a_table_of_one_number_in_very_many_rows_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"timestamp_ns": np.full(1_000_000, 5), "value": np.zeros(1_000_000)})
    pq.write_table(table, path, compression="zstd")
    with pytest.raises(LogReadError, match="row group 0, once it is decoded, requires 8000000 bytes"):
        table_file(str(path), OpenOptions()).read(0, ["value"])
    assert "unreadable" in verdict(path)


@pytest.mark.parametrize("is_dictionary", [False, True])
def test_a_feather_file_that_holds_far_more_than_it_takes_is_refused(tmp_path, is_dictionary):
    path = tmp_path / "a.feather"
    values = pa.array(["x" * 1_000_000] * 100)
    if is_dictionary:
        values = pa.DictionaryArray.from_arrays(pa.array([0] * 100), values)
    table = pa.table({"timestamp_ns": np.arange(100), "value": values})
    pa.feather.write_feather(table, str(path), compression="zstd")
    assert path.stat().st_size < 100_000
    with pytest.raises(LogReadError, match="record batch 0, once it is decompressed, requires 100"):
        table_file(str(path), OpenOptions()).read(0, ["value"])
    assert "unreadable" in verdict(path)


def test_a_feather_file_that_claims_more_than_it_holds_is_refused(tmp_path):
    path = tmp_path / "a.feather"
    table = pa.table({"timestamp_ns": TIMES, "value": np.zeros(1000, np.int16)})
    pa.feather.write_feather(table, str(path), compression="zstd")
    data = bytearray(path.read_bytes())
    at = data.index(struct.pack("<q", 2000))
    data[at : at + 8] = struct.pack("<q", 1 << 40)
    path.write_bytes(data)
    with pytest.raises(LogReadError, match="more than max_chunk_bytes"):
        table_file(str(path), OpenOptions()).read(0, ["value"])


def message_of(data, batch):
    """Where the table of a record batch's message lies in the file, and that of its fields."""
    head = batch.offset + 8
    (root,) = struct.unpack_from("<I", data, head)
    message = head + root
    fields = message - struct.unpack_from("<i", data, message)[0]
    (header,) = struct.unpack_from("<H", data, fields + 4 + 2 * 2)
    table = message + header + struct.unpack_from("<I", data, message + header)[0]
    return table - struct.unpack_from("<i", data, table)[0]


def test_a_feather_file_that_is_compressed_as_in_2020_is_bounded_too(tmp_path):
    path = tmp_path / "a.feather"
    table = pa.table({"timestamp_ns": np.zeros(20_000_000, np.int64)})
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4, compression="zstd")
    with pa.ipc.new_file(path, table.schema, options=options) as file:
        said = {"ARROW:experimental_compression": "zstd"}
        file.write_batch(table.to_batches()[0], custom_metadata=said)
    data = bytearray(path.read_bytes())
    _, (batch,) = record_batches(lambda start, stop: bytes(data[start:stop]), len(data))
    struct.pack_into("<H", data, message_of(data, batch) + 4 + 2 * 3, 0)  # where it is said since then
    path.write_bytes(data)
    with pa.OSFile(str(path)) as file:
        assert pa.ipc.open_file(file).get_batch(0).column(0)[-1].as_py() == 0  # Arrow reads it
    with pytest.raises(LogReadError, match="once it is decompressed, requires 160000000 bytes"):
        table_file(str(path), OpenOptions()).read(0, ["timestamp_ns"])


def test_a_feather_file_that_names_a_record_batch_very_often_is_refused(tmp_path):
    path = tmp_path / "a.feather"
    large = pa.record_batch({"timestamp_ns": np.random.default_rng(1).integers(0, 1 << 60, 5000)})
    with pa.ipc.new_file(path, large.schema) as file:
        for batch in [large, *[large.slice(0, 1)] * 30]:
            file.write_batch(batch)
    data = path.read_bytes()
    _, batches = record_batches(lambda start, stop: data[start:stop], len(data))
    assert [batch.num_rows for batch in batches] == [5000] + [1] * 30
    block = struct.pack("<qi4xq", batches[0].offset, batches[0].metadata, batches[0].body)
    at = data.rindex(block)
    path.write_bytes(data[:at] + block * 31 + data[at + 31 * 24 :])
    with pa.OSFile(str(path)) as file:
        assert pa.ipc.open_file(file).get_batch(30).num_rows == 5000
    with pytest.raises(LogReadError, match="is not within the file"):
        _ = table_file(str(path), OpenOptions()).groups


def test_a_table_of_texts_that_repeat_is_read_as_ever(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"timestamp_ns": TIMES, "value": ["left", "right"] * 500}), path)
    assert verdict(path) == set()
    assert (
        table_file(str(path), OpenOptions()).read(0, ["value"])["value"].to_pylist()
        == ["left", "right"] * 500
    )


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_a_sweep_whose_groups_hold_far_more_together_than_it_takes_is_refused(tmp_path, suffix):
    path = tmp_path / f"1700000000000000000{suffix}"
    rows, groups = MIB // 64, 40
    whole = pa.table({"x": np.zeros(rows * groups, np.float32)})
    if suffix == ".parquet":
        pq.write_table(whole, path, row_group_size=rows, compression="zstd")
    else:
        pa.feather.write_feather(whole, str(path), compression="zstd", chunksize=rows)
    assert 256 * path.stat().st_size < whole.nbytes
    for group in range(groups):
        assert table_file(str(path), OpenOptions()).read(group, ["x"]).num_rows == rows
    log = open_log([str(path)])
    (topic,) = log.summary.topics
    sweep = log.read({topic: TopicRequest(MIN_TIME, MAX_TIME, ("log",))})[topic]
    with pytest.raises(LogReadError, match=r"a message of all its rows requires \d+ bytes.*as several files"):
        sweep.take(FieldSpec(("rows[].x",)), np.arange(1))


def test_images_that_claim_too_much_together_are_refused(monkeypatch):
    monkeypatch.setattr(images, "_FREE_BYTES", MIB)
    file = io.BytesIO()
    Image.new("RGB", (500, 500)).save(file, "WEBP", lossless=True)
    data = np.frombuffer(file.getvalue(), np.uint8)
    assert len(data) < 400
    spec, text = FieldSpec(adapter="image"), np.frombuffer(b"webp", np.uint8)
    assert len(images.convert(spec, {"format": [text], "data": [data]})) == 1
    with pytest.raises(UnfitError, match="hold 1500000 bytes"):
        images.convert(spec, {"format": [text] * 9, "data": [data] * 9})
