"""What `--help` says of commands and options."""

import pytest
import typer

from logloom.cli import app

COMMANDS = typer.main.get_command(app).commands
COMMANDS |= {f"label {name}": command for name, command in COMMANDS["label"].commands.items()}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_argument_and_option_is_explained_in_a_sentence(name):
    command = COMMANDS[name]
    for text in [command.help.splitlines()[0], *(parameter.help for parameter in command.params)]:
        assert text, f"{name} has an option without help"
        assert text[0].isupper(), text
        assert text.endswith("."), text
