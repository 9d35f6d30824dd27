import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.blocks import Block, Ragged
from logloom.errors import LogReadError
from logloom.io.formats.l5kit.field_values import type_at, values_at, yaw_of
from logloom.io.formats.l5kit.mapping import mapping_of, plan_mapping
from logloom.io.formats.l5kit.options import L5KitOptions
from logloom.schema import ColumnType, Schema

POINT = [("x", "<f8"), ("y", "<f8"), ("z", "<f8")]
QUATERNION = [*POINT, ("w", "<f8")]
TRACK = np.dtype(
    [
        ("id", "<i4"),
        ("label", "<U8"),
        ("position", POINT),
        ("orientation", QUATERNION),
        ("dimensions", POINT),
        ("velocity", POINT),
        ("pose", [("at", POINT), ("class", "<U8")]),
    ]
)
LABELS_FROM = {"from": "label", "map": {"car": "PERCEPTION_LABEL_CAR"}}
NAMED = {
    "column": "objects",
    "centroid": "position",
    "extent": "dimensions",
    "yaw": "orientation",
    "label_probabilities": LABELS_FROM,
}
EGO = np.dtype([("position", POINT), ("orientation", QUATERNION), ("name", "<U4")])
SCHEMA = Schema(
    {
        "objects": ColumnType(TRACK, (None,)),
        "ego": ColumnType(EGO),
        "matrix": ColumnType(np.dtype("f8"), (3, 3)),
        **{f"at.{axis}": ColumnType(np.dtype("f4")) for axis in "xyz"},
    }
)
BASE = {"translation": "ego.position", "rotation": "ego.orientation"}


def options_of(**changes):
    return L5KitOptions.model_validate({**BASE, "agents": NAMED, **changes})


def agents_with(**changes):
    return options_of(agents={**NAMED, **changes})


def tracks(n):
    rows = np.zeros(n, TRACK)
    for k in range(n):
        rows[k]["id"], rows[k]["label"] = k, "car"
        rows[k]["position"], rows[k]["dimensions"] = (k, 10 + k, 99), (4, 2, 1.5)
        rows[k]["velocity"], rows[k]["pose"]["at"] = (1, 0.5, 7), (-k, -1, -2)
        rows[k]["orientation"] = (0, 0, 3 * np.sin(k / 2), 3 * np.cos(k / 2))
    return rows


def block_of(structs, n=1):
    ego = np.zeros(n, EGO)
    ego["position"]["x"], ego["position"]["z"], ego["orientation"]["w"] = np.arange(n), 5, 2
    columns = {"timestamp": np.arange(n), "objects": Ragged(structs, [len(structs)] + [0] * (n - 1))}
    columns |= {"ego": ego, "matrix": np.tile(np.eye(3), (n, 1, 1))}
    columns |= {f"at.{axis}": np.full(n, i, "f4") for i, axis in enumerate("xyz")}
    return Block("drive", "0-3", 0, columns)


def mapped(options, structs):
    return mapping_of(options, SCHEMA).apply(block_of(structs))


def test_points_and_a_quaternion_fill_agents():
    agents = mapped(options_of(), tracks(4))["agents"].values
    assert agents["centroid"].tolist() == [[k, 10 + k] for k in range(4)]
    assert agents["extent"].tolist() == [[4, 2, 1.5]] * 4
    assert agents["velocity"].tolist() == [[1, 0.5]] * 4
    np.testing.assert_array_equal(agents["yaw"], np.arange(4, dtype="f4"))
    assert agents["track_id"].tolist() == [0, 1, 2, 3]


def test_numbers_of_a_struct_are_taken_by_name_whatever_their_order():
    dtype = np.dtype([("y", "<f4"), ("x", "<f4")])
    schema = Schema(
        {**SCHEMA.columns, "objects": ColumnType(np.dtype([*TRACK.descr, ("flat", dtype.descr)]), (None,))}
    )
    rows = np.zeros(1, schema.columns["objects"].dtype)
    rows["flat"], rows["orientation"]["w"] = (2, 1), 1
    mapping = mapping_of(agents_with(centroid="flat"), schema)
    assert mapping.apply(block_of(rows))["agents"].values["centroid"].tolist() == [[1, 2]]


def test_several_paths_fill_a_field_in_their_order():
    options = agents_with(centroid=["pose.at.y", "position.x"], velocity=["pose.at.x", "velocity.y"])
    agents = mapped(options, tracks(2))["agents"].values
    assert agents["centroid"].tolist() == [[-1, 0], [-1, 1]]
    assert agents["velocity"].tolist() == [[0, 0.5], [-1, 0.5]]


def test_a_class_may_lie_deeper():
    rows = tracks(1)
    rows["pose"]["class"] = "car"
    options = agents_with(label_probabilities={**LABELS_FROM, "from": "pose.class"})
    assert mapped(options, rows)["agents"].values["label_probabilities"][0, 3] == 1


@pytest.mark.parametrize(
    ("translation", "rotation", "expected"),
    [
        ("ego.position", "ego.orientation", [0, 0, 5]),
        (["at.x", "at.y", "at.z"], "matrix", [0, 1, 2]),
        (["ego.position.z", "at.y", "at.x"], "matrix", [5, 1, 0]),
    ],
)
def test_the_vehicle_may_come_from_structs_and_from_several_columns(translation, rotation, expected):
    options = options_of(translation=translation, rotation=rotation)
    frames = mapped(options, tracks(0))
    assert frames["ego_translation"].tolist() == [expected]
    np.testing.assert_array_equal(frames["ego_rotation"], [np.eye(3)])
    assert set(mapping_of(options, SCHEMA).columns) <= set(SCHEMA.columns)


def test_options_of_one_name_keep_their_json():
    given = options_of().model_dump(mode="json")
    assert given["translation"] == "ego.position"
    assert given["agents"]["centroid"] == "position"
    several = options_of(translation=["at.x", "at.y", "at.z"])
    assert L5KitOptions.model_validate_json(several.model_dump_json()) == several


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"agents": {**NAMED, "centroid": "orientation"}},
            "agents.centroid: objects.orientation is struct of x, y, z, w, it accepts float64[2]",
        ),
        (
            {"agents": {**NAMED, "centroid": ["position.x", "positon.x"]}},
            "agents.centroid: objects has no field 'positon.x'; did you mean position.x?",
        ),
        (
            {"agents": {**NAMED, "yaw": "velocity"}},
            "agents.yaw: objects.velocity is struct of x, y, z, it accepts float32, or a quaternion (x, y, "
            "z, w)",
        ),
        (
            {"agents": {**NAMED, "extent": ["position.x", "label", "id"]}},
            "agents.extent: objects.position.x is float64 and objects.label is text and objects.id is int32, "
            "it accepts float32[3]",
        ),
        (
            {"agents": {**NAMED, "label_probabilities": {**LABELS_FROM, "from": ["label", "id"]}}},
            "agents.label_probabilities: map accepts one field, not label and id",
        ),
        (
            {"translation": "ego.positoin"},
            "translation: ego is struct without 'positoin'; did you mean ego.position?",
        ),
        (
            {"rotation": ["at.x", "at.y"]},
            "rotation: at.x is float32 and at.y is float32, it accepts numbers of shape [3, 3] or [9] or [4]",
        ),
        (
            {"rotation": "ego.name"},
            "rotation: ego.name is text, it accepts numbers of shape [3, 3] or [9] or [4]",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_type(changes, problem):
    (found,) = plan_mapping(options_of(**changes), SCHEMA)[1]
    assert found == problem


def test_three_numbers_fill_two_only_where_they_are_named():
    dtype = np.dtype([("place", "<f8", (3,)), ("speed", POINT), ("id", "<i4"), ("label", "<U8")])
    schema = Schema({**SCHEMA.columns, "objects": ColumnType(dtype, (None,))})
    agents = {"column": "objects", "label_probabilities": LABELS_FROM, "extent": "place", "yaw": "id"}
    found = plan_mapping(options_of(agents={**agents, "track_id": "id"}), schema)[1]
    assert [line.partition(": ")[0] for line in found] == ["agents.centroid", "agents.velocity"]
    assert all("no field left there fits" in line for line in found)
    named = {**agents, "track_id": "id", "centroid": "place", "velocity": "speed"}
    rows = np.zeros(1, dtype)
    rows["place"], rows["speed"] = (1, 2, 3), (4, 5, 6)
    mapping = mapping_of(options_of(agents=named), schema)
    agents = mapping.apply(block_of(rows))["agents"].values
    assert (agents["centroid"].tolist(), agents["velocity"].tolist()) == ([[1, 2]], [[4, 5]])


def test_labels_that_nothing_names_get_the_line_that_does():
    agents = {key: value for key, value in NAMED.items() if key != "label_probabilities"}
    (problem,) = plan_mapping(options_of(agents=agents), SCHEMA)[1]
    line = "label_probabilities: {from: label, map: {<value>: PERCEPTION_LABEL_CAR}}"
    assert problem.endswith(f"Name its source: {line}")


# --- quaternions ----------------------------------------------------------------------------------------


@given(st.lists(st.floats(-10, 10), min_size=4, max_size=4).filter(lambda q: max(map(abs, q)) > 1e-3))
def test_the_yaw_is_that_of_the_rotated_x_axis(q):
    x, y, z, w = q
    ahead = np.array([w * w + x * x - y * y - z * z, 2 * (x * y + w * z)])
    (yaw,) = yaw_of(np.array([q]), "")
    if np.hypot(*ahead) > 1e-9 * sum(v * v for v in q):
        off = np.angle(np.exp(1j * (yaw - np.arctan2(ahead[1], ahead[0]))))
        assert abs(off) < 1e-13 * sum(v * v for v in q) / np.hypot(*ahead) + 1e-13
    assert -np.pi <= yaw <= np.pi


def test_yaws_of_any_length_are_exact_and_straight_up_is_none():
    turns = np.linspace(-3.1, 3.1, 1001)
    for size in (1e-200, 1.0, 1e200):
        quaternions = size * np.stack([0 * turns, 0 * turns, np.sin(turns / 2), np.cos(turns / 2)], axis=1)
        np.testing.assert_allclose(yaw_of(quaternions, ""), turns, rtol=4e-16, atol=1e-15)
    half = np.sqrt(0.5)
    assert yaw_of(np.array([[0, half, 0, half]]), "").tolist() == [0]
    assert np.isnan(yaw_of(np.array([[np.nan, 0, 0, 1]]), "")).all()
    assert yaw_of(np.empty((0, 4)), "").tolist() == []


def test_a_zero_quaternion_is_refused_with_what_to_do():
    rows = tracks(3)
    rows["orientation"][1] = (0, 0, 0, 0)
    with pytest.raises(LogReadError) as caught:
        mapped(options_of(), rows)
    assert str(caught.value) == (
        "drive 0-3: objects.orientation for l5kit's yaw: 1 of 3 quaternions are zero, which is no rotation; "
        "compute the agents with a `derive` function that leaves them out or sets their yaw"
    )


def test_names_with_dots_are_names_before_they_are_paths():
    dtype = np.dtype([("a.b", "<i4"), ("a", [("b", "<f8"), ("c", "<f8")])])
    assert type_at(dtype, "a.b") == np.int32
    assert type_at(dtype, "a.c") == np.float64
    assert type_at(dtype, "a.d") is None
    assert type_at(dtype, "a.b.c") is None
    assert values_at(np.array([(7, (1, 2))], dtype), "a.c").tolist() == [2]
    assert values_at(np.array([(7, (1, 2))], dtype), "a.b").tolist() == [7]
