"""Forked processes, where pylance crashes: a helper reads for them."""

import gc
import multiprocessing
import os
import pathlib
import resource
import tempfile
import time

import fsspec
import numpy as np
import pytest

from logloom.errors import LogloomError, UsageError
from logloom.io.formats.foreign import open_foreign
from logloom.io.formats.lance import helper
from logloom.io.storage.disk import remove_with
from logloom.testing.processes import in_fork, in_threads
from logloom.testing.rows import SCHEMA, random_block
from tests.io.formats.lance.calls import crashed, killed, pid_of, refused
from tests.io.formats.lance.test_lance import FORMAT, UnitContext, lance, write
from tests.tier import by_tier


def outcome(function, place):
    """What a call gives, or raises, in words."""
    try:
        return function(place)
    except LogloomError as error:
        return f"{type(error).__name__}: {error}"


def test_without_a_fork_the_process_itself_reads():
    assert pid_of("here") == os.getpid()


def test_a_forked_process_asks_one_helper_that_survives_errors_and_is_replaced_when_it_dies():
    def ask():
        asked = [pid_of, pid_of, refused, pid_of, crashed, pid_of]
        return [os.getpid(), *(outcome(function, "here") for function in asked)]

    own, first, again, odd, third, died, last = in_fork(ask)
    assert first == again == third
    assert odd == "DatasetError: here: odd"
    assert died == "DatasetError: here: damaged, pylance dies of it (code -11)"
    assert len({os.getpid(), own, first, last}) == 4


def test_a_helper_that_is_killed_or_can_not_be_started_is_a_fault_of_the_machine_and_no_damage():
    def ask():
        found = outcome(killed, "here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        return found, outcome(pid_of, "here")

    died, none = in_fork(ask)
    assert died.startswith("StorageError: here: the process that reads it was ended (code -9)")
    assert none == "StorageError: here: a process for pylance: Too many open files"


def test_the_fork_of_a_forked_process_has_a_helper_of_its_own_which_ends_with_it():
    outer, inner = in_fork(lambda: (pid_of("here"), in_fork(lambda: pid_of("here"))))
    assert outer != inner
    for pid in (outer, inner):
        assert _ends(pid)


def _ends(pid):
    """Whether a process ends, be it that nobody asks for its code."""
    for _ in range(2400):
        try:
            if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


def test_threads_of_a_forked_process_read_at_the_same_time():
    assert in_fork(lambda: in_threads(lambda n: outcome(refused, n), 20)) == [
        f"DatasetError: {n}: odd" for n in range(20)
    ]


def test_tables_of_ours_and_of_anybody_are_read_in_a_forked_process(tmp_path):
    blocks = [random_block(SCHEMA, 5, 0), random_block(SCHEMA, 4, 1)]
    write(tmp_path / "ours", blocks)
    plain = lance.dataset(str(tmp_path / "ours")).to_table(columns=["log_id", "timestamp", "speed"])
    lance.write_dataset(plain.replace_schema_metadata(), str(tmp_path / "anybody's"), max_rows_per_file=3)

    def speeds(name):
        rows = open_foreign(str(tmp_path / name), columns=["speed"])
        found = np.concatenate([block.columns["speed"] for block in rows.blocks()]).tolist()
        return found, float(rows[7]["speed"])

    names = ("ours", "anybody's")
    assert in_fork(lambda: [*map(speeds, names)]) == [*map(speeds, names)]


class Owner:
    """What a temporary file belongs to."""


def read_remote(folder, tempdir, answer):
    """Reads a row of a table that lies elsewhere; tells the temporary files that it made."""
    tempfile.tempdir = tempdir
    memory = fsspec.filesystem("memory")
    memory.put(folder, "/remote", recursive=True)
    rows = open_foreign("memory://remote")
    answer.send((float(rows[2]["speed"]), os.listdir(tempdir)))


@pytest.mark.parametrize("method", by_tier(["fork"], ["fork", "forkserver", "spawn"]))
def test_copies_of_remote_files_end_with_the_worker_process_that_made_them(tmp_path, method):
    block = random_block(SCHEMA, 5, 0)
    write(tmp_path / "table", [block])
    (tmp_path / "temporary").mkdir()
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe(duplex=False)
    arguments = str(tmp_path / "table"), str(tmp_path / "temporary"), theirs
    worker = context.Process(target=read_remote, args=arguments)
    worker.start()
    theirs.close()
    speed, (copy,) = ours.recv()
    worker.join()
    assert copy.endswith(".lance")
    assert (worker.exitcode, os.listdir(tmp_path / "temporary")) == (0, [])
    np.testing.assert_equal(speed, float(block.columns["speed"][2]))


def test_a_copy_goes_with_its_object_and_a_fork_leaves_it_to_its_parent(tmp_path):
    path = tmp_path / "copy"
    path.touch()
    owners = [Owner()]
    remove_with(owners[0], str(path))
    in_fork(owners.clear)
    assert path.exists()
    owners.clear()
    gc.collect()
    assert not path.exists()


def test_writing_in_a_forked_process_is_refused_with_a_way_out(tmp_path):
    def tell():
        with pytest.raises(UsageError) as raised:
            FORMAT.writer(tmp_path, SCHEMA, FORMAT.Options(), UnitContext("a", "a.mcap", "p0", "all"))
        return str(raised.value)

    assert in_fork(tell).endswith("start processes by spawn")
    assert helper._idle == []
