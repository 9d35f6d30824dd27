"""Beam pipelines without leftover folders in /tmp, and checks of Beam's options."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser
from apache_beam.transforms import environments

from logloom.errors import UsageError
from logloom.runners.options import HEEDED, HEEDED_CLASSES, refuse_ineffective
from logloom.text import near_to

_ONE_AT_A_TIME = threading.Lock()


def new_pipeline(runner: Any, options: PipelineOptions) -> Pipeline:
    """Make a pipeline without a folder of its own, which only steps in other languages would use."""
    pipeline = Pipeline(runner, options=options)
    pathlib.Path(pipeline.local_tempdir).rmdir()
    return pipeline


@contextlib.contextmanager
def dependencies_in(folder: pathlib.Path) -> Iterator[None]:
    """Make Beam use this folder for files that jobs described during the block stage for workers."""
    with _ONE_AT_A_TIME:
        before = environments.python_sdk_dependencies
        environments.python_sdk_dependencies = functools.partial(before, tmp_dir=str(folder))
        try:
            yield
        finally:
            environments.python_sdk_dependencies = before


def refuse_unknown(flags: Iterable[str], more: Iterable[str] = ()) -> None:
    """Check names of flags, and the values of Beam's: Beam ignores unknown ones, mostly typing errors.

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
            raise UsageError(f"runner option {name!r}: neither Beam nor the engine has it{hint}")
    parser.parse_known_args(flags)


def refuse_ignored(flags: Iterable[str], engine: str) -> None:
    """Check that an engine heeds Beam's options.

    Args:
        flags: "--name" or "--name=value".
        engine: its name.

    Raises:
        UsageError: it ignores one; names the engines that don't.
    """
    having = dict(HEEDED)
    for options in PipelineOptions.__subclasses__():
        parser = _FlagParser(add_help=False)
        options._add_argparse_args(parser)
        for name in (text.removeprefix("--") for action in parser._actions for text in action.option_strings):
            if options.__name__ in HEEDED_CLASSES:
                having.setdefault(name, HEEDED_CLASSES[options.__name__])
    for name in (flag.removeprefix("--").partition("=")[0] for flag in flags):
        if name in having:
            refuse_ineffective(f"runner option {name!r}", engine, having[name])


class _FlagParser(_BeamArgumentParser):
    """Fails as Beam's does, but without pages of usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"runner option: {message.removeprefix('argument --')}")
