"""Commands on versions, given no root, no version or no number: each says what is wrong, and a way out."""

import json

import pytest
import typer

from logloom.cli import commands
from logloom.errors import UsageError
from logloom.io.catalog.tags import read_tags
from logloom.io.storage.store import Store
from logloom.pipelines.versions.tag import tag
from tests.pipelines.roots import commit_version

# Each command with what it wants beside a root.
COMMANDS = {
    "versions": [],
    "diff": [],
    "tag": ["gold"],
    "untag": ["gold"],
    "rollback": [],
    "drop": ["car"],
    "gc": [],
    "purge": ["--log", "car"],
    "log": ["car"],
    "repair": [],
    "verify": [],
    "head": ["--why"],
    "stats": [],
    "find": [],
}


@pytest.fixture
def root(tmp_path):
    store = Store.at(str(tmp_path / "root"))
    for number, logs in ((1, ["car"]), (2, ["bus", "car"])):
        commit_version(store, number, logs)
    tag(store, 1, ["gold"])
    return store


def refused(*arguments):
    """The message that a command ends by."""
    with pytest.raises((UsageError, typer.BadParameter)) as error:
        commands()(list(map(str, arguments)), prog_name="logloom", standalone_mode=False)
    return str(error.value)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_root_is_named_with_a_way_out(tmp_path, root, command):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    more = COMMANDS[command]
    for name in ("empty", "nowhere"):
        said = refused(command, tmp_path / name, *more)
        assert f"{tmp_path / name}: no version here; `logloom build RECIPE --to {tmp_path / name}`" in said
    assert "is a file; a dataset is a folder" in refused(command, tmp_path / "file", *more)
    for nothing in ("", "@7"):
        assert f"{nothing!r} names no root: give a dataset's folder" in refused(command, nothing, *more)
    if command in ("versions", "untag", "drop", "gc", "purge", "log"):
        for version in ("@1", "@"):
            said = refused(command, f"{root.uri}{version}", *more)
            assert said.endswith(f"the root alone is expected here, without {version}")
    else:
        for version in ("9", "0", "-1", "silver", "1.5", "9" * 5000):
            said = refused(command, f"{root.uri}@{version}", *more)
            assert f"{root.uri}: no version '{version[:50]}" in said
            assert "there are 1, 2, gold" in said
            assert len(said) < 1000
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["diff", "ROOT", "1"], "one version of ROOT: name two, or compare ROOT@1 with its parent"),
        (["diff", "ROOT", "gold"], "one version of ROOT: name two, or compare ROOT@gold with its parent"),
        (["diff", "ROOT", "1", "2", "3"], "not more"),
        (["diff", "ROOT@1"], "version 1 has no parent; name two versions"),
        (["rollback", "ROOT"], "say which version to go back to, as in ROOT@1"),
        (["tag", "ROOT", "7"], "can't be a tag: it says which version by itself"),
        (["tag", "ROOT", "gold"], "'gold' names version 1; --move takes it from there"),
        (["untag", "ROOT", "silver"], "no version has the tag 'silver'; there is only gold"),
        (
            ["drop", "ROOT", "tram"],
            "version 2 has no log 'tram'; `logloom log ROOT` lists the logs",
        ),
        (["drop", "ROOT", "car", "tram", "--undo"], "version 2 has no log 'tram'"),
        (["log", "ROOT", "tram"], "no version has a log 'tram'; `logloom log ROOT` lists the logs"),
        (["gc", "ROOT", "--grace", "long"], "'long' is no duration; write it like 7d"),
        (["gc", "ROOT", "--keep-last", "9" * 30], "Input should be less than or equal to 100000000"),
        (["gc", "ROOT", "--keep-daily", "9" * 30], "Input should be less than or equal to 100000000"),
        (["gc", "ROOT", "--no-keep-tags"], "needs --keep-last or --keep-daily"),
        (["purge", "ROOT"], "name logs (--log LOG_ID), or times of logs (--rows LOG:FROM..TO)"),
        (["purge", "ROOT", "--log", "tram"], "no version has 'tram'; `logloom log ROOT` lists the logs"),
        (["purge", "ROOT", "--log", ""], "no version has ''"),
        (["purge", "ROOT", "--rows", "car"], "expected LOG:FROM..TO"),
        (["order", ""], "'' names no root"),
        (["order", "@1=0.5", "ROOT=0.5"], "'@1=0.5' names no root"),
        (["order", "ROOT@1=0.5", "ROOT@1=0.5"], "ROOT@1 is named twice: give it once"),
        (["order", "ROOT", "ROOT@1"], "of several datasets each has a weight, such as ROOT=0.5"),
        (["verify", "ROOT", "--sample", "some"], "expected all, or sample:0.05"),
    ],
)
def test_what_makes_no_sense_is_said_with_a_way_out(root, arguments, problem):
    said = refused(*(argument.replace("ROOT", root.uri) for argument in arguments))
    assert problem.replace("ROOT", root.uri) in said
    assert read_tags(root) == {"gold": 1}


def test_an_empty_folder_to_build_into_is_refused_as_elsewhere(tmp_path):
    for words in (
        ["build", "recipe.yaml", "--to", ""],
        ["plan", "recipe.yaml", "--to", ""],
        ["convert", "", "x"],
        ["demo", "--to", ""],
    ):
        assert "names no root: give a dataset's folder" in refused(*words)


def test_what_is_guessed_of_purge_and_gc_works(root, capsys):
    commands()(["purge", root.uri, "car", "--dry-run", "--json"], prog_name="logloom", standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["logs"] == ["car"]
    commands()(["gc", root.uri, "--keep", "1", "--no-keep-tags"], prog_name="logloom", standalone_mode=False)
    assert "version 1: removed" in capsys.readouterr().out
