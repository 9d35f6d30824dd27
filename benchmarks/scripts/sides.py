"""Sides of a comparison in processes of their own, which take turns: see benchmarks/scripts/answering.py."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from benchmarks.harness import Contender, Sample

REPOSITORY = pathlib.Path(__file__).parent.parent.parent
LOADERS = REPOSITORY / ".venv-loaders" / "bin" / "python"
GRANULAR = {f"granular 0.{n}": REPOSITORY / f".venv-granular{n}" / "bin" / "python" for n in (17, 24)}


class Answering:
    """A process that answers each line with a line of JSON; ends with the block that it is entered by."""

    def __init__(self, command: Sequence[str | os.PathLike[str]], env: Mapping[str, str] | None = None):
        """Starts it.

        Args:
            env: its environment; this process's by default.
        """
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def answer(self) -> object:
        """The next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the other side ended")
        return json.loads(line)

    def ask(self, order: str) -> object:
        """What it answers to a line."""
        assert self._process.stdin is not None
        print(order, file=self._process.stdin, flush=True)
        return self.answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


class Side(Answering):
    """A process that runs tasks by name."""

    def __init__(
        self, python: str | os.PathLike[str], script: str, who: str, folder: pathlib.Path, rows: int
    ):
        """Starts it, and waits until it is ready.

        Args:
            python: the interpreter of its environment.
            script: in this folder.
            who: the first argument of the script.
        """
        self._who = who
        folder.mkdir(parents=True, exist_ok=True)
        path = str(REPOSITORY) if who.startswith("logloom") else ""
        command = [python, pathlib.Path(__file__).parent / script, who, folder, str(rows)]
        super().__init__(command, os.environ | {"PYTHONPATH": path})
        self.answer()

    def task(self, name: str) -> Contender:
        """A contender that runs the task once.

        Raises:
            RuntimeError: (when run) it failed.
        """

        def run() -> Sample:
            answer = self.ask(name)
            if not isinstance(answer, float):
                raise RuntimeError(f"{self._who}: {name}: {answer}")
            return Sample(answer, 0.0)

        return run


def open_sides(folder: pathlib.Path, rows: int) -> dict[str, Side]:
    """logloom, and each granular that `make interop` installed."""
    sides = {
        "logloom": Side(sys.executable, "bags_side.py", "logloom.io.formats.bags", folder / "logloom", rows)
    }
    for name, python in GRANULAR.items():
        if python.exists():
            sides[name] = Side(python, "bags_side.py", "granular", folder / name.replace(" ", "-"), rows)
    return sides
