"""What is lost or damaged is found, named, and never passed off as fill values."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import DatasetError
from logloom.io.formats.zarr import ZarrReader
from logloom.io.formats.zarr.layout import ArrayLayout, ZarrOptions
from logloom.io.formats.zarr.shards import decode_chunk, encode_file
from logloom.io.formats.zarr.stage import SMALL, ZarrStageReader
from logloom.io.storage.store import Store
from logloom.testing.damage import replaced
from tests.cases import case
from tests.files import files_in
from tests.io.formats.zarr.making import SCHEMA, assemble, differences, make_block, stage


@pytest.fixture(scope="module", params=[3, 2])
def good(request, tmp_path_factory):
    store = Store.at(str(tmp_path_factory.mktemp("good")))
    options = ZarrOptions(format=request.param, rows_per_chunk=8)
    return assemble(store, stage(store, make_block(30), [11]), options=options)


@pytest.fixture
def damaged(good, tmp_path):
    """A copy to damage, and what its plan says of it."""
    folder = tmp_path / "copy.zarr"
    shutil.copytree(good[0], folder)
    return folder, good[1].unit


def chunk_files(folder, name):
    array = folder / "car/drive" / name
    return sorted(p for p in array.rglob("*") if p.is_file() and p.name[0] != "." and p.suffix != ".json")


def test_a_missing_file_is_an_error_that_names_it(damaged):
    folder, unit = damaged
    for name in ("speed", "lidar.points", "note.offsets", "image.shapes", "objects.inner.id"):
        victim = chunk_files(folder, name)[-1]
        with replaced(victim, None):
            found = list(differences(str(folder), unit))
            assert found
            assert all(str(victim) in line and "fill values" in line for line in found)
            reader = ZarrReader(folder)
            for read in (
                lambda reader=reader: list(reader.blocks()),
                lambda reader=reader: reader.get_many(np.arange(30)),
                lambda reader=reader: reader[29],
            ):
                with case(name), pytest.raises(DatasetError, match="no such file"):
                    read()


def test_a_dataset_of_a_later_version_is_refused_by_its_number(damaged):
    path = next(path for name in ("zarr.json", ".zattrs") if (path := damaged[0] / name).exists())
    found = json.loads(path.read_bytes())
    found.get("attributes", found)["logloom"]["version"] = 2
    path.unlink()
    path.write_text(json.dumps(found))
    message = rf"{path.name}: version 2, this release of logloom reads up to 1; install a newer one"
    with pytest.raises(DatasetError, match=message):
        len(ZarrReader(damaged[0]))


def test_a_chunk_missing_from_its_shard_is_an_error(damaged):
    import google_crc32c

    folder, unit = damaged
    victim = chunk_files(folder, "speed")[0]
    if unit and ZarrReader(folder).format == 2:
        pytest.skip("format 2 has no shards")
    data = bytearray(victim.read_bytes())
    index = np.frombuffer(bytes(data[-68:-4]), "<u8").reshape(4, 2).copy()
    index[2] = 2**64 - 1  # as zarr marks a chunk of nothing but fill values
    data[-68:-4] = index.tobytes()
    data[-4:] = google_crc32c.value(index.tobytes()).to_bytes(4, "little")
    victim.write_bytes(data)
    with pytest.raises(DatasetError, match="chunk 2 is missing"):
        ZarrReader(folder)[0]
    assert all("chunk 2 is missing" in line for line in differences(str(folder), unit))


def test_any_flipped_byte_of_rows_is_found(damaged):
    folder, unit = damaged
    if ZarrReader(folder).format == 2:
        pytest.skip("format 2 has no checksums of its own; `verify` compares the files' digests")
    rng = np.random.default_rng(0)
    for name in ("speed", "camera.front", "lidar.points", "image.shapes", "timestamp", "big"):
        victim = chunk_files(folder, name)[0]
        whole = victim.read_bytes()
        for at in rng.integers(0, len(whole), 5):
            data = bytearray(whole)
            data[at] ^= 1 << int(rng.integers(0, 8))
            victim.write_bytes(data)
            found = list(differences(str(folder), unit))
            assert found
            assert all(str(victim) in line for line in found)
        victim.write_bytes(whole)
    assert list(differences(str(folder), unit)) == []


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_found(damaged, kept):
    folder, unit = damaged
    victim = chunk_files(folder, "lidar.points")[0]
    victim.write_bytes(victim.read_bytes()[: int(kept * victim.stat().st_size)])
    (first, *_) = differences(str(folder), unit)
    assert str(victim) in first


def test_lost_metadata_is_found(damaged):
    folder, unit = damaged
    name = "zarr.json" if ZarrReader(folder).format == 3 else ".zmetadata"
    (folder / "car/drive" / name).unlink()
    assert all("missing" in line for line in differences(str(folder), unit))
    shutil.rmtree(folder)
    (line,) = differences(str(folder), unit)
    assert "no zarr dataset" in line


def edited(folder, change):
    """Changes the root's attributes and those of the log's arrays."""
    for name in ("zarr.json", ".zattrs", "car/drive/zarr.json", "car/drive/.zmetadata"):
        path = folder / name
        if path.exists():
            data = json.loads(path.read_text())
            change(data)
            path.write_text(json.dumps(data))


NO_LOGS = [{"../x": 3}, {"a//b": 1}, {"a": -1}, {"a": 1e9}, {"a": True}, [1], None, {"": 1}, {"a": 2**80}]


def test_logs_that_make_no_sense_are_refused(damaged):
    folder, _ = damaged
    for logs in NO_LOGS:

        def change(data, logs=logs):
            attributes = data.get("attributes", data)
            if "logs" in attributes.get("logloom", {}):
                attributes["logloom"]["logs"] = logs

        edited(folder, change)
        with case(logs), pytest.raises(DatasetError, match=r"not a dataset that logloom wrote|64 bits"):
            ZarrReader(folder)


def test_more_rows_than_there_are_can_not_be_claimed(damaged):
    folder, _ = damaged

    def change(data):
        attributes = data.get("attributes", data)
        if "logs" in attributes.get("logloom", {}):
            attributes["logloom"]["logs"] = {"car/drive": 10**15}

    edited(folder, change)
    with pytest.raises(DatasetError, match="damaged"):
        ZarrReader(folder)[5]


def test_offsets_that_point_anywhere_are_refused(tmp_path):
    store = Store.at(str(tmp_path))
    folder, _ = assemble(store, stage(store, make_block(30)))
    victim = chunk_files(folder, "lidar.points.offsets")[0]
    reader = ZarrReader(folder)
    layout = reader.log("car/drive").arrays["lidar.points.offsets"].layout
    good = reader.log("car/drive").arrays["lidar.points.offsets"].read(0, 31)
    for place, value in ((5, -1), (5, 2**62), (30, 10**12), (0, 10**9), (29, good[30] + 1)):
        bounds = good.copy()
        bounds[place] = value
        victim.write_bytes(encode_file(layout, bounds))
        with pytest.raises(DatasetError):
            list(ZarrReader(folder).blocks(["lidar.points"]))
        with pytest.raises(DatasetError):
            ZarrReader(folder).get_many(np.arange(30), ["lidar.points"])


def test_a_staged_unit_cut_short_or_gone_is_found(store):
    (unit,) = stage(store, make_block(30))
    folder = Store.at(store.uri).local / unit.folder
    for name in (SMALL, "lidar.points.bin"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-1])
        with pytest.raises(DatasetError, match=name):
            list(ZarrStageReader(str(folder), SCHEMA, unit.unit).blocks())
        (folder / name).unlink()
        with pytest.raises(DatasetError, match="no such file"):
            list(ZarrStageReader(str(folder), SCHEMA, unit.unit).blocks())
        (folder / name).write_bytes(whole)


def outcome(function, *arguments):
    """What a function gives, or the error by which it refuses."""
    try:
        return function(*arguments)
    except DatasetError as error:
        return error


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(data=st.data(), zarr_format=st.sampled_from([2, 3]))
def test_any_metadata_is_read_as_written_or_refused(data, zarr_format):
    chunk = 8 if zarr_format == 2 else 64
    good = ArrayLayout(np.dtype("<f4"), (100, 3), 8, chunk, "lz4", zarr_format)
    metadata = json.loads(json.dumps(good.metadata()))
    assert ArrayLayout.from_metadata(metadata, "x") == good
    place = metadata
    while isinstance(place, dict | list) and place:  # put anything anywhere
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            place[key] = data.draw(JSON)
            break
        place = place[key]
    found = outcome(ArrayLayout.from_metadata, metadata, "place")
    if isinstance(found, DatasetError):
        assert str(found).startswith("place")
    else:
        assert json.loads(json.dumps(found.metadata())) == metadata


@given(data=st.binary(max_size=300), compress=st.sampled_from(["lz4", "zstd", "none"]))
def test_any_bytes_are_a_chunk_or_refused(data, compress):
    for layout in (
        ArrayLayout(np.dtype("<f4"), (100, 3), 8, 64, compress, 3),
        ArrayLayout(np.dtype("<f4"), (100, 3), 8, 8, compress, 2),
    ):
        found = outcome(decode_chunk, layout, np.frombuffer(data, np.uint8), "place", 0)
        assert str(found).startswith("place") if isinstance(found, DatasetError) else len(found) == 96


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7), compress=st.sampled_from(["lz4", "zstd"]))
def test_a_damaged_frame_without_checksum_never_crashes(at, bit, compress):
    layout = ArrayLayout(np.dtype("<f4"), (100, 3), 50, 50, compress, 2)
    entries = np.arange(150, dtype="<f4").reshape(50, 3)
    data = bytearray(encode_file(layout, entries))
    data[at % len(data)] ^= 1 << bit
    found = outcome(decode_chunk, layout, np.frombuffer(bytes(data), np.uint8), "place", 0)
    assert str(found).startswith("place") if isinstance(found, DatasetError) else len(found) == 600


def test_equal_rows_give_equal_files(tmp_path):
    folders = []
    for name in "ab":
        store = Store.at(str(tmp_path / name))
        folders.append(assemble(store, stage(store, make_block(12)))[0])
    assert files_in(folders[0]) == files_in(folders[1])
