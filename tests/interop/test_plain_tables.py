"""Lance, pandas, polars, DuckDB and Hugging Face datasets read what `parquet` and `lance` write, unhelped."""

import hashlib
import io
import json

import duckdb
import lance
import numpy as np
import pandas as pd
import PIL.Image
import polars as pl
import pyarrow.parquet as pq
import pytest

from logloom.datasets import open as open_dataset
from logloom.demo import demo_recipe
from logloom.recipe import Recipe
from tests.absent import needs, outputs_present
from tests.interop.conftest import forks

OUTPUTS = outputs_present("""
outputs:
  tar: {}
  parquet: {images: {camera.front: jpg}, row_group_bytes: 20000}
  lance: {images: {camera.front: jpg}}
""")


@pytest.fixture(scope="module")
def made(logs_of, root_of):
    """The view of a version with plain tables, and its rows as another format has them."""
    text = demo_recipe(logs_of(2, 2))
    root = root_of(Recipe.from_yaml(text[: text.index("\noutputs:")] + OUTPUTS + "partition: {rows: 5}\n"))
    return root / "v00000001", list(open_dataset(root, output="tar"))


@pytest.fixture(scope="module")
def datasets():
    with forks(".venv-datasets", "datasets", "import datasets") as run:
        yield run


@pytest.fixture
def version(made):
    """The folder of plain files, and its rows."""
    needs("parquet")
    return made[0] / "parquet" / "all", made[1]


@pytest.fixture
def table(made):
    """The folder of the Lance table, and its rows."""
    needs("lance")
    return made[0] / "lance" / "all", made[1]


def check(found, rows, dot="."):
    """Compares columns of each kind: lists of values by name, in the order of rows."""
    found = {name.replace(dot, "."): found[name] for name in found}
    assert len(rows) > 10
    assert list(found["log_id"]) == [row["log_id"] for row in rows]
    assert [int(stamp) for stamp in found["timestamp"]] == [int(row["timestamp"]) for row in rows]
    np.testing.assert_array_equal(list(found["ego.speed"]), [row["ego.speed"] for row in rows])
    for name in ("ego.position", "lidar.points"):
        for value, row in zip(found[name], rows, strict=True):
            own = np.array([list(item) if np.ndim(item) else item for item in value], row[name].dtype)
            np.testing.assert_array_equal(own.reshape(row[name].shape), row[name])


def check_images(images, rows):
    for image, row in zip(images, rows, strict=True):
        assert (image["bytes"] if image else b"") == row["camera.front"]
        if image:
            assert PIL.Image.open(io.BytesIO(image["bytes"])).size[0] > 0


def test_a_partition_is_a_file_of_row_groups_and_types_stand_in_it(version):
    folder, rows = version
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == [f"{number:06d}.parquet" for number in range(len(files))]
    assert len(files) > 2
    metadata = pq.read_metadata(files[0])
    assert metadata.num_row_groups > 1
    assert sum(pq.read_metadata(path).num_rows for path in files) == len(rows)
    features = json.loads(metadata.metadata[b"huggingface"])["info"]["features"]
    assert features == {"camera.front": {"_type": "Image"}}


def test_pandas_reads_equal_values(version):
    folder, rows = version
    frame = pd.read_parquet(folder)
    check(frame, rows)
    check_images(frame["camera.front"], rows)
    assert frame["timestamp"].dtype == np.int64


def test_polars_reads_equal_values_and_row_groups_that_a_filter_leaves(version):
    folder, rows = version
    frame = pl.scan_parquet(folder / "*.parquet").collect()
    check({name: frame[name].to_list() for name in frame.columns}, rows)
    check_images(frame["camera.front"].to_list(), rows)
    last = int(rows[-1]["timestamp"])
    late = pl.scan_parquet(folder / "*.parquet").filter(pl.col("timestamp") == last).collect()
    assert late["timestamp"].to_list() == [last] * sum(row["timestamp"] == last for row in rows)


def test_duckdb_reads_equal_values_and_counts_by_sql(version):
    folder, rows = version
    found = duckdb.sql(f"select * from '{folder}/*.parquet' order by filename, timestamp").to_arrow_table()
    check({name: found[name].to_pylist() for name in found.column_names}, rows)
    check_images(found["camera.front"].to_pylist(), rows)
    ((fast,),) = duckdb.sql(f"select count(*) from '{folder}/*.parquet' where \"ego.speed\" > 1").fetchall()
    assert fast == sum(row["ego.speed"] > 1 for row in rows)


def decoded(rows):
    """log_id, timestamp, position and a digest of the pixels of each row."""
    expected = []
    for row in rows:
        digest = None
        if row["camera.front"]:
            image = PIL.Image.open(io.BytesIO(row["camera.front"])).convert("RGB")
            digest = hashlib.sha256(np.asarray(image).tobytes()).hexdigest()
        position = row["ego.position"].tolist()
        expected.append([row["log_id"], int(row["timestamp"]), position, digest])
    return expected


READ = """
import hashlib, json, sys
import datasets, numpy as np
files = sys.argv[1] + "/*.parquet"
rows = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=sys.argv[2])
assert isinstance(rows.features["camera.front"], datasets.Image), rows.features
assert rows.features["ego.position"] == datasets.List(datasets.Value("float64"), length=3)
found = [
    [row["log_id"], row["timestamp"], row["ego.position"], None if row["camera.front"] is None
     else hashlib.sha256(np.asarray(row["camera.front"].convert("RGB")).tobytes()).hexdigest()]
    for row in rows
]
print(json.dumps(found))
"""


def test_hugging_face_datasets_decodes_the_images(datasets, version, tmp_path):
    folder, rows = version
    assert json.loads(datasets(READ, folder, tmp_path)) == decoded(rows)


def test_lance_reads_equal_values_at_random_and_rows_that_a_filter_leaves(table):
    folder, rows = table
    found = lance.dataset(str(folder))
    found.validate()
    assert len(found.get_fragments()) > 2
    order = np.random.default_rng(0).permutation(len(rows))
    some = found.take(order.tolist())
    check(
        {name: some[name].to_pylist() for name in some.column_names}, [rows[number] for number in order], "__"
    )
    fast = found.to_table(filter="ego__speed > 1", columns=["timestamp"])["timestamp"].to_pylist()
    assert fast == [row["timestamp"] for row in rows if row["ego.speed"] > 1]


def test_pandas_polars_and_duckdb_read_equal_values_of_a_lance_table(table):
    folder, rows = table
    found = lance.dataset(str(folder))
    frame = found.to_table().to_pandas()
    check(frame, rows, "__")
    check_images(frame["camera__front"], rows)
    lazy = pl.scan_lance(str(folder)) if hasattr(pl, "scan_lance") else pl.scan_pyarrow_dataset(found)
    collected = lazy.collect()
    check({name: collected[name].to_list() for name in collected.columns}, rows, "__")
    ((fast,),) = duckdb.sql("select count(*) from found where ego__speed > 1").fetchall()
    assert fast == sum(row["ego.speed"] > 1 for row in rows)
    by_sql = duckdb.sql("select * from found").to_arrow_table()
    check({name: by_sql[name].to_pylist() for name in by_sql.column_names}, rows, "__")


READ_LANCE = """
import hashlib, json, sys
import datasets, numpy as np
try:
    import lance
except ImportError:
    print("null")
    sys.exit()
rows = datasets.load_dataset("lance", data_dir=sys.argv[1], split="train", cache_dir=sys.argv[2])
assert isinstance(rows.features["camera__front"], datasets.Image), rows.features
assert rows.features["ego__position"] == datasets.List(datasets.Value("float64"), length=3)
found = [
    [row["log_id"], row["timestamp"], row["ego__position"], None if row["camera__front"] is None
     else hashlib.sha256(np.asarray(row["camera__front"].convert("RGB")).tobytes()).hexdigest()]
    for row in rows
]
print(json.dumps(found))
"""


def test_hugging_face_datasets_decodes_the_images_of_a_lance_table(datasets, table, tmp_path):
    folder, rows = table
    found = json.loads(datasets(READ_LANCE, folder, tmp_path))
    if found is None:
        pytest.skip("no pylance beside datasets here; `make interop` installs it")
    assert found == decoded(rows)
