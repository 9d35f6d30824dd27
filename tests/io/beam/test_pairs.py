"""Formats that can be read, into formats that can be written: the same rows."""

import apache_beam as beam

from logloom.demo import demo_recipe
from logloom.io.beam import ReadFrom, WriteTo
from logloom.io.catalog.manifest import read_manifest
from logloom.io.storage.store import Store
from logloom.recipe import Recipe
from tests.absent import needs
from tests.files import files_in
from tests.io.beam.steps import finish
from tests.io.beam.test_write import BLOCKS, FORMATS, SCHEMA, stored, wanted
from tests.tier import by_tier

# In a check, one of two neighbours is read and the other is written.
SOURCES = by_tier(FORMATS[::2], FORMATS)


def connected(folder):
    """Make a dataset of each format."""
    for form in SOURCES:
        finish(WriteTo(folder / form, form, SCHEMA), BLOCKS)
    return folder


def targets_of(source):
    """Return the formats to write what a format reads into: in a check the next one, else all."""
    first = FORMATS.index(source)
    return [*FORMATS[first + 1 :], *FORMATS[: first + 1]][: by_tier(1, len(FORMATS))]


def test_any_reader_into_any_writer(once, tmp_path):
    datasets = once(connected)
    with beam.Pipeline("FnApiRunner") as pipeline:
        for source in SOURCES:
            reading = ReadFrom(datasets / source)
            assert reading.schema == SCHEMA
            blocks = pipeline | f"read {source}" >> reading
            for form in targets_of(source):
                writing = WriteTo(tmp_path / f"{source}-{form}", form, reading.schema)
                _ = blocks | f"write {form} of {source}" >> writing
    for source in SOURCES:
        for form in targets_of(source):
            assert stored(tmp_path / f"{source}-{form}") == wanted(BLOCKS), (source, form)


def test_blocks_of_a_version_become_the_dataset_that_the_build_made_of_it(logs_of, root_of, tmp_path):
    needs("l5kit", "tar")
    recipe = f"{demo_recipe(logs_of(2, 2))}\npartition: {{rows: 10}}\n"
    root = root_of(Recipe.from_yaml(recipe))
    options = read_manifest(Store.at(str(root))).outputs["l5kit"]
    reading = ReadFrom(root, output="tar")
    with beam.Pipeline("FnApiRunner") as pipeline:
        writing = WriteTo(tmp_path / "one", "l5kit", reading.schema, options, period=10**8)
        _ = pipeline | reading | writing
    (built,) = (root / "v00000001" / "l5kit").iterdir()
    found = files_in(tmp_path / "one")
    assert found.pop("_written.json")
    assert found == {name: data for name, data in files_in(built).items() if name in found}
    assert "frames/.zarray" in found
