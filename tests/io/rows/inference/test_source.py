"""Datasets read once by many processes, and sources that cross to others, whatever the format."""

import io
import pickle
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import logloom.io.formats.bags as granular
from logloom.io.formats.foreign import open_foreign
from logloom.io.rows.inference import files as pieces
from logloom.io.rows.inference import source
from tests.absent import present


def _bags(path):
    spec = {"x": "array", "n": "int"}
    with granular.ShardedDatasetWriter(path, spec, granular.encoders, 3) as writer:
        for number in range(7):
            writer.append({"x": np.full(2, number, "<f4"), "n": number})


def _tar(path):
    path.mkdir()
    for shard in range(2):
        with tarfile.open(path / f"{shard:06}.tar", "w") as archive:
            for number in range(3):
                data = str(10 * shard + number).encode()
                info = tarfile.TarInfo(f"{shard}{number}.cls")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))


def _zarr(path):
    for log in "ab":
        array = zarr.open_group(path, mode="a").create_array(
            f"{log}/speed", shape=(5,), dtype="f4", chunks=(2,)
        )
        array[:] = np.arange(5)


def _parquet(path):
    path.mkdir()
    for number in range(2):
        pq.write_table(pa.table({"v": [number, 1, 2]}), path / f"{number}.parquet")


MAKERS = {"bags": _bags, "tar": _tar, "zarr": _zarr, "parquet": _parquet}


@pytest.mark.parametrize("kind", present(*MAKERS))
def test_processes_learn_what_one_learns_and_a_source_reads_on_in_another(tmp_path, monkeypatch, kind):
    MAKERS[kind](tmp_path / "set")
    alone = open_foreign(str(tmp_path / "set"))
    monkeypatch.setattr(pieces, "_IN_PROCESS_BYTES", 0)
    together = open_foreign(str(tmp_path / "set"), num_workers=2)
    assert together.schema == alone.schema
    assert together.logs() == alone.logs()
    crossed = pickle.loads(pickle.dumps(together))
    assert len(crossed) == len(alone) > 3
    assert [str(crossed[row]) for row in range(len(crossed))] == [
        str(alone[row]) for row in range(len(alone))
    ]


@pytest.fixture
def logs(tmp_path):
    """Rows of 40 logs in files of two row groups, each with rows of ten logs; and as a table."""
    rng, rows = np.random.default_rng(0), 1200
    table = pa.table(
        {
            "log_id": [f"log-{row // 30:02}" for row in range(rows)],
            "timestamp": np.arange(rows) % 30,
            "x": pa.array(rng.random(rows), mask=rng.random(rows) < 0.1),
            "text": [f"é{row}" * (row % 3) for row in range(rows)],
            "boxes": [[[row, other] for other in range(row % 4)] for row in range(rows)],
            "tags": [["a" * other for other in range(row % 3)] for row in range(rows)],
        }
    )
    (tmp_path / "set").mkdir()
    for number in range(2):
        pq.write_table(
            table.slice(600 * number, 600), tmp_path / "set" / f"{number}.parquet", row_group_size=300
        )
    return tmp_path / "set", table


def _equal(dataset, table, positions):
    names = ["x", "x.available", "text", "boxes", "tags"]
    expected = table.take(pa.array(positions)).to_pylist()
    for row, wanted in zip(dataset.rows(np.asarray(positions), names), expected, strict=True):
        assert (row["log_id"], row["timestamp"], row["text"]) == tuple(
            wanted[name] for name in ("log_id", "timestamp", "text")
        )
        assert row["x.available"] == (wanted["x"] is not None)
        assert np.array_equal(
            row["x"], np.float64(np.nan if wanted["x"] is None else wanted["x"]), equal_nan=True
        )
        assert np.asarray(row["boxes"]).tolist() == wanted["boxes"]
        assert list(row["tags"]) == wanted["tags"]


@pytest.mark.parametrize("kept", [0, 20_000, 128 << 20])
def test_random_rows_read_each_piece_once_and_keep_a_bounded_number_of_bytes(logs, monkeypatch, kept):
    folder, table = logs
    monkeypatch.setattr(source, "_KEPT_BYTES", kept)
    monkeypatch.setattr(source, "_READ_BYTES", 2000)
    dataset = open_foreign(str(folder))
    read = []
    for name in ("batches", "pick"):
        own = getattr(dataset._raw, name)
        monkeypatch.setattr(
            dataset._raw, name, lambda piece, *given, own=own: read.append(piece.where) or own(piece, *given)
        )
    rng = np.random.default_rng(1)
    for _ in range(3):
        read.clear()
        _equal(dataset, table, rng.integers(0, 1200, 200))
        assert len(read) == len(set(read)) <= 4
        assert dataset._kept.num_bytes <= max(kept, 40_000)  # or one batch
    assert (read == []) == (kept > 1 << 20)
    for position in [0, 1, 2, 299, 300, 301, 1199, 0]:
        _equal(dataset, table, [position])
    _equal(dataset, table, [5, 1199, 5, 0])


def test_a_scan_reads_a_piece_of_many_logs_once(logs, monkeypatch):
    folder, table = logs
    dataset = open_foreign(str(folder))
    read, own = [], dataset._raw.batches
    monkeypatch.setattr(
        dataset._raw, "batches", lambda piece, *given: read.append(piece.where) or own(piece, *given)
    )
    for start, stop in [(0, 1200), (31, 1111), (299, 301), (7, 8)]:
        read.clear()
        blocks = list(dataset.scan(["x", "text"], 3000, start, stop))
        assert len(read) == len(set(read)) == len({row // 300 for row in range(start, stop)})
        ids = [log_id for block in blocks for log_id in [block.log_id] * len(block)]
        assert ids == table["log_id"].to_pylist()[start:stop]
        stamps = np.concatenate([block.timestamp for block in blocks])
        assert stamps.tolist() == table["timestamp"].to_pylist()[start:stop]
        assert (
            np.isnan(np.concatenate([block.columns["x"] for block in blocks])).sum()
            == table["x"].slice(start, stop - start).null_count
        )
