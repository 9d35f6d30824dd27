"""The programs of the interface's own description, with imports and paths changed and gaps filled."""

import ast
import copy
import json
import os.path as osp
import warnings

import numpy as np
import pytest
from PIL import Image

from logloom.datasets.openmmlab import (
    DATASETS,
    BaseDataset,
    ClassBalancedDataset,
    ConcatDataset,
    RepeatDataset,
    force_full_init,
)

cv2 = pytest.importorskip("cv2")


@pytest.fixture(scope="module")
def page(shared_data):
    path = shared_data.parent / "references" / "openmmlab-basedataset.txt"
    if not path.exists():
        pytest.skip(f"the description of the interface is not here ({path})")
    return path.read_text()


@pytest.fixture
def folder(page, tmp_path, monkeypatch):
    """The annotation file and the images of the description; the working folder."""
    text = page[page.index('{\n    "metainfo"') : page.index("We assume that the data")]
    for name in ("train", "val"):
        path = tmp_path / "data" / "annotations" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for number in range(2):
            image = tmp_path / "data" / name / "xxx" / f"xxx_{number}.jpg"
            image.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 6), (number * 200, 0, 0)).save(image)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def between(page, start, stop, after=""):
    """The program that begins with `start` and ends before `stop`, with its imports changed."""
    page = page[page.index(after) :]
    page = page[page.index(start) :]
    lines = page[: page.index(stop)].splitlines()
    return "\n".join(line for line in lines if not line.startswith(("from mmengine", "import ")))


def run(program, names):
    """Runs a program; gives the values of its bare expressions, in order, those that are None aside."""
    values = []
    for statement in ast.parse(program).body:
        if isinstance(statement, ast.Expr):
            values.append(eval(compile(ast.Expression(statement.value), "page", "eval"), names))
        else:
            exec(compile(ast.Module([statement], []), "page", "exec"), names)
    return [value for value in values if value is not None]


@pytest.fixture
def names(page):
    """What the description has defined when it comes to use it."""
    names = {"osp": osp, "cv2": cv2, "copy": copy, "warnings": warnings}
    for public in (
        DATASETS,
        BaseDataset,
        ClassBalancedDataset,
        ConcatDataset,
        RepeatDataset,
        force_full_init,
    ):
        names["DATASETS" if public is DATASETS else public.__name__] = public
    run(between(page, "class ToyDataset", "Using Customized dataset class"), names)
    run(between(page, "class LoadImage:", "pipeline = ["), names)
    return names


INFO = {"img_path": "data/train/xxx/xxx_0.jpg", "img_label": 0, "sample_idx": 0}


def check_sample(sample):
    image = sample.pop("img")
    np.testing.assert_array_equal(image, cv2.imread("data/train/xxx/xxx_0.jpg"))
    assert sample == {**INFO, "img_shape": (6, 8, 3)}


def test_the_customized_dataset(page, folder, names):
    run(between(page, "pipeline = [", "At the same time", after="class ParseImage"), names)
    used = between(page, "toy_dataset.metainfo", "Following the above")
    metainfo, info, length, sample, both, left = run(used, names)
    assert metainfo == {"classes": ["cat", "dog"]}  # the description shows a tuple, the original a list
    assert info == INFO
    assert (length, both, left) == (2, (2, 1), 1)
    check_sample(sample)


def test_the_dataset_for_videos(page, folder, names):
    program = between(page, "class ToyVideoDataset", "The usage of ToyVideoDataset")
    program = program.replace("for ... :", "for frame in range(2):").replace(
        "data_info = dict()\n\n            ...", "data_info = dict(raw_data_info, frame=frame)"
    )
    run(program, names)
    dataset = names["ToyVideoDataset"]("data/annotations/train.json")
    assert [info["frame"] for info in dataset] == [0, 1, 0, 1]


def test_lazy_initialisation(page, folder, names):
    run(
        between(page, "pipeline = [", "When lazy_init=True", after="the BaseDataset supports lazy init:"),
        names,
    )
    assert not names["toy_dataset"]._fully_initialized
    length, sample = run(between(page, "# Full initialization", "Notice:"), names)
    assert length == 2
    check_sample(sample)


def test_datasets_that_are_not_serialized(page, folder, names):
    run(between(page, "pipeline = [", "The above example does not", after="using the serialize_data"), names)
    assert names["toy_dataset"].data_list[0]["img_path"] == INFO["img_path"]
    check_sample(names["toy_dataset"][0])


def test_the_wrappers(page, folder, names):
    run(between(page, "pipeline = [", "The above example combines", after="import ConcatDataset"), names)
    paths = [names["toy_dataset_12"].get_data_info(n)["img_path"] for n in range(4)]
    assert paths == [f"data/{s}/xxx/xxx_{n}.jpg" for s in ("train", "val") for n in (0, 1)]
    run(between(page, "pipeline = [", "The above example samples", after="import RepeatDataset"), names)
    assert len(names["toy_dataset_repeat"]) == 10
    start = "import BaseDataset, ClassBalancedDataset"
    run(between(page, "class ToyDataset", "The above example resamples", after=start), names)
    assert names["toy_dataset_repeat"].repeat_indices == [0, 1]
    check_sample(names["toy_dataset_repeat"][0])


def test_the_customized_wrapper(page, folder, names, monkeypatch):
    monkeypatch.setattr(DATASETS, "_modules", dict(DATASETS._modules))
    program = page[page.index("@DATASETS.register_module()\nclass ExampleDatasetWrapper") :]
    program = program.replace("lazy_init=False, ...):", "lazy_init=False):")
    program = program.replace("ori_idx = ...", "ori_idx = len(self) - 1 - idx")
    program = program.replace("len_wrapper = ...", "len_wrapper = len(self.dataset)")
    program = program.replace("def metainfo(self)\n", "def metainfo(self):\n")
    run(program, names)
    infos = [{"n": n} for n in range(3)]
    (folder / "n.json").write_text(json.dumps({"metainfo": {"a": 1}, "data_list": infos}))
    inner = {"type": "BaseDataset", "ann_file": "n.json", "data_prefix": {}}
    wrapper = DATASETS.build({"type": "ExampleDatasetWrapper", "dataset": inner, "lazy_init": True})
    assert not wrapper._fully_initialized
    assert [wrapper.get_data_info(n)["n"] for n in range(len(wrapper))] == [2, 1, 0]
    assert wrapper[0] == {"n": 2, "sample_idx": 2}
    assert wrapper.metainfo == {"a": 1}
    with pytest.raises(TypeError, match="should be config"):
        DATASETS.build({"type": "ExampleDatasetWrapper", "dataset": 3})
