"""Tar shards that webdataset wrote, and hostile ones, as rows."""

import io
import tarfile

import numpy as np
import pytest
import webdataset

import logloom as ll
from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.formats.foreign import open_foreign
from logloom.io.storage import braces
from tests.cases import case


def sample(i):
    return {
        "__key__": f"dir/s{i:03}",
        "left.jpg": b"\xff\xd8" + bytes(i),
        "left.json": {"a": i},
        "cls": i * 10,
        "txt": f"é{i}",
        "pose.npy": np.full((i, 3), i, np.float32),
        "bin": bytes([i]),
    }


def write(path, numbers, compress=False):
    with webdataset.TarWriter(str(path), compress=compress, encoder=True) as sink:
        for i in numbers:
            sink.write(sample(i))


def test_members_are_columns_by_what_their_names_say(tmp_path, read):
    write(tmp_path / "a-000.tar", range(3))
    write(tmp_path / "a-001.tar.gz", range(3, 5), compress=True)
    dataset, rows = read(tmp_path)
    assert dataset.kind == "webdataset"
    types = {name: str(ctype) for name, ctype in dataset.schema.columns.items()}
    assert types == {
        "key": "string",
        "bin": "bytes",
        "cls": "int64",
        "left.jpg": "bytes",
        "left.json": "string",
        "pose.npy": "float32[?, 3]",
        "txt": "string",
    }
    assert [row["key"] for row in rows] == [f"dir/s{i:03}" for i in range(5)]
    row = rows[4]
    assert (row["cls"], row["txt"], row["bin"]) == (40, "é4", b"\4")
    assert (row["left.jpg"], row["left.json"]) == (b"\xff\xd8\0\0\0\0", '{"a": 4}')
    np.testing.assert_array_equal(row["pose.npy"], np.full((4, 3), 4, np.float32))
    assert [len(log.parts) for log in dataset.logs()] == [2]


@pytest.mark.parametrize(
    ("members", "columns", "renamed"),
    [
        ({"key": b"K", "txt": b"x"}, {"key": "s0", "key_": b"K", "txt": "x"}, {"key": "key_"}),
        ({"key.txt": b"K", "key_.txt": b"L"}, {"key": "s0", "key_": "L", "key__": "K"}, {"key.txt": "key__"}),
        ({"key.txt": b"K", "key.jpg": b"J"}, {"key": "s0", "key.txt": "K", "key.jpg": b"J"}, {}),
        ({"KEY": b"K"}, {"key": "s0", "key_": b"K"}, {"key": "key_"}),
    ],
)
def test_a_member_called_key_and_the_samples_own_key_are_both_kept(tmp_path, read, members, columns, renamed):
    with webdataset.TarWriter(str(tmp_path / "x.tar"), encoder=False) as sink:
        sink.write({"__key__": "s0", **members})
    dataset, rows = read(tmp_path / "x.tar")
    assert {name: rows[0][name] for name in dataset.schema.columns} == columns
    assert dataset.about.notes == tuple(
        f"member {suffix} is column {name}; column key has the samples' keys"
        for suffix, name in renamed.items()
    )


def test_a_column_is_called_by_the_member_without_extension_where_that_is_clear(tmp_path, read):
    with webdataset.TarWriter(str(tmp_path / "x.tar")) as sink:
        sink.write({"__key__": "a", "left.jpeg": b"l", "Right.png": b"r", "mask.png": b"m"})
    dataset, _ = read(tmp_path / "x.tar")
    assert set(dataset.schema.columns) == {"key", "left", "right", "mask"}
    assert dataset.about.hints["tar"]["ext"] == {"left": "jpg", "right": "png", "mask": "png"}
    assert dataset.logs()[0].log_id == "x"


def test_real_shards_of_the_original_tests_read_as_webdataset_gives_them(shared_data, read):
    for name in ("mpdata.tar", "sample.tgz"):
        path = shared_data / "webdataset" / name
        expected = list(webdataset.WebDataset(str(path), shardshuffle=False))
        dataset, rows = read(path)
        assert [row["key"] for row in rows] == [one["__key__"] for one in expected]
        for column, ctype in dataset.schema.columns.items():
            if ctype.kind == "bytes":
                suffix = next(key for key in expected[0] if key.lower() in (column, f"{column}.bin"))
                assert [row[column] for row in rows] == [one[suffix] for one in expected]


def tar(path, members, cut=None):
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name, data, kind in members:
            info = tarfile.TarInfo(name)
            info.size, info.type = len(data), kind
            info.linkname = "elsewhere" if kind == tarfile.SYMTYPE else ""
            archive.addfile(info, io.BytesIO(data))
    if cut is not None:
        path.write_bytes(path.read_bytes()[:cut])


FILE, LINK = tarfile.REGTYPE, tarfile.SYMTYPE


def npy(value):
    data = io.BytesIO()
    np.save(data, np.array(value))
    return data.getvalue()


HOSTILE = [
    ([("../a.txt", b"x", FILE)], None, "outside the dataset's folder"),
    ([("/a.txt", b"x", FILE)], None, "outside the dataset's folder"),
    ([("a.txt", b"", LINK)], None, "symbolic link"),
    ([("a.txt", b"x", FILE), ("a.txt", b"y", FILE)], None, "twice"),
    ([("a.txt", b"x", FILE), ("b.txt", b"", FILE), ("a.cls", b"1", FILE)], None, "two places"),
    ([("a.txt", b"x" * 2000, FILE)], 1500, "cut short"),
    ([("a.txt", b"x", FILE), ("b.txt", b"y", FILE)], 2048, "cut short"),
    ([("a.cls", b"seven", FILE)], None, r"a\.cls"),
    ([("a.cls", b"9" * 30, FILE)], None, "int64"),
    ([("a.txt", b"\xff", FILE)], None, r"a\.txt"),
    ([("a.npy", b"\x93NUMPY", FILE)], None, r"a\.npy: not an \.npy array"),
    ([("a.npy", b"", FILE)], None, r"a\.npy"),
    ([], None, "no rows"),
]


def test_a_hostile_shard_is_an_error_that_names_it_and_the_place(tmp_path):
    for members, cut, words in HOSTILE:
        tar(tmp_path / "x.tar", members, cut)
        with case(members, cut), pytest.raises(DatasetError, match=words) as caught:
            open_foreign(str(tmp_path / "x.tar"))
        assert "x.tar" in str(caught.value)


OPTIONAL = [
    ("a.tar", [("s1.txt", b"x", FILE), ("s1.left.jpg", b"l1", FILE), ("s2.cls", b"7", FILE)]),
    ("b.tar", [("s3.left.json", b"{}", FILE), ("s3.left.jpg", b"l3", FILE), ("s3.id", b"3", FILE)]),
    ("c.tar.gz", [("s4.npy", npy([1, 2]), FILE), ("s5.npy", npy([3]), FILE)]),
]


def test_members_that_not_all_samples_have_are_columns_without_a_value_there(tmp_path, read):
    for name, members in OPTIONAL:
        tar(tmp_path / name, members)
    dataset, rows = read(tmp_path)
    assert set(dataset.schema.columns) == {"key", "txt", "left.jpg", "left.json", "cls", "id", "npy"}
    assert set(dataset.schema.sampled) == set(dataset.schema.columns) - {"key"}
    wanted = {
        "txt": ["x", None, None, None, None],
        "left.jpg": [b"l1", None, b"l3", None, None],
        "left.json": [None, None, "{}", None, None],
        "cls": [None, 7, None, None, None],
        "id": [None, None, 3, None, None],
        "npy": [None, None, None, [1, 2], [3]],
    }
    for name, values in wanted.items():
        assert [row[f"{name}.available"] for row in rows] == [value is not None for value in values]
        found = [row[name].tolist() if name in ("npy", "cls", "id") else row[name] for row in rows]
        assert [a for a, b in zip(found, values, strict=True) if b is not None] == [
            value for value in values if value is not None
        ]
    _, some = read(tmp_path, columns=["cls"])
    assert [row["cls.available"] for row in some] == [False, True, False, False, False]
    root = tmp_path.parent / f"{tmp_path.name}-root"
    ll.convert(str(tmp_path), str(root), "parquet")
    opened = ll.open(root, where="available(id)")
    assert [row["key"] for row in opened] == ["s3"]


def test_opened_samples_without_a_member_say_so_and_are_no_error(tmp_path):
    for name, members in OPTIONAL:
        tar(tmp_path / name, members)
    rows = ll.open(tmp_path)
    assert rows[0]["left.jpg"] == b"l1"
    assert rows[1]["left.jpg"] == b""
    chosen = ll.open(tmp_path, columns=["left.jpg", "left.jpg.available", "cls.age"])
    assert [bool(row["left.jpg.available"]) for row in chosen] == [True, False, True, False, False]
    assert chosen.get_many([2, 1])["left.jpg.available"].tolist() == [True, False]
    assert chosen.get_many([2, 1])["left.jpg"] == [b"l3", b""]
    assert len(ll.open(tmp_path, where="available(cls)")) == 1


def test_a_member_whose_arrays_make_no_column_is_left_out_and_named(tmp_path, read):
    tar(tmp_path / "a.tar", [("a.npy", npy([1]), FILE), ("a.txt", b"x", FILE)])
    tar(tmp_path / "b.tar", [("b.npy", npy([[1]]), FILE), ("b.txt", b"y", FILE)])
    dataset, rows = read(tmp_path)
    assert [row["txt"] for row in rows] == ["x", "y"]
    assert "b.tar: rows of 1 and of 2 dimensions" in dataset.left_out["npy"]
    with pytest.raises(UsageError, match="column npy: "):
        open_foreign(str(tmp_path), columns=["npy"])


def test_a_pickled_array_is_refused(tmp_path):
    data = io.BytesIO()
    np.save(data, np.array([{}], object), allow_pickle=True)
    tar(tmp_path / "x.tar", [("a.npy", data.getvalue(), FILE)])
    with pytest.raises(DatasetError, match="pickled"):
        open_foreign(str(tmp_path / "x.tar"))


def test_braces_choose_shards(tmp_path, read):
    for number in range(3):
        write(tmp_path / f"train-{number:03}.tar", range(2 * number, 2 * number + 2))
    dataset, rows = read(tmp_path / "train-{001..002}.tar")
    assert [row["key"] for row in rows] == [f"dir/s{i:03}" for i in range(2, 6)]
    assert [log.log_id for log in dataset.logs()] == ["train"]
    (tmp_path / "b").mkdir()
    write(tmp_path / "b/x.tgz", [9], compress=True)
    _, rows = read(tmp_path / "{b/x.tgz,train-000.tar}")
    assert [row["key"] for row in rows] == ["dir/s009", "dir/s000", "dir/s001"]


NO_SHARDS = [
    ("train-{000..001}.tar", "train-001.tar: there is no such file"),
    ("train-{000,000}.tar", "names a file twice"),
    ("{train-000.tar,notes.txt}", "notes.txt.*doesn't end in"),
    ("{notes,more}.txt", "no such file or folder"),
    ("{train-000.tar,../x.tar}", "would be outside"),
    ("train-{000..100}.tar", "more than 100 names"),
]


def test_braces_that_name_no_shards_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(braces, "_MAX_EXPANDED", 100)
    write(tmp_path / "train-000.tar", range(2))
    for named, said in NO_SHARDS:
        with case(named), pytest.raises(LogloomError, match=said):
            open_foreign(f"{tmp_path}/{named}")
