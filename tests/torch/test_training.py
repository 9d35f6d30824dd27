"""Training with torch, in an environment that has logloom without Beam; `make torch` runs this."""

import importlib.util
import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets.loader.loader import Loader, torch_dataset
from logloom.schema import ColumnType, Schema
from tests.io.formats.table.making import drive, labels

torch = pytest.importorskip("torch", reason="torch is not installed here; `make torch` runs this where it is")

SMALL = ["lidar.pose", "ego.position", "labels.count"]


class Rows:
    """A map-style dataset over a table, as one would write it by hand."""

    def __init__(self, index):
        self.loader = tt.row_loader(index)

    def __len__(self):
        return len(self.loader)

    def __getitem__(self, position):
        row = self.loader.get_row(position, columns=SMALL)
        return {name: torch.as_tensor(np.array(row[name])) for name in SMALL}


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    root = tmp_path_factory.mktemp("tables")
    rows = drive(num_logs=3, rows=40)
    tt.write_table(f"{root}/sensors", rows, index=["pedestrians_count"])
    tt.write_table(f"{root}/labels_v2", labels(rows))
    sensors, later = tt.read_index(f"{root}/sensors"), tt.read_index(f"{root}/labels_v2")
    index = tt.merge(sensors, later, on=["log_id", "timestamp"])
    chosen = [number for number, row in enumerate(rows) if row["pedestrians_count"] > 3]
    return index[index.pedestrians_count > 3], [rows[number] for number in chosen], chosen


def test_this_environment_has_no_beam():
    assert importlib.util.find_spec("apache_beam") is None


@pytest.mark.parametrize("workers", [0, 2])
def test_sensors_merged_with_later_labels_feed_a_plain_data_loader(merged, workers):
    index, rows, numbers = merged
    batches = list(torch.utils.data.DataLoader(Rows(index), batch_size=8, num_workers=workers))
    poses = torch.cat([batch["lidar.pose"] for batch in batches]).numpy()
    counts = torch.cat([batch["labels.count"] for batch in batches]).numpy()
    np.testing.assert_array_equal(poses, [row["lidar.pose"] for row in rows])
    np.testing.assert_array_equal(counts, numbers)


def test_batches_are_read_into_tensors_that_are_there(merged):
    index, rows, numbers = merged
    poses, counts = torch.empty(5, 4, 4, dtype=torch.float64), torch.empty(5, dtype=torch.int32)
    out = {"lidar.pose": poses.numpy(), "labels.count": counts.numpy()}
    tt.row_loader(index).get_many([7, 0, 3, 3, 1], ["lidar.pose", "labels.count"], out=out)
    np.testing.assert_array_equal(poses, [rows[n]["lidar.pose"] for n in (7, 0, 3, 3, 1)])
    assert counts.tolist() == [numbers[n] for n in (7, 0, 3, 3, 1)]


def test_a_model_learns_from_a_merged_table_through_the_loader(merged):
    index, rows, _ = merged

    def inputs(row, seed):
        pose = row["lidar.pose"].ravel()
        return {"x": pose.astype(np.float32), "y": pose[:4].sum(keepdims=True).astype(np.float32)}

    class Source:
        def __init__(self):
            self.loader = tt.row_loader(index)

        def __len__(self):
            return len(rows)

        def __getitem__(self, position):
            return self.loader.get_row(position, columns=SMALL)

    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    with Loader(Source(), batch=16, fns=[inputs], workers=2, seed=0) as loader:
        feed = torch.utils.data.DataLoader(torch_dataset(loader), batch_size=None)
        for _, batch in zip(range(300), feed, strict=False):
            loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert np.mean(losses[-20:]) < 0.05 * np.mean(losses[:20])


def test_a_row_loader_is_a_dataset_of_torchs_loader(merged):
    index, rows, numbers = merged
    loader = torch.utils.data.DataLoader(tt.row_loader(index, SMALL), batch_size=8, num_workers=2)
    batches = list(loader)
    assert sum(len(batch["labels.count"]) for batch in batches) == len(rows)
    assert batches[0]["lidar.pose"].shape == (8, 4, 4)
    assert batches[0]["labels.count"].tolist() == numbers[:8]
    np.testing.assert_array_equal(batches[0]["ego.position"][2].numpy(), rows[2]["ego.position"])


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_the_order_of_the_seed(merged, workers):
    index, _, numbers = merged
    with Loader(Rows(index), batch=3, workers=workers, seed=1) as loader:
        feed = torch.utils.data.DataLoader(torch_dataset(loader), batch_size=None)
        batches = [batch["labels.count"] for batch in itertools.islice(feed, 3)]
    order = np.random.default_rng([1, 0]).permutation(len(numbers))
    assert torch.cat(batches).tolist() == [numbers[position] for position in order[:9]]


def test_lists_are_tensors_of_values_counts_and_lengths(tmp_path):
    table = pa.table({"it": pa.array([[[1.0], [2.0, 3.0]], []])})
    pq.write_table(table, tmp_path / "a.parquet")
    with Loader(logloom.open(tmp_path), batch=2, workers=0, shuffle=False) as loader:
        values, counts, lengths = next(iter(torch_dataset(loader)))["it"]
    assert isinstance(values, torch.Tensor)
    assert (values.tolist(), counts.tolist(), lengths.tolist()) == ([1, 2, 3], [2, 0], [1, 2])


def test_text_stays_an_array_beside_tensors_of_lists(tmp_path):
    rows = [
        {"log_id": "a", "timestamp": k, "points": np.full((k % 3, 2), k, "i2"), "task": f"pick {k}"}
        for k in range(4)
    ]
    types = {
        "points": ColumnType(np.dtype("i2"), (None, 2)),
        "task": ColumnType(np.dtype("u1"), (None,), "string"),
    }
    tt.write_table(f"{tmp_path}/t", rows, types=Schema(types))
    windows = logloom.open(f"{tmp_path}/t").window({"points": [0, 1], "task": [0, 1]}, on_edge="repeat")
    with Loader(windows, batch=4, workers=0, shuffle=False) as loader:
        batch = next(iter(torch_dataset(loader)))
    values, lengths = batch["points"]
    assert isinstance(values, torch.Tensor)
    assert lengths.tolist() == [[0, 1], [1, 2], [2, 0], [0, 0]]
    assert values.tolist() == [[1, 1], [1, 1], [2, 2], [2, 2], [2, 2], [2, 2]]
    assert isinstance(batch["task"], np.ndarray)
    assert batch["task"].tolist() == [[f"pick {k}", f"pick {min(k + 1, 3)}"] for k in range(4)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_mixture_goes_through_torchs_loader_in_its_order(tmp_path, workers):
    names = ["urban", "highway"]
    for name, count in zip(names, (6, 4), strict=True):
        rows = [
            {"log_id": name, "timestamp": k, "n": np.int64(k), "x": np.full(3, k, "f4")} for k in range(count)
        ]
        tt.write_table(f"{tmp_path}/{name}", rows)
    mixture = logloom.datasets.mix(
        {f"{tmp_path}/{name}": weight for name, weight in zip(names, (2, 1), strict=True)}
    )
    loader = torch.utils.data.DataLoader(mixture.torch(), batch_size=4, num_workers=workers)
    found = [one for batch in loader for one in zip(batch["source"], batch["n"].tolist(), strict=True)]
    assert found == [(row["source"], row["n"]) for row in mixture]
    with Loader(mixture, 4, workers=0) as ours:
        batch = next(iter(torch_dataset(ours)))
    assert batch["n"].tolist() == [n for _, n in found[:4]]
    assert isinstance(batch["x"], torch.Tensor)
