"""Change fields of all metadata of a dataset: readers report it, and write nothing elsewhere.

Two changes of each file in the tier check, the same in each run; one of each field in nightly; all values of
each field in exhaust, which takes five hours.
"""

import dataclasses
import io
import json
import pathlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3

import logloom.datasets
from logloom.demo import demo_recipe, make_drives
from logloom.errors import DatasetError, LogloomError, StorageError
from logloom.io.catalog.assembled_outputs import find_assembled
from logloom.io.catalog.entries import find_entry
from logloom.io.catalog.manifest import open_root, read_manifest
from logloom.io.catalog.page_merge import write_records
from logloom.io.catalog.pages import page_file, read_page
from logloom.io.formats.annotations import AnnotationReader
from logloom.io.formats.bags import BagReader, BagWriter
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.storage.metadata import sealed
from logloom.io.storage.store import Store
from logloom.pipelines.convert.plan import plan_convert
from logloom.pipelines.convert.sources import open_source
from logloom.pipelines.head.head import head
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.view import make_view
from logloom.recipe import Recipe
from tests.absent import outputs_present, present
from tests.files import files_in
from tests.pipelines.conftest import build_at
from tests.tier import TIER, by_tier

pytestmark = pytest.mark.faults

OUTPUTS = outputs_present("""\
  bags: {types: {camera.front: jpg}}
  table: {index: [ego.speed]}
  zarr: {rows_per_chunk: 16}
  parquet: {}
  lerobot:
    fps: 10
    features: {observation.state: [ego.speed, ego.position], observation.images.front: camera.front}
  annotations:
    images: {img_path: camera.front}
    instances: {from: objects, bbox_3d: [centroid, extent, yaw]}
    metainfo: {classes: [car, cyclist]}
partition: {rows: 8}
""")
VIEW = "v00000001"
REMOVED = "<removed>"
RAW = {"<huge>": "9" * 400, "<deep>": "[" * 3000 + "]" * 3000}  # that Python's json would not write
NAMING = ("columns", "schema", "owned", "dropped", "software")  # what they hold is named by logs and recipes
NEW = [None, 7, -1, 0.5, True, "../../x", "", [], {}, [[1, "a"]], {"a": None}, *RAW, REMOVED]

Path = tuple[str | int, ...]


def paths_in(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where all values lie; of lists only the first two items."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else []
    inner = enumerate(value[:2]) if isinstance(value, list) else inner
    for step, item in inner:
        yield from paths_in(item, (*path, step))


def changed(value: Any, path: Path, new: Any) -> Any:
    """A copy with another value at a path."""
    copy = list(value) if isinstance(value, list) else dict(value)
    step, *rest = path
    if rest:
        copy[step] = changed(copy[step], tuple(rest), new)
    elif new == REMOVED:
        del copy[step]
    else:
        copy[step] = new
    return copy


def text_of(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text.encode()


def field_of(path: Path) -> Path:
    """A path without the names of columns, topics and packages, and without the numbers of items."""
    steps = zip(("", *path), path, strict=False)
    return tuple("*" if isinstance(step, int) or before in NAMING else step for before, step in steps)


def edits_of(
    value: Any, count: int | None, seed: str, tried: set[Path] | None = None
) -> Iterator[tuple[str, Any]]:
    """Changed copies of a JSON value, and what was changed.

    Args:
        count: how many; None for one of each field, in the tier exhaust every one of every path.
        tried: fields that need no further one; those of this value are added.
    """
    draw, tried = random.Random(seed), set() if tried is None else tried
    if count is not None or TIER == "exhaust":
        chosen = [(path, new) for path in paths_in(value) for new in NEW]
        chosen = chosen if count is None else draw.sample(chosen, min(count, len(chosen)))
    else:
        paths = list(paths_in(value))
        draw.shuffle(paths)
        fields = {field_of(path): path for path in paths}
        chosen = [(path, draw.choice(NEW)) for field, path in sorted(fields.items()) if field not in tried]
        tried.update(fields)
    for path, new in chosen:
        yield f"{'.'.join(map(str, path))} = {new!r}", changed(value, path, new)


@dataclass(frozen=True)
class Place:
    """A folder that is changed, a file at a time, and put right again."""

    folder: pathlib.Path

    def write(self, name: str, data: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_bytes())


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Recipe:
    folder = tmp_path_factory.mktemp("hostile")
    make_drives(folder / "logs", seconds=2, logs=1)
    return Recipe.from_yaml(demo_recipe(folder / "logs") + OUTPUTS)


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory) -> pathlib.Path:
    """A version in every format; not to be changed."""
    root = tmp_path_factory.mktemp("whole") / "root"
    build_at(recipe, root)
    return root


@pytest.fixture(scope="module")
def root(whole, tmp_path_factory) -> Place:
    """A copy without a view, in a folder in which nothing else lies; its manifest may be changed."""
    copy = tmp_path_factory.mktemp("changed") / "in" / "root"
    shutil.copytree(whole, copy, ignore=shutil.ignore_patterns(VIEW, "*.blake3"))
    return Place(copy)


@pytest.fixture(scope="module")
def plain(whole, tmp_path_factory) -> dict[str, Place]:
    """The same rows as plain folders of each format."""
    folder = tmp_path_factory.mktemp("plain")
    view = whole / VIEW
    parts = {
        "table": "table/all",
        "bags": "bags/all",
        "zarr": "zarr/all.zarr",
        "l5kit": "l5kit/all.zarr",
        "annotations": "annotations",
        "lerobot": "lerobot/all",
    }
    for name, part in parts.items():
        shutil.copytree(view / part, folder / name)
    return {name: Place(folder / name) for name in parts}


def told(what: str, call: Any, *arguments: Any, **choices: Any) -> list[str]:
    """What else than a LogloomError comes out of a call; nothing if it succeeds."""
    try:
        call(*arguments, **choices)
    except LogloomError:
        return []
    except Exception as error:
        return [f"{what}: {type(error).__name__}: {str(error)[:200]}"]
    return []


def use_root(root: Place, recipe: Recipe, what: str) -> list[str]:
    """Does all that reads a root."""
    place, found = str(root.folder), []
    found += told(f"verify, {what}", verify, place, num_workers=1)
    for output in present("tar", "bags", "table", "zarr", "l5kit", "annotations"):
        found += told(f"head of {output}, {what}", head, place, output=output, count=1)
        found += told(f"open {output}, {what}", read_rows, place, output=output)
    found += told(f"open, {what}", read_rows, place)
    found += told(f"view, {what}", view_of, root)
    found += told(f"plan, {what}", lambda: plan_build(recipe, place).finished())
    found += told(f"convert, {what}", convert, place)
    shutil.rmtree(root.folder / VIEW, ignore_errors=True)
    return found


def read_rows(uri: str, **choices: Any) -> None:
    dataset = logloom.datasets.open(uri, **choices)
    for number in (0, -1) if len(dataset) else ():
        dataset[number]
    assert dataset.index is not None


def view_of(root: Place) -> None:
    make_view(*open_root(Store.at(str(root.folder))))


def convert(uri: str) -> None:
    source = open_source(uri)
    plan_convert(source, f"{uri}/../converted", "tar")
    for log in source.logs()[:1]:
        for part in log.parts[:1]:
            for _ in source.scan_part(part, tuple(source.schema.columns), 1 << 20):
                pass


def outside(root: Place) -> list[str]:
    """What lies beside the root, where nothing should."""
    around = root.folder.parent.parent
    return [name for name in files_in(around) if not pathlib.PurePosixPath(name).is_relative_to("in/root")]


def log_part(rows: list[dict[str, Any]]) -> bytes:
    """A log's part of the manifest of any entries, as Parquet."""
    texts = ("files", "columns", "unit", "tally", "software")
    names = ("output", "identity", "log_id", "content_id", "partition")
    fields = [(name, pa.string()) for name in names]
    fields += [(name, pa.int64()) for name in ("start", "stop", "rows", "size")]
    fields += [(name, pa.string()) for name in texts]
    buffer = io.BytesIO()
    made = [row | {"size": 0} | {name: text_of(row.get(name)).decode() for name in texts} for row in rows]
    pq.write_table(pa.Table.from_pylist(made, schema=pa.schema(fields)), buffer)
    return buffer.getvalue()


def changed_manifests(root: Place, count: int | None) -> Iterator[str]:
    name = "versions/00000001.json"
    manifest = root.json(name)
    for what, edited in edits_of(manifest, count, "manifest"):
        root.write(name, text_of(edited))
        yield f"manifest: {what}"
    root.write(name, text_of(manifest))


def changed_pages(root: Place, count: int | None) -> Iterator[str]:
    """Rows of a page, in a manifest that names the changed page and believes all that it says."""
    name = "versions/00000001.json"
    manifest = root.json(name)
    store = Store.at(str(root.folder))
    page = read_manifest(store).logs.pages[0]
    table = read_page(store, page)
    rows = table.to_pylist()
    for row in rows:
        row |= {key: json.loads(row[key]) for key in ("uris", "dropped", "reasons")}
    for what, edited in edits_of(rows[0], count, "page"):
        texts = {key: text_of(edited.get(key)).decode() for key in ("uris", "dropped", "reasons")}
        others = [row | {key: json.dumps(row[key]) for key in texts} for row in rows[1:]]
        buffer = io.BytesIO()
        try:
            pq.write_table(pa.Table.from_pylist([edited | texts, *others], schema=table.schema), buffer)
        except (pa.ArrowException, OverflowError, TypeError):
            continue  # no Parquet file can say so
        digest = blake3(buffer.getvalue()).hexdigest()
        file = f"versions/pages/{digest}.parquet"
        root.write(file, buffer.getvalue())
        said = manifest["logs"][0] | {"digest": digest, "size": len(buffer.getvalue())}
        root.write(name, text_of(manifest | {"logs": [said]}))
        yield f"page: {what}"
        (root.folder / file).unlink()
    root.write(name, text_of(manifest))


def changed_parts(root: Place, count: int | None) -> Iterator[str]:
    """Rows of a log's part, each of another output, in a manifest that names the changed part."""
    name = "versions/00000001.json"
    healthy = root.json(name)
    store = Store.at(str(root.folder))
    first, *others = read_manifest(store).logs
    rows = pq.read_table(root.folder / f"logs/{first.part}.parquet").to_pylist()
    for row in rows:
        row |= {key: json.loads(row[key]) for key in ("files", "columns", "unit", "tally", "software")}
        del row["size"]
    firsts = {row["output"]: number for number, row in reversed(list(enumerate(rows)))}
    tried: set[Path] = set()
    for output, number in firsts.items():
        tried = {path for path in tried if path[0] != "unit"}  # the fields of which differ by output
        for what, edited in edits_of(rows[number], count, output, tried):
            try:
                data = log_part([*rows[:number], edited, *rows[number + 1 :]])
            except (pa.ArrowException, OverflowError, TypeError):
                continue  # no Parquet file can say so
            digest = blake3(data).hexdigest()
            root.write(f"logs/{digest}.parquet", data)
            (page,) = write_records(store, [dataclasses.replace(first, part=digest), *others]).pages
            root.write(name, text_of(healthy | {"logs": [dataclasses.asdict(page)]}))
            yield f"log part, {output}: {what}"
            (root.folder / f"logs/{digest}.parquet").unlink()
            (root.folder / page_file(page)).unlink()
    root.write(name, text_of(healthy))


def changed_assembled(root: Place, count: int | None) -> Iterator[str]:
    """Entries of assembled outputs, in a manifest that has their digest."""
    name = "versions/00000001.json"
    manifest = root.json(name)
    for number, part in enumerate(manifest["assembled"]):
        file = f"parts/{part['output']}/{part['identity'][:2]}/{part['identity']}/entry.json"
        entry = root.json(file)
        for what, edited in edits_of(entry, count, part["output"]):
            data = text_of(edited)
            root.write(file, data)
            digest = blake3(data).hexdigest()
            root.write(name, text_of(changed(manifest, ("assembled", number, "entry"), digest)))
            yield f"entry of assembled {part['output']}: {what}"
        root.write(file, text_of(entry))
    root.write(name, text_of(manifest))


def changed_entries(root: Place, count: int | None) -> Iterator[str]:
    """The entries of units themselves, which only builds read."""
    for output in present("tar", "table"):
        paths = sorted((root.folder / f"parts/{output}").glob("*/*/entry.json"))
        files = [path.relative_to(root.folder).as_posix() for path in paths]
        file = next(file for file in files if "log_id" in root.json(file))  # a unit's, not what is assembled
        entry = root.json(file)
        for what, edited in edits_of(entry, count, output):
            root.write(file, text_of(edited))
            yield f"entry of {output}: {what}"
        root.write(file, text_of(entry))


def changed_tags(root: Place, count: int | None) -> Iterator[str]:
    name = "versions/tags/00000001.json"
    for what, edited in edits_of({"change": 1, "tags": {"gold": 1, "old": 1}}, count, "tags"):
        root.write(name, text_of(edited) if any(raw in what for raw in RAW) else sealed(edited))
        yield f"tags: {what}"
    (root.folder / name).unlink()


CHANGES = {
    "manifest": changed_manifests,
    "page": changed_pages,
    "log part": changed_parts,
    "assembled": changed_assembled,
    "entry": changed_entries,
    "tags": changed_tags,
}


def strange_in_root(root: Place, recipe: Recipe, kind: str, count: int | None) -> list[str]:
    found: list[str] = []
    for what in CHANGES[kind](root, count):
        if kind == "tags":
            found += told(f"tag, {what}", read_rows, str(root.folder), version="gold")
        elif kind == "entry":
            found += told(f"plan, {what}", lambda: plan_build(recipe, f"{root.folder}").finished())
            found += told(f"find, {what}", find_all, root)
        else:
            found += use_root(root, recipe, what)
        found += [f"written outside, {what}: {name}" for name in outside(root)]
    return found


def find_all(root: Place) -> None:
    store, manifest = open_root(Store.at(str(root.folder)))
    assembled = {part.identity for part in manifest.assembled}
    for folder in root.folder.glob("parts/*/*/*"):
        find = find_assembled if folder.name in assembled else find_entry
        find(store, folder.parts[-3], folder.name)


FILES = {
    "table": ("table.json",),
    "bags": ("000000/spec.json",),
    "zarr": ("zarr.json",),
    "l5kit": (
        ".zattrs",
        ".zgroup",
        "frames/.zarray",
        "agents/.zarray",
        "scenes/.zarray",
        "agents_mask/.zarray",
    ),
    "annotations": ("annotations/all.json",),
    "lerobot": ("meta/info.json",),
}


def use_plain(place: Place, name: str, what: str) -> list[str]:
    uri = str(place.folder)
    if name == "annotations":
        return told(f"read, {what}", lambda: list(AnnotationReader(f"{uri}/annotations/all.json").blocks()))
    found = told(f"open, {what}", read_rows, uri) + told(f"convert, {what}", convert, uri)
    if name == "l5kit":
        found += told(f"ChunkedDataset, {what}", lambda: ChunkedDataset(uri).open().frames[0])
    return found


def strange_in_plain(place: Place, name: str, count: int | None) -> list[str]:
    found: list[str] = []
    files = [file for file in FILES[name] if (place.folder / file).is_file()]
    if name == "zarr":
        files += [p.relative_to(place.folder).as_posix() for p in sorted(place.folder.glob("*/zarr.json"))]
    for file in files:
        value = place.json(file)
        for what, edited in edits_of(value, count, file):
            place.write(file, text_of(edited))
            found += use_plain(place, name, f"{file}: {what}")
        place.write(file, text_of(value))
    found += use_plain(place, name, "as it was")
    return found


def count_of(kind: str) -> int | None:
    """How many changes of each file of a kind are tried; None for all."""
    few = {"log part": 1, "assembled": 1}
    return by_tier(few.get(kind, 2), None)


@pytest.mark.parametrize("kind", CHANGES)
def test_a_root_with_a_changed_field_is_read_or_refused_in_words(root, recipe, kind):
    assert strange_in_root(root, recipe, kind, count_of(kind)) == []


@pytest.mark.parametrize("name", FILES)
def test_a_plain_folder_with_a_changed_field_is_read_or_refused_in_words(plain, name):
    assert strange_in_plain(plain[name], name, count_of(name)) == []


def test_changed_ages_of_bags_are_read_or_refused_in_words(plain):
    place = plain["bags"]
    path = place.folder / "000000/meta.bag"
    records = list(BagReader(path))
    said = msgpack.unpackb(records[0])
    others = [None, 7, "x", [], {}, {1: 2}, *(edited for _, edited in edits_of(said, 20, "meta"))]
    found = []
    for data in [b"", b"\xc1", b"\x91" * 2000, *map(msgpack.packb, others)]:
        path.unlink()
        path.with_suffix(".idx").unlink(missing_ok=True)
        with BagWriter(path) as bag:
            for record in [data, *records[1:]]:
                bag.append(record)
        found += use_plain(place, "bags", repr(data[:40]))
    assert found == []


def test_an_assembled_entry_that_names_a_file_elsewhere_makes_no_view(root):
    """Somebody else's root: all digests are as they should be."""
    manifest, name = root.json("versions/00000001.json"), "versions/00000001.json"
    number, part = next((n, p) for n, p in enumerate(manifest["assembled"]) if p["output"] == "zarr")
    file = f"parts/zarr/{part['identity'][:2]}/{part['identity']}/entry.json"
    entry = root.json(file)
    store = Store.at(str(root.folder))
    for stolen in (
        "../../../../../../stolen",
        "/stolen",
        "x/../../../../../../stolen",
        "a\\..\\b",
        "entry.json",
    ):
        data = text_of(changed(entry, ("files", 0, "name"), stolen))
        root.write(file, data)
        root.write(name, text_of(changed(manifest, ("assembled", number, "entry"), blake3(data).hexdigest())))
        for read in (lambda: make_view(*open_root(store)), lambda: verify_view(root)):
            with pytest.raises(DatasetError, match=r"entry\.json: files.*"):
                read()
        assert outside(root) == []
    root.write(file, text_of(entry))
    root.write(name, text_of(manifest))


def verify_view(root: Place) -> None:
    """What verify finds, raised as an error."""
    (root.folder / VIEW).mkdir()
    try:
        for finding in verify(str(root.folder), num_workers=1).findings:
            raise DatasetError(finding.message)
    finally:
        shutil.rmtree(root.folder / VIEW)


def test_a_symbolic_link_among_a_units_files_leads_no_view_out_of_the_root(root, tmp_path):
    store, manifest = open_root(Store.at(str(root.folder)))
    path = min((root.folder / "parts/tar").glob("*/*/*.tar"))
    data = path.read_bytes()
    for target in (tmp_path, tmp_path / "file"):
        (tmp_path / "file").write_bytes(data)
        path.unlink()
        path.symlink_to(target)
        with pytest.raises(StorageError, match="symbolic link leads out"):
            make_view(store, manifest)
    path.unlink()
    inside = path.with_name("elsewhere")
    inside.write_bytes(data)
    path.symlink_to(inside)
    view, _ = make_view(store, manifest)
    assert not any(file.is_symlink() for file in view.rglob("*"))
    shutil.rmtree(view)
    path.unlink()
    inside.rename(path)


def test_unfinished_work_is_not_written_through_a_link(root, tmp_path):
    store = Store.at(str(root.folder))
    shutil.rmtree(root.folder / "tmp", ignore_errors=True)
    (root.folder / "tmp").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="tmp: a symbolic link; remove it"):
        make_view(*open_root(store))
    (root.folder / "tmp").unlink()
    assert list(tmp_path.iterdir()) == []
