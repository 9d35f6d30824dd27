"""The memory that all streams of rows of a process share."""

import contextlib
import threading

import pytest

from logloom.demo import demo_recipe
from logloom.pipelines.plan.plan import plan_build
from logloom.recipe import Recipe
from logloom.transforms.build import memory_budget, partition, read_back
from logloom.transforms.build.job import opened
from logloom.transforms.build.memory_budget import MemoryBudget
from logloom.transforms.rows.row_stream import build_blocks

PATIENCE = 60.0


class Holder(threading.Thread):
    """Reserves bytes in a thread of its own, until it is let go."""

    def __init__(self, budget: MemoryBudget, nbytes: int):
        super().__init__(daemon=True)
        self.budget, self.nbytes = budget, nbytes
        self.has, self.over = threading.Event(), threading.Event()
        waiting = len(budget._queue)
        self.start()
        while not (self.has.is_set() or len(budget._queue) > waiting):
            self.has.wait(0.001)

    def run(self):
        with self.budget.reserved(self.nbytes):
            self.has.set()
            self.over.wait(PATIENCE)

    def end(self):
        self.over.set()
        self.join(PATIENCE)
        assert not self.is_alive()


def test_streams_that_fit_have_their_bytes_at_once_and_the_next_waits_for_the_first_to_end():
    budget = MemoryBudget(100)
    one, two, three = Holder(budget, 60), Holder(budget, 40), Holder(budget, 10)
    assert one.has.is_set()
    assert two.has.is_set()
    assert not three.has.is_set()
    two.end()
    assert three.has.wait(PATIENCE)
    one.end()
    three.end()
    assert budget.free == 100


def test_a_stream_larger_than_the_budget_runs_alone():
    budget = MemoryBudget(100)
    small, huge = Holder(budget, 1), Holder(budget, 1 << 40)
    assert not huge.has.is_set()
    small.end()
    assert huge.has.wait(PATIENCE)
    assert budget.free == 0
    huge.end()
    assert budget.free == 100


def test_a_small_stream_does_not_overtake_a_large_one_that_came_first():
    budget = MemoryBudget(100)
    first, large, small = Holder(budget, 50), Holder(budget, 80), Holder(budget, 10)
    assert not large.has.is_set()
    assert not small.has.is_set()
    first.end()
    assert large.has.wait(PATIENCE)
    assert small.has.wait(PATIENCE)
    large.end()
    small.end()


def test_streams_within_streams_never_wait_for_each_other():
    budget = MemoryBudget(100)
    both_hold = threading.Barrier(4)

    def nested():
        with budget.reserved(25):
            both_hold.wait(PATIENCE)
            with budget.reserved(100):  # more than all others leave
                pass

    threads = [threading.Thread(target=nested, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert budget.free == 100


def test_bytes_are_given_back_by_errors_and_by_streams_that_are_closed_early():
    budget = MemoryBudget(100)
    with pytest.raises(KeyError), budget.reserved(70):
        raise KeyError

    def stream():
        with budget.reserved(70):
            yield 1
            yield 2

    started = stream()
    next(started)
    assert budget.free == 30
    started.close()
    assert budget.free == 100
    forgotten = stream()
    next(forgotten)
    del forgotten
    assert budget.free == 100


def test_a_waiter_that_is_interrupted_leaves_the_line(monkeypatch):
    budget = MemoryBudget(100)
    first = Holder(budget, 100)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(budget._changed, "wait_for", interrupted)
        with budget.reserved(1):
            raise AssertionError
    last = Holder(budget, 1)
    first.end()
    assert last.has.wait(PATIENCE)
    last.end()


@pytest.fixture(scope="module")
def plan(logs_of, tmp_path_factory):
    text = demo_recipe(logs_of(2, 2)) + "\npartition: {rows: 5}\n"
    recipe = Recipe.from_yaml(text, source="drive.yaml")
    return plan_build(recipe, str(tmp_path_factory.mktemp("drive") / "root"))


def test_many_threads_build_and_read_back_within_the_memory_of_one(plan, monkeypatch):
    least = []

    class Noted(MemoryBudget):
        @contextlib.contextmanager
        def reserved(self, nbytes):
            with super().reserved(nbytes):
                least.append(self.free)
                yield

    monkeypatch.setattr(memory_budget, "ROWS", Noted(200_000))
    tasks = [task for log in plan.logs for task in partition.plan_partitions(plan.job, log.task)]
    built = []

    def build_one(task):
        built.append(read_back.read_back(plan.job, partition.build_partition(plan.job, task)))

    threads = [threading.Thread(target=build_one, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(built) == len(tasks) > 4
    assert not [failure for result in built for failure in result.failures]
    assert 0 <= min(least) < 200_000
    assert memory_budget.ROWS.free == 200_000


def test_rows_that_are_not_taken_to_their_end_give_their_memory_back(plan, monkeypatch):
    monkeypatch.setattr(memory_budget, "ROWS", MemoryBudget(1 << 30))
    task = partition.plan_partitions(plan.job, plan.logs[0].task)[0]
    log = opened(plan.job, task.log)
    blocks = iter(build_blocks(log, task.log.log_id, plan.job.plan, task.span, max_bytes=1000))
    next(blocks)
    assert memory_budget.ROWS.free < 1 << 30
    blocks.close()
    assert memory_budget.ROWS.free == 1 << 30
