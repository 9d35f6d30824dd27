"""Commands on versions, given no root, no version or no number: each says what is wrong, and a way out."""

import itertools
import json

import pytest
import typer

from logloom.cli import verbs
from logloom.errors import UsageError
from logloom.io.catalog.tags import read_tags
from logloom.io.storage.store import Store
from logloom.pipelines.versions.tag import tag
from tests.cases import case
from tests.parsing import command
from tests.pipelines.roots import commit_version

# Each command with what it wants beside a root.
COMMANDS = {
    "versions": [],
    "versions --log": ["car"],
    "diff": [],
    "tag": ["gold"],
    "tag --delete": ["gold"],
    "rollback": [],
    "drop": ["car"],
    "gc": [],
    "purge --log": ["car"],
    "repair": [],
    "verify": [],
    "head --why": [],
    "stats": [],
    "find": [],
}
OF_ROOTS = ("versions", "versions --log", "tag --delete", "drop", "gc", "purge --log")


@pytest.fixture
def root(tmp_path):
    store = Store.at(str(tmp_path / "root"))
    for number, logs in ((1, ["car"]), (2, ["bus", "car"])):
        commit_version(store, number, logs)
    tag(store, 1, ["gold"])
    return store


def logloom(*arguments):
    command()(list(map(str, arguments)), prog_name="logloom", standalone_mode=False)


def refused(*arguments):
    """The message that a command ends by."""
    with pytest.raises((UsageError, typer.BadParameter)) as error:
        logloom(*arguments)
    return str(error.value)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_root_is_named_with_a_way_out(tmp_path, root, command):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    verb, *options = command.split()

    def said_of(place):
        return refused(verb, place, *options, *COMMANDS[command])

    empty, nowhere = tmp_path / "empty", tmp_path / "nowhere"
    assert f"{empty}: no version here; `logloom build RECIPE --to {empty}` makes one" in said_of(empty)
    assert f"{nowhere}: there is no such file or folder; check the path" in said_of(nowhere)
    assert "did you mean root?" in said_of(tmp_path / "roott")
    assert "is a file; " in said_of(tmp_path / "file")
    for nothing in ("", "@7"):
        assert f"{nothing!r} names no root: give a dataset's folder" in said_of(nothing)
    if command in OF_ROOTS:
        for version in ("@1", "@"):
            said = said_of(f"{root.uri}{version}")
            assert said.endswith(f"the root alone is expected here, without {version}")
    else:
        for version in ("9", "0", "-1", "silver", "1.5", "9" * 5000):
            said = said_of(f"{root.uri}@{version}")
            assert f"{root.uri}: no version '{version[:50]}" in said
            assert "there are 1, 2, gold" in said
            assert len(said) < 1000
    assert sorted(tmp_path.rglob("*")) == before


# By verb, its arguments; PLACE is the wrong one.
OF_LOGS = {
    "plan": ["PLACE", "--to", "out"],
    "build": ["PLACE", "--to", "out"],
    "info": ["PLACE"],
    "info --tree": ["PLACE", "--tree"],
    "doctor": ["PLACE"],
}
OF_DATASETS = {
    **{name: ["PLACE", *name.split()[1:], *more] for name, more in COMMANDS.items()},
    "status": ["PLACE"],
    "status --wait": ["PLACE", "--wait"],
    "convert": ["PLACE", "out", "--format", "tar"],
    "head": ["PLACE"],
    "find": ["PLACE", "x > 1"],
    "view": ["PLACE"],
    "label export": ["export", "PLACE", "--column", "camera", "--to", "out"],
    "report": ["PLACE", "--out", "out.html"],
    "show": ["PLACE", "--save", "out.rrd"],
}
NO_LOG = {
    "absent": "there is no such file or folder; ",
    "drive.yaml": "is a recipe, no log; ",
    "root": "is a dataset, no log; ",
}
NO_DATASET = {
    "absent": "there is no such file or folder; ",
    "drive.yaml": "is a recipe; give the ROOT that `logloom build ",
    "logs/drive.mcap": "is a log; `logloom build ",
    "logs": "contains logs, no dataset; `logloom build ",
}


def test_each_verb_refuses_each_wrong_place_as_wrong_usage(tmp_path, root, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "drive.yaml").write_text("name: x\n")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/drive.mcap").write_bytes(b"\x89MCAP0\r\n")
    known = {name.partition(" ")[0] for name in (*OF_LOGS, *OF_DATASETS)}
    assert known | {"demo"} >= set(verbs())  # a new verb joins the tables
    for table, places in ((OF_LOGS, NO_LOG), (OF_DATASETS, NO_DATASET)):
        for (name, arguments), (place, problem) in itertools.product(table.items(), places.items()):
            if name.partition(" ")[0] not in verbs() or (table is OF_LOGS and place == "drive.yaml"):
                continue
            words = [str(tmp_path / place) if word == "PLACE" else word for word in arguments]
            with case(name, place):
                assert f"{tmp_path / place}: {problem}" in refused(name.partition(" ")[0], *words)
    for verb in ("info", "doctor"):
        assert "'' names no log: give a file" in refused(verb, "")
        assert "drive.yaml: is a recipe, no log; " in refused(verb, tmp_path / "drive.yaml")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drive.yaml", "logs", "root"]


# By arguments, the problem.
NO_SENSE = [
    (["diff", "ROOT", "1"], "ROOT: 1 is one version, and a comparison needs two; name another one"),
    (["diff", "ROOT", "gold"], "ROOT: gold is one version, and a comparison needs two; name another one"),
    (["diff", "ROOT", "1", "2", "3"], "not more"),
    (["diff", "ROOT@1"], "version 1 has no parent; name two versions"),
    (["rollback", "ROOT"], "name the version to go back to, as in ROOT@1"),
    (["rollback", "ROOT@1", "2"], "ROOT@1 and 2: two versions; give one"),
    (["rollback", "ROOT", "7"], "no version '7'; there are 1, 2, gold"),
    (["tag", "ROOT", "7"], "can't be a tag: it names a version already"),
    (["tag", "ROOT", "gold"], "'gold' names version 1; use --move to move it"),
    (["tag", "ROOT", "silver", "--delete"], "no version has the tag 'silver'; there is only gold"),
    (
        ["drop", "ROOT", "tram"],
        "version 2 has no log 'tram'; `logloom versions ROOT --logs 100` lists logs",
    ),
    (["drop", "ROOT", "car", "tram", "--undo"], "version 2 has no log 'tram'"),
    (
        ["versions", "ROOT", "--log", "tram"],
        "no version has a log 'tram'; `logloom versions ROOT",
    ),
    (["gc", "ROOT", "--grace", "long"], "'long' is not a duration; write it like 7d"),
    (["gc", "ROOT", "--keep-last", "9" * 30], "Input should be less than or equal to 100000000"),
    (["gc", "ROOT", "--keep-daily", "9" * 30], "Input should be less than or equal to 100000000"),
    (["gc", "ROOT", "--no-keep-tags"], "needs --keep-last or --keep-daily"),
    (["purge", "ROOT"], "name logs (--log LOG_ID), or times of logs (--rows LOG:FROM..TO)"),
    (["purge", "ROOT", "--log", "tram"], "no version has 'tram'; `logloom versions ROOT --logs 100`"),
    (["purge", "ROOT", "--log", ""], "no version has ''"),
    (["purge", "ROOT", "--rows", "car"], "expected LOG:FROM..TO"),
    (["verify", "ROOT", "--sample", "some"], "expected all, or sample:0.05"),
    (["tag", "ROOT", "gold", "--delete", "--move"], "--move: --delete removes tags; leave out one"),
    (["status", "ROOT", "--timeout", "0"], "--timeout: it goes with --wait"),
    (["status", "ROOT", "-q"], "--quiet: it goes with --wait"),
    (["status", "ROOT", "--wait", "--last", "1"], "--last: --wait shows the builds that it waits for"),
    (["versions", "ROOT", "--log", "car", "--since", "1"], "--since: it goes with a list of versions"),
    (["versions", "ROOT", "--logs", "1", "--last", "1"], "--last: it goes with a list of versions"),
    (["versions", "ROOT", "--logs", "1", "--log", "car"], "--log: it shows one log, and --logs lists"),
    (["stats", "ROOT", "--by", "time"], "--by: it goes with --splits"),
    (
        ["stats", "ROOT", "--splits", "--split", "a"],
        "--split: --splits counts logs and rows of all",
    ),
    (["stats", "ROOT", "--splits", "--gap", "0"], "--gap: it shapes the splits that --by makes"),
    (["stats", "ROOT", "--splits", "--where", "x > 1"], "--where: it goes with --by"),
]


def test_what_makes_no_sense_is_said_with_a_way_out(root):
    for arguments, problem in NO_SENSE:
        with case(*arguments):
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
    logloom("purge", root.uri, "car", "--dry-run", "--json")
    assert json.loads(capsys.readouterr().out)["logs"] == ["car"]
    logloom("gc", root.uri, "--keep", "1", "--no-keep-tags")
    assert "version 1: removed" in capsys.readouterr().out
