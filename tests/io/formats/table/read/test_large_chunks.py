"""Chunks large enough to be read value by value, against the same chunks read whole."""

import os
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logloom.io.formats.table as tt
from logloom.errors import DatasetError
from logloom.io.formats.table.read import large_chunks
from logloom.io.storage import files
from logloom.schema import STRING, ColumnType, Schema

TYPES = Schema(
    {
        "pose": ColumnType(np.dtype("<f8"), (4, 4)),
        "jpeg": ColumnType(np.dtype("u1"), (None,), kind="bytes"),
        "cloud": ColumnType(np.dtype("<f4"), (None, 3)),
        "speed": ColumnType(np.dtype("<f4"), ()),
        "nothing": ColumnType(np.dtype("<f4"), (0, 2)),
        "image": ColumnType(np.dtype("u1"), (None, None, 3)),
        "note": STRING,
        "label": ColumnType(np.dtype("<i8"), ()),
    }
)


def make_row(number: int, scale: int, rng: np.random.Generator) -> dict:
    points, height, width = (int(rng.integers(0, scale)) for _ in range(3))
    return {
        "log_id": "a",
        "timestamp": number * 10**8,
        "pose": rng.random((4, 4)),
        "jpeg": rng.bytes(int(rng.integers(0, scale))),
        "cloud": rng.random((points, 3), np.float32),
        "speed": np.float32(number),
        "nothing": np.empty((0, 2), np.float32),
        "image": rng.integers(0, 255, (height % 20, width % 20, 3)).astype(np.uint8),
        "note": "ä" * int(rng.integers(0, scale)),
        "label": np.int64(number),
    }


def assert_equal(found, wanted):
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        parts = (found[name], value) if isinstance(value, tuple) else ((found[name],), (value,))
        for one, other in zip(*parts, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)
            assert np.asarray(one).dtype == np.asarray(other).dtype


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Six rows, in one group and in another of three columns."""
    root = tmp_path_factory.mktemp("large") / "table"
    rng = np.random.default_rng(0)
    rows = [make_row(number, 90, rng) for number in range(6)]
    tt.write_table(str(root), rows, types=TYPES, groups={"row": ".*"})
    return root


def loaders(root, monkeypatch):
    """The same table read value by value, and chunk by chunk."""
    index = tt.read_index(str(root))
    whole, pieces = tt.row_loader(index), tt.row_loader(index)
    for loader, least in ((whole, 1 << 40), (pieces, 1)):
        monkeypatch.setattr(large_chunks, "LARGE_BYTES", least)
        for columns in (None, ["jpeg", "cloud", "label"], ["note"]):
            for n in (0, 1):
                loader.get_row(n, columns)  # a plan is made once
                loader.get_many([n], columns)
    return whole, pieces


@pytest.mark.parametrize("columns", [None, ["jpeg", "cloud", "label"], ["note"]])
def test_rows_and_batches_read_value_by_value_are_those_read_whole(table, monkeypatch, columns):
    whole, pieces = loaders(table, monkeypatch)
    for number in range(6):
        assert_equal(pieces.get_row(number, columns), whole.get_row(number, columns))
    for positions in ([0, 1, 2, 3, 4, 5], [4, 0, 4], [3]):
        assert_equal(pieces.get_many(positions, columns), whole.get_many(positions, columns))


def test_no_value_is_read_with_its_chunk(table, monkeypatch):
    _, pieces = loaders(table, monkeypatch)
    lengths = []
    read = type(pieces._reader).read
    monkeypatch.setattr(
        type(pieces._reader), "read", lambda self, n, o, size: lengths.append(size) or read(self, n, o, size)
    )
    row = pieces.get_row(2)
    assert max(lengths) == max(row["cloud"].nbytes, row["image"].nbytes, row["pose"].nbytes)


def test_batches_of_large_chunks_fill_the_arrays_they_are_given(table, monkeypatch):
    whole, pieces = loaders(table, monkeypatch)
    wanted = whole.get_many([5, 1, 2])
    out = {"pose": np.empty((3, 4, 4)), "cloud": np.zeros((1000, 3), np.float32)}
    found = pieces.get_many([5, 1, 2], out=out)
    assert found["pose"] is out["pose"]
    assert found["cloud"][0].base is not None
    np.testing.assert_array_equal(out["cloud"][: len(wanted["cloud"][0])], wanted["cloud"][0])
    assert_equal(found, wanted)


@given(data=st.data())
def test_damaged_chunks_give_the_same_values_or_an_error_either_way(data, table, tmp_path_factory):
    root = tmp_path_factory.mktemp("damaged") / "table"
    blob = next(table.rglob("row.blob"))
    content = bytearray(blob.read_bytes())
    index = tt.read_index(str(table))
    first = int(index["__0.row.offset"][2])
    at = first + data.draw(
        st.one_of(st.sampled_from([128, 129, 135]), st.integers(0, int(index["__0.row.length"][2]) - 1))
    )
    content[at] = data.draw(st.integers(0, 255))
    shutil.copytree(table, root)
    copy = root / blob.relative_to(table)
    copy.chmod(0o644)
    copy.write_bytes(content)
    monkeypatch = pytest.MonkeyPatch()
    found = []
    index = tt.read_index(str(root))
    for least in (1 << 40, 1):
        monkeypatch.setattr(large_chunks, "LARGE_BYTES", least)
        loader = tt.row_loader(index)
        for read in (lambda loader=loader: loader.get_row(2), lambda loader=loader: loader.get_many([1, 2])):
            try:
                found.append(read())
            except DatasetError as error:
                found.append(str(error))
    monkeypatch.undo()
    for one, other in ((found[0], found[2]), (found[1], found[3])):
        if isinstance(one, str):
            assert "row 2 of log a" in one
            assert "row 2 of log a" in other
        else:
            assert_equal(other, one)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Twenty rows of a bytes and a text column, a group each."""
    root = tmp_path_factory.mktemp("texts") / "table"
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 60, 20).tolist()
    rows = [{"jpeg": rng.bytes(size), "note": "ä" * (size // 2)} for size in sizes]
    tt.write_table(str(root), rows)
    return root, rows


# Such that what is small, close to each other, and read in one call differs.
LIMITS = st.sampled_from([(99, 0, 99), (40, 0, 99), (99, 30, 99), (50, 30, 3)])


def limit(monkeypatch, limits):
    for name, limit in zip(("LARGE_BYTES", "LOCAL_WASTE", "JOINED"), limits, strict=True):
        monkeypatch.setattr(large_chunks, name, limit)


@given(limits=LIMITS, positions=st.lists(st.integers(0, 19), min_size=1, max_size=30))
def test_a_batch_of_lone_texts_holds_what_its_rows_hold(texts, monkeypatch, limits, positions):
    limit(monkeypatch, limits)
    root, rows = texts
    loader = tt.row_loader(tt.read_index(str(root)))
    found = loader.get_many(positions)
    assert found == {name: [rows[position][name] for position in positions] for name in ("jpeg", "note")}


def test_a_batch_of_many_files_keeps_few_of_them_open(tmp_path, monkeypatch):
    types = Schema({"note": STRING})
    entries = [
        tt.write_part(str(tmp_path / "table"), [{"note": f"{n} {i}"} for i in range(3)], f"{n:02}", types)
        for n in range(30)
    ]
    tt.commit_table(str(tmp_path / "table"), entries, types, keys=[])
    monkeypatch.setattr(files, "_MAX_OPEN", 2)
    loader = tt.row_loader(tt.read_index(str(tmp_path / "table")))
    before, most = len(os.listdir("/proc/self/fd")), []

    def counted(*how):
        most.append(len(os.listdir("/proc/self/fd")) - before)
        return os.pread(*how)

    monkeypatch.setattr(large_chunks, "pread", counted)
    found = loader.get_many(range(0, 90, 3))
    assert found == {"note": [f"{n} 0" for n in range(30)]}
    assert len(most) == 30
    assert max(most) < 10


@given(data=st.data(), limits=LIMITS, name=st.sampled_from(["jpeg", "note"]))
def test_a_damaged_lone_text_gives_the_same_value_or_an_error_in_rows_and_batches(
    data, texts, monkeypatch, limits, name, tmp_path_factory
):
    limit(monkeypatch, limits)
    root = tmp_path_factory.mktemp("damaged") / "table"
    shutil.copytree(texts[0], root)
    (blob,) = root.rglob(f"{name}.blob")
    content = bytearray(blob.read_bytes())
    index = tt.read_index(str(root))
    row = data.draw(st.integers(0, 19))
    first, length = int(index[f"__0.{name}.offset"][row]), int(index[f"__0.{name}.length"][row])
    content[first + data.draw(st.integers(0, length - 1))] = data.draw(st.integers(0, 255))
    blob.chmod(0o644)
    blob.write_bytes(content)
    loader = tt.row_loader(index)
    found = []
    for read in (
        lambda: [loader.get_row(n, [name])[name] for n in range(20)],
        lambda: loader.get_many(range(20), [name])[name],
    ):
        try:
            found.append(read())
        except DatasetError as error:
            found.append(str(error))
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Values of 20 kB and of 20 bytes, each alone in its group."""
    root, rng = tmp_path_factory.mktemp("pictures") / "table", np.random.default_rng(1)
    rows = [
        {
            "log_id": "a",
            "timestamp": number * 10**8,
            "jpeg": rng.bytes(int(rng.integers(20_000, 21_000))),
            "text": "ä" * int(rng.integers(10_000, 10_500)),
            "note": f"{number}é",
        }
        for number in range(30)
    ]
    tt.write_table(str(root), rows, groups={name: name for name in ("jpeg", "text", "note")})
    return root, rows


def test_windows_of_one_large_or_small_value_a_chunk_are_the_rows_as_written(pictures):
    root, rows = pictures
    loader = tt.row_loader(tt.read_index(str(root)))
    for columns in (["jpeg"], ["note"], ["text", "jpeg", "note"]):
        window = loader.get_rows(7, columns, range(-5, 12))
        wanted = [{name: row[name] for name in row if name in columns} for row in rows[2:19]]
        assert [{name: row[name] for name in row if name in columns} for row in window] == wanted


@pytest.mark.parametrize("column", ["jpeg", "note"])
@pytest.mark.parametrize("says", [2**63, 10**6])
def test_a_length_in_a_window_that_lies_is_named_with_its_row(pictures, tmp_path, column, says):
    shutil.copytree(pictures[0], tmp_path / "table")
    index = tt.read_index(str(tmp_path / "table"))
    (blob,) = (tmp_path / "table").glob(f"parts/*/{column}.blob")
    loader = tt.row_loader(index)
    places = loader._plans.of_row([column], 0, 10).steps[0].places
    blob.chmod(0o644)
    data = bytearray(blob.read_bytes())
    at = int(places.offsets[9])
    data[at : at + 8] = says.to_bytes(8, "little")
    blob.write_bytes(data)
    with pytest.raises(DatasetError, match=rf"group {column} .*row 9 of log"):
        loader.get_rows(7, [column], range(-5, 12))
    blob.write_bytes(data[: at + 4])
    with pytest.raises(DatasetError, match="cut short"):
        tt.row_loader(index).get_rows(7, [column], range(-5, 12))
