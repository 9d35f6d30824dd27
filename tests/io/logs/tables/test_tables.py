"""Tables as logs, held to what pandas reads of the same files."""

import pickle
import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from logloom.blocks import Ragged
from logloom.errors import LogloomError, LogReadError, UsageError
from logloom.io.logs.files.ranges import LogFile, content_id
from logloom.io.logs.interface import MAX_TIME, MIN_TIME, FieldSpec, OpenOptions, TopicRequest
from logloom.io.logs.match import group_logs
from logloom.io.logs.opening import kind_named, open_log
from logloom.io.logs.table_files import files as table_files
from logloom.io.logs.tables import named_files
from logloom.pipelines.doctor.doctor import examine
from tests.tier import by_tier

START = 1_700_000_000_000_000_000
STEP = 10_000_000
ALL = TopicRequest(MIN_TIME, MAX_TIME, ("header", "log"))
SALVAGE = OpenOptions(on_error="salvage")


@pytest.fixture(autouse=True)
def fresh_kinds():
    kind_named.cache_clear()


def poses(count=100, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "timestamp_ns": START + np.arange(count) * STEP,
            **{name: rng.normal(size=count) for name in ("tx_m", "ty_m", "tz_m", "qw", "qx", "qy", "qz")},
            "tracks": rng.integers(0, 1 << 40, count),
            "category": [f"CAR {i % 3} ü" for i in range(count)],
            "moving": rng.random(count) < 0.5,
        }
    )


def write(frame, path, rows=30):
    """Writes a table as the suffix says, in groups of `rows`."""
    table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=rows, write_page_checksum=True)
    elif path.suffix == ".feather":
        pa.feather.write_feather(table, str(path), chunksize=rows)
    else:
        table.to_pandas().to_csv(path, index=False)
    return path


def read_back(path):
    reader = {".parquet": pd.read_parquet, ".feather": pd.read_feather, ".csv": pd.read_csv}[path.suffix]
    return reader(path)


def column(log, topic, *paths, request=ALL, **more):
    messages = log.read({topic: request})[topic]
    spec = FieldSpec(paths, **more)
    values = messages.take(spec, np.arange(len(messages)))
    assert log.column_type(topic, spec).dtype == values.dtype
    return values


SUFFIXES = [".parquet", ".feather", ".csv"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_column_equals_what_pandas_reads(tmp_path, suffix):
    path = write(poses(), tmp_path / f"pose{suffix}")
    frame, log = read_back(path), open_log([str(path)])
    messages = log.read({"/pose": ALL})["/pose"]
    assert messages.time.tolist() == messages.log_time.tolist() == frame["timestamp_ns"].tolist()
    assert (np.diff(messages.position) > 0).all()
    for name in ("tx_m", "tracks", "moving", "timestamp_ns"):
        np.testing.assert_array_equal(column(log, "/pose", name), frame[name].to_numpy())
    assert [row.tobytes().decode() for row in column(log, "/pose", "category")] == frame["category"].tolist()
    together = column(log, "/pose", "tx_m", "ty_m", "tz_m")
    np.testing.assert_array_equal(together, frame[["tx_m", "ty_m", "tz_m"]].to_numpy())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_folder_of_tables_is_one_log(tmp_path, suffix):
    folder = tmp_path / "drive-7"
    folder.mkdir()
    write(poses(), folder / f"pose{suffix}")
    write(poses(10), folder / f"annotations{suffix}")
    (folder / "README.txt").write_text("no table")
    (found,) = group_logs([str(folder)])
    assert found.log_id == "drive-7"
    log = open_log(found.uris)
    summary = log.summary
    assert {topic: info.num_messages for topic, info in summary.topics.items()} == {
        "/annotations": 10,
        "/pose": 100,
    }
    assert (summary.first, summary.last) == (START, START + 99 * STEP)
    assert summary.chunk_times.shape == (len(summary.chunk_bytes), 2)
    again = pickle.loads(pickle.dumps(log))
    assert again.summary.content_id == summary.content_id
    assert examine(found, SALVAGE).is_healthy


def test_a_folder_without_tables_says_what_it_lacks(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(UsageError, match=r"no installed part reads a log that is this folder.*tables"):
        group_logs([str(tmp_path)])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_random_rows_of_random_spans_equal_those_of_pandas(tmp_path, suffix):
    path = write(poses(200), tmp_path / f"pose{suffix}", rows=17)
    frame, log, rng = read_back(path), open_log([str(path)]), random.Random(4)
    for _ in range(20):
        start, stop = sorted(START + rng.randrange(-5 * STEP, 205 * STEP) for _ in range(2))
        mine = frame[(frame["timestamp_ns"] >= start) & (frame["timestamp_ns"] < stop)]
        messages = log.read({"/pose": TopicRequest(start, stop, ("log",)), "/none": ALL})["/pose"]
        assert messages.time.tolist() == mine["timestamp_ns"].tolist()
        rows = np.array([rng.randrange(len(mine)) for _ in range(9 if len(mine) else 0)], np.intp)
        got = messages.take(FieldSpec(("qx", "tx_m")), rows)
        np.testing.assert_array_equal(got, mine[["qx", "tx_m"]].to_numpy()[rows])


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_only_the_groups_and_columns_that_are_asked_for_are_read(tmp_path, suffix, monkeypatch):
    log = open_log([str(write(poses(), tmp_path / f"pose{suffix}"))])
    log.summary  # noqa: B018 (reads the times)
    read = []
    kind = table_files.ParquetTable if suffix == ".parquet" else table_files.FeatherTable
    plain = kind.read
    monkeypatch.setattr(kind, "read", lambda *a: read.append((a[1], list(a[2]))) or plain(*a))
    span = TopicRequest(START + 65 * STEP, START + 80 * STEP, ("log",))
    assert column(log, "/pose", "tx_m", "qx", request=span).shape == (15, 2)
    column(log, "/pose", "qx", request=span)
    assert read == [(2, ["qx", "tx_m"])]


def test_lists_become_ragged_rows_and_structs_structured_ones(tmp_path):
    point = pa.struct([("x", pa.float32()), ("y", pa.float32())])
    box = pa.struct([("id", pa.int32()), ("name", pa.string()), ("at", point)])
    rows = [[{"id": i, "name": f"n{i}", "at": {"x": i, "y": -i}} for i in range(n)] for n in (2, 0, 3)]
    table = pa.table(
        {
            "timestamp": pa.array([START, START + 1, START + 2], pa.timestamp("ns", "UTC")),
            "ranges": pa.array([[1.0, 2.0], [], [3.0]], pa.list_(pa.float64())),
            "matrix": pa.array([[1, 2, 3, 4]] * 3, pa.list_(pa.int16(), 4)),
            "points": pa.array(
                [[[1, 2, 3]], [], [[4, 5, 6], [7, 8, 9]]], pa.list_(pa.list_(pa.float32(), 3))
            ),
            "boxes": pa.array(rows, pa.list_(box)),
            "pose": pa.array([{"x": 1, "y": 2}] * 3, point),
            "jpeg": pa.array([b"\xff\xd8", b"", b"abc"], pa.binary()),
            "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
            "exposure": pa.array([5, 6, 7], pa.duration("us")),
            "half": pa.array([1.5, 2.5, None], pa.float16()),
        }
    )
    log = open_log([str(write(table, tmp_path / "scan.parquet", rows=2))])
    ranges = column(log, "/scan", "ranges")
    assert [row.tolist() for row in ranges] == [[1, 2], [], [3]]
    np.testing.assert_array_equal(column(log, "/scan", "matrix"), [[1, 2, 3, 4]] * 3)
    assert column(log, "/scan", "matrix[2]").tolist() == [3, 3, 3]
    assert column(log, "/scan", "matrix[1:3]").tolist() == [[2, 3]] * 3
    boxes = column(log, "/scan", "boxes")
    assert isinstance(boxes, Ragged)
    assert boxes[2]["name"].tolist() == ["n0", "n1", "n2"]
    assert boxes[2]["at"]["y"].tolist() == [0, -1, -2]
    assert [row.tolist() for row in column(log, "/scan", "boxes[].at.x")] == [[0, 1], [], [0, 1, 2]]
    np.testing.assert_array_equal(column(log, "/scan", "pose"), [[1, 2]] * 3)
    assert [row.tobytes() for row in column(log, "/scan", "jpeg")] == [b"\xff\xd8", b"", b"abc"]
    assert log.column_type("/scan", FieldSpec(("jpeg",))).kind == "bytes"
    assert [row.tobytes() for row in column(log, "/scan", "kind")] == [b"a", b"b", b"a"]
    assert column(log, "/scan", "exposure").tolist() == [5000, 6000, 7000]
    np.testing.assert_array_equal(column(log, "/scan", "half"), np.array([1.5, 2.5, np.nan], "f4"))
    messages, long_enough = log.read({"/scan": ALL})["/scan"], np.array([0, 2])
    for path, expected in {
        "boxes[1].at": [[1, -1]] * 2,
        "boxes[0:2].id": [[0, 1]] * 2,
        "boxes[1].name": ["n1"] * 2,
        "ranges[0]": [1, 3],
    }.items():
        assert messages.take(FieldSpec((path,)), long_enough).tolist() == expected
        with pytest.raises(LogReadError, match=r"at row 1: .* has 0 elements, fewer than [12]"):
            messages.take(FieldSpec((path,)), np.arange(3))
    with pytest.raises(UsageError, match="points"):  # lists of lists are left out
        log.column_type("/scan", FieldSpec(("points",)))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("name", ["timestamp", "time", "stamp"])
def test_timestamps_of_any_unit_are_nanoseconds(tmp_path, unit, name):
    times = pa.array([1_700_000_000, 1_700_000_001], pa.timestamp("s")).cast(pa.timestamp(unit))
    path = write(pa.table({name: times, "v": [1, 2]}), tmp_path / "a.feather")
    assert open_log([str(path)]).read({"/a": ALL})["/a"].time.tolist() == [START, START + 10**9]


@pytest.mark.parametrize(("unit", "factor"), [("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_integer_times_have_the_unit_that_their_size_or_their_name_tells(tmp_path, suffix, unit, factor):
    times = np.array([START, START + 10**9, START + 5 * 10**9]) // factor
    expected = [START, START + 10**9, START + 5 * 10**9]
    for name, given in [
        ("timestamp", times),
        (f"timestamp_{unit}", times),
        (f"timestamp_{unit}", times % 97),
    ]:
        path = write(pd.DataFrame({name: given, "v": [1, 2, 3]}), tmp_path / f"a{suffix}", rows=2)
        found = open_log([str(path)]).read({"/a": ALL})["/a"].time.tolist()
        assert found == (expected if given is times else (given * factor).tolist())


@pytest.mark.parametrize(
    "times",
    [
        [0, 10, 20],
        [-START, START],
        [START // 1000, START],  # of two units
        [10**10, 10**10 + 1],
        [0, START],
    ],
)
def test_integer_times_of_no_clear_unit_are_refused_with_the_way_out(tmp_path, times):
    path = write(pd.DataFrame({"time": times, "v": times}), tmp_path / "a.parquet", rows=1)
    with pytest.raises(
        LogReadError, match=r"a\.parquet: column time: .*name the column after it \(timestamp_ns"
    ):
        open_log([str(path)]).summary  # noqa: B018


def test_times_beyond_64_bits_are_refused_and_never_wrap(tmp_path):
    path = write(pd.DataFrame({"timestamp_s": [1, 1 << 62], "v": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(LogReadError, match="don't fit 64 bits"):
        open_log([str(path)]).summary  # noqa: B018


def test_times_in_float_seconds_are_taken_with_a_note_of_their_resolution(tmp_path):
    path = write(pd.DataFrame({"timestamp": [1.7e9, 1.7e9 + 0.1], "v": [1, 2]}), tmp_path / "a.parquet")
    log = open_log([str(path)])
    assert log.read({"/a": ALL})["/a"].time.tolist() == [START, START + 99_999_905]
    assert log.time_notes(str(path)) == ["float seconds resolve 238 ns here"]


LOCAL = "its times have no zone and are taken as UTC; if they are local, write "


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("time,v\n14.11.2023 22:13:20,1\n", f"{LOCAL}tables: [{{files: a.csv, time: {{column: time, zone: "),
        ("Zeit;v\n14.11.2023 22:13:20,5;1\n", f"{LOCAL}`zone: Europe/Berlin`, or what it is, in its `time`"),
        (
            "Date;Time;v\n2023-11-14;22:13:20;1\n",
            f"{LOCAL}`zone: Europe/Berlin`, or what it is, in its `time`",
        ),
        ("time,v\n2023-11-14 22:13:20+01:00,1\n", ""),
        ("time,v\n1700000000.5,1\n", ""),
    ],
)
def test_times_as_text_without_a_zone_are_noted(tmp_path, text, note):
    path = tmp_path / "a.csv"
    path.write_text(text)
    log = open_log([str(path)], OpenOptions(guesses_tables=True))
    notes = log.time_notes(str(path))
    assert len(notes) == bool(note)
    assert "".join(notes).startswith(note)


def test_a_table_without_times_is_refused_with_the_names_that_it_could_have(tmp_path):
    path = write(pd.DataFrame({"when": [1], "v": [1]}), tmp_path / "a.csv")
    with pytest.raises(LogReadError, match=r"timestamp_ns, .*timestamp_s, timestamp, time, stamp"):
        open_log([str(path)]).summary  # noqa: B018


def test_rows_without_time_stop_a_reader_unless_it_salvages(tmp_path):
    table = pa.table({"time": pa.array([START, None, START + 2]), "v": [1, 2, 3]})
    path = str(write(table, tmp_path / "a.parquet"))
    with pytest.raises(LogReadError, match=r"/a: it has no time, at row 1;"):
        open_log([path]).summary  # noqa: B018
    log = open_log([path], SALVAGE)
    assert column(log, "/a", "v").tolist() == [1, 3]
    assert [refusal.topic for refusal in log.summary.refusals] == ["/a"]
    assert log.summary.topics["/a"].num_messages == 3


def test_a_null_is_never_read_as_a_number(tmp_path):
    table = pa.table({"time": [START, START + 1], "v": pa.array([1, None]), "f": pa.array([None, 1.0])})
    log = open_log([str(write(table, tmp_path / "a.parquet"))])
    np.testing.assert_array_equal(column(log, "/a", "f"), [np.nan, 1.0])
    with pytest.raises(LogReadError, match=r"a\.parquet: v at row 1: v is null"):
        column(log, "/a", "v")


def test_files_of_one_topic_are_joined_in_name_order(tmp_path):
    frame = poses()
    for name, part in (("1", frame[:40]), ("2", frame[40:])):
        (tmp_path / name).mkdir()
        write(part, tmp_path / name / "pose.parquet")
    log = open_log([str(tmp_path / name / "pose.parquet") for name in ("2", "1")])
    np.testing.assert_array_equal(column(log, "/pose", "tx_m"), frame["tx_m"])
    last = log.last_message("/pose")
    assert last.take(FieldSpec(("tracks",)), np.array([0])).tolist() == [frame["tracks"].iloc[-1]]
    write(frame.drop(columns="qw"), tmp_path / "2" / "pose.parquet")
    with pytest.raises(LogReadError, match=r"other columns than .*1/pose.parquet \(qw: none and double\)"):
        open_log([str(tmp_path / name / "pose.parquet") for name in ("2", "1")]).summary  # noqa: B018
    write(frame[frame.columns[::-1]], tmp_path / "2" / "pose.parquet")
    with pytest.raises(LogReadError, match=r"other columns than .*1/pose.parquet \(their order\)"):
        open_log([str(tmp_path / name / "pose.parquet") for name in ("2", "1")]).summary  # noqa: B018


def test_adapters_read_columns_by_their_names(tmp_path):
    frame = pd.DataFrame({"time": [START], "latitude": [1.0], "longitude": [2.0], "altitude": [3.0]})
    log = open_log([str(write(frame, tmp_path / "gps.csv"))])
    assert column(log, "/gps", adapter="navsat").tolist() == [[1.0, 2.0, 3.0]]
    with pytest.raises(UsageError, match="did you mean latitude"):
        log.column_type("/gps", FieldSpec(("latitud",)))


def test_a_table_in_an_object_store_is_read_in_ranges(tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    path = write(poses(), tmp_path / "pose.parquet")
    memory.pipe_file("/tables/pose.parquet", path.read_bytes())
    (found,) = group_logs(["memory://tables"])
    log = open_log(found.uris)
    np.testing.assert_array_equal(column(log, "/pose", "qx"), poses()["qx"])


def test_a_recipe_suggested_for_a_folder_of_tables_builds_its_columns(tmp_path):
    from logloom.pipelines.info.info import suggested_recipe
    from logloom.recipe import Recipe

    folder = tmp_path / "drive-7"
    folder.mkdir()
    write(poses(), folder / "pose.parquet")
    recipe = Recipe.from_yaml(suggested_recipe([str(folder)], {}), source="suggested")
    assert {column.topic for column in recipe.columns.values()} == {"/pose"}


FILES = FieldSpec(("filename",), adapter="file")


def samples(tmp_path, *names):
    frame = pd.DataFrame({"timestamp": START + np.arange(len(names)), "filename": list(names)})
    folder = tmp_path / "scene"
    folder.mkdir()
    return open_log([str(write(frame, folder / "camera.csv"))]), folder


def test_a_column_of_paths_is_taken_as_the_bytes_of_its_files(tmp_path):
    names = [f"samples/CAM_FRONT/{i}.jpg" for i in range(5)]
    log, folder = samples(tmp_path, *names, names[0])
    (folder / "samples" / "CAM_FRONT").mkdir(parents=True)
    for i, name in enumerate(names):
        (folder / name).write_bytes(bytes([i]) * i)
    messages = log.read({"/camera": ALL})["/camera"]
    taken = messages.take(FILES, np.array([5, 3, 0]))
    assert [row.tobytes() for row in taken] == [b"", b"\3\3\3", b""]
    assert log.column_type("/camera", FILES).kind == "bytes"
    with pytest.raises(UsageError, match="is no text"):
        log.column_type("/camera", FieldSpec(("timestamp",), adapter="file"))
    (folder / names[3]).unlink()
    with pytest.raises(LogReadError, match=r"3\.jpg: there is no such file"):
        messages.take(FILES, np.array([3]))


def test_the_content_id_tells_when_a_named_file_changes_its_size_comes_or_goes(tmp_path):
    names = [f"samples/{i}.jpg" for i in range(5)]
    _, folder = samples(tmp_path, *names)
    bare = content_of(folder)
    (folder / "samples").mkdir()
    assert content_of(folder) == bare  # nothing is there, so nothing says that these texts name files
    seen = [bare]
    for i, size in [(1, 3), (3, 8), (3, 9)]:
        (folder / names[i]).write_bytes(bytes(size))
        seen.append(content_of(folder))
    (folder / "samples" / "other.jpg").write_bytes(b"not named")
    assert content_of(folder) == seen[-1]
    (folder / names[3]).unlink()
    seen.append(content_of(folder))
    assert len(set(seen)) == 4  # the last equals the one before file 3 came
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    assert content_of(moved) == seen[-1]


def content_of(folder):
    return open_log([str(folder / "camera.csv")]).summary.content_id


def test_texts_that_name_no_files_cost_no_listing(tmp_path, monkeypatch):
    path = write(poses(), tmp_path / "pose.parquet")
    (tmp_path / "CAR 0").mkdir()
    monkeypatch.setattr(named_files, "_listed", None)
    log = open_log([str(path)])
    assert log.summary.content_id == content_id(LogFile(str(path)))


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/../../secret", "link", "file:///etc/passwd", "a\\..\\b", "."]
)
def test_no_path_in_a_table_leaves_its_folder(tmp_path, name):
    log, folder = samples(tmp_path, name)
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    messages = log.read({"/camera": ALL})["/camera"]
    with pytest.raises(LogReadError, match=r"within this folder|outside this folder"):
        messages.take(FILES, np.array([0]))


def test_a_recipe_may_take_files_into_a_dataset(tmp_path):
    from logloom.pipelines.build.build import build
    from logloom.pipelines.head.head import head
    from logloom.pipelines.plan.plan import plan_build
    from logloom.recipe import Recipe

    _, folder = samples(tmp_path, "0.bin", "1.bin")
    for i in range(2):
        (folder / f"{i}.bin").write_bytes(bytes([i]))
    recipe = Recipe.from_yaml(
        f"""
name: scenes
logs: [{folder}]
clock: {{topic: /camera}}
columns:
  camera: {{topic: /camera, field: filename, as: file, tolerance: 1s}}
outputs: {{tar: {{}}}}
""",
        source="test",
    )
    build(plan_build(recipe, str(tmp_path / "root")), num_workers=1)
    rows = head(str(tmp_path / "root"))
    assert [row.values["camera"] for row in rows] == [b"\0", b"\1"]
    assert {row.values["log_id"] for row in rows} == {"scene"}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_mutated_files_give_an_error_or_rows_and_never_a_crash(tmp_path, suffix):
    path = write(poses(60), tmp_path / f"pose{suffix}")
    whole, rng = path.read_bytes(), random.Random(1)
    refused = 0
    for _ in range(by_tier(60, 750)):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        path.write_bytes(bytes(data))
        refused += not reads_or_refuses(path)
    assert refused > 5


def reads_or_refuses(path):
    """Whether the table could be read; what it refuses must name the file."""
    said = ""
    try:
        log = open_log([str(path)], OpenOptions(max_chunk_bytes=1 << 22))
        assert all(len(column(log, "/pose", name)) <= 70 for name in ("tx_m", "category"))
    except LogloomError as error:
        said = str(error)
    assert not said or str(path) in said
    return not said


def test_the_place_of_a_row_has_its_line_and_its_number_among_rows_with_a_time(tmp_path):
    times = pa.array([START, None, START + STEP, START + 2 * STEP], pa.int64())
    path = write(pa.table({"timestamp_ns": times, "v": [1, 2, 3, 4]}), tmp_path / "t.parquet", rows=2)
    log = open_log([str(path)], SALVAGE)
    places = log.places("/t", log.read({"/t": ALL})["/t"].position)
    assert [(place.uri, place.unit, place.offset, place.number) for place in places] == [
        (str(path), "row", line, number) for number, line in enumerate([0, 2, 3])
    ]
