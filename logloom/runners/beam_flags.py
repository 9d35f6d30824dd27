"""Check names of Beam's options: Beam ignores unknown ones, which are mostly typing errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser

from logloom.errors import UsageError
from logloom.text import near_to


def refuse_unknown(flags: Iterable[str], more: Iterable[str] = ()) -> None:
    """Checks the names of flags, and the values of those that are Beam's.

    Args:
        flags: "--name" or "--name=value".
        more: names that the engine knows besides Beam's own.

    Raises:
        UsageError: the option is unknown (the message suggests the nearest), or its value is invalid.
    """
    parser = _FlagParser(add_help=False)
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)
    of_beam = (text.removeprefix("--") for action in parser._actions for text in action.option_strings)
    known = {*of_beam, *more}
    flags = list(flags)
    for flag in flags:
        name = flag.removeprefix("--").partition("=")[0]
        if name not in known:
            hint = near_to(name, sorted(known), most=0)
            raise UsageError(f"runner option {name!r}: neither Beam nor the engine knows it{hint}")
    parser.parse_known_args(flags)


class _FlagParser(_BeamArgumentParser):
    """Refuses what Beam's does, but without pages of its usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"runner option: {message.removeprefix('argument --')}")
