import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from logloom.blocks import Lists, Ragged
from logloom.errors import LogloomError, UsageError
from logloom.schema import BYTES, STRING, ColumnType
from logloom.transforms.rows.derive.columns import (
    DeriveError,
    check_allowed,
    check_row_wise,
    compute,
    dependencies_of,
    derive,
    load,
)
from logloom.transforms.rows.derive.python_files import load_files, read_files
from logloom.transforms.rows.plan.row_plan import DerivedPlan

TICKS = np.array([10, 20, 30])
INPUTS = {
    "speed": np.array([1.0, 2.0, 4.0]),
    "objects": Ragged(np.arange(5), np.array([2, 0, 3])),
    "groups": Lists(np.arange(5), [2, 0, 1], [1, 3, 1]),
}
HERE = __name__


@derive
def doubled(rows):
    return rows["speed"] * 2


@derive
def number_of_objects(rows):
    return rows["objects"].lengths


@derive
def relative_to_the_block(rows):
    return rows["speed"] / rows["speed"].max()


@derive
def large_objects(rows):
    return [objects[objects > 0] for objects in rows["objects"]]


@derive
def large_groups(rows):
    return [[group[group > 1] for group in groups] for groups in rows["groups"]]


@derive
def size_of_groups(rows):
    return [[float(lengths.sum())] for lengths in rows["groups"].inner]


@derive
def label(rows):
    return [f"{speed:.0f} m/s" for speed in rows["speed"]]


@derive
def one_short(rows):
    return rows["speed"][1:]


@derive
def failing(rows):
    raise KeyError("wheel")


@derive
def vandal(rows):
    rows["speed"][:] = 0
    return rows["speed"]


@derive
def text(rows):
    return ["1", "2", "3"]


def unmarked(rows):
    return rows["speed"]


def plan(name, ctype=None, inputs=("speed", "objects")):
    ctype = ctype or ColumnType(np.dtype("<f8"))
    return DerivedPlan("d", f"{HERE}:{name}", (), inputs, ctype)


def test_a_function_computes_a_column():
    assert doubled({"speed": np.array([1.0, 3.0])}).tolist() == [2, 6]
    assert compute(plan("doubled"), INPUTS, TICKS).tolist() == [2, 4, 8]
    counts = compute(plan("number_of_objects", ColumnType(np.dtype("<i4"))), INPUTS, TICKS)
    assert (counts.dtype, counts.tolist()) == (np.int32, [2, 0, 3])


def test_a_function_may_return_rows_of_differing_length():
    ctype = ColumnType(np.dtype("<i8"), (None,))
    found = compute(plan("large_objects", ctype), INPUTS, TICKS)
    assert [row.tolist() for row in found] == [[1], [], [2, 3, 4]]
    lists = ColumnType(np.dtype("<i8"), (None, None), "lists")
    found = compute(plan("large_groups", lists, ["groups"]), INPUTS, TICKS)
    assert [[group.tolist() for group in row] for row in found] == [[[], [2, 3]], [], [[4]]]
    sizes = compute(plan("size_of_groups", ColumnType(np.dtype("<f4"), (None,)), ["groups"]), INPUTS, TICKS)
    assert [row.tolist() for row in sizes] == [[4], [0], [1]]
    labels = compute(plan("label", STRING), INPUTS, TICKS)
    assert [row.tobytes() for row in labels] == [b"1 m/s", b"2 m/s", b"4 m/s"]


@pytest.mark.parametrize(
    ("name", "ctype", "message"),
    [
        ("one_short", None, r"returned float64 of shape \(2,\) for 3 rows of float64"),
        ("doubled", ColumnType(np.dtype("<f8"), (3,)), r"shape \(3,\) for 3 rows of float64\[3\]"),
        ("doubled", ColumnType(np.dtype([("x", "<f8")])), "an element is float64, not a struct of x"),
        ("text", None, "returned <U1"),
        ("failing", None, r"fails on rows 10 to 30 ns: KeyError: 'wheel' \(test_columns.py, line \d+\)"),
        ("vandal", None, "read-only"),
        ("doubled", BYTES, "no bytes per row"),
        ("large_objects", ColumnType(np.dtype("<i8"), (None, 2)), "shapes"),
        ("large_objects", ColumnType(np.dtype("<i8"), (None, None, 3), "lists"), "lists of shapes"),
        ("number_of_objects", ColumnType(np.dtype("<i8"), (None, None), "lists"), "iterable"),
        ("large_objects", ColumnType(np.dtype("<i8"), (None, None), "lists"), r"lists of shapes \[\(\)\]"),
    ],
)
def test_a_function_that_returns_something_else_is_named(name, ctype, message):
    with pytest.raises(LogloomError, match=f"column 'd'.*{name}.*{message}"):
        compute(plan(name, ctype), INPUTS, TICKS)


@derive
def boxes(rows):
    return [
        [{"id": one, "size": [one, speed]} for one in o]
        for o, speed in zip(rows["objects"], rows["speed"], strict=True)
    ]


def test_a_function_may_return_lists_of_structs():
    ctype = ColumnType(np.dtype([("id", "<u2"), ("size", "<f4", (2,))]), (None,))
    found = compute(plan("boxes", ctype), INPUTS, TICKS)
    assert (found.dtype, found.lengths.tolist()) == (ctype.dtype, [2, 0, 3])
    assert found.values["size"].tolist() == [[0, 1], [1, 1], [2, 4], [3, 4], [4, 4]]
    check_row_wise(plan("boxes", ctype), INPUTS, TICKS, found)
    other = ColumnType(np.dtype([("id", "<u2")]), (None,))
    message = r"boxes returned list, which is no struct\[\?\] per row: a struct has an unknown field size"
    with pytest.raises(DeriveError, match=message):
        compute(plan("boxes", other), INPUTS, TICKS)


@derive
def leaving(rows):
    raise SystemExit(0)


@derive
def without_memory(rows):
    raise MemoryError


def test_what_is_no_fault_of_the_log_is_told_apart():
    with pytest.raises(DeriveError, match="KeyError"):
        compute(plan("failing"), INPUTS, TICKS)
    with pytest.raises(DeriveError, match="SystemExit: 0"):
        compute(plan("leaving"), INPUTS, TICKS)
    with pytest.raises(LogloomError, match="MemoryError") as caught:
        compute(plan("without_memory"), INPUTS, TICKS)
    assert not isinstance(caught.value, DeriveError)


@pytest.mark.parametrize("allowed", [(), ("labels_of_nobody.b",), ("labels",), ("",)])
def test_a_module_that_nobody_allows_is_refused_before_it_is_imported(allowed, tmp_path, monkeypatch):
    (tmp_path / "labels_of_nobody.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="--py, or --allow-derive labels_of_nobody; a package"):
        check_allowed("labels_of_nobody:f", allowed)


def test_a_package_that_is_allowed_allows_its_modules():
    check_allowed("labels.a.b:f", ["labels"])
    check_allowed("labels.a.b:f", ["labels.a"])
    check_allowed("labels:f", ["other", "labels"])


def test_a_number_that_does_not_fit_the_dtype_is_refused():
    inputs = {"speed": np.array([1.0, 2.0, 200.0])}
    with pytest.raises(LogloomError, match=r"column 'd' at tick 30 ns: 400\.0 does not fit int8"):
        compute(plan("doubled", ColumnType(np.dtype("i1")), ("speed",)), inputs, TICKS)


def test_a_function_that_looks_at_other_rows_is_found_out():
    for name in ("doubled", "large_objects", "label"):
        ctype = {"large_objects": ColumnType(np.dtype("<i8"), (None,)), "label": STRING}.get(name)
        whole = compute(plan(name, ctype), INPUTS, TICKS)
        check_row_wise(plan(name, ctype), INPUTS, TICKS, whole)
    whole = compute(plan("relative_to_the_block"), INPUTS, TICKS)
    with pytest.raises(LogloomError, match="returns other values for fewer rows"):
        check_row_wise(plan("relative_to_the_block"), INPUTS, TICKS, whole)


@pytest.mark.parametrize("name", ["nowhere.to_be_found:f", f"{HERE}:absent", HERE, "", ":", "a..b:c", ".x:y"])
def test_a_function_that_is_not_there_is_refused(name):
    with pytest.raises(UsageError, match=r"module:function|mark the function"):
        load(name)


def test_a_function_without_mark_is_refused():
    with pytest.raises(UsageError, match=r"mark the function with @logloom\.derive"):
        load(f"{HERE}:unmarked")


def test_files_given_by_path_are_found_by_name_and_identified_by_their_source(tmp_path):
    file = tmp_path / "wheel_labels_of_a_test.py"
    source = "from logloom import derive\n@derive\ndef f(rows):\n    return rows['speed'] + 1\n"
    file.write_text(source)
    load_files(read_files([file]))
    load_files(read_files([file]))  # again is no mistake
    name = "wheel_labels_of_a_test:f"
    assert load(name)({"speed": np.ones(1)}).tolist() == [2]
    before = dependencies_of(name)
    file.write_text(source.replace("+ 1", "+ 2"))
    load_files(read_files([file]))
    assert dependencies_of(name) != before
    assert load(name)({"speed": np.ones(1)}).tolist() == [3]


def test_files_work_where_their_path_does_not_exist(tmp_path):
    file = tmp_path / "gear_labels_of_a_test.py"
    file.write_text("from logloom import derive\n@derive\ndef f(rows):\n    return rows['speed'] * 2\n")
    travelled = pickle.dumps(read_files([file]))
    file.unlink()
    load_files(pickle.loads(travelled))
    assert load("gear_labels_of_a_test:f")({"speed": np.ones(1)}).tolist() == [2]


def test_a_file_that_many_threads_load_is_whole_for_each(tmp_path):
    file = tmp_path / "slow_labels_of_a_test.py"
    slow = "import time\nfrom logloom import derive\ntime.sleep(0.2)\n"
    file.write_text(f"{slow}@derive\ndef f(rows):\n    return rows['speed'] * 3\n")
    files = read_files([file])

    def derived(_):
        load_files(files)
        return load("slow_labels_of_a_test:f")({"speed": np.ones(1)}).tolist()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(derived, range(4))) == [[3]] * 4


def test_a_file_that_hides_a_module_or_fails_is_refused(tmp_path):
    for name, text in [
        ("json.py", ""),
        ("not-a-name.py", ""),
        ("broken_labels.py", "1/0"),
        ("script_labels.py", "import sys\nsys.exit(0)"),
        ("labels.txt", ""),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(UsageError, match=name.replace(".", r"\.")):
            load_files(read_files([tmp_path / name]))
