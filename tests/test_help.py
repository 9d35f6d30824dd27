"""What `--help` says of commands and options."""

import inspect
import re

import pytest
import typer

from logloom import parts
from logloom.cli import commands, verbs
from logloom.cli.options.groups import ENGINE_PANELS
from logloom.io.formats.foreign import kinds
from logloom.io.formats.registry import format_names
from tests.absent import ABSENT
from tests.conftest import REPOSITORY
from tests.forking import command

COMMANDS = typer.main.get_command(commands()).commands
COMMANDS |= {f"label {name}": command for name, command in COMMANDS["label"].commands.items()}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_argument_and_option_is_explained_in_a_sentence(name):
    command = COMMANDS[name]
    for text in [command.help.splitlines()[0], *(parameter.help for parameter in command.params)]:
        assert text, f"{name} has an option without help"
        assert text[0].isupper(), text
        assert text.endswith("."), text


def test_each_verb_stands_in_the_file_of_its_name():
    for one in commands().registered_commands:
        assert one.callback.__module__ == f"logloom.cli.{one.callback.__name__}"


@pytest.mark.parametrize("name", sorted({*COMMANDS} - {"label"}))
def test_help_names_exit_code_3_where_a_command_can_end_with_it(name):
    command = COMMANDS[name]
    source = inspect.getsource(inspect.getmodule(inspect.unwrap(command.callback)))
    texts = [command.help, *(parameter.help or "" for parameter in command.params)]
    # `label export` is in the file of `label import`, which alone can end so.
    ends = "NOT_WHOLE" in source and name != "label export"
    assert any(re.search(r"code 3\b", text) for text in texts) == ends


def test_help_has_each_verb_in_a_group_on_one_line():
    shown = command("--help").stdout.replace("\u2502", " ")
    groups: dict[str, list[str]] = {}
    for name, verb in verbs().items():
        groups.setdefault(verb.group, []).append(name)
        assert COMMANDS[name].help.splitlines()[0] == verb.help
    for group, names in groups.items():
        (box,) = re.findall(rf"\u256d\u2500 {group} \u2500+\u256e\n(.*?)\u2570", shown, re.DOTALL)
        lines = [line.split(maxsplit=1) for line in box.splitlines()]
        assert [verb for verb, _ in lines] == names
        assert all(line.rstrip().endswith(".") for _, line in lines)


def test_the_page_on_commands_lists_each_with_the_line_of_its_help():
    page = (REPOSITORY / "docs" / "commands.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| \[`(\w+)`\]\(.*?\) \| (.*) \|$", page, re.MULTILINE))
    own = {name: verb.help for name, verb in verbs().items()}
    assert {name: line for name, line in listed.items() if name in own} == own
    assert ABSENT or listed.keys() == own.keys()


def test_a_verb_of_another_name_is_an_error_with_the_nearest_one():
    done = command("untag", "root", "gold")
    assert done.returncode == 2
    assert "logloom: no such command 'untag'; did you mean tag?" in done.stderr
    assert f"commands of installed parts: {', '.join(verbs())}" in done.stderr


def test_options_of_engines_are_shown_where_these_are_installed(monkeypatch, capsys):
    def shown():
        build = typer.main.get_command(commands()).commands["build"]
        build.get_help(typer.Context(build, info_name="build"))
        return capsys.readouterr().out.partition("Examples")[0]

    installed = [engine for engine in ENGINE_PANELS if engine in parts.names("engines")]
    text = shown()
    assert [engine for engine, panel in ENGINE_PANELS.items() if f"─ {panel} ─" in text] == installed
    others = parts.names
    monkeypatch.setattr(parts, "names", lambda what: ["direct"] if what == "engines" else others(what))
    text = shown()
    assert "--detach" in text
    assert not re.search("flink|dataflow|--dry-run|--project", text, re.IGNORECASE)


def test_convert_names_all_formats_and_kinds_of_installed_packages():
    text = command("convert", "--help").stdout
    said = " ".join(text.replace("\u2502", " ").split())
    assert f"Format to write: {', '.join(format_names())}." in said
    assert f"What SRC is: {', '.join(kinds())} (default: detected)." in said
