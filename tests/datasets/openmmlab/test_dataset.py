"""`BaseDataset` as its users know it: initialising, paths, metainfo, subsets, pipelines, bad input."""

import copy
import json
import logging
import pickle

import numpy as np
import pytest

from logloom.datasets.openmmlab import (
    DATASETS,
    TRANSFORMS,
    BaseDataset,
    Compose,
    force_full_init,
)
from logloom.errors import DatasetError


@pytest.fixture
def root(tmp_path):
    infos = [{"img_path": f"{n}.jpg", "img_label": n % 3, "box": [n, n + 0.5]} for n in range(10)]
    annotations = {"metainfo": {"classes": ["cat", "dog"], "task": "file"}, "data_list": infos}
    (tmp_path / "train.json").write_text(json.dumps(annotations))
    return tmp_path


@pytest.fixture(params=[True, False], ids=["serialized", "plain"])
def make(root, request):
    def make(kind=BaseDataset, **arguments):
        given = {"ann_file": "train.json", "data_root": str(root), "serialize_data": request.param}
        return kind(**{**given, **arguments})

    return make


def paths(dataset):
    return [dataset.get_data_info(n)["img_path"].rsplit("/", 1)[-1] for n in range(len(dataset))]


NAMES = [f"{n}.jpg" for n in range(10)]


# --- initialising ---------------------------------------------------------------------------------------


def test_a_dataset_reads_its_annotations_and_runs_its_pipeline(root):
    def label_of(info):
        return {"path": info["img_path"], "label": dataset.metainfo["classes"][info["img_label"] % 2]}

    dataset = BaseDataset("train.json", data_root=str(root), pipeline=[label_of])
    assert (len(dataset), dataset.metainfo["classes"]) == (10, ["cat", "dog"])
    assert dataset.get_data_info(3)["box"] == [3, 3.5]
    assert dataset[4] == {"path": f"{root}/4.jpg", "label": "dog"}


def test_infos_lie_in_one_buffer_of_bytes_by_default(root):
    dataset = BaseDataset("train.json", data_root=str(root))
    assert dataset.get_data_info(3)["box"] == [3, 3.5]
    assert dataset._fully_initialized
    assert dataset.data_list == []
    assert dataset.data_bytes.dtype == np.uint8
    assert dataset.data_address.tolist()[-1] == len(dataset.data_bytes)
    start, stop = dataset.data_address[3:5].tolist()
    assert pickle.loads(dataset.data_bytes[start:stop].tobytes())["img_label"] == 1
    plain = BaseDataset("train.json", data_root=str(root), serialize_data=False)
    assert len(plain.data_list) == 10
    assert not hasattr(plain, "data_address")


def test_a_lazy_dataset_reads_nothing_until_it_is_asked(make, caplog):
    dataset = make(lazy_init=True, metainfo={"task": "mine"})
    assert not dataset._fully_initialized
    assert dataset.data_list == []
    assert dataset.metainfo == {"task": "mine"}
    with caplog.at_level(logging.WARNING):
        assert len(dataset) == 10
    assert "full_init" in caplog.text
    assert dataset.metainfo == {"task": "mine", "classes": ["cat", "dog"]}
    caplog.clear()
    assert len(dataset) == 10
    assert caplog.text == ""


@pytest.mark.parametrize(
    "use",
    [
        len,
        lambda d: d[0],
        lambda d: d.get_data_info(0),
        lambda d: d.get_subset(1),
        lambda d: d.get_subset_(1),
    ],
)
def test_every_use_initialises_a_lazy_dataset_and_says_so(make, use, caplog):
    dataset = make(lazy_init=True)
    use(dataset)
    assert dataset._fully_initialized
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_full_init_reads_once(make, root):
    dataset = make()
    (root / "train.json").unlink()
    dataset.full_init()
    assert len(dataset) == 10


def test_force_full_init_needs_a_full_init():
    class Without:
        @force_full_init
        def use(self):
            return 1

    with pytest.raises(AttributeError, match="does not have full_init"):
        Without().use()


# --- paths ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data_root", "prefix", "ann_file", "expected"),
    [
        ("a/b", "d/", "f.json", ("a/b/f.json", "a/b/d/")),
        ("a/b", "/d/", "/f.json", ("/f.json", "/d/")),
        ("", "d", "f.json", ("f.json", "d")),
        (None, "d", "f.json", ("f.json", "d")),
        ("a/b", "", "f.json", ("a/b/f.json", "a/b/")),
        ("s3://bucket/x/", "d", "f.json", ("s3://bucket/x/f.json", "s3://bucket/x/d")),
        ("a", "https://host/d", "gs://b/f.json", ("gs://b/f.json", "https://host/d")),
    ],
)
def test_paths_are_joined_with_the_root_unless_they_stand_on_their_own(data_root, prefix, ann_file, expected):
    dataset = BaseDataset(ann_file, data_root=data_root, data_prefix={"img_path": prefix}, lazy_init=True)
    assert (dataset.ann_file, dataset.data_prefix["img_path"]) == expected


def test_the_prefix_of_each_key_stands_before_its_paths(make, root):
    dataset = make(data_prefix={"img_path": "images/"})
    assert dataset.get_data_info(4)["img_path"] == f"{root}/images/4.jpg"


def test_arguments_are_not_changed(root):
    prefix, meta = {"img_path": "x"}, {"palette": [1]}
    dataset = BaseDataset("train.json", meta, str(root), prefix)
    dataset._metainfo["palette"].append(2)
    dataset.metainfo["classes"].append("bird")
    assert (prefix, meta) == ({"img_path": "x"}, {"palette": [1]})
    assert dataset.metainfo["classes"] == ["cat", "dog"]


def test_a_key_of_data_prefix_that_an_info_lacks_is_named(make):
    with pytest.raises(AssertionError, match="does not contain prefix key seg_path"):
        make(data_prefix={"seg_path": "x"})


@pytest.mark.parametrize(
    ("entry", "words"), [(5, "5 in data_list is no dict"), ({"img_path": 7}, "img_path is 7, a path is text")]
)
def test_an_entry_that_is_no_info_is_refused_with_its_file(tmp_path, entry, words):
    (tmp_path / "a.json").write_text(json.dumps({"metainfo": {}, "data_list": [entry]}))
    with pytest.raises(DatasetError, match=rf"a\.json: {words}"):
        BaseDataset("a.json", data_root=str(tmp_path))


def test_a_prefix_that_is_no_text_is_refused(make):
    with pytest.raises(TypeError, match="prefix should be a string"):
        make(data_prefix={"img_path": ["x"]})


# --- metainfo -------------------------------------------------------------------------------------------


def test_metainfo_goes_from_the_argument_over_the_class_to_the_file(make):
    class Toy(BaseDataset):
        METAINFO = {"task": "class", "kind": "toy"}  # noqa: RUF012

    assert make(Toy, metainfo={"kind": "mine"}).metainfo == {
        "classes": ["cat", "dog"],
        "task": "class",
        "kind": "mine",
    }
    assert Toy.METAINFO == {"task": "class", "kind": "toy"}


def test_a_text_that_names_a_file_stands_for_its_lines(make, root, caplog):
    (root / "names.txt").write_text("bird\nfish\n")
    dataset = make(metainfo={"classes": f"{root}/names.txt", "task": "detection"})
    assert dataset.metainfo == {"classes": ["bird", "fish"], "task": "detection"}
    assert "detection is not a meta file" in caplog.text


def test_anything_with_items_is_metainfo(make):
    class Config:
        def items(self):
            return [("classes", ["a"])]

    assert make(metainfo=Config()).metainfo == {"classes": ["a"], "task": "file"}
    with pytest.raises(TypeError, match="metainfo should be a Mapping or Config"):
        make(metainfo=["a"])


# --- infos ----------------------------------------------------------------------------------------------


def test_an_info_is_a_copy_with_its_place(make):
    dataset = make()
    info = dataset.get_data_info(np.int64(-1))
    assert (info["img_path"].rsplit("/", 1)[1], info["sample_idx"]) == ("9.jpg", 9)
    info["box"].append(1)
    assert dataset.get_data_info(9)["box"] == [9, 9.5]
    assert dataset.get_data_info(-10)["sample_idx"] == 0


@pytest.mark.parametrize("index", [10, -11, 1 << 70])
def test_an_index_beyond_is_an_index_error_that_ends_loops(make, index):
    dataset = make()
    with pytest.raises(IndexError, match=r"train\.json: info .* of 10"):
        dataset.get_data_info(index)
    assert [info["sample_idx"] for info in dataset] == list(range(10))


def test_an_entry_may_hold_several_infos(make):
    class Video(BaseDataset):
        def parse_data_info(self, raw):
            return [{"frame": n, "of": raw["img_path"]} for n in range(raw["img_label"])]

    dataset = make(Video)
    assert len(dataset) == sum(n % 3 for n in range(10))
    assert dataset.get_data_info(1) == {"frame": 0, "of": "2.jpg", "sample_idx": 1}


@pytest.mark.parametrize("parsed", ["text", None, [{"a": 1}, "text"]])
def test_what_is_no_info_is_refused(make, parsed):
    class Wrong(BaseDataset):
        def parse_data_info(self, raw):
            return parsed

    with pytest.raises(TypeError, match=r"data_info (should be a dict or|must be) list of dict"):
        make(Wrong)


def test_filters_and_indices_choose_in_this_order(make):
    class Filtered(BaseDataset):
        def filter_data(self):
            return [info for info in self.data_list if info["img_label"] == self.filter_cfg["label"]]

    assert paths(make(Filtered, filter_cfg={"label": 0}, indices=2)) == ["0.jpg", "3.jpg"]
    assert paths(make(indices=-2)) == ["8.jpg", "9.jpg"]
    assert paths(make(indices=[4, -1])) == ["4.jpg", "9.jpg"]
    assert len(make(indices=99)) == 10
    with pytest.raises(TypeError, match="int or sequence of int"):
        make(indices={1})


def test_a_dataset_without_infos_is_empty(make, root):
    (root / "none.json").write_text('{"metainfo": {}, "data_list": []}')
    dataset = make(ann_file="none.json")
    assert (len(dataset), list(dataset)) == (0, [])
    assert len(dataset.get_subset([])) == 0


def test_a_dataset_of_its_own_reads_what_it_likes(root):
    class Own(BaseDataset):
        def load_data_list(self):
            return [{"n": n} for n in range(3)]

    assert Own()[2] == {"n": 2, "sample_idx": 2}
    with pytest.raises(NotImplementedError, match="must implement `get_cat_ids`"):
        Own().get_cat_ids(0)


# --- subsets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        (3, NAMES[:3]),
        (0, []),
        (-3, NAMES[-3:]),
        (-10, NAMES),
        (10, NAMES),
        ([3, 1, -1, 3], ["3.jpg", "1.jpg", "9.jpg", "3.jpg"]),
        ((0, -10), ["0.jpg", "0.jpg"]),
        (range(2, 4), ["2.jpg", "3.jpg"]),
        ([], []),
    ],
)
def test_subsets_hold_the_first_the_last_or_the_chosen(make, indices, expected):
    dataset = make()
    subset = dataset.get_subset(indices)
    assert paths(subset) == expected
    assert paths(subset.get_subset(len(expected) // 2)) == expected[: len(expected) // 2]
    assert paths(dataset) == NAMES
    dataset.get_subset_(indices)
    assert paths(dataset) == expected
    assert [info["sample_idx"] for info in map(dataset.get_data_info, range(len(dataset)))] == list(
        range(len(expected))
    )


def test_a_subset_shares_nothing_with_its_dataset(make):
    class Counting:
        calls = 0

        def __call__(self, data):
            self.calls += 1
            return data

    dataset = make(pipeline=[Counting()])
    subset = dataset.get_subset(5)
    subset[0]
    assert (dataset.pipeline.transforms[0].calls, subset.pipeline.transforms[0].calls) == (0, 1)
    subset.get_subset_(1)
    assert (len(dataset), len(subset)) == (10, 1)


@pytest.mark.parametrize("indices", [{}, {1}, 1.5, None, np.arange(2)])
def test_a_subset_of_neither_number_nor_sequence_is_refused(make, indices):
    with pytest.raises(TypeError, match="int or sequence of int"):
        make().get_subset(indices)


@pytest.mark.parametrize("indices", [11, -11, [10], [-11]])
def test_a_subset_beyond_the_infos_is_refused_where_they_are_serialized(root, indices):
    dataset = BaseDataset("train.json", data_root=str(root))
    with pytest.raises(AssertionError, match="out of dataset length"):
        dataset.get_subset_(indices)
    assert len(dataset) == 10


# --- pipelines ------------------------------------------------------------------------------------------


def drop_first(data):
    return None if data["sample_idx"] == 0 else data


def test_transforms_run_in_a_row_until_one_gives_none(make):
    seen = []
    dataset = make(pipeline=[drop_first, lambda data: seen.append(data["sample_idx"]) or data])
    assert dataset.prepare_data(0) is None
    assert dataset[3]["sample_idx"] == 3
    assert seen == [3]


def test_another_info_is_tried_where_the_pipeline_gives_none(make):
    np.random.seed(0)
    dataset = make(pipeline=[drop_first])
    assert {dataset[0]["sample_idx"] for _ in range(50)} == set(range(1, 10))


def test_a_pipeline_that_gives_none_at_last_is_an_error(make):
    calls = []
    dataset = make(pipeline=[calls.append], max_refetch=4)
    with pytest.raises(DatasetError, match="Cannot find valid image after 4"):
        dataset[0]
    assert len(calls) == 5
    with pytest.raises(DatasetError, match="None for info 0 at test time"):
        make(pipeline=[calls.append], test_mode=True)[0]


def test_configs_become_transforms_by_name_or_class():
    @TRANSFORMS.register_module(name="test_add", force=True)
    class Add:
        def __init__(self, number=1):
            self.number = number

        def __call__(self, data):
            return data + self.number

    pipeline = Compose([{"type": "test_add"}, {"type": Add, "number": 10}, str])
    assert pipeline(1) == "12"
    assert Compose(None)(1) == 1
    assert "Add" in repr(pipeline)

    @TRANSFORMS.register_module(name="test_no_call", force=True)
    class NoCall:
        pass

    for wrong in ({"type": "test_no_call"}, 1, "test_add"):
        with pytest.raises(TypeError, match="transform must be a callable object or dict"):
            Compose([wrong])


# --- the registry ---------------------------------------------------------------------------------------


def test_configs_become_datasets(root):
    cfg = {"type": "BaseDataset", "ann_file": "train.json", "data_root": str(root)}
    assert len(DATASETS.build(cfg)) == 10
    assert len(DATASETS.build({"type": "ConcatDataset", "datasets": [cfg, {**cfg, "indices": 2}]})) == 12
    assert len(DATASETS.build({"type": "mmdet.RepeatDataset", "dataset": cfg, "times": 3})) == 30
    assert cfg["type"] == "BaseDataset"
    assert DATASETS.build({"lazy_init": True}, default_args={"type": BaseDataset}).ann_file == ""


@pytest.mark.parametrize(
    ("cfg", "error", "message"),
    [
        ([], TypeError, "cfg should be a dict"),
        ({"a": 1}, KeyError, 'must contain the key "type"'),
        ({"type": "ConcatDatset"}, KeyError, "not in the dataset registry; did you mean ConcatDataset"),
        ({"type": 3}, TypeError, "type must be a str or valid type"),
    ],
)
def test_configs_that_build_nothing_are_refused(cfg, error, message):
    import logloom.datasets.openmmlab.wrappers  # noqa: F401, so that its names are known

    with pytest.raises(error, match=message):
        DATASETS.build(cfg)


def test_a_name_is_taken_once_unless_forced():
    @DATASETS.register_module(name=["test_once", "test_twice"], force=True)
    class Mine(BaseDataset):
        pass

    assert DATASETS.get("test_once") is DATASETS.get("test_twice") is Mine
    assert "test_once" in DATASETS
    assert "test_never" not in DATASETS
    with pytest.raises(KeyError, match="already registered"):
        DATASETS.register_module(module=Mine, name="test_once")
    DATASETS.register_module(module=Mine, name="test_once", force=True)
    for wrong in ({"force": 1}, {"name": 3}, {"module": 3}):
        with pytest.raises(TypeError):
            DATASETS.register_module(**wrong)


# --- copies ---------------------------------------------------------------------------------------------


def test_datasets_pickle_and_copy(make):
    dataset = make()
    for other in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset), copy.copy(dataset)):
        assert paths(other) == NAMES
        assert other.metainfo == dataset.metainfo


def test_an_info_that_nests_too_deeply_to_be_serialized_is_named(tmp_path):
    deep = "[" * 900 + "]" * 900
    (tmp_path / "a.json").write_text(f'{{"metainfo": {{}}, "data_list": [{{"img_path": "a", "x": {deep}}}]}}')
    with pytest.raises(ValueError, match=r"info 0 nests too deeply.*serialize_data=False"):
        BaseDataset(str(tmp_path / "a.json"))
