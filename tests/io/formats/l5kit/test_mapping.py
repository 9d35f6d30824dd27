import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from logloom.blocks import Block, Ragged
from logloom.errors import LogReadError, UsageError
from logloom.io.formats.interface import AssembledFormat
from logloom.io.formats.l5kit.dtypes import LABELS, TL_FACE_LABELS
from logloom.io.formats.l5kit.format import FORMAT
from logloom.io.formats.l5kit.mapping import cast, mapping_of, matrix_from_quaternion, one_hot, plan_mapping
from logloom.io.formats.l5kit.options import L5KitOptions, gap_limit, host_of
from logloom.io.formats.registry import format_named
from logloom.schema import ColumnType, Schema

TRACK = np.dtype(
    [
        ("position", "<f4", (2,)),
        ("size", "<f8", (3,)),
        ("yaw", "<f8"),
        ("velocity", "<f8", (2,)),
        ("track_id", "<i4"),
        ("class", "<U8"),
    ]
)
POSE = {
    "position": ColumnType(np.dtype("<f8"), (3,)),
    "rotation": ColumnType(np.dtype("<f8"), (4,)),
}
BASE = {"translation": "position", "rotation": "rotation"}
CLASS = {"from": "class", "map": {"car": "PERCEPTION_LABEL_CAR", "walker": "PERCEPTION_LABEL_PEDESTRIAN"}}


def schema_with(dtype, **columns):
    return Schema({**POSE, "objects": ColumnType(dtype, (None,)), **columns})


def problems_of(options, schema):
    return plan_mapping(L5KitOptions.model_validate({**BASE, **options}), schema)[1]


def rules_of(options, schema, array="agents"):
    mapping = mapping_of(L5KitOptions.model_validate({**BASE, **options}), schema)
    return {rule.target: " ".join(rule.sources) for rule in getattr(mapping, array).fields}


def make_block(structs, counts, rotation=None):
    n = len(counts)
    columns = {
        "timestamp": np.arange(n) * 10**8,
        "position": np.arange(3.0 * n).reshape(n, 3),
        "rotation": np.tile([0.0, 0.0, 0.0, 1.0], (n, 1)) if rotation is None else rotation,
        "objects": Ragged(structs, counts),
    }
    return Block("drive", "0-3", 0, columns)


def test_fields_match_by_name_then_by_the_one_shape_left():
    options = {"agents": {"column": "objects", "label_probabilities": CLASS}}
    assert rules_of(options, schema_with(TRACK)) == {
        "label_probabilities": "class",
        "yaw": "yaw",
        "velocity": "velocity",
        "track_id": "track_id",
        "centroid": "position",  # the one field of 2 numbers left
        "extent": "size",
    }


def test_explicit_names_override_equal_names():
    options = {
        "agents": {
            "column": "objects",
            "centroid": "velocity",
            "velocity": "position",
            "label_probabilities": CLASS,
        }
    }
    rules = rules_of(options, schema_with(TRACK))
    assert rules["centroid"] == "velocity"
    assert rules["velocity"] == "position"


def test_two_fields_of_one_shape_are_an_error_naming_both():
    dtype = np.dtype([*TRACK.descr, ("goal", "<f4", (2,))])
    options = {"agents": {"column": "objects", "label_probabilities": CLASS}}
    (problem,) = problems_of(options, schema_with(dtype))
    assert problem.startswith(
        "agents.centroid: accepts float64[2]; position and goal fit centroid in objects"
    )
    assert "centroid: <field>" in problem


def test_one_field_that_fits_two_is_an_error_for_both():
    dtype = np.dtype(
        [
            ("place", "<f8", (2,)),
            ("extent", "<f8", (3,)),
            ("yaw", "<f4"),
            ("track_id", "<u8"),
            ("class", "<U4"),
        ]
    )
    problems = problems_of(
        {"agents": {"column": "objects", "label_probabilities": CLASS}}, schema_with(dtype)
    )
    assert [p.split(":")[0] for p in problems] == ["agents.centroid", "agents.velocity"]
    assert all("place fit centroid and velocity" in p for p in problems)


def test_all_mistakes_are_listed_at_once_with_the_nearest_names():
    options = {
        "translation": "positoin",
        "rotation": "position",
        "agents": {
            "column": "objects",
            "yaw": "phi",
            "extent": "velocity",
            "label_probabilities": {"from": "class", "map": {"car": "PERCEPTION_LABEL_CAT"}},
        },
        "tl_faces": "lights",
    }
    problems = problems_of(options, schema_with(TRACK))
    assert problems == [
        "translation: no column 'positoin'; did you mean position?",
        "rotation: column position is float64[3], it accepts numbers of shape [3, 3] or [9] or [4]",
        "agents.extent: objects.velocity is float64[2], it accepts float32[3]",
        "agents.yaw: objects has no field 'phi'; there are position, size, yaw, velocity, track_id, class",
        "agents.label_probabilities: no label 'PERCEPTION_LABEL_CAT'; did you mean PERCEPTION_LABEL_CAR?",
        "tl_faces: no column 'lights'; there are position, rotation, objects",
    ]


def test_a_column_that_is_no_list_of_structs_is_refused():
    schema = Schema({**POSE, "points": ColumnType(np.dtype("<f4"), (None, 3))})
    assert problems_of({"agents": "points"}, schema) == [
        "agents: column points is float32[?, 3], it accepts a list of structs (struct[?])"
    ]
    assert FORMAT.check(L5KitOptions(**BASE, agents="points"), schema)
    with pytest.raises(UsageError, match="list of structs"):
        mapping_of(L5KitOptions(**BASE, agents="points"), schema)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"from": "yaw", "map": {"1": "PERCEPTION_LABEL_CAR"}}, "class of text or integers"),
        ({"from": "class", "map": {"1": "ACTIVE"}}, "no label 'ACTIVE'"),
    ],
)
def test_a_map_wants_classes_and_labels(given, message):
    problems = problems_of(
        {"agents": {"column": "objects", "label_probabilities": given}}, schema_with(TRACK)
    )
    assert any(message in problem for problem in problems)


def test_a_map_on_a_field_without_labels_is_refused():
    options = {"agents": {"column": "objects", "yaw": CLASS, "label_probabilities": CLASS}}
    assert any("only label_probabilities and" in p for p in problems_of(options, schema_with(TRACK)))


def test_classes_become_probabilities_and_unmapped_ones_unknown():
    tracks = np.zeros(4, TRACK)
    tracks["class"] = ["car", "walker", "", "tree"]
    options = L5KitOptions.model_validate(
        {**BASE, "agents": {"column": "objects", "label_probabilities": CLASS}}
    )
    mapped = mapping_of(options, schema_with(TRACK)).apply(make_block(tracks, [3, 0, 1]))
    probabilities = mapped["agents"].values["label_probabilities"]
    names = [LABELS[i] for i in probabilities.argmax(axis=1)]
    unknown = "PERCEPTION_LABEL_UNKNOWN"
    assert names == ["PERCEPTION_LABEL_CAR", "PERCEPTION_LABEL_PEDESTRIAN", unknown, unknown]
    assert (probabilities.sum(axis=1) == 1).all()
    assert mapped["agents"].lengths.tolist() == [3, 0, 1]


def test_lights_take_integer_states_and_ids():
    dtype = np.dtype([("face_id", "<u4"), ("light", "<i8"), ("state", "<u1")])
    lights = np.array([(7, -3, 2), (8, 12, 1), (9, 0, 0)], dtype)
    options = {"column": "objects", "traffic_light_id": "light"}
    options |= {"traffic_light_face_status": {"from": "state", "map": {2: "ACTIVE", 1: "INACTIVE"}}}
    given = L5KitOptions.model_validate({**BASE, "tl_faces": options})
    faces = mapping_of(given, schema_with(dtype)).apply(make_block(lights, [3]))["tl_faces"].values
    assert faces["face_id"].tolist() == ["7", "8", "9"]
    assert faces["traffic_light_id"].tolist() == ["-3", "12", "0"]
    states = [TL_FACE_LABELS[i] for i in faces["traffic_light_face_status"].argmax(axis=1)]
    assert states == ["ACTIVE", "INACTIVE", "UNKNOWN"]


def test_options_survive_json_with_the_same_meaning():
    given = {
        **BASE,
        "max_gap": "1.5s",
        "agents": {
            "column": "objects",
            "label_probabilities": {"from": "class", "map": {2: "PERCEPTION_LABEL_CAR"}},
        },
    }
    options = L5KitOptions.model_validate(given)
    assert options.max_gap == 1_500_000_000
    assert L5KitOptions.model_validate_json(options.model_dump_json()) == options
    assert L5KitOptions.model_validate(options.model_dump(mode="json")) == options


@pytest.mark.parametrize(
    "wrong",
    [
        {"agent": "objects"},
        {"agents": {"column": "objects", "speed": "v"}},
        {"agents": {"yaw": "v"}},
        {"max_gap": 5},
        {"max_gap": "5 parsecs"},
        {"host": "{car}"},
        {"host": "{log_id.__class__}"},
        {"host": "{log_id!r}"},
        {"host": "{"},
    ],
)
def test_options_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValidationError):
        L5KitOptions.model_validate({**BASE, **wrong})


@pytest.mark.parametrize(
    ("host", "uri", "expected"),
    [
        ("{parent}", "gs://drives/car-7/2026.mcap", "car-7"),
        ("{parent}", "/data/car-7/a.bag", "car-7"),
        ("{stem}", "/data/car-7/run1.mcap", "run1"),
        ("x-{log_id}", "/data/a.bag", "x-log"),
        ("{path}", "/d/a.bag", "/d/a"),
        ("plain", "a.bag", "plain"),
    ],
)
def test_the_host_comes_from_the_logs_uri(host, uri, expected):
    assert host_of(L5KitOptions(host=host), uri, "log") == expected


def test_the_longest_gap_is_one_and_a_half_periods_of_a_rate_clock():
    assert gap_limit(L5KitOptions(), 100) == 150
    assert gap_limit(L5KitOptions(), 33_333_333) == 49_999_999
    assert gap_limit(L5KitOptions(), None) is None
    assert gap_limit(L5KitOptions(max_gap="2s"), 100) == 2 * 10**9


# --- values ---------------------------------------------------------------------------------------------


def test_nine_numbers_fill_the_matrix_row_by_row():
    nine = ColumnType(np.dtype("<f4"), (9,))
    schema = Schema({**POSE, "rotation": nine})
    block = make_block(np.zeros(0, TRACK), [0, 0], rotation=np.arange(18, dtype="<f4").reshape(2, 9))
    mapped = mapping_of(L5KitOptions(**BASE), schema).apply(block)
    assert mapped["ego_rotation"][1].tolist() == [[9, 10, 11], [12, 13, 14], [15, 16, 17]]
    assert mapped["ego_rotation"].dtype == np.float64
    assert len(mapped["agents"]) == 2


def test_a_quarter_turn_to_the_left_takes_x_to_y():
    half = np.sqrt(0.5)
    (matrix,) = matrix_from_quaternion(np.array([[0, 0, half, half]]), "drive")
    np.testing.assert_allclose(matrix @ [1, 0, 0], [0, 1, 0], atol=1e-15)


@given(st.lists(st.floats(-10, 10), min_size=4, max_size=4).filter(lambda q: sum(v * v for v in q) > 0.01))
def test_quaternions_of_any_length_become_rotations(q):
    (matrix,) = matrix_from_quaternion(np.array([q]), "drive")
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(matrix) == pytest.approx(1)
    np.testing.assert_allclose(matrix, matrix_from_quaternion(-2 * np.array([q]), "drive")[0], atol=1e-12)


def test_a_pose_that_is_not_there_stays_nan_and_one_that_is_no_rotation_is_refused():
    there = np.array([[0, 0, 0, 1.0], [np.nan] * 4])
    first, second = matrix_from_quaternion(there, "drive")
    assert first.tolist() == np.eye(3).tolist()
    assert np.isnan(second).all()
    for wrong in ([0.0, 0, 0, 0], [np.inf, 0, 0, 0], [np.nan, 0, 0, 1]):
        with pytest.raises(
            LogReadError, match=r"drive 0: l5kit's ego_rotation: quaternion .* is no rotation"
        ):
            matrix_from_quaternion(np.array([wrong]), "drive 0")


def test_casts_round_half_to_even_and_refuse_what_does_not_fit():
    assert cast(np.array([0.5, 1.5, 2.5]), np.dtype("<u8"), "x").tolist() == [0, 2, 2]
    for wrong in ([-1.0], [np.nan], [np.inf], [2.0**64]):
        with pytest.raises(LogReadError, match=r"x: .* doesn't fit uint64"):
            cast(np.array(wrong), np.dtype("<u8"), "x")
    with pytest.raises(LogReadError, match="-1 doesn't fit uint64"):
        cast(np.array([-1, 5], np.int8), np.dtype("<u8"), "x")
    with pytest.raises(LogReadError, match=str(2**63)):
        cast(np.array([2**63], np.uint64), np.dtype("<i8"), "x")
    assert cast(np.array([2.0**63]), np.dtype("<u8"), "x").tolist() == [2**63]
    assert cast(np.empty(0), np.dtype("<u8"), "x").dtype == np.uint64


def test_text_that_is_too_long_is_refused_with_its_value():
    assert cast(np.array(["a" * 16]), np.dtype("<U16"), "x").tolist() == ["a" * 16]
    with pytest.raises(LogReadError, match="'bbbbbbbbbbbbbbbbb' is longer than 16"):
        cast(np.array(["a", "b" * 17]), np.dtype("<U16"), "x")


def test_a_value_that_does_not_fit_names_log_partition_and_field():
    tracks = np.zeros(1, TRACK)
    tracks["track_id"] = -4
    options = L5KitOptions.model_validate(
        {**BASE, "agents": {"column": "objects", "label_probabilities": CLASS}}
    )
    with pytest.raises(
        LogReadError, match=r"drive 0-3: objects\.track_id for l5kit's track_id: -4 doesn't fit"
    ):
        mapping_of(options, schema_with(TRACK)).apply(make_block(tracks, [1]))


def test_no_classes_at_all_give_no_rows():
    assert one_hot(np.empty(0, "<U4"), {}, 1, 3).shape == (0, 3)


def test_the_format_is_found_by_its_name_and_is_assembled():
    assert format_named("l5kit") is FORMAT
    assert isinstance(FORMAT, AssembledFormat)
