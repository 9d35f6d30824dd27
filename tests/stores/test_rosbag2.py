"""ROS 2 bags in sqlite files, read from object stores by ranges, also where some requests are refused."""

import pytest

from logloom.io.logs.files.container import CHUNKS
from logloom.io.logs.interface import OpenOptions, TopicRequest
from logloom.io.logs.opening import open_log
from logloom.io.logs.rosbag2.sqlite_pages import PAGES
from tests.io.logs.making import SECOND, START, contents
from tests.io.logs.rosbag2.test_sqlite_pages import write_drive

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_bag_in_a_store_reads_as_the_local_one(store, bucket, tmp_path, share):
    path = write_drive(tmp_path / "bag", seconds=6)
    store.fs.put_file(str(path), f"{bucket}/bag.db3")
    here = open_log([str(path)])
    store.faults.share = share
    PAGES.clear()
    there = open_log([f"{bucket}/bag.db3"], OpenOptions(storage_options=store.storage_options))
    assert there.summary.topics == here.summary.topics
    request = {
        topic: TopicRequest(START + SECOND, START + 4 * SECOND, ("log",)) for topic in here.summary.topics
    }
    found = there.read(request)
    CHUNKS.clear()
    assert contents(found) == contents(here.read(request))
    assert bool(store.faults.done) == (share > 0)
