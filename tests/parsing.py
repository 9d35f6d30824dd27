"""The `logloom` command in this process, made once: its hundreds of options take as long as many a test."""

import functools
from collections.abc import Sequence

import typer.core

from logloom.cli import commands


@functools.cache
def command() -> typer.core.TyperGroup:
    """Return the command with all its verbs; nobody changes it."""
    made = typer.main.get_command(commands())
    assert isinstance(made, typer.core.TyperGroup)
    return made


def parse(words: Sequence[str]) -> None:
    """Parse the words after `logloom`, and run nothing."""
    with command().make_context("logloom", list(words)) as context:
        name, found, rest = command().resolve_command(context, [*context._protected_args, *context.args])
        assert found
        found.make_context(name, rest, parent=context)
