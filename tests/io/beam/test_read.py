"""`ReadFrom` over every format: the rows of plain reading, by whatever name a dataset has."""

import shutil
from collections import Counter, defaultdict

import apache_beam as beam
import pytest

from logloom.datasets.opening import open_rows
from logloom.demo import demo_recipe
from logloom.digests import digests_of_rows
from logloom.io.beam import ReadFrom
from logloom.io.catalog.manifest import entries_of, open_root
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.registry import format_named
from logloom.io.storage.store import Store
from logloom.recipe import Recipe
from tests.absent import outputs_present, present

FORMATS = present("bags", "l5kit", "lance", "parquet", "table", "tar", "zarr")
OUTPUTS = outputs_present("""
  bags: {types: {camera.front: jpg}}
  table: {index: [ego.speed]}
  zarr: {}
  parquet: {images: {camera.front: jpg}}
  lance: {images: {camera.front: jpg}}
partition: {rows: 4}
""")
FOUND = []  # what steps of a pipeline in this process found


@pytest.fixture(scope="module")
def root(logs_of, root_of):
    """A version of two logs of some partitions in every format with rows."""
    text = demo_recipe(logs_of(2, 2))
    return root_of(Recipe.from_yaml(text.rstrip() + OUTPUTS))


def noted(name, block):
    FOUND.append((name, block))


def read(**transforms):
    """The blocks that each transform reads, in row order; all by one pipeline."""
    FOUND.clear()
    with beam.Pipeline() as pipeline:
        for name, transform in transforms.items():
            _ = pipeline | name >> transform | f"note {name}" >> beam.Map(lambda b, name=name: noted(name, b))
    found = defaultdict(list)
    for name, block in FOUND:
        found[name].append(block)
    return {name: sorted(found[name], key=lambda b: (b.log_id, int(b.timestamp[0]))) for name in transforms}


def partitions_of(blocks):
    """How many rows each partition of each log has; checks that blocks are numbered by them."""
    rows = Counter()
    for block in blocks:
        assert block.first_row == rows[block.log_id, block.partition]
        rows[block.log_id, block.partition] += len(block)
    return rows


def folder_of(root, name):
    """A split of an output as a version's view shows it."""
    return root / f"v00000001/{name}/all{format_named(name).suffix}"


@pytest.fixture(scope="module")
def plain(root, tmp_path_factory):
    """Gives a copy of an output's folder, which is of no version."""
    place = tmp_path_factory.mktemp("plain")

    def copied(name):
        folder = place / name
        if not folder.exists():
            shutil.copytree(folder_of(root, name), folder)
        return folder

    return copied


@pytest.mark.parametrize("name", FORMATS)
class TestEveryFormat:
    def test_blocks_of_a_version_are_its_partitions(self, root, name):
        source, _ = open_rows(str(root), None, name, None, None, {}, False, None)
        one = ReadFrom(root, output=name)
        assert one.schema == source.schema
        found = read(one=one, small=ReadFrom(root, output=name, max_bytes=3000))
        wanted = digests_of_rows(source.blocks(tuple(source.schema.all)), source.schema)
        store, manifest = open_root(Store.at(str(root)))
        units = [entry for _, entry in entries_of(store, manifest.logs) if entry.output == name]
        for blocks in found.values():
            assert digests_of_rows(blocks, source.schema) == wanted
            counts = {(unit.log_id, unit.partition): unit.rows for unit in units if unit.rows}
            assert partitions_of(blocks) == counts
            assert len(counts) > 4
        assert len(found["small"]) > len(found["one"])

    def test_blocks_of_a_plain_folder_are_those_of_a_conversion(self, plain, name):
        source = open_foreign(str(plain(name)))
        one = ReadFrom(plain(name))
        assert one.schema == source.schema
        found = read(one=one, small=ReadFrom(plain(name), name, max_bytes=3000))
        for blocks in found.values():
            assert digests_of_rows(blocks, source.schema) == digests_of_rows(source.blocks(), source.schema)
            parts = {(log.log_id, part.name): part.rows for log in source.logs() for part in log.parts}
            counts = partitions_of(blocks)
            if name in ("l5kit", "table", "zarr"):  # these datasets have logs alone
                parts = Counter({(log.log_id, ""): log.record.rows for log in source.logs()})
            assert counts == parts
