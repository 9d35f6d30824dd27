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
