"""Processor time of short commands, beside that of importing numpy and pyarrow.

    python -m benchmarks.startup [--rounds 9]

With bytecode, as an installed package has it; the first round writes it. `build` is up to date.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from functools import partial

from benchmarks.harness import compare, print_table, run_child, spread, warn_if_busy

BASE = "import numpy, pyarrow"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["PYTHONPYCACHEPREFIX"] = f"{scratch}/bytecode"
        command = [sys.executable, "-m", "logloom"]
        subprocess.run([*command, "demo", "--to", f"{scratch}/demo"], check=True, capture_output=True)
        demo = pathlib.Path(scratch, "demo")
        log, dataset, recipe = sorted(demo.glob("logs/*.mcap"))[0], demo / "dataset", demo / "recipe.yaml"
        samples = compare(
            {
                BASE: partial(run_child, [sys.executable, "-c", BASE]),
                "logloom --help": partial(run_child, [*command, "--help"]),
                "logloom info LOG": partial(run_child, [*command, "info", log]),
                "logloom head ROOT": partial(run_child, [*command, "head", dataset]),
                "logloom build RECIPE": partial(run_child, [*command, "build", recipe, "--to", dataset]),
            },
            rounds=rounds,
        )
    rows = [
        [
            name,
            f"{statistics.median(sample.cpu for sample in own):.3f}",
            spread([sample.cpu / base.cpu for sample, base in zip(own, samples[BASE], strict=True)]),
        ]
        for name, own in samples.items()
    ]
    print_table("start-up", ["", "CPU s", "in imports"], rows)
    warn_if_busy()


if __name__ == "__main__":
    main()
