"""The connectors for Beam in object stores: pipelines into one place at once, and stores that fail."""

import threading

import apache_beam as beam
import pytest

import logloom as ll
from logloom.errors import UsageError
from logloom.io.beam import ReadFrom, WriteTo
from logloom.io.storage.store import Store
from tests.io.beam.steps import finish
from tests.io.beam.test_write import BLOCKS, FORMATS, SCHEMA, rows, stored, wanted

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("form", FORMATS)
def test_of_pipelines_into_one_place_at_once_one_wins_and_is_whole(store, bucket, form):
    place = f"{bucket}/one"
    options = store.storage_options
    logs = [[rows(f"log{number}", "", range(number + 2))] for number in range(4)]
    writings = [WriteTo(place, form, SCHEMA, storage_options=options) for _ in logs]
    ends: list = [None] * len(logs)
    barrier = threading.Barrier(len(logs))

    def write(number):
        barrier.wait()
        try:
            ends[number] = finish(writings[number], logs[number])
        except UsageError as error:
            ends[number] = error

    threads = [threading.Thread(target=write, args=[number]) for number in range(len(logs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [number for number, end in enumerate(ends) if not isinstance(end, Exception)]
    assert all("there is a dataset already" in str(end) for end in ends if isinstance(end, Exception))
    assert stored(place, storage_options=options) == wanted(logs[winner])
    assert Store.at(f"{place}.stage", options).names() == []


def test_a_store_that_fails_loses_nothing(store, bucket):
    options = store.storage_options
    one, two = f"{bucket}/one", f"{bucket}/two"
    store.faults.share = 0.1
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = pipeline | beam.Create(BLOCKS) | WriteTo(one, "parquet", SCHEMA, storage_options=options)
    with beam.Pipeline("FnApiRunner") as pipeline:
        reading = ReadFrom(one, storage_options=options)
        _ = pipeline | reading | WriteTo(two, "zarr", SCHEMA, storage_options=options)
    store.faults.share = 0.0
    assert len(store.faults.done) > 3
    assert stored(two, storage_options=options) == wanted(BLOCKS)
    assert len(ll.open(two, storage_options=options)) == 15
