"""A type checker follows what datasets give: a user's program under `mypy --strict`."""

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

PROGRAM = """
from typing import Any

import logloom.datasets
from logloom.datasets import Dataset, concat


def speed(row: dict[str, Any]) -> float:
    return float(row["ego.speed"])


def train(rows: Dataset) -> int:
    return len(rows)


rows = logloom.datasets.open("dataset", columns=["ego.*"], check=True)
reveal_type(rows)
reveal_type(rows[0])
reveal_type(rows[0]["ego.speed"])
reveal_type(rows[1:5])
reveal_type(next(iter(rows)))
reveal_type(rows.filter("ego.speed > 3").head(3).shuffle(1).shard(0, 2))
reveal_type(rows.window([-1, 0])[0])
speeds = rows.map(speed)
reveal_type(speeds)
reveal_type(speeds[0])
reveal_type(speeds[1:])
reveal_type(speeds.filter(lambda one: one > 3.0)[0])
reveal_type(rows.select("ego.*").torch()[0])
reveal_type(concat([rows, rows[:3]]))
reveal_type(rows.get_many([0, 1]))
reveal_type(rows.positions)
reveal_type(rows.to_pandas())
reveal_type(len(rows))
train(rows)
rows["ego.speed"]
"""
# As for a user: faults within installed packages are not shown. Modules that these types don't come from are
# skipped, which halves the time.
SETTINGS = """[mypy]
follow_imports = skip
[mypy-logloom,logloom.datasets.*,logloom.extras,logloom.blocks,logloom.io.rows.*,numpy.*,pandas,pandas.core.api,pandas.core.frame]
follow_imports = silent
[mypy-matplotlib.*]
follow_imports = skip
follow_imports_for_stubs = True
"""
ROWS, ROW = "Dataset[dict[str, Any]]", "dict[str, Any]"
REVEALED = [
    ROWS, ROW, "Any", ROWS, ROW, ROWS, ROW, "Dataset[float]", "float", "Dataset[float]", "float", ROW, ROWS,
    ROW, "ndarray[tuple[Any, ...], dtype[signedinteger[_64Bit]]]", "DataFrame", "int",
]  # fmt: skip


@pytest.mark.slow
def test_a_type_checker_knows_rows_views_and_what_functions_make(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    cache = str(REPOSITORY / ".mypy_cache" / "programs")  # filling it takes a minute
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, "program.py"]
    env = {**os.environ, "MYPYPATH": str(REPOSITORY)}
    found = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    revealed = re.findall(r'Revealed type is "(.*)"', found.stdout)
    plain = [re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z_])|\[()\]", "", text) for text in revealed]
    assert plain == REVEALED, found.stdout + found.stderr
    errors = [line for line in found.stdout.splitlines() if "error:" in line]
    assert len(errors) == 1, found.stdout
    assert 'No overload variant of "__getitem__" of "Dataset" matches argument type "str"' in errors[0]
