"""Groups of options: what a command takes as one parameter, and offers as many."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from logloom.cli.options.groups import takes_groups
from tests.parsing import command


@dataclass(frozen=True)
class Fruit:
    kind: Annotated[str, typer.Argument(help="Kind.")]
    size: Annotated[int, typer.Option("--size", "-s", min=1, help="Size.")] = 3
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Tag.")] = None
    secret: Annotated[bool, typer.Option("--secret", help="Secret.")] = False


@pytest.fixture
def run():
    seen = []
    app = typer.Typer()

    @app.command()
    @takes_groups(without=("secret",))
    def pick(
        *,
        first: Annotated[bool, typer.Option("--first", help="First.")] = False,
        fruit: Fruit,
        last: Annotated[str, typer.Option("--last", help="Last.")] = "end",
    ) -> None:
        """Picks."""
        seen.append((first, fruit, last))

    def run(*arguments):
        done = CliRunner().invoke(app, arguments)
        return done, seen

    return run


def test_a_command_gets_its_group_with_what_was_given_and_the_defaults_of_the_rest(run):
    assert run("apple")[1] == [(False, Fruit("apple"), "end")]
    _, seen = run("pear", "-s", "5", "--tag", "a", "--tag", "b", "--first", "--last", "z")
    assert seen[-1] == (True, Fruit("pear", 5, ["a", "b"]), "z")


def test_options_of_a_group_are_checked_as_any_others(run):
    done, seen = run("apple", "--size", "0")
    assert done.exit_code == 2
    assert not seen
    assert run()[0].exit_code == 2  # the group's argument is missing


def test_help_shows_a_group_where_it_stands_without_what_a_command_does_not_offer(run):
    text = run("--help")[0].output
    places = [text.index(name) for name in ("--first", "--size", "--tag", "--last")]
    assert places == sorted(places)
    assert "--secret" not in text
    assert run("apple", "--secret")[0].exit_code == 2


def options_of(name):
    return {parameter.name: parameter.help for parameter in command().commands[name].params}


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("plan", "build", {"sources", "to", "log", "py", "allow_derive", "limit", "on_error", "hash"}),
        ("verify", "repair", {"root", "py", "allow_derive", "log", "workers"}),
        ("build", "convert", {"runner", "flink_master", "environment", "project", "machine_type", "workers"}),
        ("build", "convert", {"detach", "dry_run", "wait", "labels", "profile"}),
    ],
)
def test_commands_that_share_options_explain_them_alike(one, other, shared):
    mine, theirs = options_of(one), options_of(other)
    assert shared <= mine.keys() & theirs.keys()
    assert {name: mine[name] for name in shared} == {name: theirs[name] for name in shared}
