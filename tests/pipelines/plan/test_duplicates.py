"""One recording under several names: named by plan, build and doctor, and never in two splits."""

import itertools
import json
import os
import pathlib
import shutil
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcap_ros2.writer import Writer

from logloom.errors import InputError
from logloom.io.catalog.manifest import read_manifest
from logloom.io.logs import duplicates as comparing
from logloom.io.logs.files.ranges import MIB, LogFile
from logloom.io.storage.store import Store
from logloom.pipelines.build.build import build
from logloom.pipelines.plan.duplicates import EqualLog, settled
from logloom.pipelines.plan.plan import plan_build
from logloom.pipelines.plan.summary import plan_summary
from logloom.pipelines.purge.purge import purge
from logloom.pipelines.verify.verify import verify
from logloom.pipelines.versions.rollback import plan_drop
from logloom.recipe import Recipe
from logloom.recipe.logs import split_of
from logloom.transforms.build.settings import BuildSettings
from tests.forking import command as logloom
from tests.tier import by_tier
from tests.transforms.ros2_logs import SECOND, SPEED, START, speeds, write_log

pytestmark = pytest.mark.usefixtures("_settled_at_once")

SPLIT = "split: {train: 0.5, val: 0.5, by: log_id}\n"


def recipe_text(logs: str, *more: str) -> str:
    text = f"name: t\nlogs: {logs}\nclock: {{rate: 10}}\noutputs: {{tar: {{}}}}\n"
    return text + "columns:\n  speed: {topic: /can, field: speed}\n" + "".join(more)


@pytest.fixture
def night(tmp_path):
    """What a night plans, builds or refuses over the logs of a folder."""
    return Night(tmp_path)


class Night:
    def __init__(self, folder: pathlib.Path):
        self.logs, self.root = folder / "logs", folder / "root"
        self.logs.mkdir()

    def record(self, *names: str) -> None:
        """Logs that differ in their sizes."""
        for name in names:
            write_log(
                self.logs / f"{name}.mcap",
                {"/can": (SPEED, speeds(count=20 + len(list(self.logs.iterdir()))))},
            )

    def copy(self, of: str, *names: str) -> None:
        for name in names:
            shutil.copy2(self.logs / f"{of}.mcap", self.logs / f"{name}.mcap")

    def plan(self, *more: str, logs: str = "", split: str = SPLIT, **choices):
        text = recipe_text(logs or f"['{self.logs}/*.mcap']", split, *more)
        choices = {"settings": BuildSettings(allow_empty=True), **choices}  # of splits
        return plan_build(Recipe.from_yaml(text, source="drive.yaml"), str(self.root), **choices)

    def build(self, *more: str, **choices):
        """By log, its split and what it is a duplicate of."""
        manifest = build(self.plan(*more, **choices)).manifest
        return {log.log_id: (log.split, log.duplicate_of) for log in manifest.logs}


def other_split(night: Night, name: str) -> tuple[str, str]:
    """The name of a log that falls into another split than the named one, and that split."""
    recipe = Recipe.from_yaml(recipe_text("['x']", SPLIT), source="drive.yaml")
    own = split_of(recipe, name, ["x"])
    found = (f"z{n}" for n in itertools.count() if split_of(recipe, f"z{n}", ["x"]) != own)
    return next(found), own


# --- the rule ------------------------------------------------------------------------------------------

MEMBERS = st.builds(
    lambda name, split, state: EqualLog(name, split, *state),
    st.sampled_from("abcdef"),
    st.sampled_from(["train", "val"]),
    st.sampled_from(
        [(False,), (True,), (True, True), (True, False, False, "is gone"), (True, True, True, "is gone")]
    ),
)


@given(st.lists(MEMBERS, min_size=2, unique_by=lambda one: one.log_id), st.randoms())
def test_all_duplicates_share_one_split_which_a_log_that_was_built_decides(members, random):
    found = settled(members)
    assert len(found) == len(members) - 1
    (first,) = {one.duplicate_of for one in found}
    (split,) = {one.split for one in found}
    (leader,) = (one for one in members if one.log_id == first)
    assert split == leader.split
    assert leader.is_built or not any(one.is_built for one in members)
    if leader.is_built is False:
        assert first == min(one.log_id for one in members)
    if any(one.staying and not one.is_marked for one in members):
        assert leader.staying
    random.shuffle(members)
    assert settled(members) == found


def texts(plan):
    return [warning.text for warning in plan.warnings]


# --- plans and builds ------------------------------------------------------------------------------------


def test_a_copy_shares_the_split_of_the_log_that_was_built_first_and_its_record_says_so(night):
    late, own = other_split(night, "m")
    early = f"a{late}"
    night.record("m", "other")
    assert night.build()["m"] == (own, "")
    night.copy("m", early, late)
    plan = night.plan()
    assert plan_summary(plan)["duplicates"] == {
        name: {"duplicate_of": "m", "split": own, "left_out": False} for name in (early, late)
    }
    assert any(f"{late}: same content as m, which was built first" in text for text in texts(plan))
    found = night.build()
    assert found["m"] == (own, "")
    assert found[early] == found[late] == (own, "m")
    plan = night.plan()
    assert plan.up_to_date
    assert sorted(plan.duplicates) == [early, late]
    assert verify(str(night.root), num_workers=1).findings == ()


def test_of_logs_that_are_new_the_first_name_decides_the_split(night):
    late, own = other_split(night, "m")
    night.record("m")
    night.copy("m", late)
    assert night.build() == {"m": (own, ""), late: (own, "m")}


def test_a_log_whose_original_leaves_falls_into_its_own_split_again(night):
    late, own = other_split(night, "m")
    night.record("m")
    night.copy("m", late)
    night.build()
    (night.logs / "m.mcap").unlink()
    ((name, (split, of)),) = night.build("vanished: drop\n").items()
    assert (name, of) == (late, "")
    assert split != own


def test_a_log_that_was_renamed_shares_the_split_of_the_rows_that_are_kept(night):
    late, own = other_split(night, "m")
    night.record("m")
    night.build()
    (night.logs / "m.mcap").rename(night.logs / f"{late}.mcap")
    assert night.build("vanished: keep\n") == {"m": (own, ""), late: (own, "m")}
    plan = night.plan("vanished: keep\n")
    assert plan.up_to_date
    assert "keeps only the rows of the first, whose files are missing" in texts(plan)[0]
    assert night.build("vanished: keep\n", "duplicates: keep_first\n") == {"m": (own, "")}


def test_a_duplicate_whose_file_vanished_is_kept_in_the_split_that_it_shared(night):
    late, own = other_split(night, "m")
    night.record("m")
    night.copy("m", late)
    night.build()
    (night.logs / f"{late}.mcap").unlink()
    assert night.build("vanished: keep\n") == {"m": (own, ""), late: (own, "m")}
    assert night.plan("vanished: keep\n").up_to_date


def test_keep_first_builds_one_of_them_and_counts_the_others(night):
    night.record("m", "other")
    night.copy("m", "a", "z")
    plan = night.plan("duplicates: keep_first\n")
    assert plan_summary(plan)["logs_to_read"] == 2
    assert plan_summary(plan)["duplicates_left_out"] == 2
    assert sorted(night.build("duplicates: keep_first\n")) == ["a", "other"]
    assert night.plan("duplicates: keep_first\n").up_to_date
    assert sorted(night.build()) == ["a", "m", "other", "z"]
    assert sorted(night.build("duplicates: keep_first\n")) == ["a", "other"]


def test_fail_names_each_of_them_and_which_log_it_repeats(night):
    night.record("m")
    night.copy("m", "a", "z")
    with pytest.raises(
        InputError, match=r"2 logs have the content of another one.*\n  m: .* as a\n  z: .* as a"
    ):
        night.plan("duplicates: fail\n")
    (night.logs / "a.mcap").unlink()
    (night.logs / "z.mcap").unlink()
    night.build("duplicates: fail\n")


def test_marks_change_without_building_rows_again(night):
    night.record("m", "other")
    night.copy("m", "z")
    night.build(split="")
    assert night.build(split="") == {"m": ("all", ""), "other": ("all", ""), "z": ("all", "m")}
    night.logs.joinpath("m.mcap").unlink()
    plan = night.plan("vanished: drop\n", split="")
    assert plan.logs == ()
    assert night.build("vanished: drop\n", split="") == {"other": ("all", ""), "z": ("all", "")}


def test_a_table_that_says_two_splits_of_one_recording_is_overruled_and_warned_of(night):
    night.record("m", "other")
    night.copy("m", "z")
    listed = {"path": [f"{name}.mcap" for name in ("m", "other", "z")], "split": ["train", "train", "val"]}
    pq.write_table(pa.table(listed), night.logs / "drives.parquet")
    table = f"{{table: '{night.logs}/drives.parquet', uri: path, split: split}}"
    (warning,) = texts(night.plan(logs=table, split=""))
    assert "z: same content as m: both are in split 'train' instead of 'val'" in warning
    assert night.build(logs=table, split="")["z"] == ("train", "m")


def test_workers_open_no_duplicates_first_so_a_sample_finds_them_all(night):
    late, own = other_split(night, "m")
    night.record("a", "b", "c", "m", "o", "p", "q")
    night.copy("m", late)
    plan = night.plan(sample=2)
    assert plan.left
    assert {name: one.duplicate_of for name, one in plan.duplicates.items()} == {late: "m"}
    assert night.build(sample=2)[late] == (own, "m")


def test_new_logs_that_workers_open_are_compared_with_rows_that_are_kept(night):
    late, own = other_split(night, "m")
    night.record("m")
    night.build()
    (night.logs / "m.mcap").rename(night.logs / f"{late}.mcap")
    night.record("a", "b", "c", "o", "p", "zz")
    assert night.build("vanished: keep\n", sample=2)[late] == (own, "m")


@pytest.fixture
def dropped(night):
    """A night whose log m was dropped, before a copy came."""
    night.record("m", "other")
    night.build()
    build(plan_drop(Store.at(str(night.root)), ["m"]))
    night.copy("m", "it's")
    return night


def test_a_copy_of_a_log_that_was_dropped_is_doubtful_until_a_version_has_it(dropped):
    (warning,) = [one for one in dropped.plan().warnings if one.kind == "duplicate"]
    assert warning.text == (
        "it's: same content as m, which was dropped, and it is built; to leave it out as well, "
        "set `duplicates: keep_first`, or once it is built: "
        f"""`logloom drop {dropped.root} 'it'"'"'s'`"""
    )
    assert warning.is_doubtful
    assert sorted(dropped.build()) == ["it's", "m", "other"]
    (warning,) = [one for one in dropped.plan().warnings if one.kind == "duplicate"]
    assert "and it is in the dataset; to leave it out as well: `logloom drop" in warning.text
    assert not warning.is_doubtful
    assert sorted(dropped.build("duplicates: keep_first\n")) == ["it's", "m", "other"]


def test_fail_refuses_a_copy_of_a_log_that_was_dropped_and_says_what_builds_it(dropped):
    with pytest.raises(
        InputError, match=r"`duplicates: warn` builds these:\n  it's: same content as m, which was dropped"
    ):
        dropped.plan("duplicates: fail\n")


def test_keep_first_brings_no_copy_of_a_log_in_that_was_dropped(night):
    night.record("m", "other")
    night.copy("m", "z")
    first = "duplicates: keep_first\n"
    assert sorted(night.build(first)) == ["m", "other"]
    build(plan_drop(Store.at(str(night.root)), ["m"]))
    plan = night.plan(first)
    assert texts(plan) == ["z: same content as m, which was dropped; left out, by `duplicates: keep_first`"]
    assert plan_summary(plan)["duplicates_left_out"] == 1
    assert plan.up_to_date


def cut(night: Night, name: str) -> None:
    path = night.logs / f"{name}.mcap"
    path.write_bytes(path.read_bytes()[:-200])


KEPT = ("shortened: keep\n", "vanished: keep\n")


LOST = list(itertools.product(["cut", "removed"], [("m",), ("late",), ("m", "late")]))


@pytest.mark.parametrize(("how", "lost"), by_tier(LOST[::2], LOST))
def test_rows_that_stay_share_a_split_with_their_copies(night, lost, how):
    late, _ = other_split(night, "m")
    night.record("m", "other")
    night.copy("m", late)
    night.build()
    for name in lost:
        name = {"late": late}.get(name, name)
        if how == "cut":
            cut(night, name)
        else:
            (night.logs / f"{name}.mcap").unlink()
    for split in (SPLIT, "split: {val: 0.5, train: 0.5}\n", "split: {a: 0.1, b: 0.2, c: 0.7}\n"):
        plan = night.plan(*KEPT, split=split)
        planned = {name: one["logs"] for name, one in plan_summary(plan)["splits"].items()}
        found = night.build(*KEPT, split=split)
        recipe = Recipe.from_yaml(recipe_text("['x']", split), source="drive.yaml")
        assert found["m"] == (split_of(recipe, "m", ["x"]), "")
        assert found[late] == (found["m"][0], "m")
        assert [warning.is_doubtful for warning in plan.warnings if "same" in warning.text] == [False]
        built = [one for one, _ in found.values()]
        assert planned == {name: built.count(name) for name in planned}
        assert night.plan(*KEPT, split=split).up_to_date
    with pytest.raises(InputError, match=f"{late}: same content as m"):
        night.plan(*KEPT, "duplicates: fail\n")
    found = night.build(*KEPT, "duplicates: keep_first\n")
    # One that was cut would be another log to the next build, had its record left.
    stays = {late} if how == "cut" and "late" in lost else set()
    assert set(found) == {"m", "other", *stays}
    assert {found[name] for name in stays} <= {(found["m"][0], "m")}
    assert verify(str(night.root), num_workers=1).findings == ()
    assert night.plan(*KEPT, "duplicates: keep_first\n").up_to_date


def test_keep_first_leaves_the_copy_of_a_log_out_that_was_cut(night):
    night.record("m", "other")
    night.copy("m", "z")
    night.build("duplicates: keep_first\n")
    cut(night, "m")
    more = "duplicates: keep_first\n", "shortened: keep\n"
    assert sorted(night.build(*more)) == ["m", "other"]
    assert night.plan(*more).up_to_date


def test_a_renamed_log_moves_to_another_split_with_the_rows_that_are_kept(night):
    late, _ = other_split(night, "m")
    night.record("m", "other")
    night.build()
    (night.logs / "m.mcap").rename(night.logs / f"{late}.mcap")
    for split in (SPLIT, "split: {val: 0.5, train: 0.5}\n", "split: {a: 0.1, b: 0.2, c: 0.7}\n"):
        plan = night.plan("vanished: keep\n", split=split)
        planned = {name: one["logs"] for name, one in plan_summary(plan)["splits"].items()}
        found = night.build("vanished: keep\n", split=split)
        recipe = Recipe.from_yaml(recipe_text("['x']", split), source="drive.yaml")
        assert found["m"] == (split_of(recipe, "m", ["x"]), "")
        assert found[late] == (found["m"][0], "m")
        built = [one for one, _ in found.values()]
        assert planned == {name: built.count(name) for name in planned}
        assert night.plan("vanished: keep\n", split=split).up_to_date


def test_a_log_that_waits_is_not_called_gone_and_moves_with_its_copies(night):
    late, own = other_split(night, "m")
    night.record("m", "other")
    night.build()
    night.copy("m", late)
    changed = time.time() + 600
    os.utime(night.logs / "m.mcap", (changed, changed))
    (warning,) = night.plan("settle: 1ns\n").warnings
    assert "both are in split" in warning.text
    assert "gone" not in warning.text
    assert night.build("settle: 1ns\n")[late] == (own, "m")
    split = "split: {val: 0.5, train: 0.5}\n"
    found = night.build("settle: 1ns\n", split=split)
    assert found["m"][0] == found[late][0] != own
    os.utime(night.logs / "m.mcap", (1, 1))
    assert night.plan(split=split).up_to_date


def test_a_version_that_has_duplicates_is_built_upon_under_strict(night):
    night.record("m", "other")
    night.copy("m", "z")
    assert "z: same content as m" in night.plan(settings=BuildSettings(strict=True)).problem
    night.build()
    night.record("more")
    plan = night.plan(settings=BuildSettings(strict=True))
    assert plan.problem == ""
    assert [(warning.text[:2], warning.is_doubtful) for warning in plan.warnings] == [("z:", False)]
    night.copy("more", "y")
    assert "y: same content as more" in night.plan(settings=BuildSettings(strict=True)).problem


def test_a_returned_namesake_of_a_purged_log_is_the_duplicate_of_one_that_was_built(night):
    night.record("m", "other")
    night.build()
    assert purge(str(night.root), ["m"]).is_proven
    night.copy("other", "m")
    assert {name: one.duplicate_of for name, one in night.plan().duplicates.items()} == {"m": "other"}


def test_passes_of_one_log_are_no_duplicates_but_those_of_its_copy_are(night):
    late, own = other_split(night, "m")
    messages = [*speeds(count=30), *speeds(start=START - 20 * SECOND, count=30)]
    path = night.logs / "m.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        schema = writer.register_msgdef(*SPEED)
        for time, said in messages:
            writer.write_message("/can", schema, said, log_time=time, publish_time=time)
        writer.finish()
    more = "time: {set_back: split}\n"
    alone = night.plan(more)
    assert len(alone.logs) == 2
    assert alone.duplicates == {}
    night.copy("m", late)
    found = night.build(more)
    assert found == {"m": (own, ""), "m~2": (own, ""), late: (own, "m"), f"{late}~2": (own, "m~2")}


# --- large logs --------------------------------------------------------------------------------------------


def large_log(night: Night, name: str, seed: int = 0) -> pathlib.Path:
    """A log of more than the ends that a content id covers, without checksums."""
    noise = np.random.default_rng(1).integers(32, 127, 3 * MIB, np.uint8).tobytes().decode()
    messages = speeds(count=30)
    messages[15][1]["note"] = noise
    path = night.logs / f"{name}.mcap"
    write_log(path, {"/can": (SPEED, messages)}, enable_crcs=False, compression=0)
    if seed:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    return path


def test_large_logs_of_one_content_id_stay_both_when_they_are_gone(night):
    large_log(night, "m")
    large_log(night, "z", seed=1)
    night.copy("m", "n")
    night.record("other")
    night.build(split="")
    for name in ("m", "n", "z"):
        (night.logs / f"{name}.mcap").unlink()
    more = "vanished: keep\n", "duplicates: keep_first\n"
    assert sorted(night.build(*more, split="")) == ["m", "other", "z"]


def test_logs_of_equal_size_and_ends_but_another_middle_are_no_duplicates(night):
    large_log(night, "m")
    large_log(night, "z", seed=1)
    plan = night.plan()
    assert len({log.task.content_id for log in plan.logs}) == 1
    assert plan.duplicates == {}


@pytest.mark.parametrize("more", ["", "duplicates: keep_first\n"])
def test_large_duplicates_are_read_as_a_whole_once_and_not_by_builds_that_are_up_to_date(
    night, monkeypatch, more
):
    read = []
    real = LogFile.read
    monkeypatch.setattr(
        LogFile,
        "read",
        lambda file, start, stop: read.append((file.uri, stop - start)) or real(file, start, stop),
    )
    large_log(night, "m")
    large_log(night, "z", seed=1)
    night.copy("m", "n")
    night.build(more)
    comparing.content_id.__globals__["_full_ids"].clear()  # as a process of its own
    read.clear()
    plan = night.plan(more)
    assert plan.up_to_date
    assert list(plan.duplicates) == ["n"]
    sizes = sum(size for _, size in read)
    assert sizes < 2.5 * MIB  # the ends of the one log that the recipe is held to


# --- commands ---------------------------------------------------------------------------------------------


def test_plan_build_and_log_name_duplicates_in_words_and_as_json(night, tmp_path):
    late, own = other_split(night, "m")
    night.record("m", "other")
    night.copy("m", late)
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe_text(f"['{night.logs}/*.mcap']", SPLIT))
    planned = logloom("plan", path, "--to", night.root)
    assert f"1 log ({late} of m)" in planned.stdout
    built = logloom("build", path, "--to", night.root, "--json", "-q")
    assert built.returncode == 0
    assert f"warning: {late}: same content as m: both are in split {own!r}" in built.stderr
    said = json.loads(built.stdout)
    assert said["duplicates"] == {late: {"duplicate_of": "m", "split": own, "left_out": False}}
    assert said["duplicates_left_out"] == 0
    assert (
        json.loads(logloom("versions", night.root, "--log", late, "--json").stdout)[0]["duplicate_of"] == "m"
    )
    assert "same content as m" in logloom("versions", night.root, "--logs", "100").stdout
    assert read_manifest(Store.at(str(night.root)), 1).recipe["duplicates"] == "warn"


@pytest.mark.parametrize(("choice", "code", "logs"), [("keep_first", 0, 2), ("fail", 1, 0)])
def test_a_build_does_what_the_recipe_says_about_duplicates(night, tmp_path, choice, code, logs):
    night.record("m", "other")
    night.copy("m", "z")
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe_text(f"['{night.logs}/*.mcap']", f"duplicates: {choice}\n"))
    built = logloom("build", path, "--to", night.root, "--json")
    assert built.returncode == code
    assert "z: same content as m" in built.stderr
    if not code:
        said = json.loads(built.stdout)
        assert said["logs"] == logs
        assert said["duplicates_left_out"] == 3 - logs


def test_doctor_names_a_log_that_repeats_another_one(night):
    night.record("m", "other")
    night.copy("m", "z")
    seen = logloom("doctor", *sorted(night.logs.iterdir()))
    assert seen.returncode == 0
    assert f"it has the same content as m ({night.logs}/m.mcap)" in seen.stdout
    logs = json.loads(logloom("doctor", *sorted(night.logs.iterdir()), "--json").stdout)["logs"]
    kinds = {log["log_id"]: [one["kind"] for one in log["findings"]] for log in logs}
    assert [name for name, found in kinds.items() if "duplicate" in found] == ["z"]
