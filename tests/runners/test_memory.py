"""A partition larger than the memory it is built in: blocks hold, in the workers and in the JVM."""

import json
import pathlib
import threading

import pytest

from benchmarks import workloads
from logloom.recipe import Recipe
from tests.runners.conftest import build_on

pytestmark = [pytest.mark.engines, pytest.mark.faults]

RECIPE = """\
name: large
logs: [LOG]
clock: {rate: 12}
columns:
  image: {topic: /camera/image, as: image, shape: [480, 640, 3], resample: nearest}
partition: {rows: 100000, bytes: 4GiB}
outputs:
  tar: {ext: {image: npy}}
"""
JVM = 256 << 20
IMAGES = 800


class Peaks(threading.Thread):
    """The most memory of its own that any process with a word in its command line has had, until stopped.

    Without pages of mapped files, which the system takes back when it wants them.
    """

    def __init__(self, *words: str):
        super().__init__(daemon=True)
        self.bytes = dict.fromkeys(words, 0)
        self._over = threading.Event()
        self.start()

    def run(self):
        while not self._over.wait(0.1):
            for folder in pathlib.Path("/proc").iterdir():
                if folder.name.isdigit():
                    self._look(folder)

    def _look(self, folder: pathlib.Path):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            status = (folder / "status").read_text()
        except OSError:
            return
        for word in self.bytes:
            if word in command and "RssAnon:" in status and "/bin/sh" not in command:
                own = int(status.partition("RssAnon:")[2].split()[0]) << 10
                self.bytes[word] = max(self.bytes[word], own)

    def stop(self):
        self._over.set()
        self.join()


@pytest.mark.timeout(900)
def test_a_partition_larger_than_memory_is_built_block_by_block(tmp_path, monkeypatch, record_property):
    log = workloads.image_mcap(tmp_path, IMAGES)
    recipe = Recipe.from_yaml(RECIPE.replace("LOG", json.dumps(str(log))), source="large.yaml")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Xmx{JVM >> 20}m")
    folder = tmp_path / "engine"
    peaks = Peaks("logloom.runners.worker", f"--flink-conf-dir={folder}")
    try:
        built = build_on(recipe, tmp_path / "root", runner="flink", workers=1, log_folder=str(folder))
    finally:
        peaks.stop()
    worker, jvm = peaks.bytes.values()
    size = built.counters["bytes_written"]
    told = f"one partition of {size >> 20} MB: worker {worker >> 20} MB at most, JVM {jvm >> 20} MB"
    record_property("peak", told)
    print(told)
    assert built.built == 1
    assert size > 700e6
    assert 0 < worker < 0.8 * size, told
    assert 0 < jvm < size, told
