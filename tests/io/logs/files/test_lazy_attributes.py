"""Attributes made when first asked for: once for each object, and at the same time for several."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

from logloom.io.logs.files.lazy_attributes import lazy


class Log:
    def __init__(self, others: threading.Barrier | None = None):
        self.others = others
        self.made = []

    @lazy
    def summary(self) -> str:
        """What it says."""
        return f"summary of {self.index}"

    @lazy
    def index(self) -> str:
        if self.others is not None:
            self.others.wait()
        self.made.append("index")
        return "index"


def test_objects_are_asked_side_by_side():
    together = threading.Barrier(4, timeout=10)  # passes only if four are made at the same time
    logs = [Log(together) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda log: log.summary, logs)) == ["summary of index"] * 4


def test_an_attribute_is_made_once_however_many_ask():
    log = Log()
    start = threading.Barrier(8, timeout=10)

    def ask(_):
        start.wait()
        return log.summary

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == {"summary of index"}
    assert log.made == ["index"]


def test_an_object_that_was_asked_is_copied_and_pickled():
    log = Log()
    assert log.summary
    for other in (copy.copy(log), copy.deepcopy(log), pickle.loads(pickle.dumps(log))):
        assert other.summary == log.summary


def test_the_class_shows_what_is_said_of_the_attribute():
    assert Log.summary.__doc__ == "What it says."
