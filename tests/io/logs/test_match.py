"""From URIs to logs: globs, bag folders, names and splits."""

import pathlib
import re
import sys
import urllib.parse
from fractions import Fraction

import fsspec
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import RecipeError, UsageError
from logloom.io.logs.match import check_one_recording, group_logs, unique_template, waiting_threads
from logloom.io.logs.opening import open_log
from logloom.recipe import Recipe, patterns
from logloom.recipe.logs import expand_logs, log_id_of, split_of
from logloom.recipe.patterns import named_groups
from tests.transforms.ros2_logs import SECOND, SPEED, START, speeds, write_log


def recipe(logs, **more) -> Recipe:
    columns = {"speed": {"topic": "/can", "field": "speed"}}
    return Recipe(name="test", logs=logs, clock={"rate": 10}, columns=columns, **more)


def touch(folder: pathlib.Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def test_globs_files_and_repetitions_give_each_log_once_in_name_order(tmp_path):
    touch(tmp_path, "day2/b.mcap", "day1/a.mcap", "day1/c.bag", "day1/notes.txt")
    logs = expand_logs(recipe(["**/*.mcap", "day1/c.bag", "day1/a.mcap"]), str(tmp_path))
    assert [log.log_id for log in logs] == ["a", "b", "c"]
    assert logs[0].uris == (str(tmp_path / "day1/a.mcap"),)


def test_all_that_matches_nothing_is_said_at_once_with_its_line(tmp_path):
    text = (
        "name: t\nlogs:\n- '*.mcap'\n- gone.bag\n- .\nclock: {rate: 1}\ncolumns: {a: {topic: /a, field: a}}\n"
    )
    with pytest.raises(RecipeError) as caught:
        expand_logs(Recipe.from_yaml(text), str(tmp_path))
    lines = str(caught.value).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["recipe.yaml:3:", "recipe.yaml:4:", "recipe.yaml:5:"]
    assert "*.mcap: matches nothing" in lines[0]
    assert "gone.bag: there is no such file or folder" in lines[1]
    assert "no installed part reads a log that is this folder, nor one that is in it; there are" in lines[2]


def test_a_file_beside_its_metadata_stands_for_the_folder(tmp_path):
    touch(tmp_path, "drive/drive_0.mcap", "drive/drive_1.mcap", "other/x.mcap")
    (tmp_path / "drive/metadata.yaml").write_text("rosbag2_bagfile_information:\n  version: 5\n")
    (tmp_path / "other/metadata.yaml").write_text("author: somebody\n")  # no bag's
    for logs in (["*/*.mcap"], ["drive", "other/x.mcap"], ["drive/drive_1.mcap", "other/*.mcap"], ["*/*"]):
        found = expand_logs(recipe(logs), str(tmp_path))
        assert [log.log_id for log in found] == ["drive", "x"], logs
        assert [pathlib.Path(uri).name for uri in found[0].uris] == ["drive_0.mcap", "drive_1.mcap"]


NAMES = ["100%", "c%20d", "a#b", "a?b", "a*b", "x[1]", "[ab]", "sp ace"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_exists_is_no_pattern_and_is_not_decoded(tmp_path, name):
    touch(tmp_path, *(f"{one}.mcap" for one in [*NAMES, "a_b", "x1", "a", "c d", "b"]))
    (log,) = expand_logs(recipe([f"{name}.mcap"]), str(tmp_path))
    assert (log.log_id, log.uris) == (name, (str(tmp_path / f"{name}.mcap"),))
    (log,) = group_logs([f"file://{urllib.parse.quote(str(tmp_path / name))}.mcap"])
    assert (log.log_id, log.uris) == (name, (str(tmp_path / f"{name}.mcap"),))
    left = expand_logs(recipe(["*.mcap", f"!{name}.mcap"]), str(tmp_path))
    assert len(left) == len(NAMES) + 4
    assert name not in left.ids.to_pylist()


def test_a_name_that_does_not_exist_is_a_pattern(tmp_path):
    touch(tmp_path, "a_b.mcap", "x1.mcap", "x2.mcap", "x[3].mcap")
    logs = expand_logs(recipe(["a?b.mcap", "x[1].mcap", "x[[]*.mcap"]), str(tmp_path))
    assert logs.ids.to_pylist() == ["a_b", "x1", "x[3]"]


@pytest.mark.parametrize("scheme", ["", "memory://"])
def test_the_folder_of_a_recipe_is_no_pattern(tmp_path, scheme):
    folder = f"{scheme}{tmp_path}/campaign [winter] *"
    for place in (folder, f"{scheme}{tmp_path}/campaign w x"):
        for name in ("raw/a.mcap", "raw/b.mcap", "raw/x[1].mcap", "raw/x1.mcap"):
            with fsspec.open(f"{place}/{name}", "wb", **({} if scheme else {"auto_mkdir": True})):
                pass
    logs = expand_logs(recipe(["raw/*.mcap", "!raw/b.mcap", "!raw/x[1].mcap"]), folder)
    assert {uri.removeprefix(f"{folder}/") for log in logs for uri in log.uris} == {
        "raw/a.mcap",
        "raw/x1.mcap" if not scheme else "raw/x[1].mcap",  # only on a disk does an exclusion look
    }
    (log,) = expand_logs(recipe(["raw/x[1].mcap"]), folder)
    assert log.log_id == "x[1]"


def test_a_folder_that_is_no_log_gives_the_logs_in_it(tmp_path):
    touch(tmp_path, "night/a.mcap", "night/b.bag", "night/notes.txt", "night/plan.csv", "night/.hidden.mcap")
    touch(tmp_path, "night/split/c_0.mcap", "night/split/c_1.mcap", "night/empty/x.txt", "night/t/gps.csv")
    touch(tmp_path, "night/100%/e.mcap", "night/100%/f.bag")
    (tmp_path / "night/bag").mkdir()
    (tmp_path / "night/bag/metadata.yaml").write_text("rosbag2_bagfile_information:\n  version: 5\n")
    touch(tmp_path, "night/bag/d.mcap")
    skipped = []
    found = group_logs([str(tmp_path / "night")], None, skipped.append)
    assert found.ids.to_pylist() == ["a", "b", "bag", "split", "t"]
    assert [uri.removeprefix(f"{tmp_path}/night/") for log in found for uri in log.uris] == [
        *("a.mcap", "b.bag", "bag/d.mcap", "split/c_0.mcap", "split/c_1.mcap", "t/gps.csv")
    ]
    names = "100%/ (a folder with logs: give it, too), empty/, notes.txt, plan.csv"
    assert skipped == [f"{tmp_path}/night: skipped 4 names that no log has: {names}"]
    too = group_logs([str(tmp_path / "night"), str(tmp_path / "night/100%")])
    assert {"e", "f"} <= {*too.ids.to_pylist()}
    assert len(group_logs([str(tmp_path / "nigh?")])) == 5
    assert len(group_logs([str(tmp_path / "night/*")])) == 7  # a glob takes all files that match
    with pytest.raises(UsageError, match=r"nor one that is in it; .* Name the files below it"):
        group_logs([str(tmp_path)])


def test_folders_that_exist_are_no_patterns(tmp_path):
    touch(tmp_path, "day [1]/a.mcap", "day 1/b.mcap", "day [1]/deep/[x]/c.mcap", "day [1]/deep/x/d.mcap")
    for pattern, found in [
        ("day [1]/*.mcap", ["a"]),
        ("day [[]1]/*.mcap", ["a"]),
        ("day ?/*.mcap", ["b"]),
        ("day [1]/**/*.mcap", ["a", "c", "d"]),
        ("day [1]/*/[x]/*.mcap", ["d"]),
        ("day [1]/deep/[x]/*.mcap", ["c"]),
    ]:
        assert [log.log_id for log in group_logs([f"{tmp_path}/{pattern}"])] == found, pattern


def test_other_file_systems_keep_their_scheme():
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/match-test/day/a.mcap", b"x")
    (log,) = expand_logs(recipe(["day/*.mcap"]), "memory://match-test")
    assert log.uris == ("memory:///match-test/day/a.mcap",)
    assert fs.open(log.uris[0]).read() == b"x"
    fs.rm("/match-test", recursive=True)


def test_a_folder_is_listed_once_however_many_of_its_files_are_named(monkeypatch):
    fs = fsspec.filesystem("memory")
    names = [f"drive-{i:03}.mcap" for i in range(200)]
    for name in names:
        fs.pipe_file(f"/match-many/day/{name}", b"x")
    asked = []

    def told(kind, plain):
        def ask(self, path, *more, **options):
            asked.append((kind, path))
            return plain(self, path, *more, **options)

        return ask

    for kind in ("ls", "info", "exists", "isdir"):
        monkeypatch.setattr(type(fs), kind, told(kind, getattr(type(fs), kind)))
    logs = expand_logs(recipe([f"day/{name}" for name in names]), "memory://match-many")
    assert [f"{log.log_id}.mcap" for log in logs] == names
    assert asked == [("ls", "/match-many/day")]
    with pytest.raises(RecipeError, match=r"day/gone\.mcap: nothing is there; did you mean drive-\d+\.mcap"):
        expand_logs(recipe(["day/gone.mcap", *(f"day/{name}" for name in names)]), "memory://match-many")
    assert len(asked[1:]) <= 5  # of the log that is missing
    monkeypatch.undo()
    fs.rm("/match-many", recursive=True)


@pytest.mark.parametrize("base", ["disk", "memory"])
def test_hidden_files_match_only_a_pattern_that_begins_with_a_dot(tmp_path, base):
    names = ("d01.mcap", "._d01.mcap", ".d01.tmp.mcap", ".trash/d02.mcap", "day/d03.mcap", "day/._d03.mcap")
    bag = ("bag/bag_0.mcap", "bag/._bag_0.mcap")
    where = str(tmp_path) if base == "disk" else f"memory://hidden{tmp_path.name}"
    fs, folder = fsspec.url_to_fs(where)
    for name in (*names, *bag):
        fs.makedirs(f"{folder}/{name}".rpartition("/")[0], exist_ok=True)
        fs.pipe_file(f"{folder}/{name}", b"")
    fs.pipe_file(f"{folder}/bag/metadata.yaml", b"rosbag2_bagfile_information:\n  version: 5\n")

    def found(*patterns: str) -> list[str]:
        logs = expand_logs(recipe(list(patterns), log_id="{path}"), where)
        return sorted(uri.rpartition(tmp_path.name)[2][1:] for log in logs for uri in log.uris)

    assert found("*.mcap") == ["d01.mcap"]
    assert found("**/*.mcap") == ["bag/bag_0.mcap", "d01.mcap", "day/d03.mcap"]
    assert found("bag") == ["bag/bag_0.mcap"]
    assert found("._*.mcap") == ["._d01.mcap"]
    assert found(".*.mcap") == ["._d01.mcap", ".d01.tmp.mcap"]
    assert found(".trash/*.mcap") == [".trash/d02.mcap"]
    assert found("*/._*.mcap", "._*.mcap") == ["._d01.mcap", "bag/bag_0.mcap", "day/._d03.mcap"]


def test_a_link_stands_for_what_it_leads_to(tmp_path):
    touch(tmp_path, "bag/drive_0.mcap", "bag/drive_1.mcap", "a.mcap")
    (tmp_path / "bag.mcap").symlink_to(tmp_path / "bag")
    (tmp_path / "b.mcap").symlink_to(tmp_path / "a.mcap")
    (tmp_path / "broken.mcap").symlink_to(tmp_path / "gone")
    found = expand_logs(recipe(["bag.mcap", "b.mcap"]), str(tmp_path))
    assert [(log.log_id, len(log.uris)) for log in found] == [("b", 1), ("bag", 2)]
    with pytest.raises(RecipeError, match="a link to a missing place"):
        expand_logs(recipe(["broken.mcap"]), str(tmp_path))


def test_a_store_is_asked_by_more_threads_than_a_disk():
    assert waiting_threads(["/a", "file:///b"]) < waiting_threads(["/a", "gs://bucket/b"])


@pytest.mark.parametrize(
    ("uri", "template", "log_id"),
    [
        ("/data/car1/drive.mcap", "{stem}", "drive"),
        ("/data/car1/drive.2026.db3.zstd", "{stem}", "drive.2026"),
        ("gs://bucket/car1/drive.mcap", "{parent}-{stem}", "car1-drive"),
        ("gs://bucket/car1/drive.mcap", "{path}", "bucket/car1/drive"),
        ("/data/car1/.hidden", "{stem}", ".hidden"),
    ],
)
def test_templates_name_logs(uri, template, log_id):
    assert log_id_of(uri, template) == log_id


def test_an_expression_names_logs_and_must_match():
    named = recipe(["x"], log_id={"match": r"(?P<car>car\d+)/(?P<day>[^/]+)/", "as": "{car}-{day}"}).log_id
    assert log_id_of("gs://b/car7/2026-11-21/x.mcap", named) == "car7-2026-11-21"
    with pytest.raises(UsageError) as caught:
        log_id_of("gs://b/bus7/x.mcap", named)
    assert str(caught.value) == r"gs://b/bus7/x.mcap: doesn't match '(?P<car>car\d+)/(?P<day>[^/]+)/'"


def test_an_expression_that_goes_back_for_ever_elsewhere_is_searched_at_once():
    named = recipe(["x"], log_id={"match": r"(?P<run>(a+)+)$!|(?P<all>.*)", "as": "{run}{all}"}).log_id
    assert log_id_of("a" * 190 + "/x.mcap", named) == "a" * 190 + "/x.mcap"


URI = "/data/Müller/car_7/2026-11-21 b/x[1]{,3}.mcap"


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?P<x>\w+)/car",
        r"(?P<x>[\w.,{}-]+)\.mcap\Z",
        r"(?P<x>[^\d/]+)/(?P<y>\W?)",
        r"(?P<x>[^]/]+)\]",
        r"(?P<x>[][\d]+)",
        r"(?P<x>\S+\s\S)",
        r"(?P<x>[\s\D]+)",
        r"x(?P<x>.{,3})(?P<y>\D)",
        r"(?P<x>[{,]+)3",
        r"(?i)(?P<x>MÜLLER|car)",
        r"(?P<x>c|ca)(?P<y>ar)?(?P<z>z)?",
    ],
)
def test_an_expression_finds_what_pythons_own_finds(pattern):
    match = re.search(pattern, URI)
    assert named_groups(pattern, URI) == {name: found or "" for name, found in match.groupdict().items()}


def test_without_google_re2_an_expression_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    patterns._compiled.cache_clear()
    named = recipe(["x"], log_id={"match": r"(?P<all>.*)", "as": "{all}"}).log_id
    with pytest.raises(
        UsageError, match=r"google-re2, which is not installed; pip install 'logloom\[build\]'"
    ):
        log_id_of("a/b.mcap", named)
    assert log_id_of("a/b.mcap", "{stem}") == "b"


@pytest.mark.parametrize("name", ["..", "a/../b", "a\\b", "a\nb", "/a", "a//b", "x" * 201])
def test_a_log_id_that_could_leave_its_folder_is_refused(name):
    named = recipe(["x"], log_id={"match": r"^file:(?P<all>(?s:.*))$", "as": "{all}"}).log_id
    with pytest.raises(UsageError):
        log_id_of(f"file:{name}", named)


def test_files_with_one_log_id_are_one_log(tmp_path):
    touch(tmp_path, "car1/a.mcap", "car1/b.mcap", "car2/a.mcap")
    logs = expand_logs(recipe(["*/*.mcap"], log_id="{parent}"), str(tmp_path))
    assert [(log.log_id, len(log.uris)) for log in logs] == [("car1", 2), ("car2", 1)]


def test_the_shortest_template_that_tells_files_apart_is_found(tmp_path):
    assert unique_template(["/x/a/1.mcap", "/x/b/2.mcap"]) == "{stem}"
    assert unique_template(["/x/a/1.mcap", "/x/b/1.mcap"]) == "{parent}"
    assert unique_template(["/x/a/1.mcap", "/x/a/2.mcap", "/x/b/1.mcap"]) == "{parent}-{stem}"
    assert unique_template(["/x/a/1.mcap", "/y/a/1.mcap"]) == "{path}"
    assert unique_template(["/x/a.mcap", "/x/a.bag"]) is None
    touch(tmp_path, "a/1.mcap", "b/1.mcap")
    assert [log.log_id for log in group_logs([f"{tmp_path}/*/1.mcap"])] == ["a", "b"]


def test_two_unrelated_files_with_one_name_are_told_apart_by_a_suggestion(tmp_path):
    for folder in ("car1", "car2"):
        write_log(tmp_path / folder / "drive.mcap", {"/can": (SPEED, speeds())})
    write_log(tmp_path / "car3" / "drive.mcap", {"/can": (SPEED, speeds(start=START + 60 * SECOND))})
    (log,) = expand_logs(recipe(["*/drive.mcap"]), str(tmp_path))
    with pytest.raises(UsageError, match=r"log_id: '\{parent\}'` distinguishes all its files"):
        check_one_recording(log, [open_log([uri]).summary for uri in log.uris])
    check_one_recording(log, [open_log([uri]).summary for uri in log.uris[1:]])  # one after the other


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=5), st.text(max_size=20))
def test_a_split_is_the_first_whose_cumulative_share_exceeds_the_digest(weights, log_id):
    # Shares of six digits that sum to 1: what is left goes to the last.
    total, names = sum(weights), [f"s{i}" for i in range(len(weights) + 1)]
    shares = [Fraction(w * 10**6 // total, 10**6) for w in weights]
    shares.append(1 - sum(shares))
    made = recipe(["x"], split={n: f"{float(s):.6f}" for n, s in zip(names, shares, strict=True)})
    u = Fraction(int.from_bytes(blake3(log_id.encode()).digest()[:8], "big"), 2**64)
    expected = next(name for i, name in enumerate(names) if u < sum(shares[: i + 1]))
    assert split_of(made, log_id, ["/a/b.mcap"]) == expected


def test_a_split_may_keep_the_logs_of_a_folder_together():
    made = recipe(["x"], split={"train": 0.5, "val": 0.5, "by": "{parent}"})
    days = {
        f"day{i}": {split_of(made, f"log{j}", [f"/data/day{i}/{j}.mcap"]) for j in range(9)} for i in range(9)
    }
    assert all(len(splits) == 1 for splits in days.values())
    assert {split for splits in days.values() for split in splits} == {"train", "val"}
    assert split_of(recipe(["x"]), "any", ["/x"]) == "all"


def test_a_file_whose_name_is_no_text_can_not_name_a_log(tmp_path):
    with pytest.raises(UsageError, match="can't be a log_id"):
        log_id_of(recipe(["x"]), f"{tmp_path}/d\udcff.mcap")
