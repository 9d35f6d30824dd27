"""Whatever fails in one log stays in that log, as `on_error` says."""

import functools
import io
import re
import shutil

import pytest
from PIL import Image

import logloom.datasets
from logloom.errors import LogloomError, LogReadError
from logloom.io.logs.opening import open_log
from logloom.pipelines.build.build import build
from logloom.pipelines.plan import logs
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.verify.verify import verify
from logloom.recipe import Recipe
from logloom.transforms.build import commit
from logloom.transforms.rows import spans
from tests.forking import command
from tests.io.logs.messages.test_picture_structure import picture
from tests.tier import by_tier
from tests.transforms.ros2_logs import (
    COMPRESSED,
    SECOND,
    SPEED,
    START,
    TF,
    header,
    speeds,
    transform,
    write_log,
)

pytestmark = pytest.mark.usefixtures("_settled_at_once")

NUM = 20
TIMES = [START + i * SECOND // 10 for i in range(NUM)]
BAD = 7  # the message that is wrong


def undecodable():
    """A JPEG of sound structure, and a marker in its picture data that makes no sense there."""
    data = bytearray(picture(size=(64, 48)))
    scan = data.index(b"\xff\xda")
    data[scan + 30 : scan + 32] = b"\xff\xc4"
    with pytest.raises(OSError), Image.open(io.BytesIO(data)) as image:  # noqa: PT011 # of any kind
        image.load()
    return bytes(data)


def camera(**odd):
    pictures = {BAD: odd["picture"]} if odd else {}
    return COMPRESSED, [
        (t, {"header": header(t), "format": "jpeg", "data": pictures.get(i, picture(seed=i, size=(64, 48)))})
        for i, t in enumerate(TIMES)
    ]


def frames(name="lidar"):
    names = {BAD: name}
    return TF, [
        (t, {"transforms": [transform(t, "base", names.get(i, "lidar"))]}) for i, t in enumerate(TIMES)
    ]


def gears(gear=1):
    return SPEED, [
        (t, {**message, "gear": gear if i == BAD else 1}) for i, (t, message) in enumerate(speeds(NUM))
    ]


picture = functools.cache(picture)


class Fleet:
    """Two logs that are whole, and between them one in which a thing is wrong."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, name, odd=None, **topics):
        own = {"/can": (SPEED, speeds(NUM)), "/cam": camera(), "/tf": frames(), "/gear": gears()}
        own |= {f"/{topic}": made for topic, made in topics.items()}
        write_log(self.folder / f"logs/{name}.mcap", own)

    def plan(self, column, on_error, sample=None, outputs="parquet: {}", more="", clock="{rate: 10}"):
        text = (
            f"name: t\nlogs: [logs/*.mcap]\nclock: {clock}\non_error: {on_error}\n"
            f"columns:\n  speed: {{topic: /can, field: speed, resample: nearest}}\n  odd: {column}\n"
            f"{more}outputs: {{{outputs}}}\n"
        )
        recipe = Recipe.from_yaml(text, source="drive.yaml")
        return plan_build(recipe, str(self.root), base=str(self.folder), sample=sample)

    @property
    def root(self):
        return self.folder / "root"

    def built(self, column, on_error, **choices):
        """The record of the odd log; the others are whole."""
        done = build(self.plan(column, on_error, **choices))
        records = {record.log_id: record for record in done.manifest.logs}
        assert {records[name].status for name in ("a", "c")} == {"whole"}
        assert {records[name].rows for name in ("a", "c")} == {NUM}
        assert self.plan(column, on_error, **choices).up_to_date
        assert verify(str(self.root), num_workers=1).findings == ()
        return records["b"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with three whole logs."""
    fleet = Fleet(tmp_path_factory.mktemp("whole"))
    for name in ("a", "b", "c"):
        fleet.write(name)
    return fleet.folder


@pytest.fixture
def fleet(whole, tmp_path):
    shutil.copytree(whole / "logs", tmp_path / "logs")
    return Fleet(tmp_path)


CASES = {
    "cut picture as bytes": (
        {"cam": lambda: camera(picture=picture()[:800])},
        "{topic: /cam, field: data, resample: nearest}",
        "a JPEG of 800 bytes that is cut in its picture data",
        {"skip": "salvaged", "salvage": "salvaged"},
    ),
    "empty picture": (
        {"cam": lambda: camera(picture=b"")},
        "{topic: /cam, as: image, shape: [48, 64, 3], resample: nearest}",
        "a picture without data",
        {"skip": "salvaged", "salvage": "salvaged"},
    ),
    "picture that doesn't decode": (
        {"cam": lambda: camera(picture=undecodable())},
        "{topic: /cam, as: image, shape: [48, 64, 3], resample: nearest}",
        "an image of format 'jpeg' that doesn't decode",
        {"skip": "salvaged", "salvage": "salvaged"},
    ),
    "picture that doesn't decode and isn't made anew": (
        {"cam": lambda: camera(picture=undecodable())},
        "{topic: /cam, as: image, encode: jpg, resample: nearest}",
        "a picture that doesn't decode",
        {"skip": "salvaged", "salvage": "salvaged"},
    ),
    "picture of another size": (
        {"cam": lambda: camera(picture=picture(size=(8, 8)))},
        "{topic: /cam, as: image, shape: [48, 64, 3], resample: nearest}",
        r"its \(height, width, channels\) are \(8, 8, 3\)",
        {"skip": "salvaged", "salvage": "salvaged"},
    ),
    "long text": (
        {"tf": lambda: frames("a name that is too long")},
        "{topic: /tf, as: transforms, strings: 8, resample: nearest}",
        "the column keeps 8",
        {"skip": "skipped", "salvage": "salvaged"},
    ),
    "long text of a static column": (
        {"tf": lambda: (TF, [(TIMES[0], {"transforms": [transform(TIMES[0], "base", "a long name")]})])},
        "{topic: /tf, as: transforms, strings: 8, resample: static}",
        "the column keeps 8",
        {"skip": "skipped", "salvage": "salvaged"},
    ),
    "large number": (
        {"gear": lambda: gears(300)},
        "{topic: /gear, field: gear, dtype: uint8, resample: nearest}",
        "300 does not fit uint8",
        {"skip": "skipped", "salvage": "skipped"},
    ),
    "another field": (
        {"can": lambda: (("car_msgs/msg/Speed", SPEED[1].replace("speed", "pace")), [
            (t, {"header": header(t), "pace": 1.0, "gear": 1, "note": ""}) for t in TIMES])},
        "{topic: /can, field: gear, resample: nearest}",
        "car_msgs/Speed has no 'speed'",
        {"skip": "skipped", "salvage": "salvaged"},
    ),
    "no stamp": (
        {"tf": lambda: (("my_msgs/msg/Plain", "float64 x\n"), [(t, {"x": 1.0}) for t in TIMES])},
        "{topic: /tf, field: 'transforms[].header.stamp.sec', resample: nearest}",
        "my_msgs/Plain has no 'transforms'",
        {"skip": "skipped", "salvage": "salvaged"},
    ),
    "no transforms": (
        {"tf": lambda: (("my_msgs/msg/Plain", "float64 x\n"), [(t, {"x": 1.0}) for t in TIMES])},
        "{tf: {from: lidar, to: base}, as: position}",
        "has no stamped transforms",
        {"skip": "skipped", "salvage": "skipped"},
    ),
}  # fmt: skip


MODES = [("skip", None), ("salvage", 2)]
# In check each case in one mode, and each mode with many cases.
TRIED = [
    (name, *mode) for number, name in enumerate(CASES) for mode in by_tier(MODES[number % 2 :][:1], MODES)
]


@pytest.mark.parametrize(("name", "on_error", "sample"), TRIED)
def test_what_fails_in_one_log_stays_in_that_log(fleet, name, on_error, sample):
    topics, column, reason, statuses = CASES[name]
    fleet.write("b", **{topic: made() for topic, made in topics.items()})
    record = fleet.built(column, on_error, sample=sample)
    assert record.status == statuses[on_error]
    assert (record.rows > 0) == (record.status == "salvaged")
    assert any(re.search(reason, one) for one in record.reasons), record.reasons
    assert (record.refused > 0) == (record.status == "salvaged")


@pytest.mark.parametrize("name", CASES)
def test_under_fail_it_stops_the_build_and_is_said(fleet, name):
    topics, column, reason, _ = CASES[name]
    fleet.write("b", **{topic: made() for topic, made in topics.items()})
    with pytest.raises(LogloomError, match=reason) as error:
        build(fleet.plan(column, "fail"))
    assert "b.mcap" in str(error.value) or re.search(r"\bb (17|in )|log b", str(error.value))
    assert not list(fleet.root.glob("versions/*"))


@pytest.mark.parametrize(("on_error", "sample"), MODES)
def test_a_log_of_too_many_partitions_is_left_out_and_named(fleet, monkeypatch, on_error, sample):
    monkeypatch.setattr(spans, "MAX_SPANS", 5)
    more = "partition: {rows: 10}\n"
    column = "{topic: /gear, field: gear, resample: nearest}"
    fleet.write("b", can=(SPEED, speeds(200)))
    with pytest.raises(LogReadError, match=r"b\.mcap: .*partitions, more than 5"):
        fleet.plan(column, "fail", more=more)
    record = fleet.built(column, on_error, sample=sample, more=more)
    assert record.status == "skipped"
    assert "partitions, more than 5" in record.reasons[0]


@pytest.mark.parametrize("on_error", ["skip", "salvage"])
def test_a_log_whose_name_an_output_cannot_hold_is_left_out_and_named(fleet, on_error):
    (fleet.folder / "logs/b.mcap").rename(fleet.folder / f"logs/{'b' * 30}.mcap")
    column = "{tf: {from: lidar, to: base}, as: position}"
    more = "  turned: {tf: {from: lidar, to: base}, as: rotation_matrix}\n"
    outputs = "l5kit: {host: '{stem}', translation: odd, rotation: turned}"
    with pytest.raises(LogloomError, match="b" * 30):
        fleet.plan(column, "fail", outputs=outputs, more=more)
    done = build(fleet.plan(column, on_error, outputs=outputs, more=more))
    assert {record.log_id: record.status for record in done.manifest.logs} == {
        "a": "whole",
        "b" * 30: "skipped",
        "c": "whole",
    }


@pytest.mark.parametrize("on_error", ["skip", "salvage"])
def test_whatever_a_library_raises_of_a_log_that_is_opened_stays_in_that_log(fleet, monkeypatch, on_error):
    def opened(uris, options, log_id=""):
        if "b.mcap" in uris[0]:
            raise KeyError("odd")
        return open_log(uris, options, log_id)

    monkeypatch.setattr(logs, "open_log", opened)
    column = "{topic: /gear, field: gear, resample: nearest}"
    with pytest.raises(LogReadError, match=r"b\.mcap: KeyError: 'odd'"):
        fleet.plan(column, "fail")
    record = fleet.built(column, on_error)
    assert (record.status, record.reasons[0].endswith("KeyError: 'odd'")) == ("skipped", True)


@pytest.mark.parametrize("on_error", ["skip", "salvage"])
def test_sums_that_do_not_meet_leave_a_log_out_and_fail_the_build_where_none_may_be(
    fleet, monkeypatch, on_error
):
    def reconciled(plan, summary, tallies):
        if "b.mcap" in summary.uris[0]:
            raise LogloomError("its sums don't meet")
        return real(plan, summary, tallies)

    real = commit.reconcile
    monkeypatch.setattr(commit, "reconcile", reconciled)
    column = "{topic: /gear, field: gear, resample: nearest}"
    with pytest.raises(LogReadError, match="its sums don't meet"):
        build(fleet.plan(column, "fail"))
    record = fleet.built(column, on_error)
    assert (record.status, record.reasons) == ("skipped", ("its sums don't meet",))


def test_a_version_without_a_log_that_could_be_built_is_refused_and_says_why(fleet):
    for name in ("a", "b", "c"):
        fleet.write(name, gear=gears(300))
    plan = fleet.plan("{topic: /gear, field: gear, dtype: uint8, resample: nearest}", "salvage")
    with pytest.raises(LogloomError, match=r"no rows at all .*300 does not fit uint8"):
        build(plan)


def rows_of(fleet, log_id="b", output=None):
    return [row for row in logloom.datasets.open(str(fleet.root), output=output) if row["log_id"] == log_id]


@pytest.mark.parametrize("on_error", ["skip", "salvage"])
def test_a_picture_that_does_not_decode_is_unavailable_and_no_neighbour_takes_its_place(fleet, on_error):
    fleet.write("b", cam=camera(picture=undecodable()))
    column = "{topic: /cam, as: image, shape: [48, 64, 3], resample: nearest, tolerance: 1s}"
    record = fleet.built(column, on_error)
    assert record.refused == 1
    assert [i for i, row in enumerate(rows_of(fleet)) if not row["odd"].any()] == [BAD]


def test_rows_that_require_a_picture_that_does_not_decode_are_dropped_and_counted(fleet):
    fleet.write("b", cam=camera(picture=undecodable()))
    column = "{topic: /cam, as: image, shape: [48, 64, 3], resample: nearest}"
    done = build(fleet.plan(column, "salvage", more="rows: {require: [odd], where: speed >= 2}\n"))
    found = {record.log_id: (record.rows, dict(record.dropped)) for record in done.manifest.logs}
    assert found["b"] == (NUM - 3, {"require odd": 1, "where": 2})
    assert found["a"] == (NUM - 2, {"where": 2})


def test_a_window_goes_on_without_a_message_that_does_not_decode(fleet):
    fleet.write("b", cam=camera(picture=undecodable()))
    column = "{topic: /cam, as: image, shape: [48, 64, 3], resample: window, window: [-300ms, 0ms]}"
    record = fleet.built(column, "salvage", outputs="zarr: {}")
    assert [len(row["odd"]) for row in rows_of(fleet)] == [1, 2, *[3] * 5, *[2] * 3, *[3] * 10]
    assert record.refused == 1


@pytest.mark.parametrize(
    ("outputs", "on_error"),
    [({"parquet": "{images: {odd: jpg}}", "bags": "{}"}, "fail"), ({"tar": "{ext: {odd: jpg}}"}, "salvage")],
)
def test_as_bytes_a_picture_of_sound_structure_is_a_value_even_if_it_does_not_decode(
    fleet, outputs, on_error
):
    fleet.write("b", cam=camera(picture=undecodable()))
    named = ", ".join(f"{output}: {options}" for output, options in outputs.items())
    record = fleet.built("{topic: /cam, field: data, resample: nearest}", on_error, outputs=named)
    assert (record.status, record.refused) == ("whole", 0)
    for output in outputs:
        assert bytes(rows_of(fleet, output=output)[BAD]["odd"]) == undecodable(), output


def test_an_output_that_decodes_pictures_refuses_those_that_do_not(fleet):
    fleet.write("b", cam=camera(picture=undecodable()))
    column = "{topic: /cam, field: data, resample: nearest}"
    outputs = "lerobot: {fps: 10, features: {observation.state: speed, observation.images.front: odd}}"
    more = "rows: {require: [odd]}\n"
    for on_error in ("skip", "salvage"):
        done = build(fleet.plan(column, on_error, outputs=outputs, more=more))
        (record,) = [one for one in done.manifest.logs if one.log_id == "b"]
        assert (record.status, record.refused, record.rows) == ("salvaged", 1, NUM - 1)
        assert "a picture that doesn't decode" in record.reasons[0]
        assert dict(record.dropped) == {"require odd": 1}
    with pytest.raises(LogReadError, match="an image that doesn't decode"):
        build(fleet.plan(column, "fail", outputs=outputs, more=more))


def test_the_command_names_logs_and_messages_and_exits_with_3(fleet):
    fleet.write("b", cam=camera(picture=b""))
    fleet.write("d", gear=gears(300))
    (fleet.folder / "drive.yaml").write_text(
        "name: t\nlogs: [logs/*.mcap]\nclock: {rate: 10}\ncolumns:\n"
        "  cam: {topic: /cam, field: data, resample: nearest}\n"
        "  gear: {topic: /gear, field: gear, dtype: uint8, resample: nearest}\noutputs: {tar: {}}\n"
    )
    arguments = ("build", fleet.folder / "drive.yaml", "--to", fleet.root, "--quiet")
    for mode in ("skip", "salvage"):
        done = command(*arguments, "--on-error", mode)
        assert done.returncode == 3, done.stderr
        assert "salvaged: b: " in done.stderr
        assert "skipped: d: " in done.stderr
    done = command(*arguments)
    assert done.returncode == 1
    assert "b.mcap: /cam: a picture without data, at byte" in done.stderr
    assert "300 does not fit uint8" in done.stderr
