"""Sides of a comparison in processes of their own, which take turns: see benchmarks/scripts/answering.py."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from types import TracebackType
from typing import Self

from benchmarks.harness import Contender, Sample

REPOSITORY = pathlib.Path(__file__).parent.parent.parent
LOADERS = REPOSITORY / ".venv-loaders" / "bin" / "python"
GRANULAR = {f"granular 0.{n}": REPOSITORY / f".venv-granular{n}" / "bin" / "python" for n in (17, 24)}


class Side:
    """A process that runs tasks by name."""

    def __init__(
        self, python: str | os.PathLike[str], script: str, who: str, folder: pathlib.Path, rows: int
    ):
        """Starts it.

        Args:
            python: the interpreter of its environment.
            script: in this folder.
            who: the first argument of the script.
        """
        self._who = who
        folder.mkdir(parents=True, exist_ok=True)
        ours = who.startswith("logloom")
        self._process = subprocess.Popen(
            [python, pathlib.Path(__file__).parent / script, who, folder, str(rows)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY) if ours else ""},
        )
        self._answer()

    def _answer(self) -> object:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the other side ended")
        return json.loads(line)

    def task(self, name: str) -> Contender:
        """A contender that runs the task once.

        Raises:
            RuntimeError: (when run) it failed.
        """

        def run() -> Sample:
            assert self._process.stdin is not None
            print(name, file=self._process.stdin, flush=True)
            answer = self._answer()
            if not isinstance(answer, float):
                raise RuntimeError(f"{self._who}: {name}: {answer}")
            return Sample(answer, 0.0)

        return run

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def open_sides(folder: pathlib.Path, rows: int) -> dict[str, Side]:
    """logloom, and each granular that `make interop` installed."""
    sides = {"logloom": Side(sys.executable, "bags_side.py", "logloom.io.bags", folder / "logloom", rows)}
    for name, python in GRANULAR.items():
        if python.exists():
            sides[name] = Side(python, "bags_side.py", "granular", folder / name.replace(" ", "-"), rows)
    return sides
