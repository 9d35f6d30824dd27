"""A recipe with the output `annotations`, built whole, verified, damaged, and opened as users do."""

import json
import shutil

import pytest

from logloom.datasets.openmmlab import BaseDataset, ClassBalancedDataset, LogloomDataset
from logloom.demo import demo_recipe
from logloom.errors import RecipeError
from logloom.pipelines.build.build import build
from logloom.pipelines.convert.convert import convert
from logloom.pipelines.convert.plain_folder import PlainFolder, copy_out
from logloom.pipelines.convert.plan import plan_convert
from logloom.pipelines.convert.sources import open_source
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from tests.absent import outputs_present
from tests.files import flip

OUTPUTS = outputs_present("""
split: {train: 1, val: [drive-01]}
partition: {rows: 10}
outputs:
  tar: {ext: {camera.front: jpg}}
  annotations:
    images: {CAM_FRONT: {img_path: camera.front, cam2img: intrinsics}}
    lidar_points: {lidar_path: lidar.points, num_pts_feats: 4}
    instances: {from: objects, bbox_3d: [centroid, extent, yaw], bbox_label_3d: class}
    metainfo: {classes: [car, cyclist, pedestrian], dataset: demo}
""")


@pytest.fixture(scope="module")
def text(logs_of):
    text = demo_recipe(logs_of(2, 2))
    return text[: text.index("\noutputs:")] + OUTPUTS


def built_at(root, text):
    build(plan_build(Recipe.from_yaml(text, source="drive.yaml"), str(root)), num_workers=1)
    return root


@pytest.fixture(scope="module")
def root(text, root_of):
    return root_of(Recipe.from_yaml(text, source="drive.yaml"))


def findings(root, **choices):
    return [finding.message for finding in verify(str(root), num_workers=1, **choices).findings]


def datasets(root):
    folder = root / "v00000001/annotations"
    return [
        BaseDataset(f"annotations/{path.name}", data_root=str(folder), data_prefix={})
        for path in sorted((folder / "annotations").iterdir())
    ]


def test_the_version_is_proven_and_says_what_its_logs_say(root):
    assert findings(root) == []
    assert findings(root, against_logs=True) == []


def test_every_row_is_in_the_file_of_its_split_and_names_files_that_are_there(root):
    found = {}
    for dataset in datasets(root):
        assert dataset.metainfo == {"classes": ["car", "cyclist", "pedestrian"], "dataset": "demo"}
        for info in map(dataset.get_data_info, range(len(dataset))):
            found[info["log_id"], info["timestamp"]] = info
    rows = LogloomDataset(str(root), output="tar")
    assert len(rows) == len(found)
    for number in range(len(rows)):
        row = rows[number]
        info = found[row["log_id"], int(row["timestamp"])]
        folder = root / "v00000001/annotations"
        camera = info["images"]["CAM_FRONT"]
        assert (folder / camera["img_path"]).read_bytes() == row["camera.front"]
        assert (folder / info["lidar_points"]["lidar_path"]).read_bytes() == row["lidar.points"].tobytes()
        assert (camera["height"], camera["width"]) == (240, 320)
        assert camera["cam2img"] == row["intrinsics"].tolist()
        boxes = [one["bbox_3d"] for one in info["instances"]]
        assert [box[:2] for box in boxes] == row["objects"]["centroid"].tolist()
        names = ["car", "cyclist", "pedestrian"]
        assert [names[one["bbox_label_3d"]] for one in info["instances"]] == row["objects"]["class"].tolist()


def test_lost_and_changed_files_are_found(root, tmp_path):
    copy = tmp_path / "root"
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("v????????"))
    victims = [sorted(copy.glob(f"parts/annotations/*/*/{what}"))[0] for what in ("**/*.jpg", "**/infos")]
    victims[0].unlink()
    flip(victims[1])
    found = findings(copy)
    assert all(any(str(victim) in message for message in found) for victim in victims)


def test_mistakes_of_a_recipe_are_listed_at_once_with_their_lines(text, tmp_path):
    broken = text.replace("img_path: camera.front", "img_path: camera.fornt").replace(
        "bbox_3d: [cen", "bbox_3d: [zen"
    )
    with pytest.raises(RecipeError) as caught:
        plan_build(Recipe.from_yaml(broken, source="drive.yaml"), str(tmp_path / "root"))
    line = broken[: broken.index("  annotations:")].count("\n") + 1
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"drive.yaml:{line}: outputs.annotations: images.CAM_FRONT.img_path: no column")
    assert second.startswith(
        f"drive.yaml:{line}: outputs.annotations: instances.bbox_3d: objects has no field"
    )
    broken = text.replace("    lidar_points:", "    lidar_point:").replace(
        "metainfo:", "file: x.json\n    metainfo:"
    )
    with pytest.raises(RecipeError) as caught:
        Recipe.from_yaml(broken, source="drive.yaml")
    line = broken[: broken.index("lidar_point:")].count("\n") + 1
    assert (
        f"drive.yaml:{line}: outputs.annotations.lidar_point: unknown key; did you mean lidar_points?"
        in str(caught.value)
    )
    assert "write {split} where the split's name goes" in str(caught.value)


def test_labels_that_the_classes_do_not_name_fail_the_build_with_their_place(text, tmp_path):
    broken = text.replace("[car, cyclist, pedestrian]", "[cyclist, pedestrian]")
    root = tmp_path / "root"
    with pytest.raises(Exception, match=r"objects\.class is 'car', no class of 2 in metainfo\.classes"):
        built_at(root, broken)
    assert not list(root.glob("versions/*.json"))


def test_rare_classes_of_a_version_are_repeated(root):
    class Labelled(BaseDataset):
        def get_cat_ids(self, idx):
            return [one["bbox_label_3d"] for one in self.get_data_info(idx)["instances"]]

    folder = root / "v00000001/annotations"
    (path, *_) = sorted((folder / "annotations").iterdir())
    dataset = Labelled(str(path), data_prefix={})
    balanced = ClassBalancedDataset(dataset, 2.0)
    assert len(balanced) > len(dataset)
    assert json.dumps(balanced.get_data_info(0)) == json.dumps(dataset.get_data_info(0))


FILELESS = """
outputs:
  tar: {}
  annotations:
    instances: {from: objects, bbox_3d: [centroid, extent, yaw]}
"""


def test_plain_folders_keep_the_folder_of_annotation_files_even_if_it_is_the_only_one(text, tmp_path):
    root = built_at(tmp_path / "root", text[: text.index("\nsplit:")] + FILELESS)
    made = json.loads((root / "v00000001/annotations/annotations/all.json").read_text())
    plain = tmp_path / "copied"
    copy_out(open_source(str(root)), PlainFolder.at(str(plain)), "annotations")
    assert json.loads((plain / "annotations/all.json").read_text()) == made
    options = {"instances": {"from": "objects", "bbox_3d": ["centroid", "extent", "yaw"]}}
    for place in (str(tmp_path / "converted"), "memory://plain-annotations/converted"):
        folder = PlainFolder.at(place)
        plan = plan_convert(
            open_source(str(root), output="tar"), folder.work.uri, "annotations", options=options
        )
        done = convert(plan)
        folder.publish(done.manifest, done.view, "annotations")
        dataset = BaseDataset(f"{place}/annotations/all.json", data_prefix={})
        assert [dataset.get_data_info(n)["instances"] for n in range(len(dataset))] == [
            info["instances"] for info in made["data_list"]
        ]
