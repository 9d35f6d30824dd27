"""The four outputs of one recipe, over a synthetic drive and over a real log: each in its original client."""

import hashlib
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import webdataset
import xarray

import logloom.io.formats.table as tt
from logloom.demo import demo_recipe
from logloom.io.catalog.manifest import entries_of, read_manifest
from logloom.io.formats.zarr import ZarrReader
from logloom.io.storage.store import Store
from logloom.recipe import Recipe
from tests.pipelines.nights.test_real_logs import example

OUTPUTS = ("table", "bags", "tar", "zarr")
READ = """
import hashlib, json, sys
import granular
decoders = {**granular.decoders, "jpg": bytes}
reader = granular.ShardedDatasetReader(sys.argv[1], decoders)
def digest(value):
    parts = value.values() if isinstance(value, dict) else [value]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
names = sys.argv[2].split(",")
rows = [reader[i] for i in range(len(reader))]
print(json.dumps([[row["log_id"], row["timestamp"], *(digest(row[n]) for n in names)] for row in rows]))
"""


def drive_recipe(logs):
    text = demo_recipe(logs)
    text = text[: text.index("\noutputs:")] + "\noutputs: {table: {}, bags: {}, tar: {}, zarr: {}}\n"
    return Recipe.from_yaml(text + "partition: {rows: 10}\n")


@pytest.fixture(scope="module", params=["drive", "tilt_laser"])
def version(request, logs_of, root_of):
    """The root and the view of a version in all four formats, and names of columns of arrays in it."""
    if request.param == "drive":
        recipe = drive_recipe(logs_of(2, 2))
    else:
        log = request.getfixturevalue("shared_data") / "logs" / "tilt_laser.bag"
        outputs = {name: {} for name in OUTPUTS}
        recipe = example("tilt_laser", log, outputs=outputs, partition={"rows": 100})
    root = root_of(recipe)
    view = root / "v00000001"
    schema = ZarrReader(view / "zarr" / "all.zarr").schema
    arrays = [name for name, ctype in schema.columns.items() if ctype.kind == "array" and ctype.shape]
    assert len(arrays) >= 2
    return root, view, arrays


def digest(value):
    """Of an array, of a structured one field by field, in which form clients without such types have them."""
    fields = value.dtype.names
    parts = [value] if fields is None else [value[name] for name in fields]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


@pytest.fixture(scope="module")
def rows(version):
    """What every client must find: log_id, timestamp and the digest of each array, row by row."""
    _, view, arrays = version
    reader = ZarrReader(view / "zarr" / "all.zarr")
    found = [reader[number] for number in range(len(reader))]
    return [
        [row["log_id"], int(row["timestamp"]), *(digest(np.asarray(row[name])) for name in arrays)]
        for row in found
    ]


def test_all_four_agree_in_the_digest_of_every_column(version):
    store = Store.at(str(version[0]))
    of_partition = {}
    for _, entry in entries_of(store, read_manifest(store).logs):
        of_partition.setdefault((entry.log_id, entry.partition), {})[entry.output] = dict(entry.columns)
    assert of_partition
    for found in of_partition.values():
        assert list(found) == list(OUTPUTS)
        assert all(columns == found["table"] for columns in found.values())


def test_granular_opens_the_bags_with_equal_values(version, rows, granular):
    _, view, arrays = version
    assert json.loads(granular(READ, view / "bags" / "all", ",".join(arrays))) == rows


def test_webdataset_opens_the_shards_with_equal_values(version, rows):
    _, view, arrays = version
    shards = sorted(map(str, (view / "tar" / "all").iterdir()))
    found = []
    for sample in webdataset.WebDataset(shards, shardshuffle=False).decode():
        meta = sample["meta.json"]
        assert sample["__key__"] == f"{meta['log_id']}/{meta['timestamp']}"
        values = [digest(sample[f"{name}.npy"]) for name in arrays]
        found.append([meta["log_id"], meta["timestamp"], *values])
    assert found == rows


def test_xarray_opens_the_zarr_with_equal_values(version, rows):
    _, view, arrays = version
    place = view / "zarr" / "all.zarr"
    types = ZarrReader(place).schema.columns
    found = []
    for log_id in ZarrReader(place).stretches.log_ids:
        log = xarray.open_zarr(place, group=log_id, consolidated=True).load()
        for number in range(len(log["timestamp"])):
            stamp = int(log["timestamp"].values[number].astype("M8[ns]").astype("i8"))
            found.append([log_id, stamp, *(digest_of(log, name, types[name], number) for name in arrays)])
    assert found == rows


def digest_of(log, name, ctype, number):
    place = number
    if ctype.is_ragged:
        place = slice(*log[f"{name}.offsets"].values[number : number + 2])
    fields = [f"{name}.{field}" for field in ctype.dtype.names or ()] or [name]
    return hashlib.sha256(b"".join(log[field].values[place].tobytes() for field in fields)).hexdigest()


def test_pyarrow_opens_the_tables_index_and_its_rows_have_equal_values(version, rows):
    _, view, arrays = version
    place = view / "table" / "all"
    index = pq.read_table(place / "index", columns=["log_id", "timestamp"])
    assert [list(row.values()) for row in index.to_pylist()] == [row[:2] for row in rows]
    loader = tt.row_loader(tt.read_index(str(place)))
    found = [loader.get_row(number, columns=arrays) for number in range(len(loader))]
    assert [[digest(np.asarray(row[name])) for name in arrays] for row in found] == [r[2:] for r in rows]
