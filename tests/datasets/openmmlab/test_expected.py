"""What the original returned on a file of 400 infos, call by call."""

import json

import pytest

from logloom.datasets.openmmlab import BaseDataset, ClassBalancedDataset, ConcatDataset, RepeatDataset


class ToyDataset(BaseDataset):
    METAINFO = {"dataset_type": "class_attr", "palette": [1, 2, 3]}  # noqa: RUF012

    def filter_data(self):
        if self.filter_cfg is None:
            return self.data_list
        return [info for info in self.data_list if info["height"] > self.filter_cfg["min_height"]]

    def get_cat_ids(self, idx):
        return [int(self.get_data_info(idx)["img_label"])]


@pytest.fixture(scope="module")
def expected(shared_data):
    return json.loads((shared_data / "openmmlab" / "expected.json").read_text())


@pytest.fixture(params=[True, False], ids=["serialized", "plain"])
def make(request, shared_data):
    def make(**arguments):
        return ToyDataset(
            ann_file=str(shared_data / "openmmlab" / "annotations.json"),
            data_prefix={"img_path": "train/"},
            metainfo={"task_name": "override"},
            serialize_data=request.param,
            **arguments,
        )

    return make


def paths(dataset):
    return [dataset.get_data_info(i)["img_path"] for i in range(len(dataset))]


def test_infos_and_metainfo_are_the_originals(make, expected):
    dataset = make()
    assert dataset.metainfo == expected["metainfo"]
    assert len(dataset) == expected["len"]
    assert dataset.get_data_info(0) == expected["info0"]
    assert dataset.get_data_info(-1) == expected["info_m1"]


def test_filters_and_indices_choose_what_the_original_chose(make, expected):
    assert len(make(filter_cfg={"min_height": 13})) == expected["filtered_len"]
    assert paths(make(indices=5)) == expected["indices_5"]


def test_subsets_are_the_originals(make, expected):
    dataset = make()
    assert paths(dataset.get_subset([3, 1, -1])) == expected["subset"]
    assert paths(dataset.get_subset(-3)) == expected["subset_neg"]
    assert len(dataset) == 400
    dataset.get_subset_(-3)
    assert paths(dataset) == expected["subset_neg"]


def test_wrappers_give_the_infos_of_the_original(make, expected):
    dataset = make()
    concat = ConcatDataset([dataset.get_subset(3), dataset.get_subset([10, 11])])
    assert paths(concat) == expected["concat"]
    assert paths(RepeatDataset(dataset.get_subset(3), 3)) == expected["repeat"]


@pytest.mark.parametrize("threshold", ["0.001", "0.01", "0.05", "0.2"])
def test_rare_classes_are_repeated_as_the_original_did(make, expected, threshold):
    balanced = ClassBalancedDataset(make(), float(threshold))
    assert len(balanced) == expected[f"cb_{threshold}"]["n"]
    assert balanced.repeat_indices == expected[f"cb_{threshold}"]["idx"]
