"""mmengine's own BaseDataset opens what we write, and ours does what it does."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from logloom.datasets import openmmlab
from logloom.io.formats.annotations import Options
from tests.interop.conftest import REPOSITORY, forks
from tests.io.formats.annotations.making import assemble, make_block, options, stage, store_at
from tests.tier import by_tier

STUB = (pathlib.Path(__file__).parent / "torch_stub.py").read_text()
ENVIRONMENT = ".venv-mmengine"

# What a dataset gives, whichever module it comes from; arguments and calls come as JSON.
CALLS = '''
import json, logging, sys

logging.disable(logging.CRITICAL)


def answers(lab, cases):
    """For each case what the dataset and its wrappers give, or the type of the error."""

    class Toy(lab.BaseDataset):
        METAINFO = {"dataset_type": "toy", "classes": ["a", "b", "c"]}

        def filter_data(self):
            least = (self.filter_cfg or {}).get("least", 0)
            return [info for info in self.data_list if len(info["instances"]) >= least]

        def get_cat_ids(self, idx):
            return [one["bbox_label"] for one in self.get_data_info(idx)["instances"]]

    def infos(dataset):
        return [dataset.get_data_info(i) for i in range(len(dataset))]

    def one(case):
        dataset = Toy(**case["arguments"])
        name, *rest = case["call"]
        if name == "infos":
            return infos(dataset)
        if name == "info":
            return dataset.get_data_info(*rest)
        if name == "metainfo":
            return dataset.metainfo
        if name == "subset":
            return infos(dataset.get_subset(*rest))
        if name == "subset_":
            dataset.get_subset_(*rest)
            return infos(dataset)
        if name == "paths":
            return [dataset.ann_file, dataset.data_prefix]
        if name == "concat":
            both = lab.ConcatDataset([dataset, dataset.get_subset(2)])
            return [infos(both), both.cumulative_sizes, both._get_ori_dataset_idx(-1)]
        if name == "repeat":
            return infos(lab.RepeatDataset(dataset, *rest))
        if name == "balanced":
            return lab.ClassBalancedDataset(dataset, *rest).repeat_indices
        if name == "bytes":
            dataset.get_data_info(0)
            return [dataset.data_address.tolist(), dataset.data_bytes.tobytes().hex()]
        raise ValueError(name)

    found = []
    for case in cases:
        try:
            found.append(one(case))
        except Exception as error:
            kinds = (AssertionError, IndexError, KeyError, NotImplementedError, TypeError, ValueError)
            named = [kind.__name__ for kind in kinds if isinstance(error, kind)]
            found.append("refused: " + (named or [type(error).__name__])[0])
    return json.loads(json.dumps(found))
'''


@pytest.fixture(scope="module")
def mmengine():
    with forks(ENVIRONMENT, "mmengine", f"{STUB}\nimport mmengine.dataset") as run:
        yield run


@pytest.fixture
def written(tmp_path):
    store = store_at(tmp_path)
    units = [unit for log in "ab" for unit in stage(store, make_block(9, ord(log), log), [4])]
    folder, _ = assemble(store, units)
    return folder


def cases(folder, suffix="json"):
    base = {"ann_file": f"annotations/all.{suffix}", "data_root": str(folder)}
    calls = [["infos"], ["info", -1], ["metainfo"], ["paths"], ["subset", 3], ["subset", -2]]
    calls += [["subset", [1, -1, 1]], ["subset_", [0]], ["subset", "ab"], ["subset", {}], ["info", 99]]
    calls += [["concat"], ["repeat", 2], ["balanced", 0.5], ["balanced", 2.0], ["subset", []]]
    changes = [{}, {"serialize_data": False}, {"data_prefix": {"img_path": "x/"}}, {"lazy_init": True}]
    changes += [{"indices": 5}, {"indices": [3, -1, 0, 5]}, {"indices": -4}, {"filter_cfg": {"least": 2}}]
    changes += [{"metainfo": {"classes": ["z"], "more": 1}}, {"metainfo": [1]}, {"data_prefix": {"none": ""}}]
    changes += [{"data_prefix": {"img_path": "/abs"}}, {"data_prefix": {"img_path": 3}}, {"data_root": None}]
    return [{"arguments": {**base, **change}, "call": call} for change in changes for call in calls]


def ours(asked):
    names: dict = {}
    exec(CALLS, names)
    import logging

    try:
        return names["answers"](openmmlab, asked)
    finally:
        logging.disable(logging.NOTSET)


THEIRS = """
import mmengine.dataset
print(json.dumps(answers(mmengine.dataset, json.load(open(sys.argv[1])))))
"""


def test_both_give_the_same_infos_subsets_repeats_and_refusals(mmengine, written, tmp_path):
    asked = cases(written)[:: by_tier(3, 1)]  # in a check, too, each call and each change
    (tmp_path / "cases.json").write_text(json.dumps(asked))
    theirs = json.loads(mmengine(CALLS + THEIRS, tmp_path / "cases.json").splitlines()[-1])
    for case, found, expected in zip(asked, ours(asked), theirs, strict=True):
        assert found == expected, case
    assert sum(isinstance(answer, str) for answer in theirs) < len(theirs) / 2


@pytest.mark.parametrize("suffix", ["json", "yaml", "pkl"])
def test_mmengine_loads_every_format_that_we_write(mmengine, tmp_path, suffix):
    chosen = options(file=f"annotations/{{split}}.{suffix}")
    store, block = store_at(tmp_path), make_block(5)
    folder, _ = assemble(store, stage(store, block, options=chosen), chosen)
    asked = cases(folder, suffix)[:3]
    (tmp_path / "cases.json").write_text(json.dumps(asked))
    infos, last, metainfo = json.loads(mmengine(CALLS + THEIRS, tmp_path / "cases.json").splitlines()[-1])
    assert [info["timestamp"] for info in infos] == block.timestamp.tolist()
    assert infos[-1] == last
    assert metainfo["classes"] == ["a", "b", "c"]  # the class goes before the file


def test_mmengine_loads_nested_infos_of_several_sensors(mmengine, tmp_path):
    chosen = Options.model_validate(
        {
            "images": {"CAM_FRONT": {"img_path": "camera.front", "cam2img": "pose"}},
            "lidar_points": {"lidar_path": "lidar.points", "num_pts_feats": 4},
            "instances": {"from": "objects", "bbox_3d": ["center", "x1"], "bbox_label_3d": "kind"},
        }
    )
    store, block = store_at(tmp_path), make_block(5)
    folder, _ = assemble(store, stage(store, block, options=chosen), chosen)
    script = """
import json, sys
from mmengine.dataset import BaseDataset
dataset = BaseDataset("annotations/all.json", data_root=sys.argv[1], data_prefix={})
print(json.dumps(dataset[3]))
"""
    info = json.loads(mmengine(script, folder).splitlines()[-1])
    assert info["images"]["CAM_FRONT"]["cam2img"] == block.columns["pose"][3].tolist()
    assert info["lidar_points"]["num_pts_feats"] == 4
    objects = block.columns["objects"][3]
    np.testing.assert_array_equal(
        [one["bbox_3d"][:3] for one in info["instances"]] or np.empty((0, 3)), objects["center"]
    )
    assert info["sample_idx"] == 3


def test_a_versions_dataset_is_one_of_mmengines_where_that_is_installed(mmengine, tmp_path):
    import logloom.io.formats.table as tt

    tt.write_table(
        str(tmp_path / "table"), [{"log_id": "a", "timestamp": n, "kind": n % 2} for n in range(6)]
    )
    script = """
import sys, mmengine.dataset, mmengine.registry
import logloom.datasets.openmmlab.version_dataset
from logloom.datasets import openmmlab
dataset = mmengine.registry.DATASETS.build(dict(type="LogloomDataset", uri=sys.argv[1], label="kind"))
assert isinstance(dataset, mmengine.dataset.BaseDataset) and type(dataset) is openmmlab.LogloomDataset
both = mmengine.dataset.ConcatDataset([dataset, dataset.get_subset(2)])
assert len(openmmlab.ConcatDataset([dataset, dataset])) == 12
balanced = mmengine.dataset.ClassBalancedDataset(dataset, 1.0)
print(len(both), int(both[7]["timestamp"]), balanced.repeat_indices.count(1))
"""
    # mmengine is Python alone, so this interpreter can have it beside what logloom needs.
    beside = next((REPOSITORY / ENVIRONMENT).glob("lib/python*/site-packages"))
    script = f"import sys\nsys.path.append({str(beside)!r})\n{STUB}\n{script}"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "table")],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
    )
    assert done.stdout.split() == ["8", "1", "2"], done.stderr
