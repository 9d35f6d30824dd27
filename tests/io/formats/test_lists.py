"""Lists of lists in others' Parquet, in each format, and as original clients read them from there."""

import io
import itertools
import tarfile

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import logloom
from logloom.io.formats.registry import format_named, output_problems
from logloom.schema import ColumnType, Schema
from tests.absent import needs, present

ROWS = [[[0.5, 1.5], [], [2.5]], [], [[]], [[3.5], [4.5, 5.5, 6.5]], [[6.5, 7.5]]]
NAMES = [[["a", "bcd"], [], ["e"]], [], [[]], [["f"], ["g", "h", "né"]], [["", "k"]]]
OUTPUTS = present("bags", "lance", "parquet", "table", "tar", "zarr")
FLAT = [list(itertools.chain.from_iterable(row)) for row in ROWS]
LENGTHS = [[len(one) for one in row] for row in ROWS]


def structs(rows, names):
    pairs = [
        [zip(one, own, strict=True) for one, own in zip(*row, strict=True)]
        for row in zip(rows, names, strict=True)
    ]
    return [[[{"score": s, "name": n} for s, n in one] for one in row] for row in pairs]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A Parquet file that another program wrote, in several row groups."""
    folder = tmp_path_factory.mktemp("foreign")
    write(folder, rows_at_once=2)
    return folder


def write(folder, rows_at_once=None):
    item = pa.struct([("score", pa.float64()), ("name", pa.string())])
    table = pa.table(
        {
            "timestamp": pa.array(range(1, 6), pa.int64()),
            "score": pa.array(ROWS, pa.list_(pa.list_(pa.float64()))),
            "small": pa.array(ROWS, pa.large_list(pa.list_(pa.float32()))),
            "boxes": pa.array(structs(ROWS, NAMES), pa.list_(pa.list_(item))),
            "deep": pa.array([[row] for row in ROWS], pa.list_(pa.list_(pa.list_(pa.float64())))),
        }
    )
    pq.write_table(table, folder / "drive.parquet", row_group_size=rows_at_once)


def as_lists(row):
    return [one.tolist() for one in row]


def check_rows(dataset):
    assert str(dataset.schema.columns["score"]) == "float64[?][?]"
    assert str(dataset.schema.columns["small"]) == "float32[?][?]"
    assert dataset.schema.columns["boxes"].dtype == np.dtype([("score", "<f8"), ("name", "<U3")])
    rows = [dataset[row] for row in range(len(dataset))]
    assert [as_lists(row["score"]) for row in rows] == ROWS
    assert [as_lists(row["small"]) for row in rows] == ROWS
    assert [as_lists(one["score"] for one in row["boxes"]) for row in rows] == ROWS
    assert [as_lists(one["name"] for one in row["boxes"]) for row in rows] == NAMES
    values, counts, lengths = dataset.get_many([3, 0, 0])["score"]
    assert values.tolist() == [*FLAT[3], *FLAT[0], *FLAT[0]]
    assert (counts.tolist(), lengths.tolist()) == ([2, 3, 3], [*LENGTHS[3], *LENGTHS[0], *LENGTHS[0]])
    assert dataset.to_arrow()["score"].to_pylist() == ROWS
    assert [as_lists(row) for row in dataset.to_pandas()["score"]] == ROWS


def test_lists_of_lists_of_another_program_open_as_what_they_are(foreign):
    dataset = logloom.open(foreign)
    check_rows(dataset)
    assert "make no array" in dataset.source.left_out["deep"]


@pytest.mark.parametrize("output", OUTPUTS)
def test_each_format_keeps_lists_of_lists(output, foreign, tmp_path):
    logloom.convert(foreign, tmp_path / "root", format=output)
    dataset = logloom.open(tmp_path / "root")
    check_rows(dataset)
    windows = dataset.select(["score"]).window(range(-1, 1), on_edge="pad")
    assert [as_lists(row) for row in windows[1]["score"]] == ROWS[:2]
    assert [as_lists(row) for row in windows[0]["score"]] == [[], ROWS[0]]
    assert logloom.verify(tmp_path / "root").is_proven


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Makes a plain folder of a format, from a Parquet file of one row group."""

    def make(output):
        folder = tmp_path_factory.mktemp(output)
        (folder / "drive").mkdir()
        write(folder / "drive")
        logloom.convert(folder / "drive", folder / "plain", format=output, plain=True)
        return folder / "plain"

    return make


def test_pyarrow_reads_lists_of_lists_from_parquet(plain):
    needs("parquet")
    (file,) = plain("parquet").rglob("*.parquet")
    table = pq.read_table(file)
    assert table["score"].to_pylist() == ROWS
    assert table["boxes"].to_pylist() == structs(ROWS, NAMES)


@pytest.mark.filterwarnings("ignore:.*(Zarr V3 specification|Consolidated metadata).*")
def test_zarr_reads_elements_and_lengths(plain):
    needs("zarr")
    group = zarr.open_group(plain("zarr"), mode="r")["drive"]

    def rows(name):
        return [part.tolist() for part in np.split(group[name][...], group[f"{name}.offsets"][1:-1])]

    assert rows("score.lengths") == LENGTHS
    assert rows("score") == FLAT
    bounds = group["boxes.offsets"][1:-1]
    names = [part.tolist() for part in np.split(group["boxes.name"][...], bounds)]
    assert names == [list(itertools.chain.from_iterable(row)) for row in NAMES]


def test_numpy_reads_elements_and_lengths_from_tar(plain):
    needs("tar")
    (file,) = plain("tar").rglob("*.tar")
    found = {"score.npy": [], "score.lengths.npy": []}
    with tarfile.open(file) as archive:
        for member in archive:
            suffix = member.name.rpartition("/")[2].partition(".")[2]
            if suffix in found:
                found[suffix].append(np.load(io.BytesIO(archive.extractfile(member).read())).tolist())
    assert found == {"score.npy": FLAT, "score.lengths.npy": LENGTHS}


def test_msgpack_reads_elements_and_lengths_from_bags(plain):
    needs("bags")
    (bag,) = plain("bags").rglob("score.bag")
    ends = np.fromfile(bag.with_suffix(".idx"), "<u8") if bag.with_suffix(".idx").exists() else None
    data = bag.read_bytes()
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(data[: int(ends[-1])] if ends is not None else data)
    trees = list(itertools.islice(unpacker, 5))
    assert [np.frombuffer(tree["values"][3], tree["values"][1]).tolist() for tree in trees] == FLAT
    assert [np.frombuffer(tree["lengths"][3], tree["lengths"][1]).tolist() for tree in trees] == LENGTHS


@pytest.mark.parametrize("output", present("lerobot", "l5kit"))
def test_an_output_that_holds_no_lists_of_lists_names_those_that_do(output):
    form = format_named(output)
    given = {
        "lerobot": {"fps": 10, "features": {"observation.state": "x"}},
        "l5kit": dict.fromkeys(("translation", "rotation", "agents"), "x"),
    }[output]
    options = form.Options.model_validate(given)
    schema = Schema({"x": ColumnType("<f8", (None, None), "lists")})
    (line, *_) = [line for line in output_problems(form, options, schema) if "[?][?]" in line]
    assert line.endswith(f"; outputs that store it as it is: {', '.join(OUTPUTS)}")


@pytest.mark.parametrize("output", present("tar", "zarr"))
def test_a_column_with_the_name_of_the_lengths_is_refused(output):
    form = format_named(output)
    schema = Schema({"x": ColumnType("<f8", (None, None), "lists"), "x.lengths": ColumnType("<i4")})
    assert any("x and x.lengths" in line for line in form.check(form.Options(), schema))
