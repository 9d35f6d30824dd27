"""Rows as data infos: what stands where, which files lie beside, what is refused."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from logloom.errors import DatasetError, LogReadError, UsageError
from logloom.io.formats.annotations.files import load_annotations
from logloom.io.formats.annotations.format import FORMAT
from logloom.io.formats.annotations.infos import map_rows
from logloom.io.formats.annotations.mapping import mapping_of
from logloom.io.formats.annotations.options import Options
from logloom.io.formats.annotations.stage import AnnotationStageReader
from tests.files import files_in
from tests.io.formats.annotations.making import (
    SCHEMA,
    assemble,
    differences,
    make_block,
    options,
    part,
    stage,
    store_at,
)


def infos_of(tmp_path, block, chosen):
    store = store_at(tmp_path)
    (unit,) = stage(store, block, options=chosen)
    folder, _ = assemble(store, [unit], chosen)
    return load_annotations(str(folder / chosen.file_of("all")))[
        "data_list"
    ], tmp_path / "store" / unit.folder


def reader_of(store, unit, chosen=None):
    schema = mapping_of(chosen or options(), SCHEMA).schema
    return AnnotationStageReader(store.uri_of(unit.folder), schema, unit.unit)


def test_one_image_stands_in_the_info_itself_with_its_size(tmp_path):
    block = make_block(3)
    infos, folder = infos_of(tmp_path, block, options())
    assert [info["timestamp"] for info in infos] == block.timestamp.tolist()
    assert infos[1]["log_id"] == "car/drive"
    assert infos[1]["img_path"] == f"camera.front/car/drive/{block.timestamp[1]}.jpg"
    assert (infos[1]["height"], infos[1]["width"]) == (6, 8)
    assert (folder / infos[1]["img_path"]).read_bytes() == block.columns["camera.front"][1].tobytes()


def test_instances_hold_numbers_of_several_fields_and_class_numbers(tmp_path):
    block = make_block(5)
    chosen = options(
        instances={
            "from": "objects",
            "bbox": ["x1", "y1", "x2", "y2"],
            "bbox_3d": ["center", "x1"],
            "bbox_label": "class",
            "center": "center",
            "ignore_flag": 0,
            "source": {"value": "tracker"},
        }
    )
    infos, _ = infos_of(tmp_path, block, chosen)
    for row, info in enumerate(infos):
        objects = block.columns["objects"][row]
        assert len(info["instances"]) == len(objects)
        for found, expected in zip(info["instances"], objects, strict=True):
            assert found["bbox"] == [float(expected[name]) for name in ("x1", "y1", "x2", "y2")]
            assert found["bbox_3d"] == [*expected["center"].tolist(), float(expected["x1"])]
            assert found["bbox_label"] == ["car", "truck"].index(expected["class"])
            assert (found["ignore_flag"], found["source"]) == (0, "tracker")
            assert found["center"] == expected["center"].tolist()


def test_cameras_and_points_are_nested_as_the_recipe_says(tmp_path):
    block = make_block(2)
    chosen = Options.model_validate(
        {
            "images": {
                "CAM_FRONT": {"img_path": "camera.front", "cam2img": "pose"},
                "CAM_LEFT": {"img_path": "camera.left", "channels": 3},
            },
            "lidar_points": {"lidar_path": "lidar.points", "num_pts_feats": 4},
            "info": {
                "ego": {"speed": "speed", "note": "note"},
                "pair": ["speed", "speed"],
                "car": {"value": "a"},
            },
        }
    )
    infos, folder = infos_of(tmp_path, block, chosen)
    info = infos[1]
    front, left = info["images"]["CAM_FRONT"], info["images"]["CAM_LEFT"]
    assert front["cam2img"] == block.columns["pose"][1].tolist()
    assert (front["height"], front["width"], left["height"], left["width"]) == (6, 8, 4, 5)
    with Image.open(folder / left["img_path"]) as image:
        np.testing.assert_array_equal(np.asarray(image), block.columns["camera.left"][1])
    points = np.fromfile(folder / info["lidar_points"]["lidar_path"], np.float32).reshape(-1, 4)
    np.testing.assert_array_equal(points, block.columns["lidar.points"][1])
    assert info["ego"] == {"speed": float(block.columns["speed"][1]), "note": "räum 1"}
    assert info["pair"] == [float(block.columns["speed"][1])] * 2
    assert info["car"] == "a"
    assert "instances" not in info


def test_rows_without_an_image_name_none(tmp_path):
    chosen = options(lidar_points={"lidar_path": "lidar.points"})
    infos, folder = infos_of(tmp_path, make_block(3, missing=[1]), chosen)
    assert ["img_path" in info for info in infos] == [True, False, True]
    assert ["lidar_points" in info for info in infos] == [True, False, True]
    assert len(files_in(folder)) == 1 + 2 * 2


@pytest.mark.parametrize("suffix", ["json", "yaml", "yml", "pkl"])
def test_every_file_format_holds_the_same_values(tmp_path, suffix):
    block = make_block(4)
    block.columns["speed"][2] = np.nan
    block.columns["speed"][3] = 1e-7
    chosen = {"info": {"speed": "speed", "note": "note"}}
    plain, _ = infos_of(tmp_path / "plain", block, options(**chosen))
    infos, _ = infos_of(tmp_path / suffix, block, options(file=f"a/{{split}}.{suffix}", **chosen))
    assert json.dumps(infos) == json.dumps(plain)
    assert np.isnan(infos[2]["speed"])
    assert infos[3]["speed"] == float(np.float32(1e-7))


def test_units_cut_anywhere_give_the_same_file(tmp_path):
    block = make_block(9)
    (whole, _), (cut, _) = (
        assemble(store, stage(store, block, cuts, block_cuts=inner))
        for store, cuts, inner in (
            (store_at(tmp_path / "a"), [], []),
            (store_at(tmp_path / "b"), [2, 5], [1, 7]),
        )
    )
    assert files_in(whole) == files_in(cut)


def test_options_travel_through_json(tmp_path):
    chosen = options(
        instances={"from": "objects", "bbox_label": {"from": "kind", "map": {1: "car"}, "unknown": -1}}
    )
    for data in (chosen.model_dump(mode="json"), chosen.model_dump(mode="json", by_alias=True)):
        again = Options.model_validate(json.loads(json.dumps(data, sort_keys=True)))
        assert mapping_of(again, SCHEMA) == mapping_of(chosen, SCHEMA)


# --- labels ---------------------------------------------------------------------------------------------


def test_a_class_that_the_metainfo_does_not_name_is_an_error_with_its_tick(tmp_path):
    block = make_block(6, seed=1)
    block.columns["objects"].values["class"][2] = "tram"
    row = int(np.searchsorted(block.columns["objects"].offsets, 2, side="right")) - 1
    with pytest.raises(LogReadError, match=rf"car/drive at {block.timestamp[row]}: objects.class is 'tram'"):
        stage(store_at(tmp_path), block)


def test_class_numbers_beyond_the_classes_are_an_error(tmp_path):
    block = make_block(6, seed=1)
    block.columns["objects"].values["kind"][0] = 2
    chosen = options(instances={"from": "objects", "bbox_label": "kind"})
    with pytest.raises(LogReadError, match=r"objects\.kind is 2, no class of 2 in metainfo.classes"):
        stage(store_at(tmp_path), block, options=chosen)


def test_unknown_classes_become_what_the_recipe_says(tmp_path):
    block = make_block(6, seed=1)
    rule = {"from": "class", "map": {"car": "truck"}, "unknown": -1}
    infos, _ = infos_of(tmp_path, block, options(instances={"from": "objects", "bbox_label": rule}))
    found = [one["bbox_label"] for info in infos for one in info["instances"]]
    assert found == [1 if kind == "car" else -1 for kind in block.columns["objects"].values["class"]]


def test_only_keys_that_end_in_label_are_class_numbers(tmp_path):
    block = make_block(6, seed=1)
    keys = {"label_d": "class", "bbox_label_3d": {"from": "class", "map": {"car": 5}, "unknown": 7}}
    infos, _ = infos_of(tmp_path, block, options(metainfo={}, instances={"from": "objects", **keys}))
    found = [(one["label_d"], one["bbox_label_3d"]) for info in infos for one in info["instances"]]
    kinds = block.columns["objects"].values["class"].tolist()
    assert found == [(kind, 5 if kind == "car" else 7) for kind in kinds]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats()
    | st.sampled_from(["value", "from", *SCHEMA.all]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["value", "from", "map", "img_path", "bbox_label", "a"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(Options.model_fields, JSON)))
def test_any_options_are_refused_fit_or_do_not_fit(given_options):
    try:
        chosen = Options.model_validate(given_options)
    except ValidationError:
        return
    if not FORMAT.check(chosen, SCHEMA):
        rows = map_rows(mapping_of(chosen, SCHEMA), make_block(1, seed=1, missing=[0]), SCHEMA)
        assert json.loads(rows[0].info)["log_id"] == "car/drive"


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": {"img_path": "camera.fornt"}}, "images.img_path: no column 'camera.fornt'; did you mean"),
        ({"images": {"img_path": "note", "x": "camera.front"}}, "images.x: column camera.front is bytes"),
        (
            {"images": {"CAM": {"img_path": "objects"}}},
            r"images.CAM.img_path: column objects is .* no form as a",
        ),
        ({"instances": {"from": "pose"}}, "instances.from: column pose is .* accepts a list of structs"),
        ({"instances": {"from": "objcts"}}, "instances.from: no column 'objcts'; did you mean objects"),
        ({"instances": {"from": "objects", "bbox": ["x1", "z"]}}, "instances.bbox: objects has no field 'z'"),
        ({"instances": {"from": "objects", "bbox": ["x1", "class"]}}, "objects.class is no number"),
        ({"metainfo": {}}, "instances.bbox_label: objects.class is text; name the classes"),
        (
            {"instances": {"from": "objects", "bbox_label": {"from": "class", "map": {"a": "tram"}}}},
            "no class 'tram' in metainfo.classes",
        ),
        (
            {"instances": {"from": "objects", "bbox_label": {"from": "class", "map": {"a": 7}}}},
            "class 7 of 2 in metainfo.classes",
        ),
        ({"ext": {"pose": "png"}}, "ext: column 'pose' becomes no file"),
        ({"images": {}, "instances": None}, "define what a data info contains"),
    ],
)
def test_columns_that_do_not_fit_are_named(changes, message):
    assert len(FORMAT.check(options(**changes), SCHEMA)) == 1
    with pytest.raises(UsageError, match=message):
        mapping_of(options(**changes), SCHEMA)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"file": "annotations/all.json"}, "write {split} where"),
        ({"file": "../{split}.json"}, "without empty or .. parts"),
        ({"file": "/{split}.json"}, "without empty or .. parts"),
        ({"file": "{split}.xml"}, "end in .json"),
        ({"file": "{split:>999999999}.json"}, "write {split} where"),
        ({"file": "{split}{day}.json"}, "write {split} where"),
        ({"file": "{split.__class__}.json"}, "write {split} where"),
        ({"file": "{split.json"}, "is no template"),
        ({"image": {"img_path": "camera.front"}}, "Extra inputs"),
        ({"images": {"img_path": "camera.front", "CAM": {"img_path": "camera.front"}}}, "not both"),
        ({"instances": {"bbox": "x1"}}, "from"),
        ({"instances": {"from": "objects", "bbox": [1, 2]}}, "bbox: a list names fields"),
        ({"instances": {"from": "objects", "bbox_label": {"from": "class", "mapp": {}}}}, "bbox_label.mapp"),
        ({"ext": {"camera.front": "../jpg"}}, "is no extension"),
        ({"info": {"instances": 1}}, "has a key of its own"),
        ({"info": {"when": {1: "speed"}}}, "keys are texts"),
        ({"metainfo": {"mean": [float("nan")]}}, "neither a column nor a value of JSON"),
    ],
)
def test_options_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        options(**changes)


@pytest.mark.parametrize("log_id", ["../up", "/root", "a//b", "a\nb", "a\\b", "."])
def test_a_log_id_that_would_leave_the_folder_is_refused(log_id):
    (problem,) = FORMAT.check_log(options(), log_id, "x.mcap")
    assert problem.startswith("x.mcap: log_id")


# --- damage ---------------------------------------------------------------------------------------------


def test_a_changed_info_is_found_with_its_place(tmp_path):
    store = store_at(tmp_path)
    units = stage(store, make_block(9), [4])
    folder, plan = assemble(store, units)
    assert list(differences(str(folder), plan.unit)) == []
    path = folder / "annotations/all.json"
    data = json.loads(path.read_text())
    data["data_list"][6]["height"] = 7
    path.write_text(json.dumps(data))
    (problem,) = differences(str(folder), plan.unit)
    assert "rows 4 to 9 of car/drive, p4 (4 to 9 of all): the data read back differs" in problem
    del data["data_list"][8]
    data["metainfo"]["classes"] = ["car"]
    path.write_text(json.dumps(data))
    meta, count = differences(str(folder), plan.unit)
    assert "metainfo differs" in meta
    assert "8 data infos, 9 were written" in count
    path.write_text("{")
    (problem,) = differences(str(folder), plan.unit)
    assert "damaged, or no json file" in problem
    path.unlink()
    (problem,) = differences(str(folder), plan.unit)
    assert "all.json" in problem


def test_lost_and_damaged_files_of_a_unit_are_named(tmp_path):
    store = store_at(tmp_path)
    (unit,) = stage(store, make_block(4))
    folder = tmp_path / "store" / unit.folder
    picture = next(folder.rglob("*.jpg"))
    picture.rename(tmp_path / "away.jpg")
    with pytest.raises(DatasetError, match=f"{picture.name}: missing"):
        list(reader_of(store, unit).blocks())
    infos = folder / "infos"
    text = infos.read_text()
    for damaged, message in [
        (text.replace("\t", " ", 1), "infos, line 1: damaged"),
        (text[: text.index("\n") + 1], "1 data infos, should be 4"),
        (text.replace("car", "cär"), "infos, byte"),
    ]:
        infos.write_text(damaged)
        with pytest.raises(DatasetError, match=message):
            list(reader_of(store, unit).blocks(["data_info"]))
    infos.unlink()
    with pytest.raises(DatasetError, match="infos: missing"):
        reader_of(store, unit)[0]


def test_an_info_that_names_a_file_outside_is_refused(tmp_path):
    store = store_at(tmp_path)
    (unit,) = stage(store, make_block(1))
    infos = tmp_path / "store" / unit.folder / "infos"
    infos.write_text(infos.read_text().replace("camera.front/car/drive", "../../../secret"))
    with pytest.raises(DatasetError, match=r"line 1: .*stays in its folder"):
        reader_of(store, unit)[0]


def test_units_out_of_order_are_refused(tmp_path):
    store = store_at(tmp_path)
    units = stage(store, make_block(6), [3])
    with pytest.raises(DatasetError, match="don't come after"):
        assemble(store, units[::-1])


def test_a_block_of_no_rows_writes_nothing(tmp_path):
    store = store_at(tmp_path)
    (unit,) = stage(store, part(make_block(1), 0, 1))
    assert unit.unit["rows"] == 1
    folder = tmp_path / "empty"
    folder.mkdir()
    from logloom.io.formats.interface import UnitContext

    writer = FORMAT.writer(folder, SCHEMA, options(), UnitContext("a", "", "p", "all"))
    writer.append(part(make_block(1), 0, 0))
    assert writer.close()["rows"] == 0
    assert files_in(folder) == {}
