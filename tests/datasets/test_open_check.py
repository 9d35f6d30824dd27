"""`logloom.datasets.open(check=True)`: damage is told, whatever file of whatever output it is in."""

import pickle
import random
import shutil
import warnings

import fsspec
import numpy as np
import pytest

import logloom.datasets
import logloom.io.formats.table as tt
from logloom.datasets import UncheckedWarning
from logloom.datasets.openmmlab import BaseDataset
from logloom.demo import demo_recipe, make_drives
from logloom.errors import DatasetError, UsageError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from tests.absent import needs, outputs_present, present
from tests.tier import by_tier

OUTPUTS = outputs_present("""\
  bags: {types: {camera.front: jpg}}
  table: {index: [ego.speed, ego.position], compress: {lidar: zstd}, groups: {lidar: lidar.points}}
  zarr: {rows_per_chunk: 4, format: FORMAT}
  annotations: {images: {img_path: camera.front}, info: {speed: ego.speed}}
""")
FLIPS = by_tier(40, 2400)  # of all files of an output


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    """A short drive in all formats, and its zarr in both."""
    folder = tmp_path_factory.mktemp("check")
    make_drives(folder / "logs", seconds=1, logs=1)
    for number in (2, 3):
        text = demo_recipe(folder / "logs") + OUTPUTS.replace("FORMAT", str(number))
        build(plan_build(Recipe.from_yaml(text), str(folder / f"v{number}")), num_workers=1)
    return folder


def read(root, output):
    """All that a program can read: batches, rows one by one, the index."""
    if output == "annotations":
        (file,) = (root / "v00000001" / "annotations").rglob("*.json")
        dataset = BaseDataset(str(file), check=True)
        return [dataset.metainfo, *(dataset[number] for number in range(len(dataset)))]
    columns = [".*"] if output == "l5kit" else [".*", "*.age", "*.available"]
    dataset = logloom.datasets.open(root, output=output, check=True, columns=columns)
    found = [dataset[number] for number in range(len(dataset))]
    index = dataset.index
    return [*found, dataset.get_many(range(len(dataset))), index.to_dict("list")]


def outcome_of(root, output):
    """What was read, or the error that says why it wasn't."""
    try:
        return read(root, output)
    except DatasetError as error:
        return error


def files_of(root, output):
    """What a version holds of an output, entries too; of what was put together not the stages before."""
    parts = read_manifest(Store.at(str(root))).assembled
    whole = {part.identity for part in parts if part.output == output and output != "table"}
    there = (root / "parts" / output).glob("*/*")
    folders = [folder for folder in there if folder.name in whole or not whole]
    return [path for folder in sorted(folders) for path in sorted(folder.rglob("*")) if path.is_file()]


def flipped(path, count, rng):
    """The file with one bit of it changed, some times; in the end it is as it was."""
    data = path.read_bytes()
    path.chmod(0o644)
    bits = {0, 8 * len(data) - 1, *(rng.randrange(8 * len(data)) for _ in range(count - 2))} if data else ()
    try:
        for bit in sorted(bits):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            yield bit
    finally:
        path.write_bytes(data)


def same(a, b):
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray | np.generic):
        a, b = np.asarray(a), np.asarray(b)
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b


CASES = ["table", "table without a view", "bags", "tar", "zarr 2", "zarr 3", "l5kit", "annotations"]


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if present(case.partition(" ")[0])])
def test_a_flipped_bit_is_an_error_that_names_a_file_or_changes_nothing(roots, tmp_path, case):
    output, _, how = case.partition(" ")
    root = roots / "v2" if how == "2" else roots / "v3"
    if how == "without a view":
        root = shutil.copytree(root, tmp_path / "root", symlinks=True)
        shutil.rmtree(root / "v00000001")
    expected = read(root, output)
    rng, told, wrong, unnamed = random.Random(0), 0, [], []
    files = files_of(root, output)
    for path in files:
        for bit in flipped(path, max(2, FLIPS // len(files)), rng):
            outcome = outcome_of(root, output)
            if isinstance(outcome, DatasetError):
                told += 1
                unnamed += [(path, bit, outcome)] * (str(root) not in str(outcome))
            elif not same(outcome, expected):
                wrong.append((path, bit))
    assert unnamed == []
    assert wrong == []
    assert told >= FLIPS // 4  # what only later builds read is passed over
    assert same(read(root, output), expected)


def flip(path, offset):
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(data)


@pytest.fixture
def copied(roots, tmp_path):
    """A root of its own, to be damaged."""
    return shutil.copytree(roots / "v3", tmp_path / "root")


def test_a_version_is_checked_without_a_warning_and_damage_is_told_in_every_process(copied, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = logloom.datasets.open(copied, output="tar", check=True)
    (shard,) = (copied / "parts" / "tar").rglob("*.tar")
    offset = shard.read_bytes().index(b"\xff\xd8\xff") + 500  # in a picture
    assert len(rows[0]["camera.front"]) > 1000
    flip(shard, offset)
    rows[0]  # a process looks once
    with pytest.raises(DatasetError, match=r"\.tar: damaged, its bytes don't match the digest"):
        pickle.loads(pickle.dumps(rows))[0]
    logloom.datasets.open(copied, output="tar")[0]  # nobody asked


def test_only_files_of_the_columns_that_are_read_are_compared(copied):
    needs("bags")
    (bag,) = (copied / "parts" / "bags").rglob("camera.front.bag")
    flip(bag, 700)
    rows = logloom.datasets.open(copied, output="bags", check=True)
    rows.select("ego.*")[0]
    with pytest.raises(DatasetError, match=r"camera\.front\.bag: damaged"):
        rows[0]


def test_the_list_of_a_versions_files_is_compared_with_the_manifest(copied):
    needs("l5kit")
    (part,) = [part for part in read_manifest(Store.at(str(copied))).assembled if part.output == "l5kit"]
    entry = copied / "parts" / "l5kit" / part.identity[:2] / part.identity / "entry.json"
    flip(entry, entry.read_bytes().index(b'"digest"') + 12)
    with pytest.raises(DatasetError, match=r"entry\.json: damaged"):
        list(logloom.datasets.open(copied, output="l5kit", check=True))
    entry.unlink()
    with pytest.raises(DatasetError, match=r"entry\.json: missing"):
        list(logloom.datasets.open(copied, output="l5kit", check=True))


@pytest.mark.parametrize("output", present("table", "bags", "tar", "zarr", "l5kit"))
def test_a_version_in_an_object_store_is_checked_too(copied, output):
    place = f"memory://check-{output}"
    store = fsspec.filesystem("memory")
    shutil.rmtree(copied / "v00000001")
    store.put(str(copied), f"/check-{output}", recursive=True)
    expected = list(logloom.datasets.open(copied, output=output))
    rows = logloom.datasets.open(place, output=output, check=True)
    assert same(list(rows), expected)
    for name in store.find(f"/check-{output}/parts/{output}"):
        data = bytearray(store.cat(name))
        for offset in range(600, len(data), 997):
            data[offset] ^= 1
        store.pipe(name, bytes(data))
    with pytest.raises(DatasetError, match=place):
        list(logloom.datasets.open(place, output=output, check=True))


UNCHECKED = {"table": "table.json and index/", "tar": "tar shards", "zarr": "zarr.json", "l5kit": "L5Kit"}


@pytest.mark.parametrize("output", present("bags", *UNCHECKED))
def test_a_folder_without_a_manifest_warns_of_what_cannot_be_checked(roots, tmp_path, output):
    what = UNCHECKED.get(output, output)
    folder = shutil.copytree(roots / "v3" / "v00000001" / output, tmp_path / output)
    with pytest.warns(UncheckedWarning, match=f"can't find damage to .*{what}.*no manifest"):
        rows = logloom.datasets.open(folder, check=True)
    assert len(list(rows)) > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logloom.datasets.open(folder)


def test_an_annotation_file_outside_of_a_view_warns(roots, tmp_path):
    needs("annotations")
    (file,) = (roots / "v3" / "v00000001" / "annotations").rglob("*.json")
    shutil.copy(file, tmp_path / "train.json")
    with pytest.warns(UncheckedWarning, match=r"train\.json.*view of a version"):
        BaseDataset(str(tmp_path / "train.json"), check=True)


def test_a_table_that_stands_by_itself_is_checked_but_for_its_description(tmp_path):
    rows = [{"log_id": "a", "timestamp": n, "x": np.full(9, n), "name": f"n{n}"} for n in range(20)]
    tt.write_table(str(tmp_path / "t"), rows, index=["name"])
    with pytest.warns(UncheckedWarning, match="damage to table.json of a table"):
        expected = list(logloom.datasets.open(tmp_path / "t", check=True))
    files = [path for path in (tmp_path / "t").rglob("*") if path.is_file() and path.name != "table.json"]
    rng, told = random.Random(0), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncheckedWarning)
        for path in files:
            for bit in flipped(path, 40, rng):
                try:
                    found = list(logloom.datasets.open(tmp_path / "t", check=True))
                except DatasetError:
                    told += 1
                else:
                    assert same(found, expected), (path, bit)
    assert told > 70


def test_a_damaged_manifest_is_told_or_changes_no_value(copied):
    expected, rng, told = read(copied, "tar"), random.Random(0), 0
    for _ in flipped(copied / "versions" / "00000001.json", 120, rng):
        try:
            found = read(copied, "tar")
        except (DatasetError, UsageError):
            told += 1
        else:
            assert same(found[:-1], expected[:-1])  # but for the names of splits in the index
    assert told > 40
