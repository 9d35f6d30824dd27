"""Run a pipeline on an engine: start, submit, watch, and end it in any case.

Elsewhere: what each engine is (a module each), what a pipeline does (logloom.pipelines).
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self, TypeVar

from logloom import errors, parts
from logloom.errors import UsageError
from logloom.runners.options import Finished, RunnerOptions, Size, Submitted, engine_of
from logloom.text import OnMessage, ignore_message

Construct = Callable[..., Any]  # adds steps to a beam.Pipeline, or to what `beam=` makes steps for
T = TypeVar("T")

RETRY_FOR = 60.0  # seconds without an answer
RETRY_EVERY = 2.0


class JobFailedError(RuntimeError):
    """A job failed; holds what the engine said, stack traces and all."""


class EngineLostError(errors.LogloomError):
    """The engine no longer answers; what became of the job is not known."""


class EngineJob(Protocol):
    """A pipeline on an engine."""

    def wait(self, on_message: OnMessage) -> Finished:
        """Waits for the end.

        Raises:
            LogloomError: the pipeline failed with an error of logloom's.
            EngineLostError: the engine was lost.
            JobFailedError: the pipeline failed otherwise.
        """

    def detached(self) -> Submitted:
        """Waits until the job needs this process no more."""

    def cancel(self) -> None:
        """Stops the job; does nothing for one that has ended."""


class Engine(Protocol):
    """An engine: started by entering it, and ended with all its processes by leaving it."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def submit(self, construct: Construct, name: str) -> EngineJob: ...


def run(
    construct: Construct,
    options: RunnerOptions,
    size: Size,
    *,
    name: str,
    on_message: OnMessage = ignore_message,
    on_submitted: Callable[[str], None] = lambda job_id: None,
) -> Finished | Submitted:
    """Runs a pipeline; `Submitted` only if the options say to detach.

    Ctrl-C and SIGTERM cancel the job before they end this process.

    Args:
        construct: adds the steps to a pipeline.
        name: of the job, as the engine shows it.
        on_message: called with what the engine does, in words.
        on_submitted: called with the engine's name of the job, where it has one.

    Raises:
        UsageError: the engine is not there, or the options don't fit it.
        LogloomError: what a step raised, or the engine was lost.
        KeyboardInterrupt: the job was cancelled.
    """
    with _terminated_as_interrupted(), engine_of(options, size) as engine:
        try:
            job: EngineJob = engine.submit(construct, name)
            on_submitted(str(getattr(job, "job_id", "")))
            try:
                return job.detached() if options.detach else job.wait(on_message)
            except EngineLostError:
                raise  # the job may well go on, where it lives outside this command
            except BaseException:
                job.cancel()
                raise
        except Exception as error:
            if was_interrupted(error):
                raise KeyboardInterrupt from None
            own = own_error(error)
            if own is None and isinstance(error, JobFailedError):
                own = errors.LogloomError(f"{_brief(str(error))}\nBuild again: finished units are kept")
            if own is None:
                raise
            raise own from error


def describe(construct: Construct, options: RunnerOptions, size: Size, *, name: str) -> dict[str, Any]:
    """What `run` would submit, as JSON; nothing is submitted.

    Raises:
        UsageError: the engine can't say, or the options don't fit it.
    """
    check_describes(options)
    with engine_of(options, size) as engine:
        described: dict[str, Any] = engine.describe(construct, name)
        return described


def check_describes(options: RunnerOptions) -> None:
    """Refuses an engine that can't say what it would submit; starts nothing.

    Raises:
        UsageError: names what can.
    """
    if not hasattr(parts.load("engines", options.name), "describe"):
        raise UsageError(f"a dry run shows what Dataflow would get; for {options.name} see `logloom plan`")


def retried(
    look: Callable[[], T],
    failures: tuple[type[Exception], ...],
    where: str,
    *,
    within: float | None = None,
    why: Callable[[Any], str] = str,
) -> T:
    """What a look at a job gives; retried where the engine is too busy to answer.

    Args:
        failures: what a look without an answer raises.
        where: whom is asked.
        within: seconds; None is `RETRY_FOR`.
        why: a failure in words.

    Raises:
        EngineLostError: no look was answered.
    """
    until = time.monotonic() + (RETRY_FOR if within is None else within)
    while True:
        try:
            return look()
        except failures as error:
            if time.monotonic() > until:
                raise EngineLostError(
                    f"{where} no longer answers ({why(error)}); what became of the job is not known, and "
                    "nothing cancelled it. Build again once it can run no more: finished units are kept, "
                    "and a version that it committed is found"
                ) from error
            time.sleep(RETRY_EVERY)


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM as Ctrl-C, so that a job is cancelled when a scheduler ends this process.

    A program that handles it itself, as the command does, goes on to do so.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


# --- errors from other processes ------------------------------------------------------------------------

_RAISED = re.compile(r"\blogloom\.errors\.(\w+): ")
_STEP = re.compile(r" \[while running '[^']*'\]\s*\Z")
_IN_JAVA = re.compile(r"\s*(?:at [\w.$/]+\(|\.\.\. \d+ more)")
_JAVA = re.compile(r"\n\s*(?:at [\w.$/]+\(|Caused by: |\.\.\. \d+ more)")


def own_error(error: Exception) -> errors.LogloomError | None:
    """The error of logloom that made a pipeline fail, None for any other.

    Beam adds the step's name to a message, and from another process hands on the traceback's text only, an
    engine on the JVM within a stack trace.
    """
    if isinstance(error, errors.LogloomError):
        return type(error)(_STEP.sub("", str(error)))
    text = str(error)
    *_, last = [None, *_RAISED.finditer(text)]
    if last is None or last[1] not in errors.__all__:
        return None
    message = _JAVA.split(text[last.end() :], maxsplit=1)[0].rstrip()
    found: errors.LogloomError = getattr(errors, last[1])(_STEP.sub("", message))
    return found


def _brief(text: str) -> str:
    """What an engine said, without the places in its own code."""
    return "\n".join(line for line in text.splitlines() if not _IN_JAVA.match(line)).strip()


def was_interrupted(error: BaseException | None) -> bool:
    """Whether an error came of Ctrl-C, which Beam turns into an error of the step that ran."""
    seen: list[BaseException] = []  # an error may have been raised from itself
    while error is not None and not isinstance(error, KeyboardInterrupt) and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt)
