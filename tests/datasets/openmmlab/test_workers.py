"""Workers share the buffer of infos, forked or spawned."""

import multiprocessing
import pickle

import numpy as np
import pytest

from logloom.datasets.openmmlab import BaseDataset


class Made(BaseDataset):
    def load_data_list(self):
        return [{"n": n, "text": "x" * 500} for n in range(4000)]


def own_memory(dataset, answers):
    """Says what infos hold, and how many bytes of their buffer's memory are this process's alone."""
    total = sum(dataset.get_data_info(n)["n"] for n in range(len(dataset)))
    address, private, inside = dataset.data_bytes.ctypes.data, 0, False
    with open("/proc/self/smaps") as lines:
        for line in lines:
            first = line.split()[0]
            if "-" in first:
                start, stop = (int(part, 16) for part in first.split("-"))
                inside = start <= address < stop
            elif inside and first in ("Private_Clean:", "Private_Dirty:"):
                private += 1024 * int(line.split()[1])
    answers.put((total, private))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_share_the_buffer(method):
    context = multiprocessing.get_context(method)
    dataset, answers = Made(), context.Queue()
    workers = [context.Process(target=own_memory, args=(dataset, answers)) for _ in range(2)]
    for worker in workers:
        worker.start()
    found = [answers.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert [total for total, _ in found] == [sum(range(4000))] * 2
    if method == "spawn":
        assert all(private < len(dataset.data_bytes) // 4 for _, private in found)


def test_a_subset_taken_after_workers_started_is_what_the_next_ones_get():
    context = multiprocessing.get_context("spawn")
    dataset, answers = Made(), context.Queue()
    for indices in (4000, 10):
        dataset.get_subset_(indices)
        worker = context.Process(target=own_memory, args=(dataset, answers))
        worker.start()
        assert answers.get(timeout=60)[0] == sum(range(indices))
        worker.join()
    assert len(pickle.loads(pickle.dumps(dataset))) == 10
    assert np.array_equal(pickle.loads(pickle.dumps(dataset)).data_bytes, dataset.data_bytes)
