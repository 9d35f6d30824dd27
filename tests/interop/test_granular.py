"""Bags and granular 0.17 and 0.24: each reads what the other writes, with equal values."""

import json
import pathlib
import sys

import numpy as np
import pytest

import logloom.io.formats.bags as ours
from logloom.io.formats.bags import BagsWriter
from logloom.schema import BYTES, STRING, ColumnType, Schema
from tests.cases import case
from tests.interop import granular_points
from tests.interop.granular_points import SEQUENCES, SPEC, digest, points
from tests.io.formats.rows import random_block

POINTS = pathlib.Path(granular_points.__file__).read_text()
READ = """
import sys, granular
reader = granular.DatasetReader(sys.argv[1], granular.decoders)
print(json.dumps([dict(reader.spec), [digest(reader[i]) for i in range(len(reader))]]))
"""


def expected(count, sequences):
    return [digest(point) for point in points(count, sequences)]


def sequences_of(granular):
    """Only the older one has sequences."""
    return [False, True] if granular.version == "17" else [False]


def spec_of(sequences):
    return dict(sorted({**SPEC, **(SEQUENCES if sequences else {})}.items()))


def test_granular_reads_what_we_write(tmp_path, granular):
    for sequences in sequences_of(granular):
        directory = tmp_path / str(sequences)
        with ours.DatasetWriter(directory, spec_of(sequences), ours.encoders) as writer:
            for point in points(9, sequences):
                writer.append(point)
        spec, digests = json.loads(granular(POINTS + READ, directory))
        assert spec == spec_of(sequences)
        assert digests == expected(9, sequences)


def test_granular_24_reads_the_third_generation(tmp_path, granular):
    if granular.version != "24":
        pytest.skip("granular 0.17 is older than the third generation")
    with ours.DatasetWriter(tmp_path / "data", spec_of(False), ours.encoders, generation=3) as writer:
        for point in points(9, False):
            writer.append(point)
    assert json.loads(granular(POINTS + READ, tmp_path / "data"))[1] == expected(9, False)


def test_we_read_what_granular_writes(tmp_path, granular):
    write = """
import sys, granular
sequences = sys.argv[2] == "True"
spec = {**SPEC, **(SEQUENCES if sequences else {})}
with granular.DatasetWriter(sys.argv[1], spec, granular.encoders) as writer:
    for point in points(9, sequences):
        writer.append(point)
print(writer.size)
"""
    for sequences in sequences_of(granular):
        directory = tmp_path / str(sequences)
        size = int(granular(POINTS + write, directory, sequences))
        for options in ({}, {"cache_index": False}, {"cache_keys": ["a", "g"]}, {"parallel": True}):
            with case(options), ours.DatasetReader(directory, ours.decoders, **options) as reader:
                assert reader.spec == spec_of(sequences)
                assert reader.size == size
                assert [digest(point) for point in reader] == expected(9, sequences)
                if not sequences:
                    assert reader[2:4, {"a": True}] == {"a": ["hello né 2", "hello né 3"]}


def test_records_are_the_bytes_that_granular_makes(granular):
    script = """
import granular
for point in points(9, False):
    for key, name in SPEC.items():
        if name not in ("png",) and not (name == "int" and point[key] in (0,)):
            print(key, granular.encoders[name](point[key]).hex())
"""
    theirs = granular(POINTS + script).splitlines()
    here = [
        f"{key} {ours.encoders[name](point[key]).hex()}"
        for point in points(9, False)
        for key, name in SPEC.items()
        if name != "png" and not (name == "int" and point[key] == 0)
    ]
    assert here == theirs


def test_integers_that_granular_can_not_write_it_can_read_from_us(tmp_path, granular):
    values = [-1, -128, 128, 200, 255, 32768, 65535]
    with ours.DatasetWriter(tmp_path / "data", {"x": "int"}, ours.encoders) as writer:
        for value in values:
            writer.append({"x": value})
    script = """
import sys, granular
reader = granular.DatasetReader(sys.argv[1], granular.decoders)
print([reader[i]["x"] for i in range(len(reader))])
"""
    assert json.loads(granular(script, tmp_path / "data")) == values


def test_shards_of_both_sides_read_as_one(tmp_path, granular):
    script = """
import sys, granular
if sys.argv[1] == "write":
    with granular.ShardedDatasetWriter(sys.argv[2], {"x": "i64"}, granular.encoders, 4, 1, 2) as writer:
        for i in range(8):
            writer.append({"x": 100 + i})
else:
    print([granular.ShardedDatasetReader(sys.argv[2], granular.decoders)[i]["x"] for i in range(16)])
"""
    with ours.ShardedDatasetWriter(tmp_path / "root", {"x": "i64"}, ours.encoders, 4, 0, 2) as writer:
        for i in range(8):
            writer.append({"x": i})
    granular(script, "write", tmp_path / "root")
    reader = ours.ShardedDatasetReader(tmp_path / "root", ours.decoders)
    found = [reader[i]["x"] for i in range(16)]
    assert found == [*range(4), *range(100, 104), *range(4, 8), *range(104, 108)]
    assert json.loads(granular(script, "read", tmp_path / "root")) == found


def test_rows_of_a_recipe_open_in_granular_with_equal_values(tmp_path, granular):
    schema = Schema(
        {
            "camera.front": BYTES,
            "lidar.points": ColumnType("<f4", (None, 4)),
            "objects": ColumnType(np.dtype([("x", "<f4"), ("label", "<U5"), ("size", "<f8", (3,))]), (None,)),
            "ego.rotation": ColumnType("<f8", (3, 3)),
            "speed": ColumnType("<f4"),
            "steps": ColumnType("<i8"),
            "note": STRING,
        },
        ("camera.front", "speed"),
    )
    block = random_block(schema, 7, 5)
    writer = BagsWriter(tmp_path, schema)
    writer.append(block)
    writer.close()
    rows = []
    for number in range(7):
        row = block.row(number, schema)
        row["objects"] = {name: row["objects"][name] for name in ("x", "label", "size")}
        row["meta"] = {name: block.columns[name][number].item() for name in schema.meta}
        row |= {"timestamp": int(row["timestamp"]), "steps": int(row["steps"])}
        rows.append(digest({key: np.asarray(v) if key == "speed" else v for key, v in row.items()}))
    assert json.loads(granular(POINTS + READ, tmp_path))[1] == rows


def test_our_loader_gives_the_batches_that_granulars_gives(tmp_path, granular):
    if granular.version != "17":
        pytest.skip("the loader of granular 0.24 takes functions of the step")
    with ours.DatasetWriter(tmp_path / "data", {"x": "i64", "y": "array"}, ours.encoders) as writer:
        for i in range(10):
            writer.append({"x": i, "y": np.full(3, i, "f4")})
    script = """
import json, multiprocessing, sys, granular
def noisy(point, seed):
    return {**point, "seed": __import__("numpy").array(seed)}
reader = granular.DatasetReader(sys.argv[1], granular.decoders)
fork = multiprocessing.get_context("fork")
loader = iter(granular.Loader(reader, 4, fns=[noisy], workers=2, prefetch=2, seed=3, mp=fork))
print(json.dumps([{k: v.tolist() for k, v in next(loader).items()} for _ in range(6)]))
loader.close()
"""
    theirs = json.loads(granular(script, tmp_path / "data"))
    reader = ours.DatasetReader(tmp_path / "data", ours.decoders)
    with ours.Loader(reader, 4, fns=[noisy], workers=2, prefetch=2, seed=3, mp="fork") as loader:
        assert [{key: value.tolist() for key, value in next(loader).items()} for _ in range(6)] == theirs


def noisy(point, seed):
    return {**point, "seed": np.array(seed)}


def test_closed_goes_with_the_with_block_as_granulars_does(tmp_path, granular, monkeypatch, capsys):
    script = """
import sys, pathlib, granular
root = pathlib.Path(sys.argv[1])
said = []
def visit(made):
    said.append(made.closed)
    with made:
        said.append(made.closed)
        if hasattr(made, "append"):
            made.append(b"x" if isinstance(made, granular.BagWriter) else {"x": 1})
    said.append(made.closed)
visit(granular.BagWriter(root / "a.bag"))
visit(granular.BagReader(root / "a.bag"))
visit(granular.DatasetWriter(root / "data", {"x": "int"}, granular.encoders))
visit(granular.DatasetReader(root / "data", granular.decoders))
visit(granular.ShardedDatasetWriter(root / "root", {"x": "int"}, granular.encoders, 2))
visit(granular.ShardedDatasetReader(root / "root", granular.decoders))
print(said)
"""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    theirs = granular(script, tmp_path / "theirs")
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "ours")])
    exec(script.replace("granular\n", "logloom.io.formats.bags as granular\n", 1), {})
    assert capsys.readouterr().out == theirs


def test_local_functions_reach_spawned_workers_as_they_do_in_granular(tmp_path, granular):
    if granular.version != "17":
        pytest.skip("the loader of granular 0.24 takes functions of the step")
    with ours.DatasetWriter(tmp_path / "data", {"x": "i64"}, ours.encoders) as writer:
        for i in range(6):
            writer.append({"x": i})
    script = """
import json, sys, granular
if __name__ == "__main__":
    reader = granular.DatasetReader(sys.argv[1], granular.decoders)
    offset = 7
    loader = granular.Loader(
        reader, 3, fns=[lambda point, seed: {"y": point["x"] + offset}], workers=1, prefetch=1, seed=2
    )
    loader = iter(loader)
    print(json.dumps([next(loader)["y"].tolist() for _ in range(4)]))
    loader.close()
"""
    theirs = json.loads(granular(script, tmp_path / "data"))
    reader, offset = ours.DatasetReader(tmp_path / "data", ours.decoders), 7
    fns = [lambda point, seed: {"y": point["x"] + offset}]
    with ours.Loader(reader, 3, fns=fns, workers=1, prefetch=1, seed=2, mp="spawn") as loader:
        assert [next(loader)["y"].tolist() for _ in range(4)] == theirs
