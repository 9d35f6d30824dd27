"""Plain folders in a store whose requests fail: the rows are right, or the error is one of the store.

A sample of requests meets each fault in the tier check, each request in others. `logloom head` and
`logloom verify` are of versions.
"""

import itertools
import json
import tarfile
from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import logloom.datasets as ld
import logloom.io.formats.bags as granular
from logloom.blocks import Block
from logloom.errors import AfterCommitError, LogloomError, StorageError
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.formats.table import verify, write_table
from logloom.io.storage.remote import retries
from logloom.pipelines.convert.convert import convert
from logloom.pipelines.convert.plan import plan_convert
from logloom.schema import ColumnType, Schema
from tests import faulty
from tests.faulty import ROOT
from tests.io.formats.lance.test_lance import write as write_lance_table
from tests.io.formats.lerobot.test_dataset import write_others as write_lerobot_dataset
from tests.pipelines.verbs import some_pairs
from tests.tier import by_tier

pytestmark = pytest.mark.faults

ROWS = 20
INFOS = "infos.json"
TARGETS = (f"{ROOT}/converted-{number}" for number in itertools.count())


def write_arrays(folder):
    group = zarr.open_group(folder, mode="w", zarr_format=3)
    group.create_array("speed", data=np.arange(ROWS) / 3, chunks=(6,))
    group.create_array("pose", data=np.arange(3.0 * ROWS).reshape(ROWS, 3), chunks=(6, 3))


def write_parquet(folder):
    folder.mkdir()
    for number in range(2):
        speed = pa.array(np.arange(ROWS // 2) + number * 100.0)
        pq.write_table(pa.table({"speed": speed}), folder / f"{number}.parquet", row_group_size=4)


def write_bags(folder):
    with granular.DatasetWriter(folder, {"name": "utf8", "pose": "array"}, granular.encoders) as writer:
        for i in range(ROWS):
            writer.append({"name": f"n{i}", "pose": np.full(3, i, np.float32)})


def write_shards(folder):
    folder.mkdir()
    for number in range(2):
        with tarfile.open(folder / f"{number:06}.tar", "w") as shard:
            for i in range(ROWS // 2):
                data = f"{number} {i}".encode()
                member = tarfile.TarInfo(f"{i:04}.txt")
                member.size = len(data)
                shard.addfile(member, BytesIO(data))


def write_l5kit(folder):
    made = ChunkedDataset(folder).initialize(num_scenes=1, num_frames=ROWS)
    scenes, frames = np.zeros(1, made.scenes.dtype), np.zeros(ROWS, made.frames.dtype)
    scenes["frame_index_interval"], frames["timestamp"] = [[0, ROWS]], np.arange(ROWS)
    made.scenes[:], made.frames[:] = scenes, frames


def write_blobs(folder):
    rows = [{"log_id": "a", "timestamp": i, "pose": np.full(3, i, np.float32)} for i in range(ROWS)]
    write_table(str(folder), rows, index=[])


def write_lance(folder):
    schema = Schema({"pose": ColumnType("<f4", (3,))})
    poses = np.arange(3.0 * ROWS, dtype="<f4").reshape(2, ROWS // 2, 3)
    blocks = [
        Block(log, "p0", 0, {"timestamp": np.arange(ROWS // 2), "pose": own})
        for log, own in zip("ab", poses, strict=True)
    ]
    write_lance_table(folder, blocks, schema)


def write_lerobot(folder):
    write_lerobot_dataset(folder, (ROWS // 2, ROWS // 2))


def write_annotations(folder):
    folder.mkdir()
    infos = [{"log_id": "a", "timestamp": i, "boxes": [i, 2]} for i in range(ROWS)]
    (folder / INFOS).write_text(json.dumps({"metainfo": {}, "data_list": infos}))


FOLDERS = {
    "arrays": write_arrays,
    "parquet": write_parquet,
    "bags": write_bags,
    "shards": write_shards,
    "l5kit": write_l5kit,
    "blobs": write_blobs,
    "lance": write_lance,
    "lerobot": write_lerobot,
    "annotations": write_annotations,
}

LOADED = {
    "arrays": "pose",
    "parquet": "speed",
    "bags": "pose",
    "l5kit": "ego_translation",
    "blobs": "pose",
    "lance": "pose",
    "lerobot": "observation.state",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folders in the store that fails."""
    top = tmp_path_factory.mktemp("plain")
    faulty.install()
    for name, write in FOLDERS.items():
        write(top / name)
        for path in (top / name).rglob("*"):
            if path.is_file():
                faulty.FaultyFiles().pipe_file(f"/bucket/{path.relative_to(top)}", path.read_bytes())
    return dict(faulty.FaultyFiles.store)


@pytest.fixture
def faults(made, monkeypatch):
    monkeypatch.setattr(retries, "WAITS", (0, 0, 0))
    faulty.FaultyFiles.store.clear()
    faulty.FaultyFiles.store.update(made)
    yield faulty.FaultyFiles.faults
    faulty.FaultyFiles.faults.set()


def opened(folder):
    rows = ld.open(f"{ROOT}/{folder}")
    return len(rows), [str(rows[i]) for i in range(0, len(rows), 5)], str(rows.get_many([0, 7, 13]))


def converted(folder):
    # No file says that it is one of annotations.
    what = (f"{folder}/{INFOS}", folder) if folder == "annotations" else (folder, None)
    source = open_foreign(f"{ROOT}/{what[0]}", what[1], on_error="skip")
    done = convert(plan_convert(source, next(TARGETS), "zarr", on_error="skip"))
    assert done.damaged == ()
    return [(record.log_id, record.status, record.rows) for record in done.manifest.logs]


def loaded(folder):
    rows = ld.open(f"{ROOT}/{folder}")
    if folder == "shards":  # text alone, of which no batches are made
        rows = rows.map(lambda row: {"length": len(row["txt"])})
    else:
        rows = rows.select(LOADED[folder])
    with ld.Loader(rows, 8, shuffle=False, workers=0, prefetch=0) as loader:
        return [{name: values.tolist() for name, values in next(loader).items()} for _ in range(2)]


def windowed(folder):
    rows = ld.open(f"{ROOT}/{folder}").window(range(-1, 1), max_gap=None)
    return len(rows), str(rows.get_many([3, 11])), str(rows.index)


COMMANDS = {"open": opened, "load": loaded, "window": windowed, "convert": converted}
CASES = [
    (command, folder)
    for command in COMMANDS
    for folder in FOLDERS
    if command == "convert" or folder != "annotations"  # whose infos are rows of no view
]


@pytest.mark.parametrize(("case", "kind"), some_pairs(CASES, ("reset", "time-out", "short", "503")))
def test_a_plain_folder_whose_every_request_fails_at_first_reads_as_without_faults(faults, case, kind):
    command, folder = case
    run = COMMANDS[command]
    expected = run(folder)
    faults.set(kind, once=True)
    found = run(folder)
    assert len(faults.done) >= 3
    faults.set()
    assert found == expected


@pytest.mark.parametrize(("case", "kind"), some_pairs(CASES, ("403", "reset")))
def test_a_plain_folder_that_can_not_be_read_for_good_is_a_fault_of_the_store_and_no_damage(
    faults, case, kind
):
    command, folder = case
    run = COMMANDS[command]
    faults.set()
    expected = run(folder)
    number = faults.requests
    for at in range(0, number, max(1, number // by_tier(4, number))):
        faults.set(kind, at=at, times=10**6)
        error, found = None, expected
        try:
            found = run(folder)
        except LogloomError as raised:
            error = raised
        what = f"request {at} of {number}: {faults.done[:1]}: {error or found}"
        faults.set()
        assert found == expected, what
        fault = error.__cause__ if isinstance(error, AfterCommitError) else error
        of_store = isinstance(fault, StorageError) or "errors.StorageError: " in str(fault)  # a worker's
        assert error is None or of_store, what


@pytest.mark.parametrize("kind", ["403", "reset"])
def test_a_table_that_can_not_be_verified_for_good_is_a_fault_of_the_store_and_no_damage(faults, kind):
    faults.set()
    assert verify(f"{ROOT}/blobs", threads=1) == []
    for at in range(faults.requests):
        faults.set(kind, at=at, times=10**6)
        with pytest.raises(StorageError, match=f"{ROOT}/"):
            verify(f"{ROOT}/blobs", threads=1)
