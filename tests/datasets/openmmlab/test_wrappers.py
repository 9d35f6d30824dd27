"""Datasets in a row, repeated and balanced by class; what they refuse."""

import logging
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.datasets.openmmlab import BaseDataset, ClassBalancedDataset, ConcatDataset, RepeatDataset


class Numbers(BaseDataset):
    """Infos made of numbers, whose classes are given."""

    def __init__(self, classes, **arguments):
        self.classes = classes
        super().__init__(**arguments)

    def load_data_list(self):
        return [{"n": n, "classes": list(own)} for n, own in enumerate(self.classes)]

    def get_cat_ids(self, idx):
        return self.get_data_info(idx)["classes"]


def numbers(count, **arguments):
    return Numbers([[0]] * count, pipeline=[lambda info: info["n"]], **arguments)


def wrappers(**arguments):
    return [
        ConcatDataset([numbers(3), numbers(2)], **arguments),
        RepeatDataset(numbers(5), 2, **arguments),
        ClassBalancedDataset(numbers(5), 1e-3, **arguments),
    ]


def test_datasets_follow_each_other():
    both = ConcatDataset([numbers(3), numbers(2)])
    assert (len(both), both.cumulative_sizes, list(both)) == (5, [3, 5], [0, 1, 2, 0, 1])
    assert both._get_ori_dataset_idx(3) == (1, 0)
    assert both._get_ori_dataset_idx(-1) == (1, 1)
    assert both.get_data_info(4) == {"n": 1, "classes": [0], "sample_idx": 1}
    with pytest.raises(ValueError, match=r"absolute value of index\(-6\)"):
        both[-6]
    with pytest.raises(IndexError, match="info 5 of 5"):
        both.get_data_info(5)


def test_a_dataset_repeats():
    repeated = RepeatDataset(numbers(3), times=2)
    assert (len(repeated), [repeated[i] for i in range(6)]) == (6, [0, 1, 2, 0, 1, 2])
    assert repeated[-1] == 2
    assert repeated.get_data_info(4)["n"] == 1


def test_nothing_repeated_has_no_infos():
    dataset = RepeatDataset(numbers(4, indices=[]), 3)
    assert len(dataset) == 0
    with pytest.raises(IndexError, match="info 0 of 0"):
        dataset[0]


def test_infos_of_rare_classes_come_again():
    balanced = ClassBalancedDataset(Numbers([[0]] * 9 + [[0, 1], []]), oversample_thr=0.5)
    again = math.ceil(math.sqrt(0.5 * 11))
    assert balanced.repeat_indices == [*range(9), *[9] * again, 10]
    assert len(balanced) == 10 + again
    assert balanced.get_cat_ids(9) == balanced.get_cat_ids(10) == [0, 1]
    assert balanced.get_data_info(10)["n"] == 9


@given(st.lists(st.lists(st.integers(0, 4), max_size=4), min_size=1, max_size=30), st.floats(1e-3, 3))
def test_repeats_follow_the_definition(classes, threshold):
    balanced = ClassBalancedDataset(Numbers(classes), threshold)
    expected = []
    for n, own in enumerate(classes):
        shares = [sum(c in other for other in classes) / len(classes) for c in own]
        factor = max([max(1.0, math.sqrt(threshold / share)) for share in shares], default=1)
        expected += [n] * math.ceil(factor)
    assert balanced.repeat_indices == expected


@pytest.mark.parametrize("number", range(3))
def test_wrappers_initialise_lazily_and_say_so(number, caplog):
    for use in (len, lambda wrapper: wrapper[0], lambda wrapper: wrapper.get_data_info(0)):
        wrapper = wrappers(lazy_init=True)[number]
        assert not wrapper._fully_initialized
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            use(wrapper)
        assert wrapper._fully_initialized
        assert "full_init" in caplog.text


@pytest.mark.parametrize("number", range(3))
def test_wrappers_have_no_subsets(number):
    wrapper = wrappers()[number]
    for method in (wrapper.get_subset, wrapper.get_subset_):
        with pytest.raises(NotImplementedError, match=f"`{type(wrapper).__name__}` does not support"):
            method(1)


def test_what_is_no_dataset_is_refused():
    for make in (
        lambda x: ConcatDataset([x]),
        lambda x: RepeatDataset(x, 1),
        lambda x: ClassBalancedDataset(x, 1),
    ):
        for wrong in (3, "BaseDataset", RepeatDataset(numbers(1), 1)):
            with pytest.raises(TypeError, match="should be config or `BaseDataset` instance"):
                make(wrong)
    with pytest.raises(IndexError, match="at least one"):
        ConcatDataset([])
    with pytest.raises(TypeError, match="ignore_keys should be a list or str"):
        ConcatDataset([numbers(1)], ignore_keys=3)


@pytest.mark.parametrize(
    ("first", "second", "error", "message"),
    [
        ({"a": [1]}, {}, ValueError, "a does not in the meta information of the 2-th dataset"),
        ({}, {"a": [1]}, ValueError, "a does not in the meta information of the 1-th dataset"),
        ({"a": [1]}, {"a": (1,)}, TypeError, "The type <class 'tuple'> of a in the 2-th dataset"),
        ({"a": [1]}, {"a": [2]}, ValueError, "2-th dataset does not match .* first dataset: a"),
        ({"a": np.arange(2)}, {"a": np.arange(3)}, ValueError, "2-th dataset does not match"),
        ({"a": {"b": [np.arange(2)]}}, {"a": {"b": [np.ones(2)]}}, ValueError, "2-th dataset does not match"),
    ],
)
def test_metainfo_that_differs_is_refused_unless_ignored(first, second, error, message):
    datasets = [numbers(1, metainfo=first), numbers(1, metainfo=second)]
    with pytest.raises(error, match=message):
        ConcatDataset(datasets)
    for ignored in ("a", ["a"]):
        assert len(ConcatDataset(datasets, ignore_keys=ignored)) == 2
    datasets[1]._metainfo = datasets[0].metainfo
    both = ConcatDataset(datasets)
    assert list(both.metainfo) == list(first)
    both.metainfo["more"] = 1
    assert "more" not in both.metainfo


def test_a_dataset_that_does_not_say_its_classes_can_not_be_balanced():
    class Silent(Numbers):
        get_cat_ids = BaseDataset.get_cat_ids

    with pytest.raises(NotImplementedError, match="must implement `get_cat_ids`"):
        ClassBalancedDataset(Silent([[0]]), 1)
