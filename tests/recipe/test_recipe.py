"""Recipes as people write them: what they mean, what is wrong with them, and the way back to YAML."""

import contextlib
import json
import pickle
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logloom.errors import RecipeError
from logloom.recipe import Clock, Recipe, TopicColumn
from logloom.recipe.columns import struct_dtype
from logloom.recipe.values import duration, duration_text, size, size_text

FULL = """\
name: urban-prediction
logs: ["gs://drives/2026-11-*/**/*.mcap", extra.bag]
log_id: "{stem}"
time: {by: [header, log], max_delay: 1s, topics: {/cmd_vel: log}}
clock: {rate: 10}
columns:
  ego.position: {topic: /odom, field: pose.pose.position, resample: linear, unit: m}
  ego.rotation: {topic: /odom, field: pose.pose.orientation, resample: slerp, as: rotation_matrix}
  imu:
    {topic: /imu, field: [angular_velocity, linear_acceleration], resample: window, window: [-100ms, 0ms]}
  camera.front: {topic: /cam/front/compressed, field: data, resample: nearest, tolerance: 50ms, offset: -12ms}
  camera.small: {topic: /cam/front/compressed, as: image, resize: [224, 224], encode: jpg, resample: nearest}
  lidar.points: {topic: /lidar/top, as: "points[x,y,z,intensity]", resample: nearest, tolerance: 60ms}
  speed.mean:   {topic: /can, field: speed, resample: mean, window: [-1s, 0s]}
  objects:      {topic: /tracks, field: objects, strings: 16, resample: nearest}
  intrinsics:   {topic: /cam/front/camera_info, field: k, resample: static}
  pedestrians:  {derive: "mypkg.labels:count_pedestrians", from: [objects], dtype: int32}
rows: {require: [camera.front, lidar.points], where: "speed.mean > 0.5 and available(objects)"}
partition: {rows: 1000, bytes: 512MiB}
split: {train: 0.9, val: 0.1, by: log_id}
on_error: fail
outputs:
  tar: {ext: {camera.front: jpg, lidar.points: npy}}
  l5kit: {host: "{parent}", translation: ego.position, rotation: ego.rotation, agents: {column: objects}}
"""

SMALL = """\
name: small
logs: drive.mcap
clock: {rate: 10}
columns:
  speed: {topic: /can, field: speed}
  label: {derive: "pkg.labels:count", from: [speed], dtype: int32}
rows: {where: "speed > 1"}
split: {train: 0.9, val: 0.1}
outputs: {tar: {}}
"""


def mistakes_of(text: str) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        Recipe.from_yaml(text)
    return str(caught.value).splitlines()


def test_the_recipe_of_the_design_means_what_it_says():
    recipe = Recipe.from_yaml(FULL)
    columns = recipe.columns
    assert recipe.clock.rate == 10
    assert recipe.time.sources("/cmd_vel") == ("log",)
    assert recipe.time.sources("/imu") == ("header", "log")
    assert (columns["camera.front"].offset, columns["camera.front"].tolerance) == (-12_000_000, 50_000_000)
    assert columns["imu"].window == (-100_000_000, 0)
    assert columns["imu"].field == ("angular_velocity", "linear_acceleration")
    assert columns["camera.small"].resize == (224, 224)
    assert columns["pedestrians"].from_ == ("objects",)
    assert recipe.partition.bytes == 512 << 20
    assert recipe.split.shares == {"train": Decimal("0.9"), "val": Decimal("0.1")}
    assert recipe.output_options()["tar"].ext == {"camera.front": "jpg", "lidar.points": "npy"}
    assert (recipe.on_error_mode, recipe.skip_budget, recipe.vanished) == ("fail", 0.0, "fail")


def test_the_same_names_build_it_in_python():
    by_parts = Recipe(
        name="small",
        logs=["drive.mcap"],
        clock=Clock(rate=29.97),
        columns={"speed": TopicColumn(topic="/can", field="speed", as_=None, tolerance="50ms")},
    )
    by_data = Recipe(
        name="small",
        logs="drive.mcap",
        clock={"rate": Decimal("29.97")},
        columns={"speed": {"topic": "/can", "field": ["speed"], "tolerance": "50ms"}},
    )
    assert by_parts == by_data


def test_unknown_keys_and_names_that_are_no_text_are_refused_in_python_too():
    with pytest.raises(
        RecipeError, match=r"recipe: columns.speed.tolerence: unknown key; did you mean tolerance"
    ):
        Recipe(
            name="small",
            logs=["a"],
            clock={"rate": 1},
            columns={"speed": {"topic": "/can", "field": "speed", "tolerence": "1s"}},
        )
    with pytest.raises(RecipeError, match="columns"):
        Recipe(
            name="small",
            logs="a",
            clock={"rate": 1},
            columns={
                1: {"topic": "/a", "field": "a"},
                "b": {"derive": "m:f", "from": ["c"], "dtype": "int8"},
            },
            outputs={2: {}},
        )


@pytest.mark.parametrize(
    "text",
    [
        FULL,
        FULL.replace("topic: /can, field: speed", "topic: {any: [/can, /car]}, field: {any: [speed, v]}"),
        FULL.replace("rate: 10", "rate: 29.97").replace("0.9", "0.90"),
    ],
)
def test_a_recipe_survives_yaml_json_and_pickle(text):
    recipe = Recipe.from_yaml(text)
    assert Recipe.from_yaml(recipe.to_yaml()) == recipe
    # A store may sort keys; the order of columns and splits must survive that, for it decides about bytes.
    stored = json.loads(json.dumps(recipe.identity_json(), sort_keys=True))
    again = Recipe.model_validate(stored)
    assert again == recipe
    assert list(again.columns) == list(recipe.columns)
    assert list(again.split.shares) == list(recipe.split.shares)
    assert again.identity_json() == recipe.identity_json()
    assert pickle.loads(pickle.dumps(recipe)) == recipe


@pytest.mark.parametrize(
    "dtype",
    [
        "{b: uint64, a: float64}",
        "{b: [{z: int8, y: [{q: string, p: bool}, 2, 3]}, 2], a: {d: int8, c: [float32, 3]}, B: [int8]}",
    ],
)
def test_fields_of_structs_keep_their_order_in_a_store_that_sorts_keys(dtype):
    recipe = Recipe.from_yaml(SMALL.replace("dtype: int32", f"dtype: {dtype}"))
    again = Recipe.model_validate(json.loads(json.dumps(recipe.identity_json(), sort_keys=True)))
    assert struct_dtype(again.columns["label"].dtype, 32) == struct_dtype(recipe.columns["label"].dtype, 32)
    assert again.to_yaml() == recipe.to_yaml()


def test_the_frame_of_a_column_is_stored():
    label = "  boxes: {table: a.parquet}\n"
    recipe = Recipe.from_yaml(SMALL.replace("columns:\n", f"columns:\n{label}"))
    said = Recipe.from_yaml(recipe.to_yaml().replace("a.parquet", "a.parquet\n    frame: /map"))
    assert said.identity_json()["columns"]["boxes"]["frame"] == "map"
    assert Recipe.model_validate(said.identity_json()) == Recipe.from_yaml(said.to_yaml()) == said


def test_what_a_recipe_says_of_versions_is_stored():
    assert Recipe.from_yaml(SMALL).identity_json()["keep"] is None
    keeping = Recipe.from_yaml(SMALL + "keep: {last: 30, daily: 14}\n")
    assert keeping.identity_json()["keep"] == {"last": 30, "daily": 14, "tags": "all"}
    assert Recipe.model_validate(keeping.identity_json()) == Recipe.from_yaml(keeping.to_yaml()) == keeping


def test_a_rate_is_the_exact_decimal_of_its_text():
    recipe = Recipe.from_yaml(SMALL.replace("rate: 10", "rate: 29.97002997002997"))
    assert recipe.clock.rate == Decimal("29.97002997002997")
    assert (
        Recipe.model_validate(json.loads(json.dumps(recipe.identity_json()))).clock.rate == recipe.clock.rate
    )


def test_equal_recipes_don_t_depend_on_where_things_stand():
    assert Recipe.from_yaml("\n\n# a comment\n" + SMALL, source="other.yaml") == Recipe.from_yaml(SMALL)


def test_a_budget_of_skipped_logs_is_a_share():
    recipe = Recipe.from_yaml(SMALL + "on_error: {skip: 1%}\n")
    assert (recipe.on_error_mode, recipe.skip_budget) == ("skip", 0.01)


WRONG = [
    ("name: small", "name: a/b", "recipe.yaml:1: name: 'a/b': names consist of letters, digits, and . _ -"),
    ("name: small\n", "", "recipe.yaml: name: is missing"),
    ("logs: drive.mcap", "logs: []", "recipe.yaml:2: logs: "),
    ("logs: drive.mcap", "logs: [a, 3]", "recipe.yaml:2: logs[1]: expected text, got 3"),
    ("rate: 10", "rate: 0", "recipe.yaml:3: clock.rate: 0 Hz is not between"),
    ("rate: 10", "rate: ten", "recipe.yaml:3: clock.rate: 'ten' is not a number; expected a rate in Hz"),
    ("rate: 10", "rate: .inf", "recipe.yaml:3: clock.rate: '.inf' is not a number"),
    (
        "rate: 10",
        "rate: 10, topic: /a",
        "recipe.yaml:3: clock: write exactly one of {rate: 10} (Hz), {topic: /lidar} and {sync:",
    ),
    ("rate: 10", "rte: 10", "recipe.yaml:3: clock.rte: unknown key; did you mean rate?"),
    (
        "rate: 10",
        "topic: /can",
        "recipe.yaml:5: columns.speed.tolerance: resample: previous needs a `tolerance`",
    ),
    ("  speed:", "  Speed:", "recipe.yaml:5: columns.Speed: names are parts of a-z"),
    ("  speed:", "  speed.age:", "recipe.yaml:5: columns.speed.age: log_id, timestamp, refs"),
    ("topic: /can", "topc: /can", "recipe.yaml:5: columns.speed.topc: unknown key; did you mean topic?"),
    ("topic: /can", "topic: 3", "recipe.yaml:5: columns.speed.topic: expected text, got 3"),
    (
        "topic: /can, field: speed",
        "topic: /can",
        "recipe.yaml:5: columns.speed: needs a `field` or an adapter",
    ),
    ("field: speed", "field: [a, 1]", "recipe.yaml:5: columns.speed.field[1]: expected text, got 1"),
    ("field: speed", "field: speed, resample: linnear", "no such policy as 'linnear'; did you mean linear?"),
    ("field: speed", "field: speed, resample: [a]", "columns.speed.resample: no such policy as ['a']"),
    (
        "field: speed",
        "field: speed, tolerance: 50",
        "columns.speed.tolerance: 50 has no unit; write a duration like 50ms",
    ),
    ("field: speed", "field: speed, tolerance: 0.05", "0.05 has no unit; write a duration like 50ms"),
    ("field: speed", "field: speed, tolerance: '0.0005'", "0.0005 has no unit; write a duration like 500us"),
    ("field: speed", "field: speed, offset: -0.012", "-0.012 has no unit; write a duration like -12ms"),
    ("outputs:", "settle: 1.5\noutputs:", "settle: 1.5 has no unit; write a duration like 1500ms"),
    ("field: speed", "field: speed, tolerance: 0", "columns.speed.tolerance: 0 has no unit"),
    ("field: speed", "field: speed, tolerance: -1s", "columns.speed.tolerance: -1s is negative"),
    (
        "field: speed",
        "field: speed, tolerance: inf",
        "columns.speed.tolerance: inf is no length of time; write `tolerance: none`, or a duration",
    ),
    ("field: speed", "field: speed, tolerance: 5sec", "'5sec' has the unknown unit 'sec'; there are ns, us"),
    ("field: speed", "field: speed, tolerance: 0.5ns", "0.5ns is not a whole number of ns"),
    ("field: speed", "field: speed, tolerance: 99999h", "99999h is more than ten years"),
    (
        "field: speed",
        "field: speed, resample: exact, tolerance: 1s",
        "`tolerance` has no meaning with resample: exact",
    ),
    ("field: speed", "field: speed, resample: mean, window: [0s, -1s]", "`window` must start before it ends"),
    ("field: speed", "field: speed, window: [-1s, 0s]", "`window` has no meaning with resample: previous"),
    (
        "field: speed",
        "field: speed, resample: mean, window: -1s",
        "columns.speed.window: expected a list, got '-1s'",
    ),
    (
        "field: speed",
        "field: speed, resample: static, offset: 1ms",
        "`offset` has no meaning with resample: static",
    ),
    ("field: speed", "field: speed, dtype: flot32", "no such dtype as 'flot32'; did you mean float32?"),
    ("field: speed", "as: imge", "columns.speed.as: no such adapter as 'imge'; did you mean image?"),
    ("field: speed", 'as: "points[]"', "columns.speed.as: write points, or points[x,y,z]"),
    ("field: speed", "as: 'scan[x]'", "columns.speed.as: write scan alone"),
    ("field: speed", "field: speed, encode: jpg", "columns.speed: `encode` needs `as: image`"),
    ("field: speed", "as: image, encode: jpeg", "no such choice as 'jpeg'; did you mean jpg?"),
    ("field: speed", "as: image, resize: [0, 2]", "columns.speed.resize[0]: "),
    ("field: speed", "field: speed, shape: []", "columns.speed.shape: expected a list of at least 1, got 0"),
    ("field: speed", "as: joints, field: q, names: []", "`as: joints` needs `names`"),
    (
        "field: speed",
        "field: q, as: rotation_matrix, resample: mean",
        "resample: mean of rotations returns no rotation",
    ),
    ("field: speed", "field: speed, missing: ok", "no such choice as 'ok'; there are fail, unavailable"),
    ("field: speed", "field: speed, strings: 1.5", "columns.speed.strings: expected a whole number, got 1.5"),
    ("field: speed", 'field: speed, description: "a\\nb"', "columns.speed.description: must be one line"),
    (
        "pkg.labels:count",
        "pkg.labels.count",
        "recipe.yaml:6: columns.label.derive: 'pkg.labels.count' is not of the form module",
    ),
    (
        "from: [speed]",
        "from: [sped]",
        "recipe.yaml:6: columns.label.from[0]: no column 'sped'; did you mean speed?",
    ),
    ("from: [speed]", "from: [label]", "recipe.yaml:6: columns.label.from: is derived from itself"),
    ("dtype: int32", "dtype: {id: flot32}", "dtype: id: no such dtype as 'flot32'; did you mean float32?"),
    ("dtype: int32", "dtype: {at: {x: 3}}", "dtype: at.x: write a dtype, {<field>: <dtype>}, or"),
    ("dtype: int32", "dtype: {at: [int8, 0]}", "dtype: at: lengths of a field are whole numbers from 1"),
    ("dtype: int32", "dtype: {a.b: int8}", "dtype: 'a.b' is no name of a field"),
    ("dtype: int32", "dtype: {}", "columns.label.dtype"),
    ("dtype: int32", "dtype: string, shape: lists", "none; of several texts write `dtype: {text: string}, s"),
    ("dtype: int32", "dtype: int32, shape: [lists]", "recipe.yaml:6: columns.label.shape: write the lengths"),
    (
        "dtype: int32",
        "dtype: int32, shape: [0]",
        "recipe.yaml:6: columns.label.shape: write the lengths of a row",
    ),
    (
        "dtype: int32",
        "dtype: int32, shape: 3",
        "columns.label.shape: write the lengths of a row, such as [3]",
    ),
    (
        "dtype: int32",
        "dtype: [[id, int8], [id, int8]]",
        "columns.label.dtype: a field is there twice: id, id",
    ),
    ("dtype: int32", "dtype: int32, strings: 4", "strings: is for text in structs, as in dtype: {id: int64"),
    ("dtype: int32", "dtype: int31", "no such dtype as 'int31'; did you mean int32?"),
    ("dtype: int32", "dtype: int32, shape: [2, null]", "lengths that differ by row (null) must come first"),
    ("rows: {where", "rows: {require: [label], where", "rows.require[0]: label is derived, so it is always"),
    (
        "rows: {where",
        "rows: {require: sped, where",
        "recipe.yaml:7: rows.require[0]: no column 'sped'; did you mean",
    ),
    ('"speed > 1"', '"sped > 1"', "recipe.yaml:7: rows.where: character 1 of 'sped > 1': no column 'sped'"),
    ('"speed > 1"', '"speed >"', "recipe.yaml:7: rows.where: character 8"),
    ("val: 0.1", "val: 0.2", "recipe.yaml:8: split: the shares sum to 1.1, not to 1"),
    ("val: 0.1", "val: half", "recipe.yaml:8: split.val: 'half' is not a number; expected a share"),
    (
        "val: 0.1",
        "val: 0.1, by: '{car}'",
        "recipe.yaml:8: split.by: {car} is unknown; there are {log_id}",
    ),
    ("val: 0.1", "../val: 0.1", "recipe.yaml:8: split: '../val': names consist of"),
    (
        "{tar: {}}",
        "{tarr: {}}",
        "recipe.yaml:9: outputs.tarr: no installed part offers output 'tarr'; there are ",
    ),
    ("{tar: {}}", "{tar: {exts: {}}}", "recipe.yaml:9: outputs.tar.exts: unknown key; did you mean ext?"),
    ("{tar: {}}", "{tar: {ext: 3}}", "recipe.yaml:9: outputs.tar.ext: expected a mapping, got 3"),
    ("{tar: {}}", "{l5kit: {max_gap: 3}}", "recipe.yaml:9: outputs.l5kit.max_gap: "),
    (
        "{tar: {}}",
        "{annotations: {instances: {from: objects, bbox_label: {from: class, unknown: skip}}}}",
        "recipe.yaml:9: outputs.annotations.instances.bbox_label.unknown: expected a class number, or fail, "
        "got 'skip'",
    ),
    (
        "{tar: {}}",
        "{annotations: {instances: {from: objects, bbox_label: {from: class, map: {van: [1]}}}}}",
        "annotations.instances.bbox_label.map.van: expected the name of a class or its number, got a list",
    ),
    (
        "{tar: {}}",
        "{annotations: {instances: {from: objects, bbox_label: {from: class, unknwon: -1}}}}",
        "annotations.instances.bbox_label.unknwon: unknown key; did you mean unknown?",
    ),
    (
        "{tar: {}}",
        "{annotations: {instances: {from: objects, bbox_label: {map: {}}}}}",
        "annotations.instances.bbox_label.from: is missing",
    ),
    ("{tar: {}}", "[tar]", "recipe.yaml:9: outputs: expected a mapping, got a list"),
    ("outputs:", "on_error: stop\noutputs:", "recipe.yaml:9: on_error: no such choice as 'stop'"),
    (
        "outputs:",
        "on_error: {skip: 1}\noutputs:",
        "recipe.yaml:9: on_error.skip: 1 is not a percentage; write it like 1%",
    ),
    ("outputs:", "on_error: {skip: 0%}\noutputs:", "on_error.skip: 0% is not above 0%"),
    ("outputs:", "vanished: gone\noutputs:", "recipe.yaml:9: vanished: no such choice as 'gone'"),
    (
        "outputs:",
        "keep: {tags: all}\noutputs:",
        "recipe.yaml:9: keep: write {last: 30}, {daily: 14}, or both",
    ),
    ("outputs:", "keep: {last: 0}\noutputs:", "recipe.yaml:9: keep.last: "),
    (
        "outputs:",
        "keep: {last: 3, tags: some}\noutputs:",
        "recipe.yaml:9: keep.tags: no such choice as 'some'",
    ),
    ("outputs:", "keep: {weekly: 3}\noutputs:", "recipe.yaml:9: keep.weekly: unknown key"),
    (
        "outputs:",
        "time: {by: heder}\noutputs:",
        "recipe.yaml:9: time.by[0]: no such choice as 'heder'; did you mean",
    ),
    ("outputs:", "time: {max_delay: 5}\noutputs:", "recipe.yaml:9: time.max_delay: 5 has no unit"),
    ("outputs:", "time: {max_delay: }\noutputs:", "time.max_delay: expected a duration like 1s, or none"),
    ("outputs:", "time: {topics: {/a: never}}\noutputs:", "time.topics./a[0]: no such choice as 'never'"),
    ("outputs:", "partition: {rows: 0}\noutputs:", "recipe.yaml:9: partition.rows: "),
    (
        "outputs:",
        "partition: {bytes: 512}\noutputs:",
        "partition.bytes: 512 has no unit; write a size like 512MiB",
    ),
    (
        "outputs:",
        'log_id: "{stm}"\noutputs:',
        "recipe.yaml:9: log_id: {stm} is unknown; there are {stem}",
    ),
    ("outputs:", 'log_id: "{stem"\noutputs:', "recipe.yaml:9: log_id: '{stem' is not a template"),
    (
        "outputs:",
        'log_id: {match: "(", as: a}\noutputs:',
        "recipe.yaml:9: log_id.match: '(' is not a regular expression",
    ),
    (
        "outputs:",
        "log_id: {match: '(?<=car)(?P<a>.)', as: '{a}'}\noutputs:",
        "recipe.yaml:9: log_id.match: '(?<=car)(?P<a>.)': look-around is not supported",
    ),
    (
        "outputs:",
        "log_id: {match: '(?P<a>.)(?P=a)', as: '{a}'}\noutputs:",
        "recipe.yaml:9: log_id.match: '(?P<a>.)(?P=a)': a backreference is not supported",
    ),
    (
        "outputs:",
        "log_id: {match: '(?P<a>.){1001}', as: '{a}'}\noutputs:",
        "recipe.yaml:9: log_id.match: '(?P<a>.){1001}': invalid repetition size: {1001} is not supported",
    ),
    ("outputs:", 'log_id: {match: "(?P<a>.)", as: "{b}"}\noutputs:', "log_id: as: {b} is unknown"),
    ("topic: /can", "topic: {any: [/can]}", "columns.speed.topic: write two or more different names"),
    ("topic: /can", "topic: {any: /can}", "columns.speed.topic: write two or more different names"),
    ("topic: /can", "topic: {all: [/can, /b]}", "columns.speed.topic: expected text, got a mapping"),
    (
        "field: speed",
        "field: {any: [speed, speed]}",
        "columns.speed.field: write two or more different names",
    ),
    (
        "rows:",
        "  b: {topic: {any: [/b, /c]}, field: x}\n  d: {topic: {any: [/b, /d]}, field: x}\nrows:",
        "columns.d.topic: `any` of /b has other names elsewhere in the recipe; write the same ones",
    ),
    (
        "rows:",
        "  b: {topic: {any: [/b, /can]}, field: x}\nrows:",
        "columns.speed.topic: /can is one of the names in `any` of /b; write /b here",
    ),
    (
        "rows:",
        "  b: {topic: {any: [/b, /c]}, field: x}\ntime: {topics: {/c: log}}\nrows:",
        "time.topics./c: /c is one of the names in `any` of /b; write /b here",
    ),
    (
        "rows:",
        "  b: {topic: {any: [/b, /c]}, field: x}\n  d: {topic: {any: [/d, /c]}, field: x}\nrows:",
        "columns.d.topic: /c is one of the names in `any` of /b, too; leave it out of one",
    ),
    (
        "rows:",
        "  b: {topic: {any: [/b, /c]}, field: x}\n  d: {tf: {from: {topic: /c}, to: map}}\nrows:",
        "columns.d.tf.from.topic: /c is one of the names in `any` of /b; write /b here",
    ),
    (
        "rows:",
        "  b: {topic: {any: [/b, /tf2]}, field: x}\n  d: {tf: {from: a, to: b, topics: [/tf, /tf2]}}\nrows:",
        "columns.d.tf.topics[1]: /tf2 is one of the names in `any` of /b; write /b here",
    ),
    ("outputs:", "as_: 3\noutputs:", "recipe.yaml:9: as_: unknown key"),
    ("outputs:", "<<: {}\noutputs:", "recipe.yaml:9: <<: unknown key"),
    ("outputs:", "<one>: {}\noutputs:", "recipe.yaml:9: <one>: unknown key"),
    ("outputs:", "name: again\noutputs:", "recipe.yaml:9: name: duplicate key, in lines 1 and 9"),
    ("field: speed", "field: speed, field: sped", "recipe.yaml:5: columns.speed.field: duplicate key"),
    ("outputs:", "vanished: !!python/name:os.system x\noutputs:", "is not supported in recipes"),
    ("outputs:", "[a]: b\noutputs:", "a key must be text"),
    ("outputs:", "}outputs:", "recipe.yaml:9: not YAML: "),
]


@pytest.mark.parametrize(("right", "wrong", "said"), WRONG, ids=[wrong for _, wrong, _ in WRONG])
def test_a_mistake_is_named_with_its_line(right, wrong, said):
    assert right in SMALL
    lines = mistakes_of(SMALL.replace(right, wrong, 1))
    assert any(said in line for line in lines), "\n".join(lines)


def test_the_small_recipe_itself_has_no_mistake():
    assert Recipe.from_yaml(SMALL).name == "small"


ONE_OR_A_MAPPING = [
    (
        "lerobot: {%s, video: {codec: vp9}}",
        "lerobot.video.codec: no such choice as 'vp9'; there are av1, h264",
    ),
    ("lerobot: {%s, video: {gpo: 3}}", "lerobot.video.gpo: unknown key; did you mean gop?"),
    (
        "lerobot: {%s, video: av1}",
        "lerobot.video: no such choice as 'av1'; write none, or a mapping of codec, crf, gop, preset",
    ),
    (
        "lerobot: {%s, video: 1}",
        "lerobot.video: expected none, or a mapping of codec, crf, gop, preset, got 1",
    ),
    ("lerobot: {%s, episodes: logs}", "lerobot.episodes: no such choice as 'logs'; did you mean log?"),
    (
        "lerobot: {%s, episodes: {gap: 3}}",
        "lerobot.episodes.gap: a duration is a number with its unit (ns, us, ms, s, min, h), like 150ms",
    ),
    ("lerobot: {%s, task: {column: 3}}", "lerobot.task.column: expected text, got 3"),
    ("lerobot: {%s, task: [drive]}", "lerobot.task: expected text, got a list"),
    (
        "l5kit: {agents: {column: a, yaw: {form: b}}}",
        "l5kit.agents.yaw.form: unknown key; did you mean from?",
    ),
    ("l5kit: {agents: {column: a, yaw: 3}}", "l5kit.agents.yaw: expected text, got 3"),
]


@pytest.mark.parametrize(("options", "said"), ONE_OR_A_MAPPING, ids=[wrong for wrong, _ in ONE_OR_A_MAPPING])
def test_an_option_that_is_a_word_or_a_mapping_has_one_mistake_and_no_words_of_pydantics(options, said):
    output = options.replace("%s", "fps: 10, features: {action: speed}")
    lines = mistakes_of(SMALL.replace("tar: {}", output))
    own = [line for line in lines if not line.endswith(".from: is missing")]
    assert own == [f"recipe.yaml:9: outputs.{said}"]


def test_all_mistakes_are_reported_at_once_and_in_the_order_of_their_lines():
    text = SMALL.replace("rate: 10", "rate: x").replace("field: speed", "field: speed, tolerence: 1s")
    text = (
        text.replace("from: [speed]", "from: [sped]").replace("val: 0.1", "val: 0.2").replace("tar:", "tarr:")
    )
    lines = mistakes_of(text + "name: twice\n")
    assert [line.split(": ")[0].rpartition(":")[2] for line in lines] == ["3", "5", "6", "8", "9", "10"]


def test_a_topic_clock_wants_tolerances_and_windows_where_there_is_no_period():
    text = SMALL.replace("rate: 10", "topic: /lidar").replace("field: speed", "field: speed, resample: mean")
    assert mistakes_of(text) == [
        "recipe.yaml:5: columns.speed.window: resample: mean needs a `window` where the clock is a topic"
    ]


SYNCED = """\
name: synced
logs: drives/
clock: {sync: [/cam, /lidar], within: 50ms, stamp: /lidar}
columns:
  camera: {topic: /cam, field: data}
  points: {topic: /lidar, field: data, resample: matched}
  map: {topic: /lidar, field: map, resample: static}
  speed: {topic: /can, field: speed, tolerance: 1s}
"""


def test_columns_of_synced_topics_are_matched_and_others_as_they_say():
    recipe = Recipe.from_yaml(SYNCED)
    policies = [column.resample for column in recipe.columns.values()]
    assert policies == ["matched", "matched", "static", "previous"]
    assert (recipe.clock.sync, recipe.clock.stamp) == (("/cam", "/lidar"), "/lidar")
    assert Recipe.from_yaml(recipe.to_yaml()) == recipe
    assert Recipe.model_validate(json.loads(json.dumps(recipe.identity_json()))) == recipe
    made = Recipe(
        name="synced",
        logs=["drives/"],
        clock={"sync": ["/cam", "/lidar"], "within": "50ms", "stamp": "/lidar"},
        columns=recipe.columns | {"camera": TopicColumn(topic="/cam", field="data")},
    )
    assert made == recipe


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("stamp: /lidar", "stamp: /lidr", "3: clock.stamp: /lidr isn't in `sync`; did you mean /lidar?"),
        (", within: 50ms", "", "3: clock.sync: needs `within`, like 50ms, or `match: exact`"),
        ("within: 50ms", "match: exact, within: 1s", "3: clock.within: has no meaning with match: exact"),
        ("within: 50ms", "match: exacty", "3: clock.match: no such choice as 'exacty'; did you mean exact?"),
        ("within: 50ms", "within: 50", "3: clock.within: 50 has no unit; write a duration like 50ms"),
        ("/cam, /lidar]", "/lidar]", "3: clock.sync: accepts from 2 to 16 topics, got 1"),
        ("/cam, /lidar]", "/lidar, /lidar, /cam]", "3: clock.sync[1]: /lidar is listed twice"),
        ("sync: [/cam, /lidar]", "topic: /lidar", "3: clock.within: needs `sync`, the topics"),
        (
            "within: 50ms",
            "within: 50ms, rate: 10",
            "3: clock: write exactly one of {rate: 10} (Hz), {topic: /lidar} and {sync:",
        ),
        ("resample: matched", "resample: nearest", "6: columns.points.resample: nearest may use another"),
        (
            "resample: matched",
            "tolerance: 1s",
            "6: columns.points: `tolerance` has no meaning with resample: mat",
        ),
        (
            "resample: matched",
            "offset: 1s",
            "6: columns.points: `offset` would come after the clock has matched messages; write "
            "`time: {topics: {/lidar: {offset: 1s}}}` instead",
        ),
        (", tolerance: 1s", "", "8: columns.speed.tolerance: resample: previous needs a `tolerance` where"),
        (
            "speed, tolerance: 1s",
            "speed, resample: matched",
            "8: columns.speed.resample: /can isn't in the `sync` of the clock; did you mean /cam?",
        ),
    ],
)
def test_mistakes_about_synced_topics_name_their_line_and_the_way_out(old, new, expected):
    assert old in SYNCED
    lines = mistakes_of(SYNCED.replace(old, new))
    assert any(line.startswith(f"recipe.yaml:{expected}") for line in lines), lines


def test_matched_columns_want_a_clock_that_matches():
    lines = mistakes_of(SMALL.replace("field: speed", "field: speed, resample: matched"))
    assert lines == [
        "recipe.yaml:5: columns.speed.resample: matched needs "
        "`clock: {sync: [/camera, /lidar], within: 50ms}`"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- 1",
        "just text",
        "a: [",
        "a: \x00",
        "{a: &a [*a]}",
        "[" * 5000,
        "name: " + "9" * 5000,
        "a: &a [" + "1," * 200 + "]\nb: &b [" + "*a," * 200 + "]\nc: [" + "*b," * 200 + "]",
        "%YAML 9.9\n---\na",
        "a: 1\n---\nb: 2",
    ],
)
def test_a_text_that_is_no_recipe_is_refused(text):
    with pytest.raises(RecipeError):
        Recipe.from_yaml(text)


def test_words_that_older_yaml_takes_for_something_else_stay_text():
    recipe = Recipe.from_yaml(
        SMALL.replace("topic: /can", "topic: on").replace("field: speed", "field: 1:30")
    )
    assert (recipe.columns["speed"].topic, recipe.columns["speed"].field) == ("on", ("1:30",))
    assert Recipe.from_yaml(recipe.to_yaml()) == recipe


def test_loading_names_the_file_and_what_is_wrong_with_it(tmp_path):
    path = tmp_path / "recipe.yaml"
    with pytest.raises(RecipeError, match=r"recipe.yaml: there is no such file"):
        Recipe.load(str(path))
    path.write_bytes(b"name: \xff")
    with pytest.raises(RecipeError, match=r"recipe.yaml: not a text file \(byte 6 is not UTF-8\)"):
        Recipe.load(str(path))
    path.write_text(SMALL, encoding="utf-8")
    assert Recipe.load(str(path)) == Recipe.from_yaml(SMALL)


# --- any text ------------------------------------------------------------------------------------------

KEYS = [
    "name",
    "logs",
    "clock",
    "columns",
    "rows",
    "split",
    "outputs",
    "time",
    "tar",
    "by",
    "topic",
    "field",
    "<one>",
]
PLAIN = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(KEYS)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=5)), inner, max_size=4),
    ),
    max_leaves=12,
)


@given(st.text(max_size=200))
@example("? a\n: b")
@example("'': 1")
def test_any_text_is_a_recipe_or_a_recipe_error(text):
    with pytest.raises(RecipeError):
        Recipe.from_yaml(text)


@given(st.data())
def test_a_damaged_recipe_is_a_recipe_or_a_recipe_error(data):
    text = list(FULL)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at] = data.draw(st.sampled_from([*"{}[]:,'\"&*!|>%@ \n-#?a1", "", "<<", "null"]))
    with contextlib.suppress(RecipeError):
        Recipe.from_yaml("".join(text))


@given(st.dictionaries(st.sampled_from(KEYS), PLAIN, max_size=6))
def test_any_data_in_the_place_of_a_recipe_is_a_recipe_or_a_recipe_error(data):
    base = {"name": "a", "logs": ["a"], "clock": {"rate": 1}, "columns": {"a": {"topic": "/a", "field": "a"}}}
    with contextlib.suppress(RecipeError):
        Recipe.model_validate({**base, **data})


# --- round trips ----------------------------------------------------------------------------------------

DURATIONS = st.integers(-(10**15), 10**15).map(duration_text)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=12)
COLUMNS = st.fixed_dictionaries(
    {"topic": TEXT, "field": st.lists(TEXT, min_size=1, max_size=3)},
    optional={
        "offset": DURATIONS,
        "unit": TEXT,
        "tolerance": st.integers(0, 10**12).map(duration_text),
        "dtype": st.sampled_from(["float32", "int64"]),
        "missing": st.sampled_from(["fail", "unavailable"]),
        "strings": st.integers(1, 99),
    },
)
RECIPES = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,9}", fullmatch=True),
        "logs": st.lists(TEXT, min_size=1, max_size=3),
        "clock": st.fixed_dictionaries({"rate": st.decimals("0.001", "1000", places=6).filter(bool)}),
        "columns": st.dictionaries(
            st.from_regex(r"[a-z_][a-z0-9_]{0,5}(\.x[a-z0-9_]{0,3})?", fullmatch=True).filter(
                lambda name: name not in ("log_id", "timestamp", "refs", "meta", "age", "available")
            ),
            COLUMNS,
            min_size=1,
            max_size=4,
        ),
    },
    optional={
        "on_error": st.sampled_from(["fail", "skip", "salvage", {"skip": "2.5%"}]),
        "time": st.fixed_dictionaries({"max_delay": st.sampled_from(["none", "3s"])}),
        "outputs": st.just({"tar": {}}),
    },
)


@given(RECIPES)
def test_every_recipe_survives_yaml_and_sorted_json(data):
    recipe = Recipe.model_validate(data)
    text = recipe.to_yaml()
    assert Recipe.from_yaml(text) == recipe
    assert Recipe.from_yaml(text).to_yaml() == text
    again = Recipe.model_validate(json.loads(json.dumps(recipe.identity_json(), sort_keys=True)))
    assert again == recipe
    assert list(again.columns) == list(recipe.columns)


@given(st.integers(-(3 * 10**17), 3 * 10**17))
def test_a_duration_reads_back_as_it_was_written(nanoseconds):
    assert duration(duration_text(nanoseconds)) == nanoseconds


@given(st.integers(1, 1 << 50))
def test_a_size_reads_back_as_it_was_written(count):
    assert size(size_text(count)) == count


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        *[("50ms", 50_000_000), ("-12ms", -12_000_000), ("1s", 10**9), ("0s", 0), ("2us", 2000)],
        *[("100ns", 100), ("1.5 ms", 1_500_000), ("1min", 60 * 10**9), ("2µs", 2000), ("+1s", 10**9)],
        ("1d", 86_400 * 10**9),
    ],
)
def test_durations_are_whole_nanoseconds(text, nanoseconds):
    assert duration(text) == nanoseconds
