"""The `logloom` command line: a module for each command, and exit codes.

A command parses its arguments, calls a function and prints the result.
Exit codes: 0 done and whole; 1 failed; 2 bad usage or recipe; 3 done, but something was salvaged, skipped or
found different; 4 a version was committed, but what follows failed; 130 and 143 stopped by SIGINT and
SIGTERM. Everything heavy is imported inside a command, so that `--help` is quick.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import re
import signal
import sys
import threading
import traceback
from typing import Annotated, Any

import typer

from logloom import __version__, parts
from logloom.cli import terminal
from logloom.cli.terminal.streams import kept_open, reopen_closed
from logloom.errors import AfterCommitError, LogloomError, UsageError
from logloom.extras import spare_pandas
from logloom.text import WAITING_LOG
from logloom.uris import shown

# By group and in the order of `--help`: the first line of each verb's own help. A verb is a module of its
# name, which adds its command to the app; those of parts follow (logloom.parts).
GROUPS = {
    "Build": {
        "demo": "Make two synthetic drives, and build a dataset from them.",
        "plan": "Show what a build would read, make, reuse and drop.",
        "build": "Build a new version of a dataset.",
        "status": "Show the builds of a dataset, or wait for their end.",
        "convert": "Convert a version, or a foreign dataset, to another format.",
        "label": "Send frames to labelling tools, and import their labels.",
    },
    "Look": {
        "info": "Show the topics of logs: types, counts, rates, times.",
        "doctor": "Report what in logs is damaged, missing or strangely timed.",
        "head": "Show rows of a dataset; with --why, where their values come from.",
        "stats": "Show statistics of a dataset's columns, or of its splits.",
        "find": "Find the times at which a condition on rows is true.",
    },
    "Versions": {
        "versions": "List versions, the logs of one, or all that have a log.",
        "diff": "Show what differs between two versions: logs, rows, recipes.",
        "tag": "Name a version, so that ROOT@NAME opens it; or remove names.",
        "rollback": "Commit a new version with the content of an earlier one.",
        "drop": "Commit a new version without some logs.",
        "view": "Make plain folders of a version, for the formats' own tools.",
    },
    "Maintain": {
        "verify": "Check a version against its manifest; or also against its logs.",
        "repair": "Build damaged and lost files of a version again, from its logs.",
        "gc": "Remove old versions, and files that no version needs.",
        "purge": "Erase logs, or time ranges of logs, from all versions.",
    },
}

_GOES_ON = "; a build keeps finished units: build again to go on"
# They continue if their result can't be printed; others have nothing else to do.
_CHANGE_ROOTS = {
    *("build", "convert", "label", "tag", "rollback", "drop", "view"),
    *("repair", "gc", "purge"),
}
_CODES = {UsageError: terminal.BAD_USAGE, AfterCommitError: terminal.AFTER_COMMIT}
_NEAR = re.compile(r"\.? \(?(?:Possible options:|Did you mean:?) '?([\w, -]+?)'?\??\)?$")  # in click's errors
_ENDS_WITHIN = 45.0  # seconds; a job on a cluster that is busy takes most of it to cancel


@terminal.app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", envvar="LOGLOOM_DEBUG", help="Show the traceback of an error, for bug reports."
        ),
    ] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit
    terminal.print_logs(WAITING_LOG)
    if "--help" not in sys.argv:
        spare_pandas()


def verbs() -> dict[str, parts.Verb]:
    """Return all commands by name, in the order of `--help`."""
    own = {
        name: parts.Verb(f"logloom.cli.{name}", group, line)
        for group, lines in GROUPS.items()
        for name, line in lines.items()
    }
    return own | {name: verb for name, verb in parts.verbs().items() if name not in own}


def commands(*names: str) -> typer.Typer:
    """Import the modules of these commands, or of all that can be imported, and return the app with them.

    Raises:
        UsageError: one of these commands is of a broken part, or several packages offer it.
    """
    for name in names or verbs():
        is_own = any(name in lines for lines in GROUPS.values())
        with contextlib.suppress(*() if names else (UsageError,)):
            if is_own:
                importlib.import_module(f"logloom.cli.{name}")
                parts.check_single("verbs", name, is_own=True)
            else:
                parts.load("verbs", name)
    return terminal.app


def _listed() -> typer.Typer:
    """Return the app with the names and help lines of all commands, without importing them."""
    terminal.app.registered_commands.clear()
    terminal.app.registered_groups.clear()
    for name, verb in verbs().items():
        terminal.app.command(name, help=verb.help, rich_help_panel=verb.group)(lambda: None)
    return terminal.app


def main() -> None:
    """Run the `logloom` command; convert errors to one message and an exit code."""
    arguments, debug = _without_debug(sys.argv[1:])
    verb = next((argument for argument in arguments if not argument.startswith("-")), "")
    # They are sought in the metadata of all packages; nothing here needs them.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    reopen_closed()
    kept_open("stderr")
    out = kept_open("stdout") if verb in _CHANGE_ROOTS else None
    terminated = threading.Event()

    def terminate(*_: Any) -> None:
        terminated.set()
        # Even if the shutdown hangs, the process ends as a scheduler requested.
        over = threading.Timer(_ENDS_WITHIN, os._exit, (terminal.TERMINATED,))
        over.daemon = True
        over.start()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminate)
    try:
        if "_LOGLOOM_COMPLETE" in os.environ:
            command = commands()
        elif any(verb in lines for lines in GROUPS.values()) or verb in parts.names("verbs"):
            command = commands(verb)
        else:
            command = _listed()
        code = command(arguments, prog_name="logloom", standalone_mode=False)
        sys.stdout.flush()  # here, where a failure can be reported
        if out is not None and out.problem:
            terminal.print_message(
                f"logloom: {verb} is done, but its result can't be written to stdout: {out.problem}"
            )
            code = code or terminal.AFTER_COMMIT
    except LogloomError as error:
        if debug:
            terminal.print_message(shown(traceback.format_exc().rstrip()))
        terminal.print_message("\n".join([f"logloom: {error}", *getattr(error, "__notes__", ())]))
        code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), terminal.FAILED)
    except (typer.Abort, KeyboardInterrupt):
        code = terminal.STOPPED
    except BrokenPipeError:
        _discard_stdout()
        code = terminal.FAILED
    except Exception as error:
        code = _report_unforeseen(error, debug)
        if code == terminal.BAD_USAGE and verb and verb not in (known := verbs()):
            terminal.print_message(
                f"commands of installed parts: {', '.join(known)}{parts.broken_note('verbs')}"
            )
    if code == terminal.STOPPED:  # Typer, too, makes a code of Ctrl-C
        terminal.print_message(f"logloom: stopped{_GOES_ON if verb == 'build' else ''}")
        code = terminal.TERMINATED if terminated.is_set() else terminal.STOPPED
    _leave(code or 0)


def _without_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """Return the arguments without --debug, anywhere before a `--`, and whether to show tracebacks."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own = [argument for argument in arguments[:end] if argument != "--debug"]
    debug = len(own) < end or os.environ.get("LOGLOOM_DEBUG", "") not in ("", "0")
    return [*own, *arguments[end:]], debug


def _report_unforeseen(error: Exception, debug: bool) -> int:
    """Print an error that is none of logloom's; return the exit code."""
    if hasattr(error, "format_message"):  # click's own errors know how to show themselves
        terminal.print_message(_usage_words(error))
        return int(getattr(error, "exit_code", terminal.BAD_USAGE))
    if isinstance(error, OSError) and _is_of_printing(error):
        terminal.print_message(f"logloom: the result can't be written to stdout: {error.strerror or error}")
        _discard_stdout()
    else:
        _print_internal(error, debug)
    return terminal.FAILED


def _usage_words(error: Any) -> str:
    """Return the message of an error of the parser of arguments, in the form of all others."""
    _name_ours(error)
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(error.format_message()).rstrip()
    path = error.ctx.command_path if error.ctx else "logloom"
    problem = error.format_message().strip().rstrip(".")
    if near := _NEAR.search(problem):
        problem = f"{problem[: near.start()]}; did you mean {near[1]}?"
    elif "; " not in problem:
        problem = f"{problem}; see `{path} --help`"
    where = path.removeprefix("logloom").strip()
    return f"logloom: {f'{where}: ' if where else ''}{problem[:1].lower()}{problem[1:]}"


def _name_ours(error: Any) -> None:
    """Replace the nearest names in click's error by what a name of other tools is here."""
    from logloom.familiar_names import COMMANDS, our_option, ours

    if option := getattr(error, "option_name", ""):
        offered = {name for param in error.ctx.command.params for name in param.opts} if error.ctx else ()
        hint = our_option(option, offered)
        if hint:
            error.message, error.possibilities = f"No such option: {option}{hint}", []
    elif found := re.match(r"No such command '(.*?)'", error.message):
        hint = ours(found[1], COMMANDS)
        if hint:
            error.message = f"{found[0]}{hint}"


def _discard_stdout() -> None:
    """Discard the buffer of stdout, which would fail once more as Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_of_printing(error: OSError) -> bool:
    """Return whether an error comes from printing: raised in this package, which opens no files."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return error.filename is None and frame.f_code.co_filename.startswith(os.path.dirname(__file__))


def _print_internal(error: Exception, debug: bool) -> None:
    """Print an internal error."""
    if debug:
        terminal.print_message(shown(traceback.format_exc().rstrip()))
    what = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    what = f"{what[:300]}…" if len(what) > 300 else what
    way_out = (
        "please report it with the traceback above" if debug else "run again with --debug for the traceback"
    )
    terminal.print_message(
        f"logloom: internal error: {type(error).__name__}{': ' if what else ''}{shown(what)}; {way_out}"
    )


def _leave(code: int) -> None:
    """End the process with this code."""
    # As the interpreter ends, but without its last search for garbage, a fifth of a short command. Threads of
    # gRPC that outlive a pipeline can abort that shutdown, too, and CPython kills itself by SIGINT on its way
    # out if Ctrl-C came within an `exec` of source text, as each import of a dataclass does.
    if "grpc" not in sys.modules:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
