"""A version's rows for those who train with OpenMMLab."""

import copy
import pickle

import numpy as np
import pytest

import logloom.io.formats.table as tt
from logloom import datasets
from logloom.datasets.openmmlab import DATASETS, ClassBalancedDataset, ConcatDataset, LogloomDataset
from logloom.demo import demo_recipe
from logloom.errors import DatasetError, UsageError
from logloom.recipe import Recipe


@pytest.fixture(scope="module")
def root(logs_of, root_of):
    text = demo_recipe(logs_of(4, 2))
    text = text[: text.index("\noutputs:")] + "\noutputs:\n  table: {index: [ego.speed]}\n  tar: {}\n"
    return str(root_of(Recipe.from_yaml(text)))


@pytest.fixture
def table(tmp_path):
    """A table without logs, whose rows have a class."""
    rows = [{"log_id": "a", "timestamp": n, "kind": n % 3 % 2, "text": "x" * n} for n in range(12)]
    tt.write_table(str(tmp_path / "table"), rows, index=["kind"])
    return str(tmp_path / "table")


@pytest.mark.parametrize("output", [None, "tar", "table"])
def test_every_row_of_an_output_is_an_info(root, output):
    dataset, rows = LogloomDataset(root, output=output), datasets.open(root, output=output)
    assert len(dataset) == len(rows) > 50
    for n in (0, 17, -1):
        found, expected = dataset.get_data_info(n), rows[n]
        assert found.pop("sample_idx") == n % len(rows)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)


def median_speed(root):
    return float(datasets.open(root, output="table").index["ego.speed"].median())


def test_rows_are_chosen_before_they_are_read(root):
    where = f"ego.speed > {median_speed(root)}"
    chosen = LogloomDataset(
        root, 1, "table", columns=["ego.*"], where=where, indices=[2, -1], pipeline=[dict.keys]
    )
    assert list(chosen[0]) == [
        "log_id",
        "timestamp",
        "ego.position",
        "ego.rotation",
        "ego.speed",
        "sample_idx",
    ]
    whole = datasets.open(root, where=where)
    assert [chosen.get_data_info(n)["timestamp"] for n in (0, 1)] == [whole[n]["timestamp"] for n in (2, -1)]


def test_filters_see_the_small_columns(root):
    class Slow(LogloomDataset):
        def filter_data(self):
            return [info for info in self.data_list if info["ego.speed"] < self.filter_cfg["below"]]

    limit = median_speed(root)
    slow = Slow(root, filter_cfg={"below": limit}, columns="ego.speed", output="table")
    assert 0 < len(slow) < len(LogloomDataset(root))
    assert all(slow[n]["ego.speed"] < limit for n in range(len(slow)))


def test_a_dataset_is_lazy_copies_pickles_and_takes_wrappers(root):
    dataset = LogloomDataset(root, lazy_init=True, metainfo={"classes": ["a"]})
    assert dataset.metainfo == {"classes": ["a"]}
    assert dataset._rows is None
    dataset.full_init()
    for other in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset), dataset.get_subset(range(9))):
        assert other[5]["timestamp"] == dataset[5]["timestamp"]
    both = ConcatDataset([dataset.get_subset(4), dataset])
    assert both[4]["timestamp"] == dataset[0]["timestamp"]
    assert len(DATASETS.build({"type": "LogloomDataset", "uri": root, "indices": 3})) == 3


def test_classes_come_from_a_column(table):
    dataset = LogloomDataset(table, label="kind", metainfo={"classes": ["a", "b"]})
    assert [dataset.get_cat_ids(n) for n in range(3)] == [[0], [1], [0]]
    balanced = ClassBalancedDataset(dataset, 1.0)
    assert balanced.repeat_indices.count(1) == balanced.repeat_indices.count(0) == 2
    with pytest.raises(DatasetError, match=r"kind of row 1 contains class 1, metainfo names 1 classes"):
        LogloomDataset(table, label="kind", metainfo={"classes": ["a"]}).get_cat_ids(1)
    with pytest.raises(UsageError, match="label=<column>"):
        LogloomDataset(table).get_cat_ids(0)


def test_what_makes_no_sense_is_refused(root):
    with pytest.raises(UsageError, match="data_root: rows come from"):
        LogloomDataset(root, data_root="x")
    with pytest.raises(UsageError, match="no version"):
        LogloomDataset(root, 9)
    with pytest.raises(IndexError):
        LogloomDataset(root).get_data_info(10_000)
