"""Choosing columns of a schema."""

import json
import types

import numpy as np
import pytest

from logloom.errors import UsageError
from logloom.schema import BYTES, ColumnType, Schema

SPEED = ColumnType(np.dtype("f4"))
SCHEMA = Schema({"camera.front": BYTES, "speed": SPEED, "kind": SPEED}, ("camera.front", "speed"))


def test_a_schema_names_columns_with_their_types_and_which_are_sampled():
    arm = ColumnType("<f4", (7,), unit="rad")
    schema = Schema({"camera": BYTES, "arm": arm, "speed": ColumnType("<f8")}, sampled=("camera",))
    assert list(schema.all) == ["camera", "arm", "speed", "camera.age", "camera.available"]
    assert (arm.dtype, arm.shape, arm.unit) == (np.float32, (7,), "rad")


def test_a_part_keeps_types_order_and_which_columns_are_sampled():
    assert SCHEMA.part(None) == SCHEMA
    part = SCHEMA.part(["kind", "camera.*"])
    assert part == Schema({"camera.front": BYTES, "kind": SPEED}, ("camera.front",))
    assert list(part.columns) == ["camera.front", "kind"]
    assert list(part.all) == ["camera.front", "kind", "camera.front.age", "camera.front.available"]


def test_ages_have_no_part_without_their_column_and_a_pattern_that_matches_nothing_has_none():
    assert SCHEMA.part(["*.age", "kind"]) == Schema({"kind": SPEED})
    with pytest.raises(UsageError, match=r"no column matches 'lidar'; there are camera\.front, speed, kind"):
        SCHEMA.part(["kind", "lidar"])


def test_of_very_many_columns_the_nearest_and_the_first_are_named():
    wide = Schema({f"channel_{number:03}": SPEED for number in range(500)})
    words = r"no column matches 'chanel_499'; did you mean channel_499\?"
    with pytest.raises(UsageError, match=words) as error:
        wide.select("chanel_499")
    assert len(str(error.value)) < 800


def test_any_mapping_is_read_as_json():
    data = Schema({"speed": ColumnType("<f4")}).to_json()
    assert Schema.from_json(types.MappingProxyType(data)) == Schema.from_json(data)


def test_names_of_elements_are_kept_and_must_be_as_many_as_elements():
    arm = ColumnType(np.dtype("f8"), (None, 2, 7), names=("shoulder", "elbow"))
    schema = Schema({"arm": arm, "speed": SPEED})
    data = json.loads(json.dumps(schema.to_json()))
    assert data["columns"][0]["names"] == ["shoulder", "elbow"]
    assert "names" not in data["columns"][1]
    assert Schema.from_json(data) == schema
    assert Schema.from_json(data).columns["arm"].names == ("shoulder", "elbow")
    assert arm != ColumnType(np.dtype("f8"), (None, 2, 7))
    data["columns"][0]["names"] = ["shoulder"]
    with pytest.raises(ValueError, match="column 'arm': 1 names don't fit the shape"):
        Schema.from_json(data)
