"""Runs benchmarks one after the other, each small enough for all to end within 20 minutes on two cores.

    python -m benchmarks [NAME …] [--json FILE]

Everything goes into one JSON file (.cache/benchmarks/results.json), of which `python -m benchmarks.chart`
draws docs/benchmarks.svg. One alone, with rounds and sizes of your own: `python -m benchmarks.NAME --help`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

from benchmarks.harness import cache_folder, warn_if_busy
from benchmarks.report import JSON_LINES

BENCHMARKS = {
    "startup": ["--rounds", "9"],
    "build": ["--rounds", "3"],
    "logs": ["--rounds", "3"],
    "tables": ["--rounds", "3"],
    "tar": ["--rounds", "5"],
    "bags": ["--rounds", "5"],
    "loader": ["--rounds", "3"],
    "zarr_datasets": ["--rounds", "3"],
    "random_rows": ["--rounds", "3"],
    "video": ["--rounds", "3"],
    "tf": ["--rounds", "3"],
    "deskew": ["--rounds", "20"],
    "openmmlab": ["--rounds", "2", "--infos", "200000"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", type=pathlib.Path, default=cache_folder() / "results.json")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(BENCHMARKS):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    warn_if_busy()
    names = arguments.names or list(BENCHMARKS)
    failed = []
    found: dict[str, object] = {**machine(), "seconds": {}, "load": {}, "tasks": []}
    for name in names:
        began, load = time.monotonic(), os.getloadavg()[0]
        with tempfile.NamedTemporaryFile("r", encoding="utf-8", suffix=".jsonl") as lines:
            command = [sys.executable, "-m", f"benchmarks.{name}", *BENCHMARKS[name]]
            print(f"\n$ python {' '.join(command[1:])}", flush=True)
            if subprocess.run(command, env=os.environ | {JSON_LINES: lines.name}).returncode:
                failed.append(name)
            found["tasks"] += [{"module": name, **json.loads(line)} for line in lines]  # type: ignore[operator]
        found["seconds"][name] = round(time.monotonic() - began)  # type: ignore[index]
        found["load"][name] = load  # type: ignore[index]
    arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"\nAll figures are in {arguments.json}; `python -m benchmarks.chart` draws them.")
    if failed:
        sys.exit(f"These failed: {', '.join(failed)}")


def machine() -> dict[str, object]:
    """When, where and of what the figures are."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit.strip(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
    }


def processor() -> str:
    """The processor's name; "" where the system doesn't tell."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in text.splitlines() if line.startswith("model name")), "")


if __name__ == "__main__":
    main()
