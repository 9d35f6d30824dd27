"""Groups of options that several commands share, each as one parameter.

A group is a frozen dataclass; each field is an argument or option of Typer's, `Annotated`, with its default.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_type_hints

import typer

from logloom import parts
from logloom.errors import UsageError

Command = Callable[..., None]
# Panels of `--help` with the options of one engine, which are hidden where it isn't installed.
ENGINE_PANELS = {"flink": "Flink and other clusters", "dataflow": "Dataflow"}


def takes_groups(*, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Show Typer the fields of a command's groups as parameters of the command, each group's in its place.

    Args:
        without: names of fields that this command doesn't offer; they keep their defaults.
    """

    def decorate(command: Command) -> Command:
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[Any, list[str]]] = {}
        hints = get_type_hints(command, include_extras=True)
        for name, parameter in inspect.signature(command).parameters.items():
            if dataclasses.is_dataclass(kind := hints[name]):
                offered = [option for option in _options(kind) if option.name not in without]
                groups[name] = kind, [option.name for option in offered]
                parameters += offered
            else:
                parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

        @functools.wraps(command)
        def run(**values: Any) -> None:
            for name, (group, fields) in groups.items():
                values[name] = group(**{field: values.pop(field) for field in fields})
            command(**values)

        vars(run)["__signature__"] = inspect.Signature(parameters)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _options(group: Any) -> list[inspect.Parameter]:
    """Return the parameters for a group's fields."""
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[field.name],
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(group)
    ]


def refuse_given(options: Mapping[str, Any], why: str) -> None:
    """Refuse options that contradict others.

    Raises:
        UsageError: one is given: not None, False or empty.
    """
    for option, value in options.items():
        if value is not None and value is not False and value not in ("", [], ()):
            raise UsageError(f"{option}: {why}")


class NamingParts(typer.core.TyperCommand):
    """A command whose help lists offers of installed parts, as {outputs}, looked up only when shown.

    Options of engines that aren't installed are hidden.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        absent = {panel for engine, panel in ENGINE_PANELS.items() if engine not in parts.names("engines")}
        for parameter in self.params:
            if isinstance(parameter, typer.core.TyperOption) and parameter.help:
                parameter.help = re.sub(r"\{(\w+)\}", self._offered, parameter.help)
                parameter.hidden = parameter.hidden or parameter.rich_help_panel in absent
        super().format_help(ctx, formatter)

    @staticmethod
    def _offered(found: re.Match[str]) -> str:
        if found[1] == "kinds":  # of plain folders
            from logloom.io.formats.foreign import kinds

            return ", ".join(kinds())
        if found[1] == "auto":
            is_here = "flink" in parts.names("engines")
            return f"{'Flink if one of its options is given, else ' * is_here}this machine"
        return ", ".join(sorted({*parts.names(found[1])}))
