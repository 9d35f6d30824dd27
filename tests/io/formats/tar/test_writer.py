"""Shards as others see them: their bytes, and what tarfile, GNU tar and webdataset read from them."""

import io
import json
import shutil
import subprocess
import sys
import tarfile
import textwrap

import numpy as np
import pytest
import webdataset
from hypothesis import given
from hypothesis import strategies as st

import logloom.datasets
from logloom.blocks import Block, Ragged
from logloom.errors import UsageError
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.tar import TarReader, TarWriter
from logloom.io.rows.flat_lists import flat_columns, flat_types
from logloom.schema import BYTES, STRING, ColumnType, Schema
from tests.io.formats.rows import TYPES, cut, random_block, schema_of, schemas

DRIVE = Schema(
    {
        "camera.front": BYTES,
        "lidar.points": ColumnType("<f4", (None, 4)),
        "ego.position": ColumnType("<f8", (3,)),
        "speed": ColumnType("<f4"),
        "weather": STRING,
    },
    ("camera.front",),
)


def test_each_value_is_a_member_and_more_rows_than_are_laid_out_at_a_time_keep_their_order(tmp_path):
    block = random_block(DRIVE, 700, 0)
    writer = TarWriter(tmp_path / "shard.tar", DRIVE, {"camera.front": "jpg"})
    writer.append(block)
    assert writer.close()["bytes"] == (tmp_path / "shard.tar").stat().st_size
    with tarfile.open(tmp_path / "shard.tar") as tar:
        names = tar.getnames()
    ends = [name.removeprefix(f"car/drive/{block.timestamp[0]}.") for name in names[:4]]
    assert ends == ["camera.front.jpg", "ego.position.npy", "lidar.points.npy", "meta.json"]
    stamps = [int(name.split("/")[-1].split(".")[0]) for name in names]
    assert stamps == np.repeat(block.timestamp, 4).tolist()


def write(path, schema, blocks, ext=None):
    writer = TarWriter(path, schema, ext)
    for block in blocks:
        writer.append(block)
    return writer.close()


@given(
    schema=schemas(),
    rows=st.integers(1, 9),
    at=st.lists(st.integers(0, 9), max_size=4),
    seed=st.integers(0, 99),
)
def test_bytes_do_not_depend_on_how_rows_are_cut_into_blocks(tmp_path_factory, schema, rows, at, seed):
    folder = tmp_path_factory.mktemp("cut")
    block = random_block(schema, rows, seed)
    whole = write(folder / "whole.tar", schema, [block])
    pieces = write(folder / "pieces.tar", schema, cut(block, at))
    assert (folder / "whole.tar").read_bytes() == (folder / "pieces.tar").read_bytes()
    assert whole == pieces
    assert whole["bytes"] == (folder / "whole.tar").stat().st_size


def test_tarfile_reads_every_member_with_its_values(tmp_path):
    block = random_block(DRIVE, 3, 1)
    write(tmp_path / "shard.tar", DRIVE, [block], {"camera.front": "jpg"})
    with tarfile.open(tmp_path / "shard.tar") as tar:
        members = tar.getmembers()
        data = {member.name: tar.extractfile(member).read() for member in members}
    for member in members:
        assert (member.mtime, member.uid, member.gid, member.mode, member.pax_headers) == (0, 0, 0, 0o644, {})
    for row, stamp in enumerate(block.timestamp.tolist()):
        key = f"car/drive/{stamp}"
        names = [name for name in data if name.startswith(key)]
        assert names == sorted(names)
        assert data[f"{key}.camera.front.jpg"] == block.columns["camera.front"][row].tobytes()
        for name in ("lidar.points", "ego.position"):
            array = np.load(io.BytesIO(data[f"{key}.{name}.npy"]))
            assert array.dtype == DRIVE.columns[name].dtype
            assert array.tobytes() == block.columns[name][row].tobytes()
        meta = json.loads(data[f"{key}.meta.json"])
        assert list(meta) == [
            "log_id", "timestamp", "speed", "weather", "camera.front.age", "camera.front.available", "meta"
        ]  # fmt: skip
        assert meta["timestamp"] == stamp
        assert meta["camera.front.age"] == block.columns["camera.front.age"][row]


@pytest.mark.skipif(shutil.which("tar") is None, reason="there is no tar command here")
@pytest.mark.parametrize("log_id", ["drive", "a.b/c.d", "deep/" * 30 + "drive", "x" * 240, "né/日本" * 20])
def test_gnu_tar_unpacks_names_of_any_length_and_script(tmp_path, log_id):
    block = random_block(DRIVE, 2, 2, log_id=log_id)
    write(tmp_path / "shard.tar", DRIVE, [block])
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(["tar", "xf", tmp_path / "shard.tar", "-C", out], check=True, env={"LC_ALL": "C.UTF-8"})
    for row, stamp in enumerate(block.timestamp.tolist()):
        assert (out / f"{log_id}/{stamp}.camera.front.bin").read_bytes() == block.columns["camera.front"][
            row
        ].tobytes()
    with tarfile.open(tmp_path / "shard.tar") as tar:
        assert all(name.startswith(f"{log_id}/") for name in tar.getnames())
    assert TarReader(tmp_path / "shard.tar", DRIVE)[1]["log_id"] == log_id


def test_pax_headers_stand_only_where_a_name_needs_them(tmp_path):
    for log_id, kinds in (("x" * 60, {b"0"}), ("x" * 140 + "/y", {b"0"}), ("x" * 160, {b"0", b"x"})):
        path = tmp_path / f"{len(log_id)}.tar"
        write(path, Schema({}), [random_block(Schema({}), 1, 0, log_id=log_id)])
        data = path.read_bytes()
        blocks = [data[at : at + 512] for at in range(0, len(data), 512)]
        assert {block[156:157] for block in blocks if block[257:262] == b"ustar"} == kinds


@pytest.mark.parametrize("start", [-5, 0, 96, 10**18 - 2, -(2**63)])
def test_stamps_of_any_width_and_sign_name_their_samples(tmp_path, start):
    stamps = np.arange(start, start + 12)
    write(tmp_path / "shard.tar", Schema({}), [Block("drive", "p", 0, {"timestamp": stamps})])
    with tarfile.open(tmp_path / "shard.tar") as tar:
        assert tar.getnames() == [f"drive/{stamp}.meta.json" for stamp in stamps]
    (block,) = TarReader(tmp_path / "shard.tar", Schema({})).blocks()
    assert block.timestamp.tolist() == stamps.tolist()


def test_webdataset_iterates_with_the_same_values(tmp_path):
    schema = schema_of([t for t in TYPES if t.dtype.kind != "V"])  # its npy decoder doesn't view structures
    block = random_block(schema, 5, 3)
    write(tmp_path / "shard.tar", schema, [block])
    samples = list(webdataset.WebDataset(str(tmp_path / "shard.tar"), shardshuffle=False).decode())
    assert [sample["__key__"] for sample in samples] == [f"car/drive/{stamp}" for stamp in block.timestamp]
    for row, sample in enumerate(samples):
        for name, ctype in flat_types(schema.columns).items():
            expected = flat_columns(block.columns, schema.columns)[name][row]
            if f"{name}.npy" in sample:
                expected = np.asarray(expected, ctype.dtype)  # taken from a column, text loses its width
                assert sample[f"{name}.npy"].dtype == ctype.dtype
                assert sample[f"{name}.npy"].tobytes() == expected.tobytes()
            elif ctype.kind == "bytes":
                assert sample[f"{name}.bin"] == expected.tobytes()
            elif ctype.kind == "string":
                assert sample["meta.json"][name] == expected.tobytes().decode()
            else:
                assert np.array_equal(sample["meta.json"][name], expected, equal_nan=True)


NUMBERS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


def extremes(dtype):
    """Values of a type that others would change, each in a row: the ends of its range, NaNs of any bits."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([True, False])
    if dtype.kind != "f":
        info = np.iinfo(dtype)
        return np.array([info.max, info.min, info.max // 2 + 1, 1], dtype)
    quiet = int(np.array([np.nan], dtype).view(f"u{dtype.itemsize}")[0])
    sign = 1 << 8 * dtype.itemsize - 1
    bits = np.array([quiet, quiet | sign, quiet | 1, quiet ^ (quiet & -quiet) | 1], f"u{dtype.itemsize}")
    info = np.finfo(dtype)
    return np.concatenate(
        [bits.view(dtype), np.array([np.inf, -np.inf, -0.0, info.max, info.smallest_subnormal], dtype)]
    )


def write_numbers(path, dtype):
    values = extremes(dtype)
    schema = Schema({"v": ColumnType(np.dtype(dtype))})
    write(path, schema, [Block("d", "p", 0, {"timestamp": np.arange(len(values)), "v": values})])
    return schema, values


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_number_is_one_to_json_and_to_webdataset(tmp_path, dtype):
    _, values = write_numbers(tmp_path / "shard.tar", dtype)
    with tarfile.open(tmp_path / "shard.tar") as tar:
        read = [json.loads(tar.extractfile(member).read())["v"] for member in tar]
    shards = webdataset.WebDataset(str(tmp_path / "shard.tar"), shardshuffle=False)
    for found in (read, [sample["meta.json"]["v"] for sample in shards.decode()]):
        assert str(found) == str(values.tolist())


@pytest.mark.parametrize("dtype", NUMBERS)
def test_a_folder_of_shards_opens_with_the_numbers_that_were_written_to_the_bit(tmp_path, dtype):
    schema, values = write_numbers(tmp_path / "shard.tar", dtype)
    (block,) = TarReader(tmp_path / "shard.tar", schema).blocks()
    opened = logloom.datasets.open(tmp_path)
    for found in (block.columns["v"], np.array([row["v"] for row in opened])):
        assert (found.dtype, found.tobytes()) == (values.dtype, values.tobytes())
    foreign = open_foreign(str(tmp_path))
    (log,) = foreign.logs()
    (block,) = foreign.scan_part(log.parts[0], tuple(foreign.schema.all), 64 << 20)
    assert (block.columns["v"].dtype, block.columns["v"].tobytes()) == (values.dtype, values.tobytes())


def test_more_is_said_of_a_nan_only_where_its_bits_are_others(tmp_path):
    write_numbers(tmp_path / "shard.tar", "f8")
    with tarfile.open(tmp_path / "shard.tar") as tar:
        said = [json.loads(tar.extractfile(member).read()).get("meta") for member in tar]
    bits = ["fff8000000000000", "7ff8000000000001", "7ff0000000000001"]
    assert said == [None, *({"nan": {"v": one}} for one in bits), *[None] * 5]


def test_an_empty_bytes_value_is_a_member_of_length_zero(tmp_path):
    schema = Schema({"camera": BYTES})
    block = Block("d", "p", 0, {"timestamp": np.array([7]), "camera": Ragged.from_bytes([b""])})
    write(tmp_path / "shard.tar", schema, [block])
    with tarfile.open(tmp_path / "shard.tar") as tar:
        assert {member.name: member.size for member in tar}["d/7.camera.bin"] == 0


def test_no_rows_make_no_file(tmp_path):
    assert write(tmp_path / "shard.tar", DRIVE, [])["rows"] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "log_id",
    ["", "/etc", "../up", "a/../../b", "a//b", "a/", ".", "line\nbreak", "nul\0", "__meta__", "\ud800"],
)
def test_a_log_id_that_cannot_name_files_safely_is_refused(tmp_path, log_id):
    with pytest.raises(UsageError, match="log_id"):
        write(tmp_path / "shard.tar", Schema({}), [random_block(Schema({}), 1, 0, log_id=log_id)])


def test_stamps_that_do_not_ascend_are_refused(tmp_path):
    block = random_block(DRIVE, 4, 0)
    writer = TarWriter(tmp_path / "shard.tar", DRIVE)
    writer.append(block)
    with pytest.raises(UsageError, match="don't ascend"):
        writer.append(block)


def test_values_of_another_type_than_the_schema_says_are_refused(tmp_path):
    block = random_block(DRIVE, 2, 0)
    block.columns["speed"] = block.columns["speed"].astype("<f8")
    with pytest.raises(UsageError, match="speed"):
        write(tmp_path / "shard.tar", DRIVE, [block])


def test_a_disk_that_takes_no_more_is_a_storage_error(tmp_path):
    script = f"""
        import resource, signal, numpy as np
        from logloom.errors import StorageError
        from logloom.io.formats.tar import TarWriter
        from logloom.blocks import Block
        from logloom.schema import ColumnType, Schema
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        writer = TarWriter({str(tmp_path / "shard.tar")!r}, Schema({{"a": ColumnType("<f8", (9000,))}}))
        try:
            writer.append(Block("d", "p", 0, {{"timestamp": np.arange(9), "a": np.zeros((9, 9000))}}))
        except StorageError as error:
            print("refused:", error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.stdout.startswith(f"refused: {tmp_path / 'shard.tar'}"), done.stderr
