"""Message times that a recipe states for a topic: rows are those of a log whose stamps were right."""

import pathlib
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import LogReadError, RecipeError
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, OpenOptions, StatedTime, TopicRequest
from logloom.io.logs.opening import open_log
from logloom.recipe import Recipe
from logloom.transforms.build.job import plain
from logloom.transforms.rows.lineage import trace
from logloom.transforms.rows.plan.resolve import resolve
from logloom.transforms.rows.row_stream import build_blocks
from logloom.transforms.rows.spans import plan_spans
from tests.tier import by_tier
from tests.transforms.ros2_logs import HEADER, SECOND, START, header, write_log

MS = 10**6
ODD = ("car_msgs/msg/Odd", "std_msgs/Header header\nuint64 us\nfloat64 s\nfloat64 x\nstring text\n" + HEADER)
BARE = ("car_msgs/msg/Bare", "float64 x\n")
RECIPE = """
name: stated
logs: [unused.mcap]
time: {time}
clock: {clock}
partition: {{rows: 23}}
columns:
  wide: {{topic: /wide, field: x, resample: nearest, tolerance: 1s}}
  odd: {{topic: /odd, field: x, {how}}}
  last: {{topic: /bare, field: x, resample: last, window: [-90ms, 1ms]}}
  all: {{topic: /bare, field: x, resample: window, window: [-200ms, 50ms]}}
outputs: {{tar: {{}}}}
"""
CLOCKS = {
    "{rate: 10}": "resample: linear, tolerance: 150ms",
    "{topic: /odd}": "resample: nearest, tolerance: 150ms",
    "{topic: /bare}": "resample: linear, tolerance: 150ms",
    "{sync: [/bare, /odd], within: 40ms}": "resample: matched",
}


def a_log(path: pathlib.Path, stamps, bare, late, *, ahead=0, bare_ahead=0, lost=()):
    """A log of /wide, whose extent it is; /odd, stamped `ahead` ns too late; /bare, logged too late."""
    odd = [
        (time + late, {"header": header(time + ahead), "us": (time + ahead) // 1000, "s": 0.0 if i in lost
         else (time + ahead - START) / 1e9, "x": float(i), "text": "abc"[: i % 4]})
        for i, time in enumerate(stamps)
    ]  # fmt: skip
    ends = (START - 5 * SECOND, START + 8 * SECOND)
    wide = [(t, {"header": header(t), "us": 1, "s": 1.0, "x": 0.0, "text": ""}) for t in ends]
    commands = [(time + bare_ahead, {"x": float(i)}) for i, time in enumerate(bare)]
    return write_log(
        path, {"/wide": (ODD, wide), "/odd": (ODD, odd), "/bare": (BARE, commands)}, chunk_size=400
    )


def planned(log, time, clock="{rate: 10}", how="resample: nearest, tolerance: 1s"):
    recipe = Recipe.from_yaml(RECIPE.format(time=time, clock=clock, how=how))
    return resolve(recipe, {"drive": log})[0]


def rows_of(log, plan):
    found = {}
    for span in plan_spans(log.summary, plan):
        for block in build_blocks(log, "drive", plan, span, max_bytes=by_tier(2000, 500)):
            for i, tick in enumerate(block.columns["timestamp"].tolist()):
                found[tick] = {n: np.asarray(v[i]).tobytes() for n, v in block.columns.items()}
    return found


TIMES = st.lists(st.integers(0, 3000), min_size=2, max_size=25, unique=True).map(
    lambda ms: [START + one * MS for one in sorted(ms)]
)


@given(
    TIMES,
    TIMES,
    st.integers(0, 300),
    st.sampled_from([37 * SECOND, -START + 1500 * SECOND, 12 * MS, 0]),
    st.sampled_from([0, 12 * MS, -450 * MS, 2 * SECOND]),
    st.sampled_from(sorted(CLOCKS)),
    st.sampled_from(["", "field: us, unit: us, ", "field: header.stamp, "]),
    st.sampled_from(["1s", "none"]),
)
def test_rows_of_shifted_stamps_with_their_offset_stated_are_those_of_right_ones(
    stamps, bare, late, ahead, bare_ahead, clock, source, delay
):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        right = open_log([a_log(root / "right.mcap", stamps, bare, late * MS)])
        wrong = a_log(root / "wrong.mcap", stamps, bare, late * MS, ahead=ahead, bare_ahead=bare_ahead)
        wrong = open_log([wrong])
        expected = rows_of(right, planned(right, "{}", clock, CLOCKS[clock]))
        topics = f"/odd: {{{source}offset: {-ahead}ns}}, /bare: {{offset: {-bare_ahead}ns}}"
        time = f"{{max_delay: {delay}, topics: {{{topics}}}}}"
        assert rows_of(wrong, planned(wrong, time, clock, CLOCKS[clock])) == expected


def test_messages_whose_field_has_no_time_are_refused_and_counted(tmp_path):
    times = [START + i * SECOND // 10 for i in range(10)]
    path = a_log(tmp_path / "drive.mcap", times, times, 0, lost=(0, 3))
    source = (StatedTime(None, "s", "s", START),)
    everything = TopicRequest(MIN_TIME, MAX_TIME, source)
    messages = open_log([path], OpenOptions(on_error="skip")).read({"/odd": everything})["/odd"]
    assert messages.time.tolist() == [t for i, t in enumerate(times) if i not in (0, 3)]
    assert [refusal.log_time for refusal in messages.refused] == [times[0], times[3]]
    assert messages.refused[0].reason == "its field s time is 0, which is not a time"
    with pytest.raises(LogReadError, match="its field s time is 0"):
        open_log([path]).read({"/odd": everything})
    far = TopicRequest(MIN_TIME, MAX_TIME, (StatedTime("header", offset=3 * SECOND),), 2 * SECOND)
    messages = open_log([path], OpenOptions(on_error="skip")).read({"/odd": far})["/odd"]
    assert len(messages) == 0
    assert "is +3.000 s from its log time, further than max_delay allows" in messages.refused[0].reason


def test_an_offset_is_part_of_the_plan_and_of_lineage(tmp_path):
    times = [START + i * SECOND // 10 for i in range(10)]
    log = open_log([a_log(tmp_path / "drive.mcap", times, times, 0)])
    given = ("[header, log]", "{offset: 20ms}", "{offset: 21ms}")
    plans = [planned(log, f"{{topics: {{/odd: {one}}}}}") for one in given]
    assert plain(plans[0]) == plain(planned(log, "{}"))
    assert len({str(plain(plan)) for plan in plans}) == 3
    found = trace(log, plans[1], times[4])["odd"]
    assert [source.time for source in found.used] == [times[4] + 20 * MS]
    assert [source.log_time for source in found.used] == [times[4]]


@pytest.mark.parametrize("stated", ["{offset: 2h}", "{by: log, offset: 2h}"])
def test_log_times_that_an_offset_moves_into_a_silence_have_rows_there(tmp_path, stated):
    hour = 3600 * SECOND
    bare = [START + 4 * hour + i * 10 * SECOND for i in range(5)]
    path = a_log(tmp_path / "drive.mcap", [START + 6 * hour], bare, 0, bare_ahead=-2 * hour)
    text = RECIPE.replace("rows: 23", "rows: 999").replace("last, window: [-90ms, 1ms]", "nearest")
    time = f"{{topics: {{/bare: {stated}}}}}"
    recipe = Recipe.from_yaml(text.format(time=time, clock="{rate: 0.1}", how="resample: nearest"))
    log = open_log([path])
    found = rows_of(log, resolve(recipe, {"drive": log})[0])
    values = {np.frombuffer(row["last"])[0] for row in found.values()}
    assert {value for value in values if value == value} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ("{field: uss, unit: us}", "4: time.topics./odd.field: .*no 'uss'; did you mean us?"),
        ("{field: us}", "4: time.topics./odd.field: .*is a number .uint64. without a unit; write {field: us"),
        ("{field: text}", "4: time.topics./odd.field: .*'text' is text, not a time"),
        ("{field: header.stamp, unit: s}", "4: time.topics./odd.field: .*leave out `unit`"),
        ("{field: us, unit: min}", "4: time.topics./odd.unit: no such choice as 'min'"),
        ("{field: us, by: log}", "4: time.topics./odd: write `by`, a source, or `field`, not both"),
        ("{unit: us}", "4: time.topics./odd: `unit` is that of a `field`"),
        ("{}", "4: time.topics./odd: write {field: stamp}"),
        ("{offset: 5}", "4: time.topics./odd.offset: 5 has no unit"),
        ("{ofset: 5s}", "4: time.topics./odd.ofset: .*did you mean offset"),
        ("heder", "4: time.topics./odd.*'heder'.*did you mean header"),
    ],
)
def test_mistakes_about_stated_times_name_their_line_and_a_remedy(tmp_path, stated, message):
    times = [START, START + SECOND]
    log = open_log([a_log(tmp_path / "drive.mcap", times, times, 0)])
    with pytest.raises(RecipeError, match=message) as error:
        planned(log, f"{{topics: {{/odd: {stated}}}}}")
    assert str(error.value).count("/odd") <= 3, "one mistake is reported once"


def test_what_a_recipe_states_survives_its_yaml():
    time = (
        "{topics: {/a: {field: t.us, unit: us, offset: -37s}, /b: {offset: 5ms}, /c: log, /d: [header, log]}}"
    )
    recipe = Recipe.from_yaml(RECIPE.format(time=time, clock="{rate: 1}", how="resample: nearest"))
    again = Recipe.from_yaml(recipe.to_yaml())
    assert again.time == recipe.time
    assert recipe.time.sources("/a") == (StatedTime(None, "t.us", "us", -37 * SECOND),)
    assert [source.by for source in recipe.time.sources("/b")] == ["header", "log"]
    assert recipe.time.sources("/c") == ("log",)
