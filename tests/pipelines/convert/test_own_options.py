"""Options of a conversion: those of the source's own output, changed key by key."""

import json
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logloom as ll
from logloom.errors import UsageError
from logloom.io.formats.l5kit import ChunkedDataset
from logloom.io.formats.registry import format_named
from logloom.pipelines.convert.plan import make_options
from logloom.recipe import Recipe
from logloom.schema import STRING, ColumnType, Schema
from tests.absent import needs
from tests.forking import command as logloom
from tests.pipelines.conftest import build_at
from tests.transforms.ros2_logs import SECOND, SPEED, speeds, write_log

NUMBER = ColumnType("<f8", ())
SCHEMA = Schema({"speed": NUMBER, "turn": ColumnType("<f4", (2,)), "words": STRING})
LEROBOT = {
    "fps": 10,
    "task": {"column": "words"},
    "episodes": {"gap": "500000000ns"},
    "robot_type": "arm",
    "features": {"action": ["speed"], "observation.state": ["speed", "turn"]},
}
AGENTS = {"column": "others", "centroid": ["x", "y"]}


def of_lerobot(schema, hints, given, period=SECOND // 10):
    options, notes = make_options(format_named("lerobot"), schema, hints, given, period)
    return options.model_dump(mode="json"), notes


def test_required_options_of_the_source_are_taken_over_and_single_keys_replaced():
    needs("lerobot")
    found, notes = of_lerobot(SCHEMA, LEROBOT, {})
    assert found.items() >= LEROBOT.items()
    given = {"features": {"observation.state": ["turn"]}, "fps": 20}
    changed, _ = of_lerobot(SCHEMA, LEROBOT, given)
    assert changed.items() >= {**LEROBOT, **given}.items()
    assert notes == []


def test_a_feature_without_its_columns_is_left_out_and_noted():
    needs("lerobot")
    found, notes = of_lerobot(SCHEMA.part(["speed", "words"]), LEROBOT, {})
    assert found["features"] == {"action": ["speed"]}
    assert found["task"] == LEROBOT["task"]
    assert notes == ["lerobot: features: observation.state left out, of columns that aren't converted"]


def test_a_task_whose_column_is_not_converted_stays_to_be_an_error():
    needs("lerobot")
    lerobot, schema = format_named("lerobot"), SCHEMA.part(["speed", "turn"])
    options, _ = make_options(lerobot, schema, LEROBOT, {}, None)
    assert lerobot.check(options, schema) == ["task: no column 'words' of text"]


def test_options_that_are_missing_are_proposed_and_make_sense():
    needs("lerobot")
    schema = Schema({**SCHEMA.columns, "task": STRING, "cam": ColumnType("|u1", (4, 6, 3)), "action": NUMBER})
    with pytest.raises(UsageError) as refused:
        of_lerobot(schema, {}, {"robot_type": "arm"}, SECOND // 20)
    assert "lerobot fps: is missing" in str(refused.value)
    import yaml

    given = yaml.safe_load(str(refused.value).split("--options '")[1].rstrip("'"))
    assert given == {
        "fps": 20,
        "task": {"column": "task"},
        "features": {
            "observation.state": ["speed", "turn"],
            "observation.images.cam": ["cam"],
            "action": ["action"],
        },
        "robot_type": "arm",
    }
    lerobot = format_named("lerobot")
    assert lerobot.check(make_options(lerobot, schema, {}, given, None)[0], schema) == []
    with pytest.raises(UsageError) as refused:
        of_lerobot(schema, {}, {"fps": 0, "features": {"action": ["speed"]}})
    assert "write for example" not in str(refused.value)


def test_agents_of_l5kit_are_taken_over_with_the_names_of_their_fields():
    needs("l5kit")
    hints = {"translation": ["x", "y", "z"], "agents": AGENTS, "max_gap": "1s", "masks": [0.25]}
    options, _ = make_options(format_named("l5kit"), SCHEMA, hints, {"host": "me"}, None)
    assert options.agents.column == "others"
    assert options.agents.centroid == ("x", "y")
    assert (options.translation, options.max_gap, options.masks) == (("x", "y", "z"), SECOND, (0.25,))
    again = format_named("l5kit").again(options.model_dump(mode="json"))
    assert (again["max_gap"], again["masks"], again["agents"]) == ("1000000000ns", [0.25], "agents")


def test_a_format_that_keeps_columns_does_without_what_does_not_fit():
    needs("table")
    hints = {"index": ["gone"], "groups": {"words": "lost.*"}}
    options, notes = make_options(format_named("table"), SCHEMA, hints, {}, None)
    assert (options.index, options.groups) == ([], {})
    assert notes == []


def arm(folder, outputs):
    """A version of a take whose task changes, with a pause of 0.3 s."""
    messages = [
        (time, {**message, "note": "pick" if number < 30 else "place"})
        for number, (time, message) in enumerate(speeds(60))
        if number not in (20, 21)
    ]
    write_log(folder / "logs/take.mcap", {"/can": (SPEED, messages)})
    near = "resample: nearest, tolerance: 40ms"
    text = (
        f"name: arm\nlogs: '{folder}/logs/*.mcap'\nclock: {{rate: 10}}\nrows: {{require: [x]}}\n"
        f"columns:\n  x: {{topic: /can, field: speed, {near}}}\n"
        f"  words: {{topic: /can, field: note, {near}}}\n"
        f"outputs:\n  lerobot: {{fps: 10, task: {{column: words}}, episodes: {{gap: 500ms}}, "
        f"features: {{observation.state: x}}}}\n{outputs}"
    )
    build_at(Recipe.from_yaml(text), folder / "root")
    return str(folder / "root")


@pytest.mark.parametrize("outputs", ["  table: {}\n", ""])
def test_tasks_and_episodes_of_a_version_stay_where_rows_are_filtered(tmp_path, outputs):
    needs("lerobot", "table")
    root = arm(tmp_path, outputs)
    state = "x" if outputs else "observation.state"
    column = "x" if outputs else "observation.state"
    before = [(row["timestamp"], row["task"]) for row in ll.open(root, output="lerobot")]
    assert [task for _, task in before].count("pick") == 28
    for name, given in {"a": None, "b": {"features": {"action": [column]}}}.items():
        done = ll.convert(root, str(tmp_path / name), "lerobot", options=given, where=f"isfinite({state})")
        rows = ll.open(str(tmp_path / name))
        assert [(row["timestamp"], row["task"]) for row in rows] == before
        assert done.manifest.outputs["lerobot"]["episodes"] == {"gap": "500000000ns"}
        assert ("action" in rows.schema.columns) == (given is not None)


def test_episodes_are_counted_with_what_ends_them(tmp_path):
    needs("lerobot", "table")
    root, short = arm(tmp_path, "  table: {}\n"), {"episodes": "log"}
    (kept,) = ll.convert(root, str(tmp_path / "a"), "lerobot").sequences
    assert (kept.number, kept.lengths, kept.cuts) == (1, (58,), ())
    (cut,) = ll.convert(root, str(tmp_path / "b"), "lerobot", options=short).sequences
    assert (cut.number, cut.lengths) == (2, (20, 38))
    assert [(one.reasons, one.number, one.longest) for one in cut.cuts] == [
        (("require x",), 1, 3 * SECOND // 10)
    ]
    where = "(x < 18 or x > 19) and (x < 30 or x > 39)"
    done = logloom(
        "convert",
        root,
        tmp_path / "c",
        "--format",
        "lerobot",
        "--where",
        where,
        "--json",
        "--options",
        "{episodes: log}",
    )
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)["sequences"]
    assert (told["output"], told["kind"], told["lengths"]) == ("lerobot", "episode", [18, 8, 20])
    assert {tuple(one["reasons"]): (one["number"], one["longest"]) for one in told["cuts"]} == {
        ("require x", "where of the conversion"): (1, 5 * SECOND // 10),
        ("where of the conversion",): (1, 11 * SECOND // 10),
    }
    assert "lerobot: 3 episodes of 1 log, of 8 to 20 rows; ended by gaps: " in done.stderr
    (info,) = (tmp_path / "c").glob("v*/lerobot/all/meta/info.json")
    assert json.loads(info.read_text())["total_episodes"] == 3


def test_episodes_of_others_rows_are_counted_without_reasons(tmp_path):
    needs("lerobot", "parquet")
    times = [number * SECOND // 10 for number in range(20) if number not in (7, 8)]
    table = pa.table({"log_id": ["a"] * 18, "timestamp": times, "x": [float(time) for time in times]})
    (tmp_path / "drive").mkdir()
    pq.write_table(table, tmp_path / "drive/0.parquet")
    options = {"fps": 10, "features": {"action": ["x"]}}
    where = f"x != {times[12]}"
    found = ll.convert(
        tmp_path / "drive", tmp_path / "root", "lerobot", options=options, where=where
    ).sequences
    assert [(one.number, one.lengths) for one in found] == [(3, (7, 5, 5))]
    assert [(one.reasons, one.number) for one in found[0].cuts] == [
        ((), 1),
        (("where of the conversion",), 1),
    ]


def test_scenes_of_a_version_and_of_its_scenes_alone_become_equal_arrays(built, tmp_path):
    needs("l5kit")
    before = built
    for name, where in {"a": "isfinite(ego.speed)", "b": "isfinite(ego_translation)"}.items():
        done = ll.convert(str(before), str(tmp_path / name), "l5kit", where=where)
        assert [one.kind for one in done.sequences] == ["scene"]
        (folder,), (expected,) = (
            [*pathlib.Path(root).glob("v*/l5kit/*")] for root in (tmp_path / name, built)
        )
        one, other = ChunkedDataset(folder).open(), ChunkedDataset(expected).open()
        assert len(one.agents)
        assert done.sequences[0].number == len(one.scenes)
        for array in ("scenes", "frames", "agents", "tl_faces"):
            np.testing.assert_array_equal(getattr(one, array)[:], getattr(other, array)[:])
        before = tmp_path / name
