"""The code of granular's own documentation, as it stands but for the import, the paths and its slips.

Mended: `np.arange` with a dtype as its third argument, `.glob` on a string, a reader that its `with` has
closed when the Loader gets it. Two workers instead of 8. Printed values are asserted.
"""

import pathlib

import msgpack
import numpy as np
import pytest

import logloom.io.formats.bags as granular

SPEC = {
    "foo": "int",  # integer
    "bar": "utf8[]",  # *list* of strings
    "baz": "msgpack",  # packed structure
    "abc": "jpg",  # image
    "xyz": "array",  # array
}


@pytest.fixture
def directory(tmp_path):
    """Writing."""
    directory = tmp_path / "dataset"
    spec = SPEC
    with granular.DatasetWriter(directory, spec, granular.encoders) as writer:
        for i in range(10):
            datapoint = {
                "foo": i,
                "bar": ["hello"] * i,
                "baz": {"a": 1},
                "abc": np.zeros((60, 80, 3), np.uint8),
                "xyz": np.arange(0, 1 + i, dtype=np.float32),
            }
            writer.append(datapoint)
    return directory


def preproc(datapoint, seed):
    return {"image": datapoint["abc"], "label": datapoint["foo"]}


def test_writing_makes_these_files(directory):
    assert {path.name for path in pathlib.Path(directory).glob("*")} == {
        "spec.json",
        "refs.bag",
        "foo.bag",
        "bar.bag",
        "baz.bag",
        "abc.bag",
        "xyz.bag",
    }


def test_reading(directory):
    with granular.DatasetReader(directory, granular.decoders) as reader:
        assert reader.spec == SPEC
        assert reader.size == sum(path.stat().st_size for path in directory.glob("*.bag"))
        assert len(reader) == 10

        datapoint = reader[2]
        assert datapoint["foo"] == 2
        assert datapoint["bar"] == ["hello", "hello"]
        assert datapoint["abc"].shape == (60, 80, 3)


def test_loading_and_resuming(directory):
    reader = granular.DatasetReader(directory, granular.decoders)
    loader = granular.Loader(reader, batch=8, fns=[preproc], shuffle=True, workers=2, seed=0)

    assert loader.spec == {"image": (np.uint8, (60, 80, 3)), "label": (np.int64, ())}

    dataset = iter(loader)
    for _ in range(10):
        batch = next(dataset)
        assert batch["image"].shape == (8, 60, 80, 3)

    state = loader.save()
    assert state == {"step": 80, "seed": 0}
    loader.load(state)
    order = np.concatenate([np.random.default_rng([0, epoch]).permutation(10) for epoch in (8, 9)])
    assert next(dataset)["label"].tolist() == order[:8].tolist()
    loader.close()


def test_formats_of_ones_own(tmp_path):
    encoders = {
        "bytes": lambda x: x,
        "utf8": lambda x: x.encode("utf-8"),
        "msgpack": msgpack.packb,
    }

    decoders = {
        "bytes": lambda x: x,
        "utf8": lambda x: x.decode("utf-8"),
        "msgpack": msgpack.unpackb,
    }
    spec = {"a": "bytes", "b": "utf8", "c": "msgpack"}
    datapoint = {"a": b"\0\1", "b": "né", "c": [1, {"x": None}]}
    with granular.DatasetWriter(tmp_path / "dataset", spec, encoders) as writer:
        writer.append(datapoint)
    with granular.DatasetReader(tmp_path / "dataset", decoders) as reader:
        assert reader[0] == datapoint


def test_caching(directory):
    reader = granular.DatasetReader(
        directory,
        granular.decoders,
        cache_index=True,  # Cache index tables of all bag files in memory.
        cache_keys=("refs", "foo"),  # Fully cache refs.bag and foo.bag in memory.
    )
    (directory / "foo.bag").touch()
    assert [reader[i]["foo"] for i in range(10)] == list(range(10))
    (directory / "refs.bag").unlink()
    (directory / "foo.bag").unlink()
    assert reader[7, {"foo": True, "bar": True}] == {"foo": 7, "bar": ["hello"] * 7}


def test_masking(tmp_path):
    directory = tmp_path / "dataset"
    spec = {"foo": "int", "bar": "utf8", "baz": "array"}
    with granular.DatasetWriter(directory, spec, granular.encoders) as writer:
        for i in range(3):
            writer.append({"foo": i, "bar": "x", "baz": np.ones(i)})
    reader = granular.DatasetReader(directory, granular.decoders)
    index = 1

    mask = {"foo": True, "baz": True}
    datapoint = reader[index, mask]
    assert "foo" in datapoint
    assert "bar" not in datapoint
    assert "baz" in datapoint


def test_sequences(tmp_path):
    directory = tmp_path / "dataset"
    spec = {
        "title": "utf8",
        "frames": "jpg[]",
        "captions": "utf8[]",
        "times": "int[]",
    }
    with granular.DatasetWriter(directory, spec, granular.encoders) as writer:
        for title in ("first", "second"):
            frames = (np.full((4, 6, 3), i, np.uint8) for i in range(54))
            writer.append({"title": title, "frames": frames, "captions": list("abcdefg"), "times": range(7)})
    reader = granular.DatasetReader(directory, granular.decoders)
    index = 1

    available = reader.available(index)
    assert available == {"title": True, "frames": range(54), "captions": range(7), "times": range(7)}

    mask = {
        "title": True,  # Read the title modality
        "frames": range(32, 42),  # Read a range of 10 frames.
        "captions": range(7),  # Read all captions.
        "times": True,  # Another way to read the full list.
    }
    datapoint = reader[index, mask]
    assert len(datapoint["frames"]) == 10
    assert [int(frame[0, 0, 0]) for frame in datapoint["frames"]] == list(range(32, 42))
    assert datapoint["captions"] == list("abcdefg")
    assert datapoint["times"] == list(range(7))


def test_sharding(tmp_path):
    directory, spec, encoders, decoders = (
        tmp_path / "dataset",
        {"a": "int"},
        granular.encoders,
        granular.decoders,
    )
    # Write into a sharded dataset.
    writer = granular.ShardedDatasetWriter(directory, spec, encoders, shardlen=10000)
    for i in range(3):
        writer.append({"a": i})
    writer.close()

    # Read from a sharded dataset.
    reader = granular.ShardedDatasetReader(directory, decoders)
    assert [point["a"] for point in reader] == [0, 1, 2]
    assert sorted(path.name for path in (directory / "000000").iterdir()) == [
        "a.bag",
        "a.idx",
        "refs.bag",
        "spec.json",
    ]
    with granular.DatasetReader(directory / "000000", decoders) as shard:
        assert shard[2] == {"a": 2}


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_sharding_over_workers(tmp_path, num_workers):
    directory, spec, encoders, decoders = (
        tmp_path / "dataset",
        {"a": "int"},
        granular.encoders,
        granular.decoders,
    )
    for worker_id in range(num_workers):
        # Write into a sharded dataset.
        writer = granular.ShardedDatasetWriter(
            directory,
            spec,
            encoders,
            shardlen=2,
            shardstart=worker_id,  # Start writing at this shard.
            shardstep=num_workers,  # Afterwards, jump this many shards ahead.
        )
        for i in range(4):
            writer.append({"a": 10 * worker_id + i})
        writer.close()
    found = []
    for worker_id in range(num_workers):
        # Read from a sharded dataset.
        reader = granular.ShardedDatasetReader(
            directory,
            decoders,
            shardstart=worker_id,  # Start reading at this shard.
            shardstep=num_workers,  # Afterwards, jump this many shards ahead.
        )
        assert reader.shards == 2
        found += [reader[i]["a"] for i in range(len(reader))]
    assert found == [10 * worker + i for worker in range(num_workers) for i in range(4)]
